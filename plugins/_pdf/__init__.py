"""Editing of PDF objects with pikepdf: merging documents and deleting pages."""
