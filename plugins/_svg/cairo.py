"""Writing of SVG as PDF and SVG with CairoSVG. Importing this module raises OSError if the cairo library is missing."""

from __future__ import annotations

import ctypes.util
from io import BytesIO

_find_library = ctypes.util.find_library

# find_library runs a compiler; cairocffi falls back to the loader, which finds cairo without it.
ctypes.util.find_library = lambda name: None
try:
    from cairosvg.parser import Tree
    from cairosvg.surface import PDFSurface, Surface, SVGSurface
    from cairosvg.url import safe_fetch
finally:
    ctypes.util.find_library = _find_library


def to_pdf(svg: bytes) -> bytes:
    """`svg` as a PDF of one page."""
    return _write(PDFSurface, svg)


def to_svg(svg: bytes) -> bytes:
    """`svg` redrawn: text as outlines, styles resolved, without scripts and external references."""
    return _write(SVGSurface, svg)


def _write(surface_type: type[Surface], svg: bytes) -> bytes:
    file = BytesIO()
    surface_type(Tree(bytestring=svg, url_fetcher=_fetch), file, 96).finish()
    return file.getvalue()


def _fetch(url: str, kind: str) -> bytes:
    """The content of a data URL, which is checked when the SVG is read; empty for other URLs."""
    data: bytes = safe_fetch(url, kind)
    return data
