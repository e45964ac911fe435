"""Converts Type 1 fonts to CFF, the compact font format, whose data is not encrypted and compresses well."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from fontTools.cffLib.width import optimizeWidths
from fontTools.encodings.StandardEncoding import StandardEncoding
from fontTools.fontBuilder import FontBuilder
from fontTools.misc.eexec import decrypt
from fontTools.misc.psCharStrings import T1CharString, T1OutlineExtractor, T2CharString
from fontTools.pens.t2CharStringPen import T2CharStringPen

# Keys of the encryption.
_FILE_KEY = 55665
_GLYPH_KEY = 4330
_FILE_PREFIX = _GLYPH_PREFIX = 4  # random bytes that precede encrypted data
_NUMBERS = rb"[-+.\deE\s]+"
_BLUES = ("BlueValues", "OtherBlues", "FamilyBlues", "FamilyOtherBlues", "StemSnapH", "StemSnapV")
_WIDTHS = ("StdHW", "StdVW", "BlueScale", "BlueShift", "BlueFuzz")
_ENCODED = re.compile(rb"dup\s+(\d+)\s*/([^\s/{}\[\]()<>%]+)\s+put")
_SUBROUTINE = re.compile(rb"dup\s+(\d+)\s+(\d+)\s+\S+ ")
_GLYPH = re.compile(rb"/([^\s/{}\[\]()<>%]+)\s+(\d+)\s+\S+ ")
_NOTDEF = ".notdef"
_MAX_GLYPHS = 65_535
_MAX_CALLS = 50_000  # subroutines and parts of glyphs that a font calls


class UnsupportedFont(Exception):
    """A font that is damaged, or that CFF or fontTools cannot express."""


@dataclass(frozen=True)
class _Font:
    """Glyphs by name, the names of the glyphs by code, and numbers of the dictionaries by name."""

    glyphs: dict[str, _Glyph]
    encoding: list[str]
    information: dict[str, list[float]]
    private: dict[str, list[float]]


def to_cff(data: bytes) -> bytes:
    """The font as CFF, with the same glyphs, names and encoding. Raises UnsupportedFont."""
    font = _parse(data)
    converted = {name: _convert(glyph, font.glyphs) for name, glyph in font.glyphs.items()}
    default, nominal = optimizeWidths([width for width, _ in converted.values()])
    glyphs = {
        name: T2CharString(program=[*([] if width == default else [width - nominal]), *program])
        for name, (width, program) in converted.items()
    }
    order = [_NOTDEF, *(name for name in glyphs if name != _NOTDEF)]
    private: dict[str, Any] = {name: values for name, values in font.private.items() if name in _BLUES}
    private |= {name: values[0] for name, values in font.private.items() if name in _WIDTHS}
    information: dict[str, Any] = {**font.information, "Encoding": _encoding(font, glyphs)}
    builder = FontBuilder(unitsPerEm=1000, isTTF=False)
    builder.setupGlyphOrder(order)
    widths = {"defaultWidthX": default, "nominalWidthX": nominal}
    builder.setupCFF("Font", information, {name: glyphs[name] for name in order}, private | widths)
    return bytes(builder.font["CFF "].compile(builder.font))


def _encoding(font: _Font, glyphs: dict[str, Any]) -> str | list[str]:
    """The encoding as fontTools takes it, which cannot have two codes for a glyph."""
    if font.encoding == StandardEncoding:
        return "StandardEncoding"
    encoding = [name if name in glyphs else _NOTDEF for name in font.encoding]
    named = [name for name in encoding if name != _NOTDEF]
    if len(named) != len(set(named)):
        raise UnsupportedFont("A glyph has several codes.")
    return encoding


def _parse(data: bytes) -> _Font:
    clear, separator, encrypted = data.partition(b"eexec")
    encrypted = encrypted.lstrip(b" \t\r\n")
    if not separator or not encrypted:
        raise UnsupportedFont("There are no encrypted glyphs.")
    if re.match(rb"[0-9A-Fa-f]{8}", encrypted):
        encrypted = bytes.fromhex(re.sub(rb"[^0-9A-Fa-f]", b"", encrypted).decode()[: len(encrypted) // 2 * 2])
    private = decrypt(encrypted, _FILE_KEY)[0][_FILE_PREFIX:]
    head, separator, body = private.partition(b"/CharStrings")
    if not separator or b"/lenIV" in head:
        raise UnsupportedFont("The glyphs are missing, or have another encryption.")
    subroutines: list[T1CharString] = []
    for number, code in _entries(_SUBROUTINE, head[max(0, head.find(b"/Subrs")) :]):
        if int(number) > _MAX_GLYPHS:
            raise UnsupportedFont("There are too many subroutines.")
        subroutines += [T1CharString(b"") for _ in range(int(number) + 1 - len(subroutines))]
        subroutines[int(number)] = T1CharString(code, subrs=subroutines)
    calls = iter(range(_MAX_CALLS))
    glyphs = {name.decode("latin-1"): _Glyph(code, subroutines, calls) for name, code in _entries(_GLYPH, body)}
    if _NOTDEF not in glyphs or len(glyphs) > _MAX_GLYPHS:
        raise UnsupportedFont("The glyph for undefined characters is missing.")
    information = {key: _numbers(clear, key) for key in ("FontMatrix", "FontBBox")}
    found = {key: _numbers(head, key) for key in (*_BLUES, *_WIDTHS)}
    return _Font(
        glyphs,
        _read_encoding(clear),
        {key: values for key, values in information.items() if len(values) == (6 if key == "FontMatrix" else 4)},
        {key: values for key, values in found.items() if values},
    )


def _entries(pattern: re.Pattern[bytes], data: bytes) -> Iterator[tuple[bytes, bytes]]:
    """The key of each entry whose length a pattern finds, and the decrypted bytes that follow it."""
    position = 0
    while match := pattern.search(data, position):
        position = match.end() + int(match[2])
        if position > len(data):
            raise UnsupportedFont("The font is truncated.")
        yield match[1], decrypt(data[match.end() : position], _GLYPH_KEY)[0][_GLYPH_PREFIX:]


def _read_encoding(clear: bytes) -> list[str]:
    if re.search(rb"/Encoding\s+StandardEncoding\s+def", clear):
        return list(StandardEncoding)
    encoding = [_NOTDEF] * 256
    for code, name in _ENCODED.findall(clear):
        if int(code) < len(encoding):
            encoding[int(code)] = name.decode("latin-1")
    return encoding


def _numbers(data: bytes, key: str) -> list[float]:
    """The numbers of an array, or a single one; empty if the key is missing."""
    match = re.search(rb"/%s\s*[\[{]?(%s)" % (key.encode(), _NUMBERS), data)
    try:
        values = [float(part) for part in match[1].split()] if match else []
    except ValueError as error:
        raise UnsupportedFont(f"{key} has no numbers.") from error
    return [_exact(value) for value in values]


def _exact(value: float) -> float:
    """An integer where possible, which takes fewer bytes."""
    return int(value) if int(value) == value else value


class _Glyph(T1CharString):  # type: ignore[misc]
    """The program of a glyph. `calls` is exhausted if the programs of a font call each other too often."""

    def __init__(self, code: bytes, subroutines: list[T1CharString], calls: Iterator[int]) -> None:
        super().__init__(code, subrs=subroutines)
        self.calls = calls

    def draw(self, pen: Any) -> _Outline:
        next(self.calls)
        outline = _Outline(pen, self.subrs, self.calls)
        outline.execute(self)
        return outline


class _Outline(T1OutlineExtractor):  # type: ignore[misc]
    """Draws a glyph and collects its hints, as pairs of a position and a width."""

    def __init__(self, pen: Any, subroutines: Any, calls: Iterator[int]) -> None:
        super().__init__(pen, subroutines)
        self.stems: dict[str, list[tuple[float, float]]] = {"hstem": [], "vstem": []}
        self.replaces_hints = False
        self.calls = calls

    def _add(self, kind: str, origin: float) -> None:
        values = self.popall()
        pairs = zip(values[::2], values[1::2], strict=True)
        self.stems[kind] += [(_exact(start + origin), _exact(width)) for start, width in pairs]

    def op_hstem(self, index: int) -> None:
        self._add("hstem", 0)

    def op_vstem(self, index: int) -> None:
        self._add("vstem", self.sbx)

    op_hstem3 = op_hstem
    op_vstem3 = op_vstem

    def op_callsubr(self, index: int) -> None:
        next(self.calls)
        super().op_callsubr(index)

    def op_callothersubr(self, index: int) -> None:
        self.replaces_hints |= self.operandStack[-1] == 3
        super().op_callothersubr(index)


def _convert(glyph: _Glyph, glyphs: dict[str, _Glyph]) -> tuple[int, list[Any]]:
    """The width of a glyph and its program without width. Hints that change within a glyph are left out."""
    pen = T2CharStringPen(None, glyphs)
    try:
        outline = glyph.draw(pen)
        program = pen.getCharString().program
    except Exception as error:  # fontTools raises what its steps happen to raise
        raise UnsupportedFont("A glyph is damaged.") from error
    hints = [] if outline.replaces_hints else [*_hints("hstem", outline), *_hints("vstem", outline)]
    return round(outline.width), [*hints, *program]


def _hints(kind: str, outline: _Outline) -> list[Any]:
    """The operator for the stems of a direction, with the distances between their edges; none if they overlap."""
    stems = sorted(set(outline.stems[kind]))
    edges = [edge for start, width in stems for edge in (start, start + width)]
    if not edges or edges != sorted(edges):
        return []
    return [*(after - before for before, after in pairwise([0, *edges])), kind]
