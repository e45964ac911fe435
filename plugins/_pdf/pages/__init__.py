"""Pages of PDF files: parts of a document, merging and deletion, and what is drawn on pages."""
