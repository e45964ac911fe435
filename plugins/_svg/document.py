"""Reads SVG into a tree that renderers of SVG 1.1 draw as browsers do, and draws it with resvg.

Issues warnings for what resvg does not draw.
"""

import math
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from types import MappingProxyType
from typing import TypeAlias

from lxml import etree
from resvg import render as _render
from resvg import usvg

from engine import CorruptInput, FidelityWarning
from plugins._fonts.choice import FontChooser
from plugins._svg import coordinates, filters, fonts, source, style, text
from plugins._svg.coordinates import inherited
from plugins._svg.css_values import URL_OF_ELEMENT, Size
from plugins._svg.source import HREFS, SVG, TRANSFORMS
from plugins._svg.text import Families

_ELEMENTS = {
    **dict.fromkeys(("animate", "animateColor", "animateMotion", "animateTransform", "set"), "animation"),
    **dict.fromkeys(("font", "font-face", "tref", "altGlyph", "meshgradient", "solidcolor", "hatch"), None),
    "flowRoot": "flowed text",
}
_KEPT = frozenset(
    f"{SVG}{name}"
    for name in (
        "svg", "g", "a", "switch", "defs", "symbol", "use", "image", "text", "tspan", "textPath",
        "path", "rect", "circle", "ellipse", "line", "polyline", "polygon",
        "linearGradient", "radialGradient", "stop", "pattern", "clipPath", "mask", "marker", "filter",
    )
)  # fmt: skip
_QUALIFIED = frozenset({*HREFS, *(f"{{http://www.w3.org/XML/1998/namespace}}{name}" for name in ("space", "lang"))})
TEXTS = {f"{SVG}title": "Title", f"{SVG}desc": "Description"}
"""Elements with texts about a drawing, and what they are called in metadata."""
_REFERENCES = ("clip-path", "mask", "filter", "marker-start", "marker-mid", "marker-end")
_EFFECTS = frozenset({"mask-image", "mask-mode", "text-shadow", "text-orientation", "backdrop-filter"})
_PLACES = {"symbol": "refX", "textPath": "path", "tspan": "textLength"}  # attributes that resvg does not know there
_INTERPOLATED = ("linearGradient", "radialGradient", "mask")
_SHAPES = re.compile(r"\b(?:inset|circle|ellipse|polygon|path|rect|xywh)\(")
_STROKES = ("stroke-width", "stroke-dashoffset", "stroke-dasharray")
_NUMBER = re.compile(r"([-+]?(?:\d+\.?\d*|\.\d+)(?:e[-+]?\d+)?)(px)?")
_SIMILARITY = 1e-3  # relative tolerance of scales


def read(data: bytes, chooser: FontChooser | None = None, *, rasterizes_filters: bool = False) -> etree._Element:
    """The root of an SVG without style sheets, HTML, scripts and references to other files, for resvg and usvg.

    Raises TooLarge, CorruptInput. Issues a FidelityWarning for each kind of loss, and with `rasterizes_filters` for
    filters. Filters are written as resvg draws them, and text with the fonts of `chooser`, unless it is None: then the
    result is for browsers, and causes no warning when it is read again, except for filters.
    """
    families = Families(fonts.FAMILIES)
    missing: set[str] = set()
    filtered: list[etree._Element] = []

    def normalize(root: etree._Element) -> None:
        style.resolve(root)
        root.set("font-size", root.get("font-size", "16"))  # for which renderers have other defaults
        if text.replace_html(root):
            missing.add("foreignObject")
        text.normalize(root, families)
        if chooser is not None:
            fonts.choose(root, chooser)
        missing.update(_rewrite_effects(root))
        if any(element.get("filter", "none") != "none" for element in root.iter(etree.Element)):
            filtered.append(root)
            if chooser is not None:
                missing.update(filters.adapt(root))
        _remove_unknown(root)

    root, removed = source.parse(data, normalize)
    if removed:
        missing.add("references to other files")
    if rasterizes_filters and filtered:
        FidelityWarning.issue("effects_rasterized", "Drawn as pixels instead of vectors: filters.")
    if missing:
        FidelityWarning.issue("effects_dropped", f"Not drawn: {', '.join(sorted(missing))}.")
    if families.substituted:
        pairs = ", ".join(f"{name} by {found}" for name, found in families.substituted.items())
        FidelityWarning.issue("font_substituted", f"Fonts that are not installed were replaced: {pairs}.")
    if chooser is not None:
        chooser.warn()
    return root


def texts(root: etree._Element) -> tuple[tuple[str, str], ...]:
    """The title and the description of a drawing that `read` returned, by their names in metadata."""
    return tuple((TEXTS[child.tag], child.text or "") for child in root if child.tag in TEXTS)


def _rewrite_effects(root: etree._Element) -> set[str]:
    """Rewrites an SVG whose CSS is resolved. Returns the names of the effects that resvg does not draw."""
    by_id = {element.get("id"): element for element in root.iter(etree.Element)}
    missing: set[str] = set()
    for element in root.iter(*TRANSFORMS):
        inherit_transform(element, by_id)
    for element in root.iter(etree.Element):
        for name in _REFERENCES:
            value = element.get(name)
            link = URL_OF_ELEMENT.match(value) if value else None
            if link and link[1] not in by_id:
                del element.attrib[name]  # browsers ignore a reference to nothing
            elif link and name == "mask" and link[0] != value:
                missing.add("layers and modes of masks")
                element.set(name, link[0])
        if element.attrib.pop("vector-effect", "") == "non-scaling-stroke" and not _scale_stroke(element):
            missing.add("vector-effect")
        for name, attribute in [*_missing(element)]:
            missing.add(name)
            if attribute is not None:
                del element.attrib[attribute]
    return missing


def _remove_unknown(root: etree._Element) -> None:
    """Removes elements and attributes that draw nothing, such as scripts and the data of drawing programs.

    Keeps the text of the title and the description of the whole drawing.
    """
    described = [(child.tag, "".join(child.itertext())) for child in root if child.tag in TEXTS]
    tags = {element.tag for element in root.iter(etree.Element)} - _KEPT
    unknown = [tag for tag in tags if not tag.startswith(f"{SVG}fe")]  # the parts of filters
    if unknown:
        etree.strip_elements(root, *unknown, with_tail=False)
    for position, (tag, content) in enumerate(described):
        element = etree.Element(tag)
        element.text = content
        root.insert(position, element)
    for element in root.iter(etree.Element):
        for name in [*element.attrib]:
            if name[:2] == "on" or (name[:1] == "{" and name not in _QUALIFIED):
                del element.attrib[name]


def _missing(element: etree._Element) -> Iterator[tuple[str, str | None]]:
    """The names of the effects of an element that resvg does not draw, with the attribute that causes it."""
    name = str(element.tag).removeprefix(SVG)
    if name in _ELEMENTS:
        yield _ELEMENTS[name] or name, None
    attributes = dict(element.attrib)
    for attribute in ("animation-name", "animation"):
        if attributes.get(attribute, "none").split()[:1] not in ([], ["none"]):
            yield "animation", attribute
    if "pathLength" in attributes and inherited(element, "stroke-dasharray", "none") != "none":
        yield "pathLength", "pathLength"
    for attribute in ("clip-path", "mask"):
        if _SHAPES.search(attributes.get(attribute, "").partition("url(")[0]):
            yield attribute, attribute
    for attribute in _EFFECTS.intersection(attributes):
        if attributes[attribute] not in ("none", "normal", "mixed"):
            yield attribute, attribute
    if name in _PLACES and _PLACES[name] in attributes:
        yield f"{_PLACES[name]} of {name}", _PLACES[name]
    if attributes.get("font-variant") == "small-caps":
        yield "small capitals", "font-variant"
    if name in _INTERPOLATED and inherited(element, "color-interpolation") == "linearRGB":
        yield "color-interpolation", "color-interpolation"
    if attributes.get("mix-blend-mode", "").startswith("plus-"):
        yield "mix-blend-mode", "mix-blend-mode"
        yield "mix-blend-mode", "style"
    if "transform-origin" in attributes and attributes.get("transform-box", "view-box") in ("fill-box", "stroke-box"):
        yield "transform-box", "transform-box"
    if "%" in attributes.get("transform", "") or "3d(" in attributes.get("transform", ""):
        yield "transform", "transform"


def _scale_stroke(element: etree._Element) -> bool:
    """Divides the stroke of an element by its scale. Returns False if it is scaled differently in two directions."""
    matrix = coordinates.to_root(element)
    if matrix is None:
        return False
    root = element.getroottree().getroot()
    (across, down), (_, _, width, height) = coordinates.size(root), coordinates.shown_box(root)
    a, b, c, d, _, _ = coordinates.multiply((across / width, 0, 0, down / height, 0, 0), matrix)
    first, second = math.hypot(a, b), math.hypot(c, d)
    scale = math.sqrt(abs(a * d - b * c))
    if not scale:
        return True
    for name in _STROKES:
        value = inherited(element, name, "1" if name == "stroke-width" else "none")
        if value != "none":
            element.set(name, _NUMBER.sub(lambda match: f"{float(match[1]) / scale:.6g}", value))
    return math.isclose(first, second, rel_tol=_SIMILARITY) and abs(a * c + b * d) < _SIMILARITY * first * second


def render(root: etree._Element, chooser: FontChooser, box: tuple[int, int, int, int]) -> bytes:
    """A box of an SVG in pixels, left, top, right and bottom, as a PNG with alpha. Raises CorruptInput."""
    left, top, right, bottom = box
    with failures():
        tree = usvg.Tree.from_str(etree.tostring(root, encoding="unicode"), fonts.options_for(chooser))
        return bytes(_render(tree, (1, 0, -left, 0, 1, -top), bg_size=(right - left, bottom - top)))


@contextmanager
def failures() -> Iterator[None]:
    """Raises CorruptInput for the exceptions and panics of renderers in Rust."""
    try:
        yield
    except BaseException as error:
        # A panic in Rust is no Exception.
        if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
            raise
        raise CorruptInput("The SVG cannot be drawn.") from error


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
    for other in _sources(element, by_id):
        transform = other.get(TRANSFORMS[str(other.tag)])
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
