"""Opens e-books, plain text and other documents that MuPDF lays out, and makes PDFs of them."""

from __future__ import annotations

import html
import re
import zipfile
import zlib
from contextlib import suppress
from io import BytesIO
from itertools import islice

from PIL import UnidentifiedImageError

from engine import CorruptInput, FidelityWarning, PageRanges, TooLarge, check_size
from engine.mupdf import pymupdf
from plugins._fonts.builtin import lacking
from plugins._fonts.characters import EMOJI_STYLE, is_drawn, is_emoji, warn_lacking
from plugins._pixels import pillow
from plugins._text import zip_archives
from plugins._text.markup import check_elements
from plugins._text.paper import Paper

_STYLE = "@page{{margin:{margin}mm}} *{{overflow-wrap:break-word}}"
_MAX_PAGES = 10_000
_UNPAGED = (10_000, 1_000_000)  # points: a paragraph is a line and a chapter is a page
_MAX_ELEMENTS = 50_000  # in a chapter
_MAX_LEVEL = 10  # levels of an outline
_NOT_LOADED = (
    "cannot load image",
    "cannot decode image",
    "cannot load font",
    "ignoring stylesheet",
)  # what MuPDF reports
_IMAGES = ("JPEG", "PNG", "GIF", "BMP", "TIFF", "JPEG2000", "PPM", "WEBP", "AVIF")  # as Pillow names them
_TRANSCODED = ("WEBP", "AVIF")  # MuPDF does not read these.
_TRANSCODED_NAMES = (".webp", ".avif")
_OF_MACOS = "__macosx/"  # a folder with the attributes of the other files
_MARKUP_HEAD = 64  # bytes in which a file of markup begins with an element or a declaration
_UNREADABLE = (zipfile.BadZipFile, NotImplementedError, OSError, zlib.error)  # entries that MuPDF may not need
_NO_GLYPH = re.compile(rb"<(?:[0-9a-f]{4})*?0000")  # as MuPDF writes text with a character that no font has
_FAR_CODE = re.compile(rb"<([0-9a-f]{5,6})>")  # MuPDF writes characters beyond 16 bits as one number


def open_book(data: bytes, kind: str, paper: Paper, font_size: float) -> pymupdf.Document:
    """The document, laid out on pages. Raises CorruptInput, TooLarge."""
    document = _open(data, kind)
    document.apply_css(_STYLE.format(margin=paper.margin))
    width, height = paper.points
    document.layout(width=width, height=height, fontsize=font_size)
    return _checked(document)


def open_chapters(data: bytes, kind: str) -> pymupdf.Document:
    """The document with each chapter as a page, and each paragraph as a line. Raises CorruptInput, TooLarge."""
    document = _open(data, kind)
    document.layout(width=_UNPAGED[0], height=_UNPAGED[1], fontsize=12)
    _checked(document)
    for page in document:
        page.get_textpage()
    _warn_not_loaded()
    return document


def open_pages(data: bytes, kind: str) -> pymupdf.Document:
    """A document of pages: XPS, or the images of a comic. Raises CorruptInput, TooLarge."""
    return _checked(_open(data, kind))


def to_pdf(document: pymupdf.Document, pages: str | None) -> pymupdf.Document:
    """A PDF of the selected pages, with title, author, outline and links. Issues a warning for missing resources."""
    made = pymupdf.open("pdf", document.convert_to_pdf())
    _warn_not_loaded()
    boxed = (page for page, drawn in zip(document, made, strict=True) if _NO_GLYPH.search(drawn.read_contents()))
    warn_lacking(lacking("".join(page.get_text() for page in boxed)), lacks_color=False)
    known = document.metadata or {}
    made.set_metadata({name: known.get(name) or "" for name in ("title", "author")})
    made.set_toc(_outline(document))
    _copy_links(document, made)
    return finished(made, pages)


def finished(made: pymupdf.Document, pages: str | None) -> pymupdf.Document:
    """The selected pages of a PDF that MuPDF has made, with its characters as PDF has them."""
    _correct_characters(made)
    made.subset_fonts()
    return select(made, pages)


def select(made: pymupdf.Document, pages: str | None) -> pymupdf.Document:
    """The document without the pages that are not selected. Raises InvalidOption."""
    indexes = PageRanges.parse(pages or "all").indexes(made.page_count)
    if indexes != list(range(made.page_count)):
        made.select(indexes)
    return made


def _warn_not_loaded() -> None:
    """Issues a warning if MuPDF has reported an image, font or style sheet that it cannot load."""
    messages = pymupdf.TOOLS.mupdf_warnings()
    if any(problem in messages for problem in _NOT_LOADED):
        FidelityWarning.issue("resource_not_loaded", "Images, fonts or styles that are not in the file are missing.")


def _outline(document: pymupdf.Document) -> list[tuple[int, str, int]]:
    """Level, title and page from 1 of each entry. A level is at most one more than the one before."""
    found: list[tuple[int, str, int]] = []
    for level, title, page in document.get_toc():
        highest = found[-1][0] + 1 if found else 1
        found.append((min(level, highest, _MAX_LEVEL), title, page if 0 < page <= document.page_count else -1))
    return found


def _copy_links(source: pymupdf.Document, made: pymupdf.Document) -> None:
    """Replaces links between pages, of which MuPDF's PDF has the wrong targets."""
    for index, page in enumerate(source):
        links = [one for one in page.get_links() if one["kind"] == pymupdf.LINK_GOTO]
        if not links:
            continue
        target = made[index]
        for link in target.get_links():
            if link["kind"] in (pymupdf.LINK_GOTO, pymupdf.LINK_NAMED):
                target.delete_link(link)
        for link in links:
            if 0 <= link["page"] < made.page_count:
                target.insert_link({name: link[name] for name in ("kind", "from", "page", "to")})


def _correct_characters(made: pymupdf.Document) -> None:
    """Writes the characters of fonts that have more than 16 bits as UTF-16, as PDF demands."""
    for xref in range(1, made.xref_length()):
        kind, value = made.xref_get_key(xref, "ToUnicode")
        if kind == "xref":
            codes = int(value.split()[0])
            made.update_stream(codes, _FAR_CODE.sub(_as_utf_16, made.xref_stream(codes)))


def _as_utf_16(found: re.Match[bytes]) -> bytes:
    code = int(found[1], 16)
    return b"<%s>" % chr(code).encode("utf-16-be").hex().encode() if 0xFFFF < code < 0x110000 else found[0]


def _open(data: bytes, kind: str) -> pymupdf.Document:
    if data.startswith(zip_archives.SIGNATURE):
        archive = zip_archives.open_checked(data)
        if "META-INF/rights.xml" in archive.namelist():
            raise CorruptInput("The book is protected by digital rights management.")
        if kind == "epub":
            _check_chapters(archive)
        if kind == "cbz" or any(name.lower().endswith(_TRANSCODED_NAMES) for name in archive.namelist()):
            data = _with_known_images(archive, data, is_comic=kind == "cbz")
    pymupdf.TOOLS.mupdf_warnings()  # also that the last one is repeated
    return pymupdf.open(stream=data, filetype=kind)


def _check_chapters(archive: zipfile.ZipFile) -> None:
    for entry in archive.infolist():
        with suppress(*_UNREADABLE), archive.open(entry) as file:
            if file.read(_MARKUP_HEAD).lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"<"):
                file.seek(0)
                check_elements(file.read(), _MAX_ELEMENTS)


def _with_known_images(archive: zipfile.ZipFile, data: bytes, *, is_comic: bool) -> bytes:
    """The archive, with PNG in place of images that MuPDF does not read. Raises TooLarge for too large an image.

    A comic is without the files that macOS adds, which would be pages; the names of its images show their format.
    """
    file = BytesIO()
    is_changed = False
    with zipfile.ZipFile(file, "w") as made:
        for entry in archive.infolist():
            name = entry.filename
            content = archive.read(entry)
            if is_comic and name.lower().startswith(_OF_MACOS):
                is_changed = True
                continue
            with suppress(UnidentifiedImageError):
                image = pillow.open_image(content, *_IMAGES)
                check_size(*image.size)
                if image.format in _TRANSCODED:
                    name = f"{name}.png" if is_comic else name
                    content = pillow.encode(image, "PNG")
                    is_changed = True
            made.writestr(name, content)
    return file.getvalue() if is_changed else data


def _checked(document: pymupdf.Document) -> pymupdf.Document:
    if document.page_count == 0:
        raise CorruptInput("The document has no readable page.")
    if document.page_count > _MAX_PAGES:
        details = {"max_pages": _MAX_PAGES, "pages": document.page_count}
        raise TooLarge(f"The document has more than {_MAX_PAGES} pages.", reason="pages", details=details)
    return document


_TEXT_STYLE = "body{margin:0} pre{white-space:pre-wrap;overflow-wrap:break-word;margin:0}"
_LINES = 200  # laid out at a time: the time grows with the square of their number
_MAX_TEXT_PAGES = 2_000
_TAB = 8  # columns


def lay_out(text: str, paper: Paper, font_size: float, pages: str | None) -> pymupdf.Document:
    """A PDF of the text. Raises TooLarge above 2,000 pages."""
    warn_lacking([*filter(is_drawn, lacking(text))], lacks_color=any(map(is_emoji, set(text))))
    file = BytesIO()
    writer = _PageWriter(file, paper)
    for page in text.replace(EMOJI_STYLE, "").split("\f"):  # MuPDF would draw boxes
        writer.begin_page()
        lines = iter(page.expandtabs(_TAB).splitlines())
        while part := list(islice(lines, _LINES)):
            writer.write("<pre>\n" + html.escape("\n".join(part), quote=False) + "</pre>", font_size)
    writer.close()
    return finished(pymupdf.open("pdf", file.getvalue()), pages)


class _PageWriter:
    """Writes text below what is on the page, and on additional pages. Raises TooLarge."""

    def __init__(self, file: BytesIO, paper: Paper) -> None:
        self._writer = pymupdf.DocumentWriter(file)
        self._page = pymupdf.Rect(0, 0, *paper.points)
        self._area = self._free = pymupdf.Rect(paper.area)
        self._device: pymupdf.Device | None = None
        self._count = 0

    def begin_page(self) -> None:
        """Ends the page, if there is one, and begins the next."""
        self._end_page()
        self._count += 1
        if self._count > _MAX_TEXT_PAGES:
            details = {"max_pages": _MAX_TEXT_PAGES}
            raise TooLarge(f"The text has more than {_MAX_TEXT_PAGES} pages.", reason="pages", details=details)
        self._device = self._writer.begin_page(self._page)
        self._free = self._area

    def write(self, markup: str, font_size: float) -> None:
        story = pymupdf.Story(html=markup, user_css=_TEXT_STYLE, em=font_size)
        is_incomplete = True
        while is_incomplete:
            is_incomplete, filled = story.place(self._free)
            story.draw(self._device)
            if is_incomplete:
                self.begin_page()
        self._free = pymupdf.Rect(self._free.x0, filled[3], self._free.x1, self._free.y1)

    def _end_page(self) -> None:
        if self._device is not None:
            self._writer.end_page()
            self._device = None

    def close(self) -> None:
        """Ends the last page and the file."""
        self._end_page()
        self._writer.close()
