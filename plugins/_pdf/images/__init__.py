"""Images of PDF files: pages that show images, and images that pages contain."""
