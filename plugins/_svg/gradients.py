"""Resolves references between gradients, and writes repeated gradients for renderers that do not repeat them."""

import math
from collections.abc import Mapping
from contextlib import suppress
from types import MappingProxyType
from typing import TypeAlias

from lxml import etree

from plugins._svg import coordinates
from plugins._svg.css_values import Size
from plugins._svg.source import HREFS, SVG, TRANSFORMS

ById: TypeAlias = Mapping[str | None, etree._Element]

_MAX_LINKS = 16  # gradients that refer to each other
_MAX_PERIODS = 50  # on each side
_MAX_STOPS = 100_000  # Gradients that would have more stops together stay as they are.
_CIRCLES: Mapping[str, Mapping[str, str]] = MappingProxyType(
    {
        f"{SVG}linearGradient": {"x1": "0%", "y1": "0%", "x2": "100%", "y2": "0%"},
        f"{SVG}radialGradient": {"fx": "", "fy": "", "fr": "0", "cx": "50%", "cy": "50%", "r": "50%"},
    }
)
"""The attributes of the points or circles at which gradients start and end, with their defaults."""


def inherit_transform(element: etree._Element, by_id: ById) -> None:
    """Copies the transform of a gradient or pattern from those that it refers to, because resvg does not inherit it."""
    for source in _sources(element, by_id):
        transform = source.get(TRANSFORMS[str(source.tag)])
        if transform is not None:
            element.set(TRANSFORMS[str(element.tag)], transform)
            break


def _sources(element: etree._Element | None, by_id: ById) -> list[etree._Element]:
    """A gradient or pattern, and those that it refers to, the nearest first."""
    found: list[etree._Element] = []
    while element is not None and element.tag in TRANSFORMS and len(found) < _MAX_LINKS:
        found.append(element)
        link = next((element.get(href, "") for href in HREFS if href in element.attrib), "")
        element = by_id.get(link.strip().removeprefix("#"))
    return found


def simplify(root: etree._Element) -> None:
    """Writes gradients with a `spreadMethod` or a focal radius as longer ones without, which cover the image."""
    by_id = {element.get("id"): element for element in root.iter(etree.Element)}
    viewport = coordinates.viewport_size(root)
    chains = [_sources(gradient, by_id) for gradient in root.iter(*_CIRCLES)]
    left = _MAX_STOPS
    for sources in sorted(chains, key=len, reverse=True):  # referring gradients come first
        spread = _first(sources, "spreadMethod", "pad")
        if spread in ("repeat", "reflect") or _first(sources, "fr", "0") != "0":
            stops: list[etree._Element] = next(
                (found for source in sources if (found := source.findall(f"{SVG}stop"))), []
            )
            left -= len(stops) * _MAX_PERIODS * 2
            if stops and left >= 0:
                with suppress(ValueError):  # units, which gradients seldom have
                    _lengthen(sources, stops, viewport, spread)


def _first(sources: list[etree._Element], name: str, default: str) -> str:
    return next((source.get(name, "") for source in sources if name in source.attrib), default)


def _lengthen(sources: list[etree._Element], stops: list[etree._Element], viewport: Size, spread: str) -> None:
    """Raises ValueError for coordinates with units."""
    gradient = sources[0]
    in_box = _first(sources, "gradientUnits", "objectBoundingBox") != "userSpaceOnUse"
    across, down = (1.0, 1.0) if in_box else viewport
    texts = {name: _first(sources, name, default) for name, default in _CIRCLES[str(gradient.tag)].items()}
    values = [
        _number(text or texts[name.replace("f", "c")], down if "y" in name else across) for name, text in texts.items()
    ]
    first, last = values[: len(values) // 2], values[len(values) // 2 :]
    length = last[2] - first[2] if len(last) == 3 else math.dist(first, last)
    a, b, c, d, *_ = coordinates.matrix(gradient.get("gradientTransform", ""))
    scale = math.sqrt(abs(a * d - b * c))
    if length * scale <= 0:
        return
    count = 1 if spread == "pad" else min(_MAX_PERIODS, math.ceil(math.hypot(across, down) / length / scale))
    start = -first[2] / length if len(last) == 3 else -count  # where the radius is 0
    ends = [near + (far - near) * place for place in (start, count) for near, far in zip(first, last, strict=True)]
    for name, value in zip(texts, ends, strict=True):
        gradient.set(name, f"{value:.9g}")
    gradient.set("spreadMethod", "pad")
    copies = []
    for period in range(0 if spread == "pad" else math.ceil(start), count):
        backwards = spread == "reflect" and period % 2 == 1
        for stop in reversed(stops) if backwards else stops:
            offset = min(max(_number(stop.get("offset", "0"), 1), 0), 1)
            place = (period + (1 - offset if backwards else offset) - start) / (count - start)
            copies.append(etree.Element(str(stop.tag), {**stop.attrib, "offset": f"{place:.9g}"}))
    gradient[:] = copies


def _number(text: str, reference: float) -> float:
    text = text.strip()
    return float(text[:-1]) * reference / 100 if text.endswith("%") else float(text.removesuffix("px"))
