"""Characters: which of them are drawn, which are emoji, and warnings about those that fonts lack."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Collection

from engine import FidelityWarning

_INVISIBLE = ("Z", "Cf", "Cc")  # categories of spaces, joiners and controls
_IGNORED = re.compile("[\u034f\u115f\u1160\u180b-\u180d\u180f\u3164\ufe00-\ufe0f\uffa0\U000e0100-\U000e01ef]")
_TEXT_STYLE = "\ufe0e"
EMOJI_STYLE = "\ufe0f"
"""The variation selector after symbols in color."""
_SYMBOLS = re.compile("[\u231a-\u2b55\U0001f004-\U0001faff]")  # of which the wide ones are emoji
_FLAGS = re.compile("[\U0001f1e6-\U0001f1ff]")
_MAX_NAMED = 10


def is_drawn(char: str) -> bool:
    """Whether a character has a glyph that is seen."""
    return not (unicodedata.category(char).startswith(_INVISIBLE) or _IGNORED.match(char))


def is_emoji(cluster: str) -> bool:
    """Whether a symbol, with what is at it, is drawn in color: by default, or by a variation selector."""
    base = next(filter(is_drawn, cluster), " ")
    if EMOJI_STYLE in cluster or _FLAGS.match(base):
        return True
    is_wide = unicodedata.east_asian_width(base) == "W" and unicodedata.category(base) != "Ps"
    return bool(is_wide and _SYMBOLS.match(base) and _TEXT_STYLE not in cluster)


def warn_lacking(missing: Collection[str], *, lacks_color: bool) -> None:
    """Issues a warning for characters that no font has, if there are any, and one for emoji without colors."""
    if missing:
        names = ", ".join(f"U+{ord(char):04X}" for char in [*missing][:_MAX_NAMED])
        others = f" and {len(missing) - _MAX_NAMED} more" if len(missing) > _MAX_NAMED else ""
        FidelityWarning.issue("glyphs_missing", f"No font has these characters: {names}{others}.")
    if lacks_color:
        FidelityWarning.issue("font_substituted", "Emoji are drawn without colors.")
