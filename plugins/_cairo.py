"""SVG drawn by CairoSVG. Importing this needs the cairo library of the system (OSError where it is missing)."""

from __future__ import annotations

from io import BytesIO

from PIL import Image

from engine.decode_limits import check_size
from plugins import _pillow, _svg_source
from plugins._cairosvg import PDFSurface, PNGSurface, Surface, SVGSurface, Tree, safe_fetch

_DEFAULT_SIZE = (300, 150)  # what CSS gives to pictures that tell no size, in pixels
_PICTURES = ("PNG", "JPEG", "GIF", "WEBP", "AVIF", "BMP", "TIFF")  # that may be embedded


class _Pixels(PNGSurface):  # type: ignore[misc]
    """A surface that is measured before it is made."""

    def _create_surface(self, width: float, height: float) -> object:
        check_size(round(width), round(height))
        return super()._create_surface(width, height)


def pixels(svg: bytes) -> Image.Image:
    """`svg` at 96 dpi, with transparency."""
    drawn = _drawn(_Pixels, svg, None).cairo
    size = drawn.get_width(), drawn.get_height()
    return Image.frombuffer("RGBa", size, bytes(drawn.get_data()), "raw", "BGRa", drawn.get_stride(), 1).convert("RGBA")


def pdf(svg: bytes) -> bytes:
    """`svg` as a page."""
    return _written(PDFSurface, svg)


def outlined(svg: bytes) -> bytes:
    """`svg` redrawn: texts as outlines, styles resolved, nothing that runs or refers to elsewhere."""
    return _written(SVGSurface, svg)


def _written(surface: type[Surface], svg: bytes) -> bytes:
    file = BytesIO()
    _drawn(surface, svg, file).finish()
    return file.getvalue()


def _drawn(surface: type[Surface], svg: bytes, file: BytesIO | None) -> Surface:
    tree = Tree(bytestring=svg, url_fetcher=_embedded)
    sized = "viewBox" in tree or not any(tree.get(side, "100%").endswith("%") for side in ("width", "height"))
    width, height = (None, None) if sized else _DEFAULT_SIZE
    return surface(tree, file, 96, parent_width=width, parent_height=height)


def _embedded(url: str, kind: str) -> bytes:
    """What a data URL holds, nothing for all others; checked, because it is a file of its own."""
    data: bytes = safe_fetch(url, kind)
    if b"<svg" in data or data.startswith((b"<?xml", b"<!DOC", b"\x1f\x8b")):
        return _svg_source.source(data)
    if kind.startswith("image/"):
        # Left to itself, Pillow would run Ghostscript on a program.
        _pillow.opened(data, *_PICTURES)
    return data
