"""JPEG files as bytes: their tables, additional images, embedding in other files, and changes without decoding."""
