"""The fonts of MuPDF: one for each script of Unicode, and others for symbols, in one weight."""

from __future__ import annotations

from functools import cached_property
from io import BytesIO
from typing import Any

from fontTools import ttLib

from engine.mupdf import pymupdf

_POSTSCRIPT_NAME = 6
_ENGLISH = (3, 1, 0x409)  # in UTF-16


class BuiltinFont:
    """A font of MuPDF, which has the `index` 0 in its data."""

    index = 0

    def __init__(self, font: Any) -> None:
        self._font = font

    def has(self, char: str) -> bool:
        """Whether the font has a glyph for the character."""
        return bool(pymupdf.mupdf.fz_encode_character(self._font, ord(char)) > 0)

    @cached_property
    def family(self) -> str:
        """The family, as the font names it. MuPDF cuts long names off."""
        return str(ttLib.TTFont(BytesIO(self.data), lazy=True)["name"].getBestFamilyName())

    @cached_property
    def data(self) -> bytes:
        """The font in OpenType, with a PostScript name, which Typst demands."""
        mupdf = pymupdf.mupdf
        kept = mupdf.FzBuffer(mupdf.ll_fz_keep_buffer(self._font.m_internal.buffer))
        data = bytes(mupdf.fz_buffer_extract_copy(kept))
        font = ttLib.TTFont(BytesIO(data), lazy=True, recalcBBoxes=False, recalcTimestamp=False)
        if font["name"].getDebugName(_POSTSCRIPT_NAME):
            return data
        font["name"].setName(self._font.fz_font_name().replace(" ", ""), _POSTSCRIPT_NAME, *_ENGLISH)
        file = BytesIO()
        font.save(file, reorderTables=None)
        return file.getvalue()


class BuiltinFonts:
    """Finds the font of MuPDF for a character."""

    def __init__(self) -> None:
        # MuPDF asks this font first, so it is one that has no letters of common scripts.
        self._first = pymupdf.Font(script=pymupdf.mupdf.UCDN_SCRIPT_OGHAM).this
        self._found: dict[str, BuiltinFont] = {}

    def of(self, char: str) -> BuiltinFont | None:
        """The font with a glyph for the character. None if there is none."""
        glyph, font = pymupdf.mupdf.fz_encode_character_with_fallback(self._first, ord(char), 0, 0)
        return self._found.setdefault(font.fz_font_name(), BuiltinFont(font)) if glyph > 0 else None


def lacking(text: str) -> list[str]:
    """The characters of a text that no font of MuPDF has, which draws boxes for them."""
    fonts = BuiltinFonts()
    return [] if text.isascii() else [char for char in sorted(set(text)) if fonts.of(char) is None]
