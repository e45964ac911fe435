"""Markup files: the root element, which identifies their format, limits on their elements, and what they lack."""

import codecs
import re
import zipfile
from collections.abc import Mapping, Sequence
from types import MappingProxyType

from engine import CorruptInput, FidelityWarning, Signature, Sniffer, TooLarge, lazy_imports
from plugins._text import zip_archives

with lazy_imports():
    from lxml import etree

_INDEX = "index.html"  # the page of an archive

MAX_ELEMENTS = 20_000
_SPANS = ("colspan", "span")  # attributes of cells and columns; each of them takes time for the columns that it covers
_MAX_DIGITS = 9  # in the value of such an attribute
_MAX_DECLARATIONS = 1_000  # limit of declarations before the root element
_MAX_SIZE = 64 << 20  # bytes
_MAX_NESTING = 2_000  # levels; parsers of HTML are recursive
_MAX_NAMED = 3  # resources in a warning
_MAX_NAME = 80  # characters

_UNDRAWN = MappingProxyType(
    {name: name for name in ("canvas", "iframe", "video")}
    | {"foreignobject": "foreignObject", "script": "what scripts write"}
)
"""What only browsers draw, by the names of its elements."""
_SCRIPTS = ("script", "module")  # ends of types of scripts; others are data

_PROLOG = (("<?", "?>"), ("<!--", "-->"), ("<!DOCTYPE", ">"), ("<!", ">"))
_DECLARATION = re.compile(r"\s*+<[?!]")
_NAME = re.compile(r"\s*+<(?:[\w-]++:)?([\w-]++)[\s/>]")


def in_markup(sniff: Sniffer) -> Sniffer:
    """A sniffer that is called for files that begin as markup: with an element, blanks or a byte order mark."""
    starts = (b"<", b" ", b"\t", b"\r", b"\n", codecs.BOM_UTF8, codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
    return Signature((0, starts), then=sniff)


def root_name(head: bytes) -> str | None:
    """The name of the first element after declarations and comments, without its prefix; None if there is none.

    `head` is the beginning of a file in UTF-16 with a byte order mark, or in a superset of ASCII.
    """
    encoding = "utf-16" if head[:2] in (b"\xff\xfe", b"\xfe\xff") else "latin-1"
    text = head.removeprefix(b"\xef\xbb\xbf").decode(encoding, "replace").lstrip("\ufeff \t\r\n")
    end = 0
    for _ in range(_MAX_DECLARATIONS):
        found = _DECLARATION.match(text, end)
        if not found:
            break
        start = found.end() - len("<!")
        opening, closing = next(pair for pair in _PROLOG if text[start : start + 9].upper().startswith(pair[0]))
        subset = text.find("[", start, text.find(">", start) + 1) if opening == "<!DOCTYPE" else -1
        end = text.find("]", subset) if subset >= 0 else start
        end = text.find(closing, end) + len(closing) if end >= 0 else 0
        if end < len(closing):
            return None
    name = _NAME.match(text, end)
    return name[1] if name else None


def warn_not_loaded(references: Sequence[str]) -> None:
    """Issues a warning that names references to what is not in the file, if there are any."""
    if not references:
        return
    message = f"Only what is in the file is loaded, not: {named(references)}."
    FidelityWarning.issue("resource_not_loaded", message)


def named(references: Sequence[str]) -> str:
    """The first of the references, and the number of the others."""
    names = ", ".join(reference[:_MAX_NAME] for reference in references[:_MAX_NAMED])
    return f"{names} and {len(references) - _MAX_NAMED} more" if len(references) > _MAX_NAMED else names


def read_page(
    data: bytes, most: int = MAX_ELEMENTS, *, without: frozenset[str] = frozenset()
) -> tuple[bytes, zipfile.ZipFile | None]:
    """The HTML of a file, and the archive that it is in, if any. Raises CorruptInput, TooLarge.

    Issues a warning for what only browsers draw, but `without` some of it.
    """
    markup, archive = read_archive(data)
    undrawn = check_elements(markup, most) - without
    if undrawn:
        FidelityWarning.issue("effects_dropped", f"Not drawn as in a browser: {', '.join(sorted(undrawn))}.")
    return markup, archive


def read_archive(data: bytes) -> tuple[bytes, zipfile.ZipFile | None]:
    """The HTML of a file, and the archive that it is in, if any. Raises CorruptInput, and TooLarge above 64 MiB."""
    archive = zip_archives.open_checked(data) if data.startswith(zip_archives.SIGNATURE) else None
    markup = data if archive is None else zip_archives.read_file(archive, _INDEX)
    if markup is None:
        raise CorruptInput(f"{_INDEX} of the archive cannot be read.")
    _check_size(markup)
    return markup, archive


def encoding(markup: bytes) -> str | None:
    """UTF-8 if the text is valid in it; otherwise the HTML declares it, or it is windows-1252."""
    try:
        markup.decode("utf-8")
    except UnicodeDecodeError:
        return None
    return "utf-8"


def check_elements(markup: bytes, most: int = MAX_ELEMENTS) -> frozenset[str]:
    """What HTML has that only browsers draw.

    Raises TooLarge if it has more than `most` elements and columns, if they are nested too deeply, or above 64 MiB.
    """
    _check_size(markup)
    parser = etree.HTMLParser(target=_Counter(most), huge_tree=True)
    parser.feed(markup)
    undrawn: frozenset[str] = parser.close()
    return undrawn


def _check_size(markup: bytes) -> None:
    if len(markup) > _MAX_SIZE:
        details = {"max_unpacked_size": _MAX_SIZE}
        raise TooLarge(f"The file has more than {_MAX_SIZE} bytes of markup.", reason="bytes", details=details)


class _Counter:
    """A target of a parser that counts elements, and cells once for each column."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._open = self._elements = 0
        self._undrawn: set[str] = set()

    def start(self, tag: str, attributes: Mapping[str, str]) -> None:
        self._open += 1
        if tag in _UNDRAWN and (tag != "script" or (attributes.get("type") or "script").lower().endswith(_SCRIPTS)):
            self._undrawn.add(_UNDRAWN[tag])
        spans = (attributes.get(name, "").strip()[:_MAX_DIGITS] for name in _SPANS)
        self._elements += max(1, *(int(span) if span.isdecimal() else 1 for span in spans))
        if self._elements > self._most:
            message = f"The file has more than {self._most} elements, or columns that they cover."
            raise TooLarge(message, reason="elements", details={"max_elements": self._most})
        if self._open > _MAX_NESTING:
            raise TooLarge("The file is nested too deeply.", reason="elements", details={"max_nesting": _MAX_NESTING})

    def end(self, _tag: str) -> None:
        self._open -= 1

    def close(self) -> frozenset[str]:
        return frozenset(self._undrawn)
