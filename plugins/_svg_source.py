"""SVG's XML: unpacked, its entities put in, and counted before it is drawn."""

from __future__ import annotations

import re
import zlib
from io import BytesIO
from xml.etree.ElementTree import Element, ParseError, iterparse

from engine import CorruptInput, TooLarge

_GZIP = b"\x1f\x8b"
_MAX_BYTES = 32 * 1024 * 1024  # of an unpacked or expanded file
_MAX_ELEMENTS = 20_000  # drawn, those that are drawn again counted again
_MAX_NESTING = 200
_HREFS = ("href", "{http://www.w3.org/1999/xlink}href")


def unpacked(data: bytes, limit: int) -> bytes:
    """At most `limit` bytes of a file that may be gzipped."""
    if data[:2] != _GZIP:
        return data
    return zlib.decompressobj(wbits=31).decompress(data, limit)


_DOCTYPE = re.compile(rb"<!DOCTYPE[^\[>]*(?:\[(.*?)\]\s*)?>", re.DOTALL)
_ENTITY = re.compile(rb"""<!ENTITY\s+([\w.:-]+)\s+(?:"([^"]*)"|'([^']*)')\s*>""")
_REFERENCE = re.compile(rb"&([A-Za-z_][\w.:-]*);")
_PREDEFINED = frozenset({b"amp", b"lt", b"gt", b"quot", b"apos"})
_MAX_DEPTH = 8


def source(data: bytes) -> bytes:
    """The XML as CairoSVG takes it: unpacked, and with the entities that drawing programs declare put in.

    Only texts declared in the file itself are put in, to a bounded depth and size; it reads nothing else.
    Raises TooLarge where there is more than can be drawn in time.
    """
    svg = unpacked(data, _MAX_BYTES + 1)
    _check_bytes(len(svg))
    svg = _plain(svg)
    check_elements(svg)
    return svg


def _plain(svg: bytes) -> bytes:
    # Looked for at one place: a search would begin anew at each of a million beginnings.
    doctype = _DOCTYPE.match(svg, max(0, svg.find(b"<!DOCTYPE")))
    if doctype is None:
        return svg
    declared = _ENTITY.findall(doctype.group(1) or b"")
    texts = {name: double or single for name, double, single in declared if name not in _PREDEFINED}
    svg = svg[: doctype.start()] + svg[doctype.end() :]
    for _ in range(_MAX_DEPTH):
        expanded = _expanded(svg, texts)
        if expanded == svg:
            return svg
        svg = expanded
    raise CorruptInput("The SVG's entities refer to each other too deeply.")


def _expanded(svg: bytes, texts: dict[bytes, bytes]) -> bytes:
    references = [match.group(1) for match in _REFERENCE.finditer(svg)]
    _check_bytes(len(svg) + sum(len(texts.get(name, b"")) for name in references))
    return _REFERENCE.sub(lambda match: texts.get(match.group(1), match.group(0)), svg)


def _check_bytes(size: int) -> None:
    if size > _MAX_BYTES:
        raise TooLarge(
            f"The SVG is longer than {_MAX_BYTES} bytes, unpacked and with its entities put in.",
            reason="bytes",
            details={"max_bytes": _MAX_BYTES},
        )


def check_elements(svg: bytes) -> None:
    """Raises TooLarge for more elements than can be drawn in time, CorruptInput for what is no XML or too deep."""
    named: dict[str, Element] = {}
    root, elements, nesting = None, 0, 0
    try:
        for event, element in iterparse(BytesIO(svg), events=("start", "end")):
            nesting += 1 if event == "start" else -1
            if event == "start":
                root = element if root is None else root
                elements += 1
                _check_count(elements)
                named.setdefault(element.get("id", ""), element)
            if nesting > _MAX_NESTING:
                raise CorruptInput(f"The SVG is nested deeper than {_MAX_NESTING} elements.")
    except ParseError as error:
        raise CorruptInput("The SVG is no well-formed XML.") from error
    if root is not None:
        _check_repeated(root, named)


def _check_repeated(root: Element, named: dict[str, Element]) -> None:
    """Follows every `use`: a few that use each other can stand for billions of elements."""
    drawn, waiting = 0, [root]
    while waiting:
        element = waiting.pop()
        drawn += 1
        _check_count(drawn)
        waiting += element
        if str(element.tag).rpartition("}")[2] == "use":
            links = (element.get(name, "").strip() for name in _HREFS)
            waiting += [named[link[1:]] for link in links if link[:1] == "#" and link[1:] in named]


def _check_count(elements: int) -> None:
    if elements > _MAX_ELEMENTS:
        raise TooLarge(
            f"The SVG draws more than {_MAX_ELEMENTS} elements.",
            reason="elements",
            details={"max_elements": _MAX_ELEMENTS},
        )
