"""SVG, plain and compressed: drawn by CairoSVG, written from documents by MuPDF."""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterator
from ctypes import CDLL
from typing import TYPE_CHECKING
from warnings import warn

from engine import (
    DOCUMENT,
    RASTER,
    Content,
    FidelityWarning,
    FileFormat,
    Frame,
    Loss,
    Options,
    Raster,
    Requirement,
    conversion,
    hookimpl,
)
from engine.conversions import AnyConversion
from engine.formats import ends_with
from engine.lazy_import import lazy_import
from plugins import _svg_source
from plugins.pdf import PDF

if TYPE_CHECKING:
    from pymupdf import Document

    from plugins import _cairo

try:
    CDLL("libcairo.so.2")
except OSError:
    HAS_CAIRO = False
else:
    HAS_CAIRO = True
    if not TYPE_CHECKING:
        _cairo = lazy_import("plugins._cairo")

_HEAD = 65_536  # bytes in which the root element must begin


def _sniff(content: Content) -> int:
    """Whether the root element is svg, behind declarations and comments."""
    try:
        head = _svg_source.unpacked(content[:_HEAD], _HEAD)
    except zlib.error:
        return 0
    text = _text(head).lstrip("\ufeff \t\r\n")
    while text.startswith(("<?", "<!")):
        opening, closing = next(pair for pair in _SKIPPED if text.startswith(pair[0]))
        subset = text.find("[", 0, text.find(">") + 1) if opening == "<!DOCTYPE" else -1
        end = text.find("]", subset) if subset >= 0 else 0
        end = text.find(closing, max(end, 0))
        if end < 0:
            return 0
        text = text[end + len(closing) :].lstrip()
    return 4 if re.match(r"<(\w+:)?svg[\s/>]", text) else 0


_SKIPPED = (("<?", "?>"), ("<!--", "-->"), ("<!DOCTYPE", ">"), ("<!", ">"))

SVG = FileFormat(
    "svg", media_type="image/svg+xml", extensions=("svg", "svgz"), sniff=_sniff, is_complete=ends_with(b"</svg>")
)


def _text(head: bytes) -> str:
    encoding = "utf-16" if head[:2] in (b"\xff\xfe", b"\xfe\xff") else "latin-1"
    return head.removeprefix(b"\xef\xbb\xbf").decode(encoding, "replace")


@conversion(SVG, RASTER, loss=Loss.STRUCTURE, cost=4, lazy=True)
def draw(data: bytes, _options: Options) -> Raster:
    return Raster(_drawn(_svg_source.source(data)), dpi=(96, 96))


def _drawn(svg: bytes) -> Iterator[Frame]:
    yield Frame(_cairo.pixels(svg))


@conversion(SVG, PDF, cost=4, lazy=True)
def to_pdf(data: bytes, _options: Options) -> bytes:
    return _cairo.pdf(_svg_source.source(data))


@conversion(SVG, SVG, loss=Loss.DETAIL, cost=4, lazy=True)
def redraw(data: bytes, _options: Options) -> bytes:
    return _cairo.outlined(_svg_source.source(data))


@conversion(DOCUMENT, SVG, loss=Loss.DETAIL, cost=4, lazy=True)
def from_document(document: Document, _options: Options) -> bytes:
    """The first page, texts as outlines, because their fonts do not come along."""
    if document.page_count > 1:
        message = f"The target holds the first of {document.page_count} pages."
        warn(FidelityWarning("pages_dropped", message), stacklevel=2)
    svg: str = document[0].get_svg_image(text_as_path=True)
    return svg.encode()


@hookimpl
def conversions() -> list[AnyConversion]:
    drawn: list[AnyConversion] = [draw, to_pdf, redraw]
    return [from_document, *drawn] if HAS_CAIRO else [from_document]


@hookimpl
def requirements() -> list[Requirement]:
    return [Requirement("cairo", "reading SVG", "apt-get install libcairo2", present=HAS_CAIRO)]
