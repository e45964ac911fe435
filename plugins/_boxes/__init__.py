"""Boxes of ISO base media files: HEIF (HEIC and AVIF) and JPEG 2000."""
