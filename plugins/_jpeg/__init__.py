"""JPEG files as bytes: their tables, further images, embedding in other files, and changes without decoding."""
