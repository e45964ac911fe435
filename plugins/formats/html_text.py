"""HTML of the structure of documents."""

from __future__ import annotations

from engine import BLOCKS, Blocks, EncodedFile, Loss, conversion, lazy_imports
from engine.option_types import Images
from plugins.formats.html import HTML

with lazy_imports():
    from plugins._blocks import html_writer, writing

MODULES = ("plugins._blocks.html_writer",)
TEMPLATE = "documents"


@conversion(BLOCKS, HTML, loss=Loss.DETAIL)
def write(document: Blocks, *, images: Images = "embed") -> bytes | EncodedFile:
    """A page that stands alone, with the structure of the document and without scripts."""
    shown = writing.Pictures(images)
    return shown.file("index.html", html_writer.write(document, shown))
