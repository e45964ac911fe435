"""Draws the text of HTML in <foreignObject> as SVG text, without other layout of HTML."""

from __future__ import annotations

import re
from collections.abc import Iterator

from lxml import etree

from plugins._svg.coordinates import font_size, inherited
from plugins._svg.source import SVG

_BLOCKS = frozenset({"br", "div", "p", "li", "tr", "h1", "h2", "h3", "h4", "h5", "h6", "pre", "ul", "ol", "table"})
_BOLD = frozenset({"b", "strong", "h1", "h2", "h3", "h4", "h5", "h6", "th"})
_CHARACTER = 0.55  # mean width in font sizes
_BASELINE = 0.35  # of a line's text below its middle, in font sizes


def replace_html(root: etree._Element) -> bool:
    """Replaces each <foreignObject> by its text, unless a <switch> has an alternative. Returns whether it had any."""
    found = False
    for foreign in [*root.iter(f"{SVG}foreignObject")]:
        parent = foreign.getparent()
        if parent is None:
            continue
        if parent.tag == f"{SVG}switch" and any(child.tag != foreign.tag for child in parent):
            parent.remove(foreign)
            continue
        found = found or len(foreign) > 0
        drawn = _text_of(foreign)
        drawn.tail = foreign.tail
        parent.replace(foreign, drawn)
    return found


def _text_of(foreign: etree._Element) -> etree._Element:
    """A group with the text of a <foreignObject>, one <text> a line."""
    group = etree.Element(f"{SVG}g", {name: foreign.get(name) for name in _GROUP if foreign.get(name) is not None})
    lines = [
        (source, line) for source, text in _lines(foreign) for line in _wrap(source, text, _side(foreign, "width"))
    ]
    top = _side(foreign, "y")
    for source, line in lines:
        size = font_size(source)
        height = _line_height(source, size)
        left, width = _side(foreign, "x"), _side(foreign, "width")
        align = inherited(source, "text-align", "start")
        anchor = {"center": "middle", "right": "end", "end": "end"}.get(align, "start")
        x = left + {"start": 0.0, "middle": width / 2, "end": width}[anchor]
        text = etree.SubElement(group, f"{SVG}text", {"x": f"{x:g}", "text-anchor": anchor, "stroke": "none"})
        text.set("y", f"{top + height / 2 + _BASELINE * size:g}")
        text.set("fill", inherited(source, "color", "#000"))
        text.set("font-size", f"{size:g}")
        for name in ("font-family", "font-style"):
            if inherited(source, name):
                text.set(name, inherited(source, name))
        bold = any(_name(element) in _BOLD for element in (source, *source.iterancestors()))
        text.set("font-weight", "bold" if bold else inherited(source, "font-weight", "normal"))
        text.text = line
        top += height
    return group


_GROUP = ("transform", "clip-path", "mask", "opacity", "filter", "display", "visibility")


def _name(element: etree._Element) -> str:
    return str(etree.QName(element).localname)


def _side(element: etree._Element, name: str) -> float:
    """A geometric attribute in pixels; 0 if it is missing or a percentage."""
    match = re.match(r"\s*([-+]?(?:\d+\.?\d*|\.\d+))(?:px)?\s*$", element.get(name, ""))
    return float(match[1]) if match else 0.0


def _line_height(element: etree._Element, size: float) -> float:
    match = re.fullmatch(r"([\d.]+)(px|%|em)?", inherited(element, "line-height"))
    if match is None:
        return 1.2 * size
    return float(match[1]) * {"px": 1, "%": size / 100}.get(match[2] or "", size)


def _lines(foreign: etree._Element) -> Iterator[tuple[etree._Element, str]]:
    """The lines of text, each with the element that its style comes from."""
    source, line = foreign, ""
    for event, element in etree.iterwalk(foreign, events=("start", "end")):
        if _name(element) in _BLOCKS and line.strip():
            yield source, " ".join(line.split())
            line = ""
        text = element.text if event == "start" else element.tail if element is not foreign else None
        if text and text.strip() and not line.strip():
            source = element if event == "start" else element.getparent()
        line += text or ""
    if line.strip():
        yield source, " ".join(line.split())


def _wrap(source: etree._Element, text: str, width: float) -> Iterator[str]:
    """The text broken at spaces into lines of about `width` pixels."""
    limit = width / (_CHARACTER * font_size(source)) if width else 0
    if not limit or inherited(source, "white-space") == "nowrap":
        yield text
        return
    line = ""
    for word in text.split():
        if line and len(line) + 1 + len(word) > max(limit, 1) * 1.1:
            yield line
            line = ""
        line = f"{line} {word}" if line else word
    yield line
