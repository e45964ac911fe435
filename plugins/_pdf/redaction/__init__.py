"""Removal of texts and areas from PDF files."""
