"""SVG as vectors: PDF by Typst, SVG without what is not drawn, and SVG from documents by MuPDF."""

from __future__ import annotations

import re

from engine import DOCUMENT, Loss, conversion, lazy_imports
from engine.option_types import Metadata
from plugins.formats.pdf import OPTIONS_OF_DOCUMENTS, PDF, checked_images, filter_document, warn_first_page
from plugins.formats.svg import SVG

with lazy_imports():
    from engine.mupdf import pymupdf
    from plugins._svg import vectors

MODULES = ("plugins._svg.document", "plugins._svg.vectors", "PIL.AvifImagePlugin", "PIL.WebPImagePlugin")
TEMPLATE = "documents/vectors"
_SIDE = re.compile(r'(?<=\s)((?:width|height)=)"([\d.]+)"')  # without a unit, in which MuPDF means points


@conversion(SVG, PDF, cost=4, isolated=True, without=OPTIONS_OF_DOCUMENTS)
def to_pdf(data: bytes) -> bytes:
    return vectors.to_pdf(data)


@conversion(SVG, SVG, loss=Loss.DETAIL, cost=4, isolated=True)
def redraw(data: bytes, *, metadata: Metadata = "safe") -> bytes:
    """The result contains the title and the description only with `metadata=all`, and no other metadata."""
    return vectors.to_svg(data, keep_texts=metadata == "all")


@conversion(DOCUMENT, SVG, loss=Loss.DETAIL, cost=4)
def from_document(document: pymupdf.Document, *, metadata: Metadata = "safe") -> bytes:
    """Writes the first page. Text becomes outlines, because fonts are not embedded."""
    warn_first_page(document)
    filter_document(document, metadata)
    with checked_images():
        svg: str = document[0].get_svg_image(text_as_path=True)
    return _SIDE.sub(r'\1"\2pt"', svg, count=2).encode()
