"""Rewrites the text of an SVG: font families, direction, white space and baselines. Text in HTML becomes SVG text."""

import re
from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType

from lxml import etree

from plugins._svg.coordinates import font_size, inherited
from plugins._svg.source import SVG

_SPACE = "{http://www.w3.org/XML/1998/namespace}space"
# Unicode's embedding of a direction.
RIGHT_TO_LEFT = "\u202b"
END = "\u202c"
_OPPOSITE = {"start": "end", "end": "start", "middle": "middle"}
_TRANSFORMS = {"uppercase": str.upper, "lowercase": str.lower, "capitalize": str.title}

_SANS = ("Liberation Sans", "Arimo", "DejaVu Sans")
_SERIF = ("Liberation Serif", "Tinos", "DejaVu Serif")
_MONO = ("Liberation Mono", "Cousine", "DejaVu Sans Mono")
_DEFAULT = (*_SERIF[:2], "DejaVu Sans")
_BUILTIN = "Noto Serif"  # where no font is installed
_SUBSTITUTES: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        **dict.fromkeys(("arial", "helvetica"), _SANS[:2]),
        **dict.fromkeys(("times new roman", "times"), _SERIF[:2]),
        **dict.fromkeys(("courier new", "courier"), _MONO[:2]),
        "calibri": ("Carlito",),
        "cambria": ("Caladea",),
    }
)
"""Families with the same metrics."""
_GENERIC: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        **dict.fromkeys(("sans-serif", "ui-sans-serif"), _SANS),
        **dict.fromkeys(("serif", "ui-serif"), _SERIF),
        **dict.fromkeys(("monospace", "ui-monospace"), (_MONO[-1], *_MONO)),
        **dict.fromkeys(("system-ui", "ui-rounded", "cursive", "fantasy", "math", "emoji"), ("DejaVu Sans", *_SANS)),
    }
)

_BLOCKS = frozenset({"br", "div", "p", "li", "tr", "h1", "h2", "h3", "h4", "h5", "h6", "pre", "ul", "ol", "table"})
_BOLD = frozenset({"b", "strong", "h1", "h2", "h3", "h4", "h5", "h6", "th"})
_CHARACTER = 0.55  # mean width in font sizes
_BASELINE = 0.35  # distance below the middle of a line, in font sizes
_GROUP_ATTRIBUTES = ("transform", "clip-path", "mask", "opacity", "filter", "display", "visibility")


class Families:
    """Installed font families. Resolves lists of families to one of them, as browsers do."""

    def __init__(self, names: Iterable[str]) -> None:
        self._names = {name.lower(): name for name in names}
        self._resolved: dict[str, str] = {}
        self.default = self.first(_DEFAULT) or min(self._names.values(), default=_BUILTIN)
        self.substituted: dict[str, str] = {}
        """The families used in place of those that are not installed."""

    def resolve(self, value: str) -> str:
        """The installed family for a value of `font-family`, followed by the families that the value names."""
        if value not in self._resolved:
            self._resolved[value] = self._resolve(value)
        return self._resolved[value]

    def _resolve(self, value: str) -> str:
        named = [re.sub("[\"']", "", name).strip() for name in value.split(",")]
        families = [name for name in named if name]
        for name in families:
            lower = name.lower()
            found = self._names.get(lower) or self.first(_SUBSTITUTES.get(lower, _GENERIC.get(lower, ())))
            if found:
                break
        else:
            found = self.default
        known = {name.lower() for name in families} - _GENERIC.keys()
        if known and found.lower() not in known:
            self.substituted[next(name for name in families if name.lower() in known)] = found
        others = (name if name.lower() in _GENERIC else f"'{name}'" for name in families if name != found)
        return ", ".join([found, *others])

    def first(self, names: Iterable[str]) -> str | None:
        """The first family that is installed."""
        return next((self._names[name.lower()] for name in names if name.lower() in self._names), None)


def normalize(root: etree._Element, families: Families) -> None:
    """Rewrites the text of an SVG whose CSS is resolved to what renderers of SVG 1.1 draw."""
    texts = list(root.iter(f"{SVG}text"))
    if not texts and root.find(f".//{SVG}foreignObject") is None:
        return
    if root.get("font-family") is None:
        root.set("font-family", families.default)
    for element in root.iter(etree.Element):
        family = element.get("font-family")
        if family is not None and family != "inherit":
            element.set("font-family", families.resolve(family))
    for text in texts:
        _normalize_text(text)


def _normalize_text(text: etree._Element) -> None:
    baseline = inherited(text, "dominant-baseline")
    if baseline:
        text.set("dominant-baseline", baseline)
    if inherited(text, "white-space").startswith(("pre", "break-spaces")):
        text.set(_SPACE, "preserve")
    for part in text.iter(etree.Element):
        transform = _TRANSFORMS.get(inherited(part, "text-transform"))
        if transform is not None:
            part.text = transform(part.text) if part.text else part.text
            for child in part:
                child.tail = transform(child.tail) if child.tail else child.tail
    if inherited(text, "direction") == "rtl":
        _write_right_to_left(text)


def _write_right_to_left(text: etree._Element) -> None:
    """Expresses the direction by anchors and control characters, because renderers ignore the property."""
    text.set("text-anchor", inherited(text, "text-anchor", "start"))
    for part in text.iter(etree.Element):
        part.attrib.pop("direction", None)
        if "text-anchor" in part.attrib:
            part.set("text-anchor", _OPPOSITE.get(part.get("text-anchor", ""), "start"))
    text.set("direction", "ltr")
    if not any(len(re.split(r"[\s,]+", part.get("x", "").strip())) > 1 for part in text.iter(etree.Element)):
        # A new absolute position starts a paragraph of its own.
        for part in [text, *(part for part in text.iter(etree.Element) if "x" in part.attrib and part is not text)]:
            part.text = f"{RIGHT_TO_LEFT}{part.text or ''}"
            if len(part):
                part[-1].tail = f"{part[-1].tail or ''}{END}"
            else:
                part.text += END


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
    group = etree.Element(
        f"{SVG}g", {name: foreign.get(name) for name in _GROUP_ATTRIBUTES if foreign.get(name) is not None}
    )
    lines = [
        (source, line) for source, text in _lines(foreign) for line in _wrap(source, text, _side(foreign, "width"))
    ]
    top = _side(foreign, "y")
    for source, line in lines:
        size = font_size(source)
        height = _line_height(source, size)
        left = _side(foreign, "x")
        width = _side(foreign, "width")
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
    source = foreign
    line = ""
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
