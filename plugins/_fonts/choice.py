"""The choice of a font for each part of a text: the fonts of the system, and those of MuPDF for what these lack."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator, Sequence
from functools import cached_property
from itertools import groupby
from typing import TypeAlias

from engine import lazy_imports
from plugins._fonts.characters import is_drawn, is_emoji, warn_lacking
from plugins._fonts.installed import INSTALLED, InstalledFont

with lazy_imports():
    from plugins._fonts import builtin

Font: TypeAlias = "InstalledFont | builtin.BuiltinFont"
Run: TypeAlias = "tuple[str, Font | None]"
"""A part of a text, and the font that has its characters; None if there is none."""


class FontChooser:
    """Chooses fonts for the texts of a file, and issues warnings for what they lack.

    `in_color`: emoji are drawn in fonts with colors.
    """

    def __init__(self, *, in_color: bool = True) -> None:
        self.missing: dict[str, None] = {}
        """The characters that no font has."""
        self.builtin: dict[str, builtin.BuiltinFont] = {}
        """The fonts of MuPDF that were chosen, by their families."""
        self.lacks_color = False
        """Whether emoji are drawn in fonts without color."""
        self._plain = [font for font in INSTALLED if not font.in_color]
        self._in_color = [font for font in INSTALLED if font.in_color and in_color]
        self._last: Font | None = None
        self._known: dict[Font | None, set[str]] = {}  # characters that a font has, and that are no emoji
        self._chosen: dict[tuple[str, Font | None], Font | None] = {}

    @cached_property
    def _fallback(self) -> builtin.BuiltinFonts:
        return builtin.BuiltinFonts()

    def has_all(self, text: str, font: Font | None) -> bool:
        """Whether a font has all characters of a text, of which none is drawn in color."""
        known = self._known.setdefault(font, set())
        if font and not known.issuperset(text):
            known.update(char for char in text if not is_emoji(char) and (not is_drawn(char) or font.has(char)))
        return known.issuperset(text)

    def runs(self, text: str, preferred: Font | None = None) -> list[Run]:
        """The parts of a text: in `preferred`, where it has the characters. Marks stay with the letters before them."""
        if self.has_all(text, preferred):
            return [(text, preferred)]
        font = preferred
        chosen: list[Run] = []
        for cluster in _clusters(text):
            if any(map(is_drawn, cluster)):
                font = self._choose(cluster, preferred)
            elif font in self._in_color:  # whose spaces are as wide as emoji
                font = preferred
            chosen.append((cluster, font))
        return [("".join(part for part, _ in parts), font) for font, parts in groupby(chosen, lambda run: run[1])]

    def warn(self) -> None:
        """Issues a warning for characters that no font has, and one for emoji that no font in color has."""
        warn_lacking(self.missing, lacks_color=self.lacks_color)

    def _choose(self, cluster: str, preferred: Font | None) -> Font | None:
        key = cluster, preferred
        if key not in self._chosen:
            wanted = [char for char in cluster if is_drawn(char)]
            first: Sequence[Font] = [preferred] if preferred else []
            if is_emoji(cluster):
                first = self._in_color
            font = self._first(first, wanted) or self._first(first, wanted[:1])
            # Renderers take a mark from another font if that of the letter lacks it.
            others = [char for char in wanted if font is None or not font.has(char)]
            self.missing.update({char: None for char in others if self._first([], [char]) is None})
            self.lacks_color = self.lacks_color or (is_emoji(cluster) and font not in self._in_color)
            self._last = self._chosen[key] = font
        return self._chosen[key]

    def _first(self, first: Sequence[Font], wanted: Sequence[str]) -> Font | None:
        """The first font that has the characters. Fonts in color are the last resort."""
        near = [self._last] if self._last and self._last not in self._in_color else []
        for font in (*first, *near, *self._plain):
            if all(map(font.has, wanted)):
                return font
        found = self._fallback.of(wanted[0])
        if found and all(map(found.has, wanted)):
            self.builtin[found.family] = found
            return found
        return next((font for font in self._in_color if all(map(font.has, wanted))), None)


def _clusters(text: str) -> Iterator[str]:
    """The characters of a text, each with the marks and controls at it, and what a joiner joins."""
    cluster = ""
    for char in text:
        joins = unicodedata.category(char).startswith(("M", "Cf")) or unicodedata.category(cluster[-1:] or "a") == "Cf"
        if cluster and not joins:
            yield cluster
            cluster = ""
        cluster += char
    if cluster:
        yield cluster
