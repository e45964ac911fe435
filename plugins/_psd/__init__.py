"""PSD: reading, compositing, and writing."""
