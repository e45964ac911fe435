"""PDF objects: merging documents and deleting pages with pikepdf, pages that show images with MuPDF."""
