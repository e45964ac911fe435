"""Prepares SVG for rendering: decompresses, expands entities, and limits size and number of elements."""

from __future__ import annotations

import re
import zlib
from io import BytesIO
from xml.etree.ElementTree import Element, ParseError, iterparse

from engine import CorruptInput, TooLarge

_GZIP = b"\x1f\x8b"
_MAX_BYTES = 32 * 1024 * 1024  # after decompression and expansion
_MAX_ELEMENTS = 20_000  # including repetitions by <use>
_MAX_NESTING = 200
_HREFS = ("href", "{http://www.w3.org/1999/xlink}href")


def decompress(data: bytes, limit: int) -> bytes:
    """At most `limit` bytes of a file, which may be gzipped."""
    if data[:2] != _GZIP:
        return data
    return zlib.decompressobj(wbits=31).decompress(data, limit)


_DOCTYPE = re.compile(rb"<!DOCTYPE[^\[>]*(?:\[(.*?)\]\s*)?>", re.DOTALL)
_ENTITY = re.compile(rb"""<!ENTITY\s+([\w.:-]+)\s+(?:"([^"]*)"|'([^']*)')\s*>""")
_REFERENCE = re.compile(rb"&([A-Za-z_][\w.:-]*);")
_PREDEFINED = frozenset({b"amp", b"lt", b"gt", b"quot", b"apos"})
_MAX_DEPTH = 8


def prepare(data: bytes) -> bytes:
    """The XML of an SVG file, decompressed and without DOCTYPE, for CairoSVG.

    Expands the internal entities that drawing programs declare, to a limited depth and size; external ones are ignored.
    Raises TooLarge above the limits, CorruptInput for invalid XML.
    """
    svg = decompress(data, _MAX_BYTES + 1)
    _check_bytes(len(svg))
    svg = _expand_entities(svg)
    _check_elements(svg)
    return svg


def _expand_entities(svg: bytes) -> bytes:
    # Matched at one position only: searching would take quadratic time on many unclosed DOCTYPEs.
    doctype = _DOCTYPE.match(svg, max(0, svg.find(b"<!DOCTYPE")))
    if doctype is None:
        return svg
    declared = _ENTITY.findall(doctype.group(1) or b"")
    texts = {name: double or single for name, double, single in declared if name not in _PREDEFINED}
    svg = svg[: doctype.start()] + svg[doctype.end() :]
    for _ in range(_MAX_DEPTH):
        expanded = _substitute(svg, texts)
        if expanded == svg:
            return svg
        svg = expanded
    raise CorruptInput(f"The entities of the SVG are nested deeper than {_MAX_DEPTH} levels.")


def _substitute(svg: bytes, texts: dict[bytes, bytes]) -> bytes:
    references = [match.group(1) for match in _REFERENCE.finditer(svg)]
    _check_bytes(len(svg) + sum(len(texts.get(name, b"")) for name in references))
    return _REFERENCE.sub(lambda match: texts.get(match.group(1), match.group(0)), svg)


def _check_bytes(size: int) -> None:
    if size > _MAX_BYTES:
        raise TooLarge(
            f"The SVG exceeds {_MAX_BYTES} bytes after decompression and expansion of entities.",
            reason="bytes",
            details={"max_bytes": _MAX_BYTES},
        )


def _check_elements(svg: bytes) -> None:
    """Raises TooLarge for too many elements, CorruptInput for invalid or too deeply nested XML."""
    by_id: dict[str, Element] = {}
    root, elements, nesting = None, 0, 0
    try:
        for event, element in iterparse(BytesIO(svg), events=("start", "end")):
            nesting += 1 if event == "start" else -1
            if event == "start":
                root = element if root is None else root
                elements += 1
                _check_count(elements)
                by_id.setdefault(element.get("id", ""), element)
            if nesting > _MAX_NESTING:
                raise CorruptInput(f"The SVG is nested deeper than {_MAX_NESTING} elements.")
    except ParseError as error:
        raise CorruptInput("The SVG is not well-formed XML.") from error
    if root is not None:
        _check_uses(root, by_id)


def _check_uses(root: Element, by_id: dict[str, Element]) -> None:
    """Counts the elements that <use> repeats: a few nested ones can repeat billions."""
    drawn, pending = 0, [root]
    while pending:
        element = pending.pop()
        drawn += 1
        _check_count(drawn)
        pending += element
        if str(element.tag).rpartition("}")[2] == "use":
            links = (element.get(name, "").strip() for name in _HREFS)
            pending += [by_id[link[1:]] for link in links if link[:1] == "#" and link[1:] in by_id]


def _check_count(elements: int) -> None:
    if elements > _MAX_ELEMENTS:
        raise TooLarge(
            f"The SVG draws more than {_MAX_ELEMENTS} elements.",
            reason="elements",
            details={"max_elements": _MAX_ELEMENTS},
        )
