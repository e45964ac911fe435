"""The fonts in which the text of an SVG is drawn."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Sequence
from copy import copy
from io import BytesIO
from typing import NamedTuple

from lxml import etree
from PIL import ImageFont
from resvg import usvg

from plugins._fonts.choice import Font, FontChooser
from plugins._fonts.installed import BY_FAMILY, INSTALLED
from plugins._svg.coordinates import font_size, inherited
from plugins._svg.source import SVG
from plugins._svg.text import END, RIGHT_TO_LEFT

_SPANS = (f"{SVG}tspan", f"{SVG}a", f"{SVG}textPath")
_POSITIONS = ("x", "y", "dx", "dy")
_ANCHORED = {"middle": 0.5, "end": 1.0}
_MEASURED = 109  # pixels per em: the only size of fonts in color
_BREAK = etree.fromstring(f'<defs xmlns="{SVG[1:-1]}"><path id="font-change" d="M0 0H1"/></defs>')


def _load_options() -> usvg.Options:
    options = usvg.Options.default()
    for file in dict.fromkeys(font.path for font in INSTALLED):
        options.load_font_file(str(file))
    return options


_OPTIONS = _load_options()  # at import, because a fork server imports once what jobs share
FAMILIES = frozenset(_OPTIONS.list_fonts())
"""Installed font families."""


def options_for(chooser: FontChooser) -> usvg.Options:
    """The options of resvg, with the installed fonts and those of MuPDF that were chosen."""
    options = _load_options() if chooser.builtin else _OPTIONS
    for font in chooser.builtin.values():
        options.load_font_data(font.data)
    return options


class _Piece(NamedTuple):
    """A part of a text in one font, and the elements inside of the <text> that it is in. Their font may lack it."""

    text: str
    spans: tuple[etree._Element, ...]
    font: Font | None
    is_lacking: bool


def choose(root: etree._Element, chooser: FontChooser) -> None:
    """Names a font for each part of the text of an SVG that the font of its element lacks."""
    is_divided = False
    for text in [*root.iter(f"{SVG}text")]:
        if len(text) == 0 and chooser.has_all(text.text or "", _font(text)):
            continue
        pieces = [*_pieces(text, (), chooser)]
        if any(piece.is_lacking for piece in pieces) and not _is_indivisible(text):
            _divide(text, pieces)
            is_divided = True
    if is_divided:
        root.append(copy(_BREAK))


def _font(element: etree._Element) -> Font | None:
    """The regular font of the family of an element. None if it is not installed."""
    return BY_FAMILY.get(inherited(element, "font-family").partition(",")[0].strip(" '\"").lower())


def _pieces(element: etree._Element, spans: tuple[etree._Element, ...], chooser: FontChooser) -> Iterator[_Piece]:
    own = _font(element)

    def in_fonts(text: str | None) -> Iterator[_Piece]:
        for run, font in chooser.runs(text, own) if text else ():
            yield _Piece(run, spans, font, font is not own)

    yield from in_fonts(element.text)
    for child in element:
        if child.tag in _SPANS:
            yield from _pieces(child, (*spans, child), chooser)
        yield from in_fonts(child.tail)


def _is_indivisible(text: etree._Element) -> bool:
    """Whether characters have positions of their own, a length in common, or follow a path, or stand on each other."""
    parts = [*text.iter(text.tag, *_SPANS)]
    values = (part.get(name, "") for part in parts for name in (*_POSITIONS, "rotate"))
    return (
        any(len(value.replace(",", " ").split()) > 1 for value in values)
        or any("textLength" in part.attrib or part.tag == _SPANS[-1] for part in parts)
        or inherited(text, "writing-mode").startswith(("tb", "vertical"))
    )


def _divide(text: etree._Element, pieces: Sequence[_Piece]) -> None:
    """Makes elements of the pieces, which renderers place one after the other.

    They shape what is not divided in each of its fonts, as if all was in the script of the first letter, and lose
    glyphs where one font has ligatures. A path that text follows divides it, also if nothing follows it.
    """
    made: list[etree._Element] = []
    placed: set[etree._Element] = set()
    for line in _lines(pieces):
        is_mixed = len({piece.font for piece in line}) > 1
        anchor = inherited((text, *line[0].spans)[-1], "text-anchor") if is_mixed else ""
        shift = -_ANCHORED[anchor] * _width(text, line) if anchor in _ANCHORED else 0.0
        last = line[0].font
        for number, piece in enumerate(_visually(line) if is_mixed else line):
            outer, inner = _element(piece, placed)
            if is_mixed:
                inner.set("text-anchor", "start")
            if shift and piece.text.strip():
                inner.set("dx", f"{shift:.6g}")
                shift = 0.0
            if number and piece.font is not last:
                made.append(etree.Element(f"{SVG}textPath", href=f"#{_BREAK[0].get('id')}"))
            made.append(outer)
            last = piece.font
    text.text = None
    text[:] = made


def _lines(pieces: Sequence[_Piece]) -> Iterator[list[_Piece]]:
    """The pieces from each absolute position to the next."""
    line: list[_Piece] = []
    seen: set[etree._Element] = set()
    for piece in pieces:
        if line and any(span not in seen and ("x" in span.attrib or "y" in span.attrib) for span in piece.spans):
            yield line
            line = []
        line.append(piece)
        seen.update(piece.spans)
    yield line


def _visually(line: Sequence[_Piece]) -> Sequence[_Piece]:
    """The pieces from left to right."""
    if RIGHT_TO_LEFT in line[0].text:
        texts = [f"{RIGHT_TO_LEFT}{piece.text.strip(RIGHT_TO_LEFT + END)}{END}" for piece in line]
        return [piece._replace(text=text) for piece, text in zip(line, texts, strict=True)][::-1]
    ordered: list[_Piece] = []
    reading: list[_Piece] = []  # from right to left, with what follows before the next piece from left to right
    for piece in line:
        kinds = {*map(unicodedata.bidirectional, piece.text)}
        if kinds.isdisjoint(("R", "AL")) and ("L" in kinds or not reading):
            ordered += [*reading, piece]
            reading = []
        else:
            reading.insert(0, piece)
    return [*ordered, *reading]


def _element(piece: _Piece, placed: set[etree._Element]) -> tuple[etree._Element, etree._Element]:
    """Copies of the elements of a piece: the outer one, and the inner one, which has the text.

    The first piece of each element, which is then in `placed`, has its position. Space at the start is not drawn.
    """
    is_drawn = bool(piece.text.strip())
    outer = inner = etree.Element(f"{SVG}tspan")
    inner.text = piece.text
    if piece.is_lacking and piece.font is not None:
        inner.set("font-family", f"'{piece.font.family}'")
    for span in reversed(piece.spans):
        inside = outer
        outer = etree.Element(span.tag, span.attrib)
        outer.append(inside)
        if span in placed or not is_drawn:
            for name in ("id", *_POSITIONS):
                outer.attrib.pop(name, None)
    if is_drawn:
        placed.update(piece.spans)
    return outer, inner


def _width(text: etree._Element, line: Sequence[_Piece]) -> float:
    """About the width of a line in pixels, in regular fonts."""
    total = 0.0
    for piece in line:
        if piece.font is not None:
            font = ImageFont.truetype(BytesIO(piece.font.data), _MEASURED, piece.font.index)
            length = font.getlength(re.sub(r"\s+", " ", piece.text))
            total += length / _MEASURED * font_size((text, *piece.spans)[-1])
    return total
