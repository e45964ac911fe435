"""The root element of files of markup, by which their formats are told, and a limit on their nesting."""

import re

from lxml import etree

from engine import TooLarge

_MAX_NESTING = 2_000  # levels; parsers of HTML are recursive

_PROLOG = (("<?", "?>"), ("<!--", "-->"), ("<!DOCTYPE", ">"), ("<!", ">"))
_NAME = re.compile(r"<(?:[\w-]+:)?([\w-]+)[\s/>]")


def root_name(head: bytes) -> str | None:
    """The name of the first element after declarations and comments, without its prefix; None if there is none.

    `head` is the beginning of a file in UTF-16 with a byte order mark, or in a superset of ASCII.
    """
    encoding = "utf-16" if head[:2] in (b"\xff\xfe", b"\xfe\xff") else "latin-1"
    text = head.removeprefix(b"\xef\xbb\xbf").decode(encoding, "replace").lstrip("\ufeff \t\r\n")
    while text.startswith(("<?", "<!")):
        opening, closing = next(pair for pair in _PROLOG if text[:9].upper().startswith(pair[0]))
        subset = text.find("[", 0, text.find(">") + 1) if opening == "<!DOCTYPE" else -1
        end = text.find("]", subset) if subset >= 0 else 0
        end = text.find(closing, max(end, 0))
        if end < 0:
            return None
        text = text[end + len(closing) :].lstrip()
    found = _NAME.match(text)
    return found[1] if found else None


def check_nesting(markup: bytes) -> None:
    """Raises TooLarge if elements of HTML are nested too deeply."""
    parser = etree.HTMLParser(target=_Depth(), huge_tree=True)
    parser.feed(markup)
    parser.close()


class _Depth:
    """A target of a parser that counts the open elements."""

    def __init__(self) -> None:
        self._open = 0

    def start(self, _tag: str, _attributes: object) -> None:
        self._open += 1
        if self._open > _MAX_NESTING:
            raise TooLarge("The file is nested too deeply.", reason="elements", details={"max_nesting": _MAX_NESTING})

    def end(self, _tag: str) -> None:
        self._open -= 1

    def close(self) -> None:
        pass
