"""Limits on elements of documents: those that take LibreOffice or Pandoc more than about 20 s to read."""

from __future__ import annotations

import re

from engine import TooLarge

MAX_TAGS = 3_000_000  # of markup
_MAX_NOTES = 5_000
_MAX_ROWS = 10_000  # of a table
_MAX_CELLS = 5_000  # of a row
_MAX_PARAGRAPHS = 100_000
_MAX_COLORS = 4_000
_MAX_STYLES = 20_000
_MAX_BOOKMARKS = 5_000
_NOTE = re.compile(rb"<(?:\w+:)?note[\s/>]")
_ROW_START = re.compile(rb"\\trowd(?![a-z])")
_ROW_END = re.compile(rb"\\row(?![a-z])")
_PARAGRAPH_END = re.compile(rb"\\par(?![a-z])")


def check(what: str, count: int, most: int) -> None:
    """Raises TooLarge for more than `most` of what a document has."""
    if count > most:
        raise TooLarge(f"The document has more than {most} {what}.", reason="elements", details={"max_elements": most})


def check_odt(content: bytes) -> None:
    """Checks the content of a text of OpenDocument. Raises TooLarge."""
    check("tags", content.count(b"<"), MAX_TAGS)
    check("notes", len(_NOTE.findall(content)), _MAX_NOTES)


def check_rtf(data: bytes) -> None:
    """Raises TooLarge."""
    check("cells in a row", max(row.count(rb"\cellx") for row in _ROW_START.split(data)), _MAX_CELLS)
    tables = _PARAGRAPH_END.split(data)  # or parts of one, which is then not refused
    check("rows in a table", max(len(_ROW_END.findall(table)) for table in tables), _MAX_ROWS)
    for what, word, most in (
        ("paragraphs", "par", _MAX_PARAGRAPHS),
        ("colors", "red", _MAX_COLORS),
        ("styles", "sbasedon", _MAX_STYLES),
        ("bookmarks", "bkmkstart", _MAX_BOOKMARKS),
    ):
        check(what, len(re.findall(rb"\\%s(?![a-z])" % word.encode(), data)), most)
