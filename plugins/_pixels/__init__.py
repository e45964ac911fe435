"""Pixels: decoding and encoding with Pillow, sizes, positions, filters, palettes and marks."""
