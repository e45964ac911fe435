"""HTML, laid out by WeasyPrint."""

from __future__ import annotations

from urllib.parse import urlsplit

from engine import (
    BLOCKS,
    DOCUMENT,
    AnyConversion,
    Blocks,
    Content,
    FileFormat,
    InvalidOption,
    Loss,
    Requirement,
    Signature,
    any_of,
    conversion,
    hookimpl,
    lazy_imports,
)
from engine.option_types import Landscape, Margin, Pages, PageSize, Renderer, ResultStandard
from plugins import _programs
from plugins._text import zip_archives
from plugins._text.markup import in_markup, read_page, root_name, warn_not_loaded
from plugins.formats import pdf_scans

with lazy_imports():
    from engine.mupdf import pymupdf
    from plugins._blocks import html_reader, html_source, pictures
    from plugins._text import web_pages

_HEAD = 65_536  # bytes within which the root element must begin
_LIBRARIES = ("libpango-1.0.so.0", "libpangoft2-1.0.so.0", "libharfbuzz-subset.so.0")


def _sniff(content: Content) -> int:
    """15 if the document type or the root element is html; otherwise 0."""
    head = content[:_HEAD]
    start = head[:1024].lstrip(b"\xef\xbb\xbf \t\r\n").lower()
    return 15 if start.startswith(b"<!doctype html") or (root_name(head) or "").lower() == "html" else 0


HTML = FileFormat(
    "html",
    media_type="text/html",
    extensions=("html", "htm", "xhtml"),
    sniff=any_of(
        in_markup(_sniff),
        Signature(
            (0, zip_archives.SIGNATURE), then=lambda content: 15 if "index.html" in zip_archives.names(content) else 0
        ),
    ),
    text_extensions=("html", "htm", "xhtml"),
    paged=True,
)


PANGO = Requirement(
    "Pango",
    "pages of HTML and Markdown",
    "apt-get install libpangoft2-1.0-0 libharfbuzz-subset0",
    present=all(map(_programs.has_library, _LIBRARIES)),
)
_OF_PAGES = (
    "plugins._text.web_pages",
    "plugins._pdf.text.texts",
    "encodings.raw_unicode_escape",
    *pdf_scans.MODULES,
)
MODULES = (
    "lxml.etree",
    "plugins._blocks.html_reader",
    *(_OF_PAGES if PANGO.present else ()),
)
_MAX_ELEMENTS = 400_000  # of a page that is not laid out
_READ = frozenset({"foreignObject"})  # what only browsers draw, but the reader reads
TEMPLATE = "documents/vectors/web pages"


@conversion(HTML, DOCUMENT, cost=8, isolated=True, chosen_by=("renderer=print", "pdf_standard=pdfua-1"))
def read(
    data: bytes,
    *,
    renderer: Renderer = "auto",
    page_size: PageSize | None = None,
    landscape: Landscape | None = None,
    margin: Margin | None = None,
    pages: Pages | None = None,
    pdf_standard: ResultStandard = "none",
) -> pymupdf.Document:
    """Pages of A4 with margins of 20 mm, unless the options or the document have others."""
    check_renderer(renderer)
    return web_pages.lay_out(data, page_size, landscape, margin, pages, standard=pdf_standard)


def check_renderer(renderer: str) -> None:
    """Raises InvalidOption for the browser: a step with it would have been chosen if one were installed."""
    if renderer == "browser":
        details = {"available": ["auto", "print"]}
        raise InvalidOption("No browser is installed here.", reason="unknown", param="renderer", details=details)


@conversion(HTML, BLOCKS, loss=Loss.DETAIL, isolated=True)
def read_blocks(data: bytes) -> Blocks:
    """What the page shows, as its elements say. Nothing is loaded that is not in the file."""
    markup, archive = read_page(data, _MAX_ELEMENTS, without=_READ)

    def find(url: str) -> tuple[bytes, str] | None:
        file = zip_archives.read_file(archive, url) if archive else None
        return None if file is None else (file, pictures.media_type(urlsplit(url).path))

    reader = html_reader.Reader(find)
    document = reader.read(html_source.parse(markup))
    warn_not_loaded([*reader.not_loaded])
    return document


@hookimpl
def conversions() -> list[AnyConversion]:
    return [read_blocks, *([read] if PANGO.present else [])]
