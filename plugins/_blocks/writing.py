"""What writers of markup and text share: links, pictures, numbers of lists, and notes."""

from __future__ import annotations

import re
from base64 import b64encode

from engine import FidelityWarning
from engine.blocks import Block, ItemList, Paragraph, Picture, Run
from plugins._blocks.pictures import OF_BROWSERS, adapt, extension

_SCHEME = re.compile(r"[\s\x00-\x1f]*([a-z][a-z0-9+.-]*):", re.IGNORECASE)
_SAFE = frozenset({"http", "https", "mailto", "tel", "ftp"})
_FOLDER = "pictures"
_LETTERS = 26
_ROMAN = (
    (1000, "m"), (900, "cm"), (500, "d"), (400, "cd"), (100, "c"), (90, "xc"),
    (50, "l"), (40, "xl"), (10, "x"), (9, "ix"), (5, "v"), (4, "iv"), (1, "i"),
)  # fmt: skip
_MAX_ROMAN = 3999


def safe_link(link: str) -> str:
    """The link if it is relative or leads to a page, a file or an address; otherwise nothing, with a warning."""
    scheme = _SCHEME.match(link)
    if scheme is None or scheme[1].lower() in _SAFE:
        return link.strip()
    FidelityWarning.issue("links_dropped", "Links that run a script or open a local file are not in the result.")
    return ""


class Pictures:
    """Where the pictures of a result are, as its option `images` says. `files` are those beside the text, by name."""

    def __init__(self, images: str) -> None:
        self.files: dict[str, bytes] = {}
        self._images = images

    def source(self, picture: Picture) -> str:
        """The URL of a picture; empty if it is dropped, with a warning."""
        if self._images == "drop":
            FidelityWarning.issue("pictures_dropped", "Pictures are not in the result.")
            return ""
        shown = adapt(picture, OF_BROWSERS)
        if shown is None:
            return ""
        if self._images == "embed":
            return f"data:{shown.media_type};base64,{b64encode(shown.data).decode()}"
        known = next((name for name, data in self.files.items() if data == shown.data), None)
        name = known or f"{_FOLDER}/{len(self.files) + 1}.{extension(shown.media_type)}"
        self.files[name] = shown.data
        return name


class Notes:
    """The notes of a document in the order of their marks, numbered from 1."""

    def __init__(self) -> None:
        self._found: list[tuple[Block, ...]] = []
        self._written = 0

    def number(self, run: Run) -> int:
        """The number of the note of a run, which is the next."""
        self._found.append(run.note)
        return len(self._found)

    def __iter__(self) -> Notes:
        return self

    def __next__(self) -> tuple[int, tuple[Block, ...]]:
        """The number and the content of the next note, which can have notes itself."""
        if self._written == len(self._found):
            raise StopIteration
        self._written += 1
        return self._written, self._found[self._written - 1]


def is_tight(items: ItemList) -> bool:
    """Whether no entry of a list, or of the lists in it, has more than one paragraph of its own."""
    return all(
        all(isinstance(block, ItemList) and is_tight(block) for block in item.blocks[_starts_with_text(item.blocks) :])
        for item in items.items
    )


def _starts_with_text(blocks: tuple[Block, ...]) -> bool:
    return bool(blocks) and isinstance(blocks[0], Paragraph)


def number(items: ItemList, index: int) -> str:
    """The number of an entry in the style of the list, without what follows it."""
    value = items.start + index
    if items.style in "iI" and 0 < value <= _MAX_ROMAN:
        text = _roman(value)
    elif items.style in "aA" and value > 0:
        text = _letters(value)
    else:
        return str(value)
    return text.upper() if items.style in "AI" else text


def _letters(value: int) -> str:
    text = ""
    while value:
        value, letter = divmod(value - 1, _LETTERS)
        text = chr(ord("a") + letter) + text
    return text


def _roman(value: int) -> str:
    text = ""
    for one, digits in _ROMAN:
        count, value = divmod(value, one)
        text += digits * count
    return text
