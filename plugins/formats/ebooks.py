"""E-books and XPS, read by MuPDF: EPUB, FictionBook, Mobipocket, comics in a ZIP, and XPS."""

from __future__ import annotations

import re
import struct

from engine import (
    BLOCKS,
    DOCUMENT,
    AnyConversion,
    Blocks,
    Content,
    FileFormat,
    Loss,
    Signature,
    Sniffer,
    any_of,
    conversion,
    hookimpl,
    lazy_imports,
)
from engine.option_types import FontSize, Landscape, Margin, Pages, PageSize
from plugins._text import zip_archives
from plugins._text.markup import in_markup, root_name
from plugins._text.paper import MARGIN, Paper
from plugins.formats.txt import TXT

with lazy_imports():
    from engine.mupdf import pymupdf
    from plugins._blocks import epub_reader
    from plugins._pdf.text import books, layout, texts

MODULES = (
    "lxml.etree",
        "plugins._blocks.epub_reader",
        "plugins._pdf.text.books",
        "plugins._pdf.text.layout",
        "encodings.cp437",
        "encodings.raw_unicode_escape",
    "PIL.AvifImagePlugin", "PIL.Jpeg2KImagePlugin", "PIL.TiffImagePlugin", "PIL.WebPImagePlugin",
)  # fmt: skip
TEMPLATE = "documents"
FONT_SIZE = 12.0
_MAX_ELEMENTS = 400_000  # of a book that is not laid out
_HEAD = 65_536  # bytes within which the root element must begin
_TAIL = 4096  # bytes within which it must end
_PLAIN = 1  # text of MOBI that is not compressed
_COMIC_IMAGES = (
    ".jpg", ".jpeg", ".png", ".gif", ".bmp", ".tif", ".tiff", ".jp2", ".jpx", ".j2k", ".webp", ".avif",
    ".jxr", ".wdp", ".hdp", ".ppm", ".pgm", ".pbm", ".pam", ".pnm", ".psd",
)  # fmt: skip
_COMIC_OTHERS = ("comicinfo.xml", ".ds_store", "thumbs.db")


def _contains(file: str) -> Sniffer:
    """A sniffer for archives with a file of this name, or with this extension: 8 if the archive has it."""

    def sniff(content: Content) -> int:
        return 8 if any(name.endswith(file) for name in zip_archives.names(content)) else 0

    return Signature((0, zip_archives.SIGNATURE), then=sniff)


def _is_comic(content: Content) -> int:
    """5 for an archive that contains images, and nothing else but what comic readers and systems add."""
    names = (name.lower() for name in zip_archives.names(content))
    files = [name for name in names if not name.endswith("/") and not name.startswith("__macosx/")]
    images = [name for name in files if name.endswith(_COMIC_IMAGES)]
    others = [name for name in files if not name.endswith((*_COMIC_IMAGES, *_COMIC_OTHERS))]
    return 5 if images and not others else 0


_FB2_END = re.compile(rb"</(?:[\w.-]+:)?FictionBook\s*>")


def _is_complete_fb2(content: Content) -> bool:
    return _FB2_END.search(bytes(content[-_TAIL:]).replace(b"\0", b"")) is not None  # also in UTF-16


def _is_complete_mobi(content: Content) -> bool:
    """Whether the last record is in the file, and complete if it is one of text that is not compressed."""
    count, first = struct.unpack(">HI", content[76:82].ljust(6, b"\0"))
    last = int.from_bytes(content[70 + 8 * count : 74 + 8 * count])
    coding, size, texts, part = struct.unpack(">HxxIHH", content[first : first + 12].ljust(12, b"\0"))
    least = size - part * (texts - 1) if coding == _PLAIN and texts == count - 1 else 1
    return count > 0 and last + least <= len(content)


EPUB = FileFormat(
    "epub",
    media_type="application/epub+zip",
    extensions=("epub",),
    sniff=any_of(
        Signature((0, zip_archives.SIGNATURE), (30, b"mimetypeapplication/epub+zip")),
        _contains("META-INF/container.xml"),
    ),
)
FB2 = FileFormat(
    "fb2",
    media_type="application/x-fictionbook+xml",
    extensions=("fb2",),
    sniff=in_markup(lambda content: 11 if root_name(content[:_HEAD]) == "FictionBook" else 0),
    is_complete=_is_complete_fb2,
    must_be_complete=True,
)
MOBI = FileFormat(
    "mobi",
    media_type="application/x-mobipocket-ebook",
    extensions=("mobi", "prc"),
    sniff=any_of(Signature((60, b"BOOKMOBI")), Signature((60, b"TEXtREAd"))),
    is_complete=_is_complete_mobi,
    must_be_complete=True,
)
CBZ = FileFormat(
    "cbz",
    media_type="application/vnd.comicbook+zip",
    extensions=("cbz",),
    sniff=Signature((0, zip_archives.SIGNATURE), then=_is_comic),
)
XPS = FileFormat("xps", media_type="application/oxps", extensions=("xps", "oxps"), sniff=_contains(".fdseq"))


def _declare_book(fmt: FileFormat) -> list[AnyConversion]:
    """The steps from a format whose text is laid out."""

    @conversion(fmt, DOCUMENT, isolated=True)
    def read(
        data: bytes,
        *,
        page_size: PageSize = "a4",
        landscape: Landscape = False,
        margin: Margin = MARGIN,
        font_size: FontSize = FONT_SIZE,
        pages: Pages | None = None,
    ) -> pymupdf.Document:
        paper = Paper.of(page_size, landscape, margin)
        return books.to_pdf(books.open_book(data, fmt.name, paper, font_size), pages)

    @conversion(fmt, TXT, loss=Loss.STRUCTURE, isolated=True)
    def read_text(data: bytes) -> bytes:
        """The text of the chapters."""
        chapters = []
        for page in books.open_chapters(data, fmt.name):
            chapters.append(texts.plain_blocks(page))
            texts.warn_images(page, has_text=bool(chapters[-1]))
        return texts.text_document(chapters).encode()

    @conversion(fmt, BLOCKS, loss=Loss.STRUCTURE, isolated=True)
    def read_layout(data: bytes) -> Blocks:
        """The headings, paragraphs, lists, tables and pictures of the chapters."""
        return layout.read(books.open_chapters(data, fmt.name))

    return [read] if fmt is EPUB else [read, read_text, read_layout]


@conversion(EPUB, BLOCKS, loss=Loss.DETAIL, isolated=True)
def read_blocks(data: bytes) -> Blocks:
    """The chapters in their order, with pictures and notes. Links between chapters lead to their headings."""
    with zip_archives.open_checked(data) as archive:
        return epub_reader.read(archive, _MAX_ELEMENTS)


def _declare_pages(fmt: FileFormat) -> AnyConversion:
    """The step from a format of pages."""

    @conversion(fmt, DOCUMENT, isolated=True)
    def read(data: bytes, *, pages: Pages | None = None) -> pymupdf.Document:
        return books.to_pdf(books.open_pages(data, fmt.name), pages)

    return read


BOOKS = [step for fmt in (EPUB, FB2, MOBI) for step in _declare_book(fmt)]
PAGES = [_declare_pages(fmt) for fmt in (CBZ, XPS)]


@hookimpl
def conversions() -> list[AnyConversion]:
    return [*BOOKS, *PAGES, read_blocks]
