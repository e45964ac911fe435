"""TIFF files and the files of cameras, which have the structure of TIFF."""
