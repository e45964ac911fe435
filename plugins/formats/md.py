"""Markdown: read as HTML by markdown-it, and written from documents by PyMuPDF4LLM."""

from __future__ import annotations

from engine import (
    DOCUMENT,
    AnyConversion,
    CorruptInput,
    FileFormat,
    Loss,
    any_of,
    conversion,
    decode_text,
    hookimpl,
    lazy_imports,
)
from engine.option_types import Landscape, Margin, Pages, PageSize
from plugins.formats import html
from plugins.formats.html import HTML, PANGO

with lazy_imports():
    import markdown_it

    from engine.mupdf import pymupdf
    from plugins._pdf.text import markdown, texts
    from plugins._text import web_pages

_MODULES = ("markdown_it", "plugins._pdf.text.markdown", "plugins._pdf.text.texts", "encodings.raw_unicode_escape")
MODULES = (*_MODULES, *html.MODULES)
TEMPLATE = html.TEMPLATE
_STYLE = """
body { font-family: sans-serif; line-height: 1.4 }
pre, code { font-family: monospace; background: #f4f4f4; font-size: 0.9em }
pre { padding: 0.6em; white-space: pre-wrap; overflow-wrap: anywhere }
table { border-collapse: collapse } th, td { border: 1px solid #bbb; padding: 0.2em 0.5em }
blockquote { border-left: 3px solid #bbb; margin-left: 0; padding-left: 1em }
img { max-width: 100% }
"""

MD = FileFormat(
    "md",
    media_type="text/markdown",
    extensions=("md", "markdown"),
    sniff=any_of(),  # nothing in Markdown marks it
    text_extensions=("md", "markdown"),
    paged=True,
)


@conversion(MD, HTML, loss=Loss.DETAIL, isolated=True)
def to_html(data: bytes) -> bytes:
    """The Markdown of CommonMark with tables and strikethrough, as HTML."""
    try:
        text = decode_text(data)
    except ValueError as error:
        raise CorruptInput("The file is not text in UTF-8, UTF-16 or windows-1252.") from error
    body = markdown_it.MarkdownIt("commonmark").enable(["table", "strikethrough"]).render(text)
    head = f'<meta charset="utf-8"><title></title><style>{_STYLE}</style>'
    return f"<!DOCTYPE html>\n<html><head>{head}</head><body>\n{body}</body></html>\n".encode()


@conversion(MD, DOCUMENT, cost=9, isolated=True)
def read(
    data: bytes,
    *,
    page_size: PageSize | None = None,
    landscape: Landscape | None = None,
    margin: Margin | None = None,
    pages: Pages | None = None,
) -> pymupdf.Document:
    """Pages of A4 with margins of 20 mm, unless the options have others."""
    return web_pages.lay_out(to_html(data), page_size, landscape, margin, pages)


@conversion(DOCUMENT, MD, loss=Loss.STRUCTURE, cost=5, terminal=True)
def to_markdown(document: pymupdf.Document) -> bytes:
    """Headings, paragraphs, lists, tables and links in reading order."""
    for page in document:
        texts.warn_images(page)
    return markdown.to_markdown(document).encode()


@hookimpl
def conversions() -> list[AnyConversion]:
    return [to_html, to_markdown, read] if PANGO.present else [to_html, to_markdown]
