"""Characters of fonts of symbols, as Unicode has them."""

from collections.abc import Mapping
from types import MappingProxyType

_CLOCKS = "🕐🕑🕒🕓🕔🕕🕖🕗🕘🕙🕚🕛"
_SEGMENTS = (
    (0x22, "✂✁"), (0x28, "☎✆✉"), (0x36, "⌛⌨"), (0x3F, "✍✍✌"), (0x43, "👍👎☜☞☝☟"), (0x4A, "☺😐☹💣☠⚐"), (0x51, "✈☼💧❄"),
    (0x58, "✠✡☪☯ॐ☸♈♉♊♋♌♍♎♏♐♑♒♓"), (0x6C, "●❍■□"), (0x71, "❑❒⬧⧫◆❖⬥☒"), (0x7A, "⌘"), (0x80, "⓪①②③④⑤⑥⑦⑧⑨⑩"),
    (0x8B, "⓿❶❷❸❹❺❻❼❽❾❿"), (0x9E, "·•▪○"), (0xA4, "◉◎"), (0xA7, "▪◻▲✦★✶✴✹✵"), (0xB1, "⌖⟡⌑"), (0xB5, f"✪✰{_CLOCKS}"),
    (0xD5, "⌫⌦"), (0xD8, "➢"), (0xDC, "➲"), (0xDF, "←→↑↓↖↗↙↘←→↑↓↖↗↙↘⇦⇨⇧⇩⬄⇳"), (0xFB, "✗✓☒☑"),
)  # fmt: skip
_PRIVATE = 0xF000  # where files have the codes of these fonts

WINGDINGS: Mapping[int, str] = MappingProxyType(
    {
        code: character
        for start, segment in _SEGMENTS
        for position, character in enumerate(segment)
        for code in (start + position, _PRIVATE + start + position)
    }
)
"""The nearest characters that usual fonts have, by the codes of Wingdings, which can be of the private use area."""
