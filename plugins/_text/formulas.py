"""Formulas: MathML of TeX, which browsers draw, and drawings of MathML."""

from __future__ import annotations

import re
from base64 import b64encode
from html import escape
from typing import Any
from xml.etree import ElementTree

from latex2mathml import converter
from ziamath import zmath
from ziamath.config import config

from engine import FidelityWarning

_SIZE = 16.0  # pixels of the font in drawings, which are scaled to the text around them
_AMPERSAND = re.compile(r"&(?!#?\w+;)")
_NAMESPACE = "{http://www.w3.org/1998/Math/MathML}"

config.svg2 = False  # WeasyPrint does not draw its symbols


def to_mathml(tex: str, *, display: bool) -> str:
    """A formula as MathML that also has its TeX, which is all that there is of a formula with mistakes."""
    note = f'<annotation encoding="application/x-tex">{escape(tex, quote=False)}</annotation>'
    try:
        made = _AMPERSAND.sub("&amp;", converter.convert(tex, display="block" if display else "inline"))
        ElementTree.fromstring(made)
    except (Exception, RecursionError):  # it has errors of its own, and others
        kind, start, end = ("display", "[", "]") if display else ("inline", "(", ")")
        return f'<span class="math {kind}">\\{start}{escape(tex, quote=False)}\\{end}</span>'
    head, row, content = made.removesuffix("</math>").partition("<mrow>")
    return f"{head}<semantics>{row}{content}{note}</semantics></math>"


def draw(root: Any) -> None:
    """Puts pictures in place of the MathML in a page."""
    for element in [one for one in root.iter() if _name(one) == "math"]:
        tail = element.tail
        tex = next((one.text for one in element.iter() if "tex" in one.get("encoding", "")), None)
        picture = _drawing(element)
        text = tex or " ".join("".join(element.itertext()).split())
        is_display = element.get("display") == "block"
        element.clear()
        element.tail = tail
        if picture is None:
            FidelityWarning.issue("effects_dropped", "Formulas are shown as they are written, in TeX.")
            element.tag = "code"
            element.text = text
        else:
            source, style = picture
            element.tag = "img"
            element.attrib.update(src=source, alt=text, style=style + "; display: block; margin: 1em auto" * is_display)


def _name(element: Any) -> str:
    return str(element.tag).removeprefix(_NAMESPACE)


def _drawing(element: Any) -> tuple[str, str] | None:
    """The URL of the drawing of a formula, and its style. None if it cannot be drawn. Changes the element."""
    for one in [*element.iter()]:
        one.attrib = {name: value for name, value in one.attrib.items() if not name.startswith(("{", "xmlns"))}
        one.tag = "mrow" if _name(one) == "semantics" else _name(one)
        for note in [child for child in one if _name(child).startswith("annotation")]:
            one.remove(note)
    element.tail = None
    try:
        formula = zmath.Math(element, size=_SIZE)
        width, height = formula.getsize()
        depth = formula.getyofst()
        file = formula.svg()
    except (Exception, RecursionError):  # it has no errors of its own
        return None
    style = f"width: {width / _SIZE:.3f}em; height: {height / _SIZE:.3f}em; vertical-align: {depth / _SIZE:.3f}em"
    return f"data:image/svg+xml;base64,{b64encode(file.encode()).decode()}", style
