"""JPEG XL, read and written by libjxl."""
