"""TeX of MathML."""

from __future__ import annotations

import re
from collections.abc import Sequence
from types import MappingProxyType
from typing import Any

from lxml import etree

_ACCENTS = MappingProxyType({"¯": "overline", "‾": "overline", "→": "vec", "^": "hat", "~": "tilde", "˙": "dot"})
_SPECIAL = re.compile(r"[#$%&_{}]")
_INVISIBLE = dict.fromkeys(range(0x2061, 0x2065), "")  # operators without a sign


def to_tex(formula: Any) -> str:
    """The TeX of a formula, with characters of Unicode for its symbols. Nothing is recursive: parts can be nested."""
    made: dict[Any, str] = {}
    for _, element in etree.iterwalk(formula, events=("end",)):
        made[element] = _tex(element, [made.pop(part, "") for part in element])
    return made[formula]


def _tex(element: Any, parts: Sequence[str]) -> str:
    text = " ".join((element.text or "").replace("\\", r"\backslash ").split()).translate(_INVISIBLE)
    text = _SPECIAL.sub(r"\\\g<0>", text)
    match element.tag, parts:
        case "mi", _ if len(text) > 1 and text.isalpha():
            return rf"\operatorname{{{text}}}"
        case "mi" | "mn" | "mo", _:
            return text
        case "mtext" | "ms", _:
            return rf"\text{{{text}}}"
        case "mfrac", [above, below]:
            return rf"\frac{{{above}}}{{{below}}}"
        case "msqrt", _:
            return rf"\sqrt{{{' '.join(parts)}}}"
        case "mroot", [base, degree]:
            return rf"\sqrt[{degree}]{{{base}}}"
        case "mover", [base, accent] if accent in _ACCENTS:
            return rf"\{_ACCENTS[accent]}{{{base}}}"
        case "msup" | "mover", [base, above]:
            return f"{{{base}}}^{{{above}}}"
        case "msub" | "munder", [base, below]:
            return f"{{{base}}}_{{{below}}}"
        case "msubsup" | "munderover", [base, below, above]:
            return f"{{{base}}}_{{{below}}}^{{{above}}}"
        case "mtable", _:
            rows = r" \\ ".join(parts)
            return rf"\begin{{matrix}}{rows}\end{{matrix}}"
        case "mtr", _:
            return " & ".join(parts)
        case "mfenced", _:
            return f"{element.get('open', '(')}{', '.join(parts)}{element.get('close', ')')}"
        case "annotation" | "annotation-xml", _:
            return ""
    return " ".join(filter(None, parts))
