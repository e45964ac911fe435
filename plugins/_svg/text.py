"""Normalizes the text of an SVG: font families, direction, white space, baselines and text in HTML."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from types import MappingProxyType

from lxml import etree

from plugins._svg.coordinates import inherited
from plugins._svg.source import SVG

_SPACE = "{http://www.w3.org/XML/1998/namespace}space"
_RIGHT_TO_LEFT, _END = "\u202b", "\u202c"  # Unicode's embedding of a direction
_OPPOSITE = {"start": "end", "end": "start", "middle": "middle"}
_TRANSFORMS = {"uppercase": str.upper, "lowercase": str.lower, "capitalize": str.title}

_SANS = ("Liberation Sans", "Arimo", "DejaVu Sans")
_SERIF = ("Liberation Serif", "Tinos", "DejaVu Serif")
_MONO = ("Liberation Mono", "Cousine", "DejaVu Sans Mono")
_DEFAULT = (*_SERIF[:2], "DejaVu Sans")
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


class Families:
    """Installed font families. Resolves lists of families to one of them, as browsers do."""

    def __init__(self, names: Iterable[str]) -> None:
        self._names = {name.lower(): name for name in names}
        self._resolved: dict[str, str] = {}
        self.default = self._first(_DEFAULT) or next(iter(self._names.values()), "serif")
        self.substituted: dict[str, str] = {}
        """The families used in place of those that are not installed."""

    def resolve(self, value: str) -> str:
        """The installed family for a value of `font-family`."""
        if value not in self._resolved:
            self._resolved[value] = self._resolve(value)
        return self._resolved[value]

    def _resolve(self, value: str) -> str:
        named = [name.strip().strip("\"'").strip() for name in value.split(",")]
        families = [name for name in named if name]
        for name in families:
            lower = name.lower()
            found = self._names.get(lower) or self._first(_SUBSTITUTES.get(lower, _GENERIC.get(lower, ())))
            if found:
                break
        else:
            found = self.default
        known = {name.lower() for name in families} - _GENERIC.keys()
        if known and found.lower() not in known:
            self.substituted[next(name for name in families if name.lower() in known)] = found
        return found

    def _first(self, names: Iterable[str]) -> str | None:
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
        if "text-anchor" in part.attrib:
            part.set("text-anchor", _OPPOSITE.get(part.get("text-anchor", ""), "start"))
    if not any(len(re.split(r"[\s,]+", part.get("x", "").strip())) > 1 for part in text.iter(etree.Element)):
        # A new absolute position starts a paragraph of its own.
        for part in [text, *(part for part in text.iter(etree.Element) if "x" in part.attrib and part is not text)]:
            part.text = f"{_RIGHT_TO_LEFT}{part.text or ''}"
            if len(part):
                part[-1].tail = f"{part[-1].tail or ''}{_END}"
            else:
                part.text += _END
