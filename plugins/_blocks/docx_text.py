"""The text of DOCX: what is changed for Pandoc, and the words that its tree must have."""

from __future__ import annotations

import re
import zipfile
from collections import Counter
from io import BytesIO
from zipfile import ZipFile

from lxml import etree

from engine import CorruptInput, blocks
from plugins._blocks.pandoc_reading import Markup

_W = "{http://schemas.openxmlformats.org/wordprocessingml/2006/main}"
_FALLBACK = "{http://schemas.openxmlformats.org/markup-compatibility/2006}Fallback"
_MAIN = re.compile(r"word/document\d*\.xml")
_NOTES = ("word/footnotes.xml", "word/endnotes.xml")
_INSERTED = (f"{_W}ins", f"{_W}moveTo")
_DELETED = (f"{_W}del", f"{_W}moveFrom")
_OF_PARAGRAPH = (f"{_W}t", f"{_W}delText")
_BLANKS = (f"{_W}tab", f"{_W}br", f"{_W}cr")


def prepare(data: bytes, archive: ZipFile, markup: Markup) -> tuple[bytes, Counter[str]]:
    """The file with the text of boxes after the paragraphs to which they belong, and its words.

    Pandoc leaves boxes out. Raises CorruptInput.
    """
    main = next(filter(_MAIN.fullmatch, archive.namelist()), None)
    if main is None:
        raise CorruptInput("The document has no text.")
    document = _parse(archive.read(main))
    if _lift_boxes(document):
        data = _with_part(archive, main, etree.tostring(document, xml_declaration=True, encoding="UTF-8"))
    parts = [document, *(_parse(archive.read(name)) for name in _NOTES if name in archive.namelist())]
    left_out = {"final": _DELETED, "original": _INSERTED, "all": ()}[markup]
    words: Counter[str] = Counter()
    for part in parts:
        etree.strip_elements(part, *left_out, with_tail=False)
        for paragraph in part.iter(f"{_W}p"):
            words += blocks.words(["".join(one.text or " " for one in paragraph.iter(*_OF_PARAGRAPH, *_BLANKS))])
    return data, words


def _parse(part: bytes) -> etree._Element:
    try:
        return etree.fromstring(part, etree.XMLParser(resolve_entities=False, no_network=True))
    except etree.XMLSyntaxError as error:
        raise CorruptInput("The document is damaged.") from error


def _lift_boxes(document: etree._Element) -> bool:
    """Moves the text of boxes after the paragraphs in which they stand. Returns whether there are any."""
    boxes = [*document.iter(f"{_W}txbxContent")]
    for box in reversed(boxes):
        paragraph = next(box.iterancestors(f"{_W}p"))
        if next(box.iterancestors(_FALLBACK), None) is None:
            for child in reversed(box):
                paragraph.addnext(child)
        box.clear()
    return bool(boxes)


def _with_part(archive: ZipFile, changed: str, content: bytes) -> bytes:
    """The archive with another content of one file."""
    file = BytesIO()
    with zipfile.ZipFile(file, "w") as made:
        for entry in archive.infolist():
            name = entry.filename
            made.writestr(name, content if name == changed else archive.read(name))
    return file.getvalue()
