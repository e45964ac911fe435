"""Metadata of images: EXIF, IPTC and XMP."""
