"""What writers of markup and text share: links, pictures, numbers of lists, and notes."""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Set
from io import BytesIO
from zipfile import ZipFile, ZipInfo

from engine import EncodedFile, FidelityWarning, TooLarge
from engine.blocks import Block, Heading, ItemList, Paragraph, Picture, Run
from plugins._blocks import pictures

_SCHEME = re.compile(r"[\s\x00-\x1f]*([a-z][a-z0-9+.-]*):", re.IGNORECASE)
_SAFE = frozenset({"http", "https", "mailto", "tel", "ftp"})
_FOLDER = "pictures"
_MAX_EMBEDDED = 256 << 20  # bytes: a page can show one picture many times
_NOT_IN_SLUG = re.compile(r"[^\w\- ]")
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


def slug_of(heading: Heading) -> str:
    """The name that GitHub gives a heading, for the first one with its text."""
    return _NOT_IN_SLUG.sub("", "".join(run.text for run in heading.runs).strip().lower()).replace(" ", "-")


class Pictures:
    """Where the pictures of a result are, as its option `images` says: in the text, or in a ZIP with it.

    `held` are the media types of pictures that the text can show.
    """

    def __init__(self, images: str, held: Set[str] = pictures.OF_BROWSERS) -> None:
        self._images = images
        self._held = held
        self._names: dict[bytes, str] = {}
        self._embedded = 0

    def source(self, picture: Picture) -> str:
        """The URL of a picture; empty if it is dropped, with a warning. Raises TooLarge."""
        if self._images == "drop":
            FidelityWarning.issue("pictures_dropped", "Images are not in the result.")
            return ""
        if picture.url:
            return safe_link(picture.url)
        shown = pictures.adapt(picture, self._held)
        if shown is None:
            return ""
        if self._images == "zip":
            name = f"{_FOLDER}/{len(self._names) + 1}.{pictures.extension(shown.media_type)}"
            return self._names.setdefault(shown.data, name)
        self._embedded += len(shown.data)
        if self._embedded > _MAX_EMBEDDED:
            details = {"max_size": _MAX_EMBEDDED}
            raise TooLarge("The images in the text are too large.", reason="bytes", details=details)
        return f"data:{shown.media_type};base64,{b64encode(shown.data).decode()}"

    def file(self, name: str, text: str) -> bytes | EncodedFile:
        """The text, or an archive of a file of this name and the pictures beside it, if there are any."""
        if not self._names:
            return text.encode()
        made = BytesIO()
        with ZipFile(made, "w") as archive:
            archive.writestr(ZipInfo(name), text)
            for data, picture in self._names.items():
                archive.writestr(ZipInfo(picture), data)
        return EncodedFile(made.getvalue(), archived=1 + len(self._names))


class Notes:
    """The notes of a document in the order of their marks, numbered from 1."""

    def __init__(self) -> None:
        self._found: list[tuple[Block, ...]] = []
        self._numbers: dict[int, int] = {}
        self._written = 0

    def number(self, run: Run) -> int:
        """The number of the note of a run: the next, unless another run has the same note."""
        if id(run.note) not in self._numbers:
            self._found.append(run.note)
            self._numbers[id(run.note)] = len(self._found)
        return self._numbers[id(run.note)]

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
