"""Sizes, inherited properties and coordinate systems of SVG elements whose CSS is resolved."""

import math
import re
from typing import TypeAlias

from lxml import etree

from engine import TooLarge
from plugins._svg import css_values
from plugins._svg.css_values import Context, Size
from plugins._svg.source import SVG

Box: TypeAlias = tuple[float, float, float, float]
"""x, y, width and height."""
Matrix: TypeAlias = tuple[float, float, float, float, float, float]
"""a, b, c, d, e and f of SVG's matrix()."""

IDENTITY: Matrix = (1, 0, 0, 1, 0, 0)
_DEFAULT_SIZE = (300.0, 150.0)  # pixels; the CSS default for images without a size
_MAX_SIDE = 100_000  # pixels
_FONT_SIZES = {"xx-small": 9, "x-small": 10, "small": 13, "medium": 16, "large": 18, "x-large": 24, "xx-large": 32}
_RELATIVE_FONT_SIZES = {"smaller": 1 / 1.2, "larger": 1.2}
_ALIGNMENTS = {"xMin": 0.0, "xMid": 0.5, "xMax": 1.0, "YMin": 0.0, "YMid": 0.5, "YMax": 1.0}
_FUNCTION = re.compile(r"(\w+)\s*\(([^()]*)\)")


def inherited(element: etree._Element, name: str, default: str = "") -> str:
    """The value of an inherited property, from the nearest element that has the attribute."""
    nearest: etree._Element | None = element
    while nearest is not None:
        value = nearest.get(name)
        if value is not None and value != "inherit":
            return str(value).strip()
        nearest = nearest.getparent()
    return default


def font_size(element: etree._Element | None) -> float:
    """The computed font size in pixels."""
    while element is not None:
        value = element.get("font-size", "").strip().lower()
        if value in _FONT_SIZES:
            return _FONT_SIZES[value]
        if value in _RELATIVE_FONT_SIZES:
            return font_size(element.getparent()) * _RELATIVE_FONT_SIZES[value]
        match = re.fullmatch(r"(\d+\.?\d*|\.\d+)(px|pt|em|rem|%)?", value)
        if match is not None:
            number = float(match[1])
            unit = match[2]
            if unit in ("em", "%"):
                return number * font_size(element.getparent()) / (1 if unit == "em" else 100)
            return number * {"pt": 4 / 3, "rem": 16}.get(unit, 1)
        element = element.getparent()
    return 16.0


def viewport_size(root: etree._Element) -> Size:
    """The size of the root's coordinate system, to which percentages refer."""
    box = view_box(root)
    return box[2:] if box else size(root)


def view_box(root: etree._Element) -> tuple[float, float, float, float] | None:
    """The view box; None if it is missing, invalid or empty."""
    try:
        x, y, width, height = (float(part) for part in re.split(r"[\s,]+", root.get("viewBox", "").strip()))
    except ValueError:
        return None
    return (x, y, width, height) if width > 0 and height > 0 else None


def size(root: etree._Element) -> Size:
    """Width and height in pixels at 96 dpi. A missing side follows from the view box, as in browsers.

    Raises TooLarge.
    """
    width, height = _stated_size(root)
    if max(width, height) > _MAX_SIDE:
        raise TooLarge(
            f"The image has {width:g} x {height:g} pixels; the limit is {_MAX_SIDE} per side.",
            reason="pixels",
            details={"max_side": _MAX_SIDE},
        )
    return width, height


def _stated_size(root: etree._Element) -> Size:
    width, height = (_pixels(root, side) for side in ("width", "height"))
    box = view_box(root)
    if width is not None and height is not None:
        return width, height
    if box is None:
        return width or _DEFAULT_SIZE[0], height or _DEFAULT_SIZE[1]
    if width is not None:
        return width, width * box[3] / box[2]
    return (height * box[2] / box[3], height) if height is not None else box[2:]


def _pixels(root: etree._Element, side: str) -> float | None:
    context = Context(_DEFAULT_SIZE, 16, lambda: font_size(root), {})
    value = root.get(side, "").strip()
    if not value or value.endswith("%"):
        return None
    number = css_values.length(value, context)
    return number if number is not None and number > 0 else None


def shown_box(root: etree._Element) -> Box:
    """The part of the root's coordinate system that the image shows at its own size."""
    across, down = size(root)
    box = view_box(root)
    align, _, meet = root.get("preserveAspectRatio", "xMidYMid").strip().partition(" ")
    if box is None:
        return 0.0, 0.0, across, down
    if align == "none":
        return box
    x, y, width, height = box
    scales = across / width, down / height
    scale = max(scales) if meet.strip() == "slice" else min(scales)
    left, top = (_ALIGNMENTS.get(part, 0.5) for part in (align[:4], align[4:]))
    return (
        x - (across / scale - width) * left,
        y - (down / scale - height) * top,
        across / scale,
        down / scale,
    )


def scale_to(root: etree._Element, wanted: Size) -> etree._Element:
    """Sets the size of the root to `wanted` pixels and scales its content to it. Returns the root."""
    box = shown_box(root)
    root.set("viewBox", " ".join(f"{value:.9g}" for value in box))
    root.set("preserveAspectRatio", "none")
    for name, side in zip(("width", "height"), wanted, strict=True):
        root.set(name, f"{side:.9g}")
    return root


def matrix(transform: str) -> Matrix:
    """The matrix of a `transform` attribute. Functions that are not valid are left out."""
    total = IDENTITY
    for name, arguments in _FUNCTION.findall(transform):
        try:
            numbers = [float(number) for number in re.split(r"[\s,]+", arguments.strip())]
            total = multiply(total, _function_matrix(name, *numbers))
        except (TypeError, ValueError):
            continue
    return total


def _function_matrix(name: str, first: float, *rest: float) -> Matrix:
    if name == "matrix":
        b, c, d, e, f = rest
        return first, b, c, d, e, f
    if name == "translate":
        return 1, 0, 0, 1, first, rest[0] if rest else 0
    if name == "scale":
        return first, 0, 0, rest[0] if rest else first, 0, 0
    angle = math.radians(first)
    if name == "rotate":
        x, y = rest or (0.0, 0.0)
        turn = (math.cos(angle), math.sin(angle), -math.sin(angle), math.cos(angle), 0.0, 0.0)
        return multiply(multiply((1, 0, 0, 1, x, y), turn), (1, 0, 0, 1, -x, -y))
    if name == "skewX":
        return 1, 0, math.tan(angle), 1, 0, 0
    if name == "skewY":
        return 1, math.tan(angle), 0, 1, 0, 0
    raise ValueError(name)


def multiply(first: Matrix, second: Matrix) -> Matrix:
    """The matrix that applies `second`, then `first`."""
    a, b, c, d, e, f = first
    g, h, i, j, k, m = second
    return a * g + c * h, b * g + d * h, a * i + c * j, b * i + d * j, a * k + c * m + e, b * k + d * m + f


def to_root(element: etree._Element) -> Matrix | None:
    """The matrix from an element's user space to the root's; None if an inner <svg> or <symbol> lies between."""
    total = matrix(element.get("transform", ""))
    for ancestor in element.iterancestors():
        if ancestor.getparent() is not None:
            if ancestor.tag not in (f"{SVG}g", f"{SVG}a", f"{SVG}switch"):
                return None
            total = multiply(matrix(ancestor.get("transform", "")), total)
    return total
