"""Lays out plain text on pages."""

from __future__ import annotations

import html
from io import BytesIO
from itertools import islice

from engine import CorruptInput, TooLarge, decode_text
from engine.mupdf import pymupdf
from plugins._pdf.text.books import finished
from plugins._text.paper import Paper

_STYLE = "body{margin:0} pre{white-space:pre-wrap;overflow-wrap:break-word;margin:0}"
_LINES = 200  # laid out at a time: the time grows with the square of their number
_MAX_PAGES = 2_000
_TAB = 8  # columns


def lay_out(data: bytes, paper: Paper, font_size: float, pages: str | None) -> pymupdf.Document:
    """A PDF of the text. Raises TooLarge above 2,000 pages, CorruptInput if the file is no text."""
    try:
        text = decode_text(data)
    except ValueError as error:
        raise CorruptInput("The file is not text in UTF-8, UTF-16 or windows-1252.") from error
    file = BytesIO()
    writer = _PageWriter(file, paper)
    for page in text.split("\f"):
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
        if self._count > _MAX_PAGES:
            details = {"max_pages": _MAX_PAGES}
            raise TooLarge(f"The text has more than {_MAX_PAGES} pages.", reason="pages", details=details)
        self._device = self._writer.begin_page(self._page)
        self._free = self._area

    def write(self, markup: str, font_size: float) -> None:
        story = pymupdf.Story(html=markup, user_css=_STYLE, em=font_size)
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
