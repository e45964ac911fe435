"""The root element of markup files, which identifies their format, and limits on their elements."""

import re

from engine import TooLarge

_MAX_ELEMENTS = 50_000
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


def check_elements(markup: bytes) -> None:
    """Raises TooLarge if HTML has too many elements, or if they are nested too deeply."""
    from lxml import etree  # only for HTML, while all files are compared with what this module finds

    parser = etree.HTMLParser(target=_Counter(), huge_tree=True)
    parser.feed(markup)
    parser.close()


class _Counter:
    """A target of a parser that counts elements."""

    def __init__(self) -> None:
        self._open = self._elements = 0

    def start(self, _tag: str, _attributes: object) -> None:
        self._open += 1
        self._elements += 1
        if self._elements > _MAX_ELEMENTS:
            details = {"max_elements": _MAX_ELEMENTS}
            raise TooLarge(f"The file has more than {_MAX_ELEMENTS} elements.", reason="elements", details=details)
        if self._open > _MAX_NESTING:
            raise TooLarge("The file is nested too deeply.", reason="elements", details={"max_nesting": _MAX_NESTING})

    def end(self, _tag: str) -> None:
        self._open -= 1

    def close(self) -> None:
        pass
