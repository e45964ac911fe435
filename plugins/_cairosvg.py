"""CairoSVG, imported without the search for the cairo library, which runs compilers to find what the loader knows."""

import ctypes.util

_find_library = ctypes.util.find_library

ctypes.util.find_library = lambda name: None
try:
    from cairosvg.parser import Tree as Tree
    from cairosvg.surface import PDFSurface as PDFSurface
    from cairosvg.surface import PNGSurface as PNGSurface
    from cairosvg.surface import Surface as Surface
    from cairosvg.surface import SVGSurface as SVGSurface
    from cairosvg.url import safe_fetch as safe_fetch
finally:
    ctypes.util.find_library = _find_library
