"""Pages of HTML, laid out by WeasyPrint. It loads nothing but files of the archive and data in URLs."""

from __future__ import annotations

import logging
import zipfile
from functools import partial
from io import BytesIO
from mimetypes import guess_type
from typing import Any
from urllib.parse import urlsplit

import weasyprint
from PIL import ImageFile
from weasyprint.formatting_structure import boxes
from weasyprint.text.fonts import FontConfiguration
from weasyprint.urls import URLFetcher, URLFetcherResponse

from engine import FidelityWarning, TooLarge, call_within
from engine.mupdf import pymupdf
from plugins._fonts.characters import is_drawn, is_emoji
from plugins._fonts.choice import FontChooser
from plugins._pdf.text.books import select
from plugins._text import formulas, zip_archives
from plugins._text.markup import encoding, read_page, warn_not_loaded
from plugins._text.paper import MARGIN, Paper

_BASE = "http://archive.invalid/"  # base of relative URLs; only names of the archive are looked up in it
_FONTS = "http://fonts.invalid/"  # base of the URLs of MuPDF's fonts
_LETTER = "x"  # Pango needs a font even if there is no text.
_POSTSCRIPT = (b"%!PS", b"\xc5\xd0\xd3\xc6")  # Pillow would start Ghostscript for such files
_LAYOUT_SHARE = 1 / 6  # share of the job's CPU time, which counts two cores: a third of its time
_MAX_SHRINKING = 3.0  # of tables and pages that are too wide
_BREAKING = "* { overflow-wrap: break-word } img, svg { max-width: 100% }\n"
_EQUAL_COLUMNS = "table-layout: fixed; width: 100%"  # these break words
_MAX_FONTS = 500  # each is a file in the folder of the job

ImageFile.LOAD_TRUNCATED_IMAGES = False  # WeasyPrint sets it, for all images that this process opens
logging.getLogger("weasyprint").setLevel(logging.CRITICAL)  # its messages are about the client's file


class _Fetcher(URLFetcher):  # type: ignore[misc]
    """Reads data URLs, files of an archive and `fonts`, by their URLs. `refused` are the URLs of everything else."""

    def __init__(self, archive: zipfile.ZipFile | None) -> None:
        super().__init__(allowed_protocols=("data",), allow_redirects=False)
        self.refused: dict[str, None] = {}
        self.fonts: dict[str, bytes] = {}
        self._archive = archive

    def fetch(self, url: str, headers: dict[str, str] | None = None) -> URLFetcherResponse:
        """Raises ValueError for a URL that is refused."""
        if url[:5].lower() == "data:":
            response = super().fetch(url, headers)
            body = response.read()
            kind = response.content_type
        elif url in self.fonts:
            body = self.fonts[url]
            kind = "font/otf"
        else:
            body = self._read(url)
            kind = guess_type(urlsplit(url).path)[0] or "application/octet-stream"
        if body.startswith(_POSTSCRIPT):
            self.refused[url] = None
            raise ValueError("PostScript is not drawn in HTML.")
        return URLFetcherResponse(url, body, {"Content-Type": kind})

    def _read(self, url: str) -> bytes:
        if self._archive is not None and url.startswith(_BASE):
            found = zip_archives.read_file(self._archive, urlsplit(url).path)
            if found is not None:
                return found
        self.refused[url] = None
        raise ValueError("Resources that are not in the file are not loaded.")


class _Fonts(FontConfiguration):  # type: ignore[misc]
    """The fonts of a page. Raises TooLarge for one too many."""

    def __init__(self) -> None:
        super().__init__()
        self._added = 0

    def add_font_face(self, rule_descriptors: object, url_fetcher: URLFetcher) -> None:
        self._added += 1
        if self._added > _MAX_FONTS:
            details = {"max_fonts": _MAX_FONTS}
            raise TooLarge(f"The file defines more than {_MAX_FONTS} fonts.", reason="elements", details=details)
        super().add_font_face(rule_descriptors, url_fetcher)


def lay_out(
    data: bytes,
    page_size: str | None,
    landscape: bool | None,
    margin: float | None,
    pages: str | None,
    style: str = "",
    standard: str = "none",
) -> pymupdf.Document:
    """A PDF of the selected pages of HTML. Options that are given precede the @page rules of the document.

    Of the `standard` only `pdfua-1` changes it.

    Raises CorruptInput, TooLarge and InvalidOption. Issues a warning for resources that are not loaded.
    """
    markup, archive = read_page(data)
    fetcher = _Fetcher(archive)
    chooser = FontChooser()
    sheet = _page_style(page_size, landscape, margin) + style
    made = pymupdf.open(
        "pdf", call_within(_LAYOUT_SHARE, partial(_write_pdf, markup, sheet, fetcher, chooser, standard))
    )
    chooser.warn()
    warn_not_loaded([url.removeprefix(_BASE) for url in fetcher.refused])
    for page in made:
        for link in page.get_links():
            if link.get("uri", "").startswith(_BASE):
                page.delete_link(link)
    return select(made, pages)


def _write_pdf(markup: bytes, sheet: str, fetcher: _Fetcher, chooser: FontChooser, standard: str) -> bytes:
    """Pages of HTML. What is wider than they are is laid out again: tables with smaller text, and broken words.

    If that is not enough, all is smaller, as browsers print it. Issues a warning if even that is too wide.
    """
    source = weasyprint.HTML(
        file_obj=BytesIO(markup), encoding=encoding(markup), base_url=_BASE, url_fetcher=fetcher, media_type="print"
    )
    formulas.draw(source.etree_element)
    sheet += _declare_fonts(source, fetcher, chooser)

    def render(added: str) -> tuple[Any, dict[Any, float]]:
        fonts = _Fonts()
        sheets = [weasyprint.CSS(string=sheet + added, url_fetcher=fetcher, font_config=fonts)]
        document = source.render(fonts, stylesheets=sheets, presentational_hints=True)
        return document, _find_excess(document)

    scale = 1.0
    document, excess = render("")
    if excess:
        for table in excess.keys() - {None}:
            style = f"{table.get('style', '')}; font-size: {1 / min(excess[table], _MAX_SHRINKING)}em"
            table.set("style", f"{style}; {_EQUAL_COLUMNS}" if excess[table] > _MAX_SHRINKING else style)
        document, excess = render(_BREAKING)
    if excess:
        scale = min(max(excess.values()), _MAX_SHRINKING)
        document, excess = render(_BREAKING + _page_rule(document.pages[0], scale))
    if excess:
        FidelityWarning.issue("effects_dropped", "Not drawn: text or images beyond the right edge of a page.")
    variant = "pdf/ua-1" if standard == "pdfua-1" else None
    finisher = partial(_look_for_missing, chooser)
    return bytes(document.write_pdf(zoom=1 / scale, finisher=finisher, pdf_variant=variant))


def _declare_fonts(source: weasyprint.HTML, fetcher: _Fetcher, chooser: FontChooser) -> str:
    """Style rules for the fonts of MuPDF that the text of a page needs, which the fetcher then has."""
    characters = {_LETTER}.union(*source.etree_element.itertext())
    for element in source.etree_element.iter():
        characters.update(*element.attrib.values())  # Some are drawn, such as alternative texts.
    font = None
    for char in sorted(characters):
        if font is None or not font.has(char):
            ((_, font),) = chooser.runs(char)
    rules = ""
    for number, (family, builtin) in enumerate(chooser.builtin.items()):
        url = f"{_FONTS}{number}"
        fetcher.fonts[url] = builtin.data
        rules += f"@font-face {{ font-family: '{family}'; src: url({url}) }}\n"
    return rules


def _look_for_missing(chooser: FontChooser, document: Any, _: object) -> None:
    """Records the characters of a document that are drawn by no font, or without colors."""
    drawn = [*document.fonts.values()]
    chooser.missing = dict.fromkeys(filter(is_drawn, (chr(code) for font in drawn for code in font.missing)))
    plain = (font for font in drawn if not (font.png or font.svg or font.colr))
    chooser.lacks_color = any(
        map(is_emoji, filter(None, (text for font in plain for text in font.to_unicode.values())))
    )


def _find_excess(document: Any) -> dict[Any, float]:
    """The tables with text or images beyond the right edge of a page; None stands for what is in no table.

    With the width of their content in widths of the page without margins.
    """
    found: dict[Any, float] = {}
    for page in document.pages:
        area = page._page_box
        pending = [(area, None)]
        while pending:
            box, table = pending.pop()
            if isinstance(box, boxes.TextBox | boxes.ReplacedBox):
                right = box.position_x + box.width
                if right > page.width:
                    width = (right - area.content_box_x()) / max(area.width, 1)
                    found[table] = max(found.get(table, 1.0), width)
            elif box.style["overflow"] == box.style["visibility"] == "visible":
                inner = box.element if table is None and isinstance(box, boxes.TableBox) else table
                pending += [(child, inner) for child in getattr(box, "children", ())]
    return found


def _page_rule(page: Any, scale: float) -> str:
    """The rule for pages that are larger than this one, with its margins."""
    sides = (getattr(page._page_box, f"margin_{side}") * scale for side in ("top", "right", "bottom", "left"))
    size = f"size: {page.width * scale}px {page.height * scale}px !important"
    return f"@page {{ {size}; margin: {' '.join(f'{side}px' for side in sides)} !important }}\n"


def _page_style(page_size: str | None, landscape: bool | None, margin: float | None) -> str:
    paper = Paper.of(page_size or "a4", bool(landscape), MARGIN if margin is None else margin)
    size_given = "" if page_size is None and landscape is None else " !important"
    margin_given = "" if margin is None else " !important"
    size = f"size: {paper.width}mm {paper.height}mm{size_given}"
    return f"@page {{ {size}; margin: {paper.margin}mm{margin_given} }}\n"
