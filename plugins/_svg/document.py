"""Reads SVG into a tree that renderers of SVG 1.1 draw as browsers do, and draws it with resvg.

Issues warnings for what resvg does not draw.
"""

import math
import re
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path

from lxml import etree
from PIL import Image
from resvg import render as _render
from resvg import usvg

from engine import CorruptInput, FidelityWarning
from plugins._svg import coordinates, source, style, text
from plugins._svg.coordinates import inherited
from plugins._svg.source import SVG
from plugins._svg.text import Families

_ELEMENTS = {
    **dict.fromkeys(("animate", "animateColor", "animateMotion", "animateTransform", "set"), "animation"),
    **dict.fromkeys(("font", "font-face", "tref", "altGlyph", "meshgradient", "solidcolor", "hatch"), None),
}
_REFERENCES = ("clip-path", "mask", "filter", "marker-start", "marker-mid", "marker-end")
LINK = re.compile(r"url\(\s*['\"]?#([^'\")]+)['\"]?\s*\)")
"""A reference to an element of the same file."""
_SHAPES = re.compile(r"\b(?:inset|circle|ellipse|polygon|path|rect|xywh)\(")
_STROKES = ("stroke-width", "stroke-dashoffset", "stroke-dasharray")
_NUMBER = re.compile(r"([-+]?(?:\d+\.?\d*|\.\d+)(?:e[-+]?\d+)?)(px)?")
_SIMILARITY = 1e-3  # relative tolerance of scales
_FONT_FOLDERS = ("/usr/share/fonts", "/usr/local/share/fonts")  # jobs may read these


def _load_options() -> usvg.Options:
    options = usvg.Options.default()
    for folder in filter(Path.is_dir, map(Path, _FONT_FOLDERS)):
        options.load_fonts_dir(str(folder))
    options.font_size = 16
    return options


_OPTIONS = _load_options()  # at import, because a fork server imports once what jobs share
_FAMILIES = frozenset(_OPTIONS.list_fonts())  # installed font families


def read(data: bytes) -> etree._Element:
    """The root of an SVG without style sheets, HTML and references to other files, for resvg.

    Raises TooLarge, CorruptInput. Issues a FidelityWarning for each kind of loss.
    """
    families = Families(_FAMILIES)
    missing: set[str] = set()

    def normalize(root: etree._Element) -> None:
        style.resolve(root)
        if text.replace_html(root):
            missing.add("foreignObject")
        text.normalize(root, families)
        missing.update(_rewrite_effects(root))

    root, removed = source.parse(data, normalize)
    if removed:
        missing.add("references to other files")
    if missing:
        FidelityWarning.issue("effects_dropped", f"Not drawn: {', '.join(sorted(missing))}.")
    if families.substituted:
        pairs = ", ".join(f"{name} by {found}" for name, found in families.substituted.items())
        FidelityWarning.issue("font_substituted", f"Fonts that are not installed were replaced: {pairs}.")
    return root


def _rewrite_effects(root: etree._Element) -> set[str]:
    """Rewrites an SVG whose CSS is resolved. Returns the names of the effects that resvg does not draw."""
    ids = {element.get("id") for element in root.iter(etree.Element)}
    missing: set[str] = set()
    for element in root.iter(etree.Element):
        for name in _REFERENCES:
            value = element.get(name)
            if value is not None:
                link = LINK.match(value)
                if link and link[1] not in ids:
                    del element.attrib[name]  # browsers ignore a reference to nothing
        if element.get("vector-effect") == "non-scaling-stroke" and not _scale_stroke(element):
            missing.add("vector-effect")
        missing.update(_missing(element))
    return missing


def _missing(element: etree._Element) -> Iterator[str]:
    """The names of the effects of an element that resvg does not draw."""
    name = str(element.tag).removeprefix(SVG)
    if name in _ELEMENTS:
        yield _ELEMENTS[name] or name
    attributes = element.attrib
    if attributes.get("animation-name", attributes.get("animation", "none")).split()[:1] not in ([], ["none"]):
        yield "animation"
    if attributes.get("backdrop-filter", "none") != "none":
        yield "backdrop-filter"
    if "pathLength" in attributes and inherited(element, "stroke-dasharray", "none") != "none":
        yield "pathLength"
    for property_name in ("clip-path", "mask"):
        if _SHAPES.search(attributes.get(property_name, "").partition("url(")[0]):
            yield property_name
    if "mask-image" in attributes:
        yield "mask-image"
    if (
        attributes.get("transform-box", "view-box") not in ("view-box", "border-box")
        and "transform-origin" in attributes
    ):
        yield "transform-box"
    if "%" in attributes.get("transform", "") or "3d(" in attributes.get("transform", ""):
        yield "transform"


def _scale_stroke(element: etree._Element) -> bool:
    """Divides the stroke of an element by its scale. Returns False if it is scaled differently in two directions."""
    matrix = coordinates.to_root(element)
    if matrix is None:
        return False
    a, b, c, d, _, _ = matrix
    first, second = math.hypot(a, b), math.hypot(c, d)
    scale = math.sqrt(abs(a * d - b * c))
    if not scale:
        return True
    for name in _STROKES:
        value = inherited(element, name, "1" if name == "stroke-width" else "none")
        if value != "none":
            element.set(name, _NUMBER.sub(lambda match: f"{float(match[1]) / scale:.6g}", value))
    return math.isclose(first, second, rel_tol=_SIMILARITY) and abs(a * c + b * d) < _SIMILARITY * first * second


def render(root: etree._Element, box: tuple[int, int, int, int]) -> Image.Image:
    """A box of an SVG in pixels, left, top, right and bottom, as an RGBA picture. Raises CorruptInput."""
    left, top, right, bottom = box
    try:
        tree = usvg.Tree.from_str(etree.tostring(root, encoding="unicode"), _OPTIONS)
        png = _render(tree, (1, 0, -left, 0, 1, -top), bg_size=(right - left, bottom - top))
    except Exception as error:
        raise CorruptInput("The SVG cannot be drawn.") from error
    except BaseException as error:
        # A panic in Rust is no Exception.
        if type(error).__name__ != "PanicException":
            raise
        raise CorruptInput("The SVG cannot be drawn.") from error
    return Image.open(BytesIO(png), formats=["PNG"])
