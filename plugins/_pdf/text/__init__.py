"""Text of PDF files: fonts, laid out text, recognized text, and text in reading order."""
