"""Plain text, laid out by MuPDF, and the text of documents."""

from __future__ import annotations

import re

from engine import BLOCKS, DOCUMENT, Blocks, FileFormat, Loss, any_of, blocks, conversion, decode_text, lazy_imports
from engine.option_types import Encoding, FontSize, Landscape, Margin, Pages, PageSize
from plugins._text.paper import MARGIN, Paper

with lazy_imports():
    from engine.mupdf import pymupdf
    from plugins._blocks import text_writer
    from plugins._pdf.text import books, texts

MODULES = (
    "plugins._blocks.text_writer",
    "plugins._pdf.text.books",
    "plugins._pdf.text.texts",
    "encodings.raw_unicode_escape",
)
TEMPLATE = "documents"
_FONT_SIZE = 10.0
_EMPTY_LINES = re.compile(r"\n(?:[ \t]*+\n)++")

TXT = FileFormat(
    "txt",
    media_type="text/plain",
    extensions=("txt", "text", "log"),
    sniff=any_of(),  # nothing in a text marks it
    text_extensions=("", "txt", "text", "log"),
    paged=True,
)


@conversion(DOCUMENT, TXT, loss=Loss.STRUCTURE, cost=3, terminal=True)
def to_text(document: pymupdf.Document) -> bytes:
    """The text of the pages in reading order, in UTF-8: form feeds separate pages, empty lines paragraphs."""
    pages = []
    for page in document:
        texts.warn_losses(page)
        pages.append(texts.blocks_of(page))
    return texts.text_document(pages).encode()


@conversion(BLOCKS, TXT, loss=Loss.DETAIL)
def write(document: Blocks) -> bytes:
    """The text of the blocks in UTF-8: form feeds separate pages, empty lines paragraphs, tabs cells."""
    return text_writer.write(document).encode()


@conversion(TXT, BLOCKS, loss=Loss.DETAIL)
def read_blocks(data: bytes, *, encoding: Encoding | None = None) -> Blocks:
    """A paragraph for each group of lines between empty lines. A form feed ends a page."""
    content: list[blocks.Block] = []
    for page in decode_text(data, encoding).split("\f"):
        lines = "\n".join(page.splitlines())
        content += [blocks.Break()] if content else []
        content += (blocks.Paragraph((blocks.Run(text),)) for text in _EMPTY_LINES.split(lines.strip("\n")) if text)
    return Blocks(tuple(content))


@conversion(TXT, DOCUMENT, isolated=True)
def read(
    data: bytes,
    *,
    page_size: PageSize = "a4",
    landscape: Landscape = False,
    margin: Margin = MARGIN,
    font_size: FontSize = _FONT_SIZE,
    pages: Pages | None = None,
    encoding: Encoding | None = None,
) -> pymupdf.Document:
    """The lines of the text, broken where they are longer than the page is wide. A form feed starts a page."""
    return books.lay_out(decode_text(data, encoding), Paper.of(page_size, landscape, margin), font_size, pages)
