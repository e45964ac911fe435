"""A line of text as a mark, shaped by libraqm, in the fonts that have its characters."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from io import BytesIO
from pathlib import Path
from typing import TypeAlias

from PIL import Image, ImageDraw, ImageFont

from engine import InvalidOption, lazy_imports

with lazy_imports():
    from fontTools import ttLib

    from engine.mupdf import pymupdf

MODULES = ("PIL.ImageFont", "PIL.ImageDraw", "fontTools.ttLib")
_FONT = "DejaVuSans.ttf"  # Latin, Greek, Cyrillic, Armenian, Georgian, Hebrew, Arabic and symbols
_CJK = frozenset({"CJK", "HIRAGANA", "KATAKANA", "HANGUL"})
_MEASURED = 100.0  # pixels per em at which a text is measured
_OUTLINE = 0.03  # em
_LIGHT = 128  # Colors with this brightness, of 255, have a black outline.
_JOINING = ("M", "Z", "Cf")  # categories of characters that stay with the ones before them: marks, spaces, joiners

_Run: TypeAlias = tuple[str, bytes]  # a part of a text, and the font in which it is drawn


@dataclass(frozen=True)
class TextMark:
    """A mark that is a text. `fill` is red, green, blue and alpha."""

    runs: tuple[_Run, ...]
    fill: tuple[int, int, int, int]
    direction: str

    @classmethod
    def of(cls, text: str, fill: tuple[int, int, int, int]) -> TextMark:
        """The mark with this text. Raises InvalidOption if no font has a character of it."""
        letters = (unicodedata.bidirectional(char) for char in text)
        first = next((kind for kind in letters if kind in ("L", "R", "AL")), "L")
        runs = tuple(_runs(unicodedata.normalize("NFC", text.strip())))
        return cls(runs if first == "L" else runs[::-1], fill, "ltr" if first == "L" else "rtl")

    @property
    def is_gray(self) -> bool:
        return len({*self.fill[:3]}) == 1

    @cached_property
    def _measured(self) -> tuple[int, int]:
        return self._drawn(_MEASURED).size

    @property
    def ratio(self) -> float:
        return self._measured[1] / self._measured[0]

    def drawn(self, width: float) -> Image.Image:
        """The text, with this width in pixels but for rounding."""
        return self._drawn(max(_MEASURED * width / self._measured[0], 1.0))

    def _drawn(self, size: float) -> Image.Image:
        """The text at this size in pixels per em, without space around it."""
        fonts = [_at_size(data, size) for _, data in self.runs]
        lengths = [font.getlength(text, self.direction) for font, (text, _) in zip(fonts, self.runs, strict=True)]
        margin = round(size)  # glyphs exceed their box
        heights = [sum(font.getmetrics()) for font in fonts]
        image = Image.new("RGBA", (round(sum(lengths)) + 2 * margin, max(heights) + 2 * margin), (*self.fill[:3], 0))
        draw = ImageDraw.Draw(image)
        red, green, blue, _ = self.fill
        shade = 0 if 0.299 * red + 0.587 * green + 0.114 * blue >= _LIGHT else 255
        outline = (shade, shade, shade, self.fill[3])
        x, y = float(margin), margin + max(font.getmetrics()[0] for font in fonts)
        for font, length, (text, _) in zip(fonts, lengths, self.runs, strict=True):
            draw.text(
                (x, y),
                text,
                self.fill,
                font,
                "ls",
                direction=self.direction,
                stroke_width=size * _OUTLINE,
                stroke_fill=outline,
            )
            x += length
        return image.crop(image.getchannel("A").getbbox() or (0, 0, 1, 1))


def _runs(text: str) -> Iterator[_Run]:
    """The parts of a text, each with a font that has all of its characters. Raises InvalidOption."""
    start, font = 0, _default_font()
    for index, char in enumerate(text):
        if unicodedata.category(char).startswith(_JOINING) or _has(font, char):
            continue
        found = next((other for other in (_default_font(), _font_of(_script(char))) if _has(other, char)), None)
        if found is None:
            message = f"No font has the character {char} of watermark_text."
            raise InvalidOption(message, reason="unknown", param="watermark_text", details={"value": char})
        if index > start:
            yield text[start:index], font
        start, font = index, found
    yield text[start:], font


def _script(char: str) -> str:
    """The script of a character: the first word of the character's name, such as LATIN."""
    return unicodedata.name(char, "LATIN").split()[0]


@cache
def _default_font() -> bytes:
    try:
        return Path(str(ImageFont.truetype(_FONT).path)).read_bytes()
    except OSError:  # it is not installed
        return _font_of("LATIN")


@cache
def _font_of(script: str) -> bytes:
    """The font of MuPDF for a script."""
    if script in _CJK:
        font = pymupdf.Font("cjk")
    else:
        font = pymupdf.Font(script=getattr(pymupdf.mupdf, f"UCDN_SCRIPT_{script}", pymupdf.mupdf.UCDN_SCRIPT_LATIN))
    data: bytes = font.buffer
    return data


@cache
def _characters(font: bytes) -> frozenset[int]:
    return frozenset(ttLib.TTFont(BytesIO(font), lazy=True).getBestCmap())


def _has(font: bytes, char: str) -> bool:
    return ord(char) in _characters(font)


def _at_size(font: bytes, size: float) -> ImageFont.FreeTypeFont:
    return ImageFont.truetype(BytesIO(font), size, layout_engine=ImageFont.Layout.RAQM)
