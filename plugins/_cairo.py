"""SVG rendering with CairoSVG. Importing this module raises OSError if the cairo library is missing."""

from __future__ import annotations

import ctypes.util
from collections.abc import Callable
from functools import partial
from io import BytesIO

from PIL import Image

from engine import Size, check_size
from plugins import _pillow, _svg_source

_find_library = ctypes.util.find_library

# find_library runs a compiler; cairocffi falls back to the loader, which finds cairo without it.
ctypes.util.find_library = lambda name: None
try:
    from cairosvg.parser import Tree
    from cairosvg.surface import PDFSurface, PNGSurface, Surface, SVGSurface
    from cairosvg.url import safe_fetch
finally:
    ctypes.util.find_library = _find_library

_DEFAULT_SIZE = (300, 150)  # pixels; the CSS default for pictures without a size
_EMBEDDED_DECODERS = ("PNG", "JPEG", "GIF", "WEBP", "AVIF", "BMP", "TIFF")


class _SizedSurface(PNGSurface):  # type: ignore[misc]
    """A bitmap surface of the size that `new_size` returns. It is checked before its memory is allocated."""

    def __init__(self, new_size: Callable[[Size], Size], *arguments: object, **parameters: object) -> None:
        self._new_size = new_size
        super().__init__(*arguments, **parameters)

    def _create_surface(self, width: float, height: float) -> object:
        size = self._new_size((max(1, round(width)), max(1, round(height))))
        check_size(*size)
        return super()._create_surface(*size)

    def set_context_size(self, width: float, height: float, *arguments: object) -> None:
        self.context.scale(self.width / width, self.height / height)
        super().set_context_size(width, height, *arguments)


def render(svg: bytes, new_size: Callable[[Size], Size]) -> Image.Image:
    """`svg` as an RGBA picture. `new_size` receives the size at 96 dpi and returns that to draw. Raises TooLarge."""
    surface = _draw(partial(_SizedSurface, new_size), svg, None).cairo
    size = surface.get_width(), surface.get_height()
    pixels = bytes(surface.get_data())
    return Image.frombuffer("RGBa", size, pixels, "raw", "BGRa", surface.get_stride(), 1).convert("RGBA")


def to_pdf(svg: bytes) -> bytes:
    """`svg` as a PDF of one page."""
    return _write(PDFSurface, svg)


def to_svg(svg: bytes) -> bytes:
    """`svg` redrawn: text as outlines, styles resolved, without scripts and external references."""
    return _write(SVGSurface, svg)


def _write(surface_type: type[Surface], svg: bytes) -> bytes:
    file = BytesIO()
    _draw(surface_type, svg, file).finish()
    return file.getvalue()


def _draw(surface_type: Callable[..., Surface], svg: bytes, file: BytesIO | None) -> Surface:
    tree = Tree(bytestring=svg, url_fetcher=_fetch)
    has_size = "viewBox" in tree or not any(tree.get(side, "100%").endswith("%") for side in ("width", "height"))
    width, height = (None, None) if has_size else _DEFAULT_SIZE
    return surface_type(tree, file, 96, parent_width=width, parent_height=height)


def _fetch(url: str, kind: str) -> bytes:
    """The checked content of a data URL; empty for other URLs."""
    data: bytes = safe_fetch(url, kind)
    if b"<svg" in data or data.startswith((b"<?xml", b"<!DOC", b"\x1f\x8b")):
        return _svg_source.prepare(data)
    if kind.startswith("image/"):
        # CairoSVG lets Pillow choose the decoder, which could be Ghostscript: refuse other formats here.
        _pillow.open_image(data, *_EMBEDDED_DECODERS)
    return data
