"""Rewrites values of CSS to the notations of SVG 1.1: colors, lengths, calculations, variables and transforms."""

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from types import MappingProxyType
from typing import Any, TypeAlias

import tinycss2
from tinycss2 import color5

from engine.color import decode_srgb, encode_srgb

Size: TypeAlias = tuple[float, float]

COLORS = frozenset({"fill", "stroke", "color", "stop-color", "flood-color", "lighting-color", "background-color"})
OPACITIES = frozenset({"opacity", "fill-opacity", "stroke-opacity", "stop-opacity", "flood-opacity", "offset"})
KEYWORDS = frozenset(
    {"alignment-baseline", "clip-path", "clip-rule", "color-interpolation", "color-interpolation-filters", "direction"}
    | {"display", "dominant-baseline", "fill-rule", "filter", "font-style", "font-variant", "font-weight", "isolation"}
    | {"marker-end", "marker-mid", "marker-start", "mask", "mask-type", "mix-blend-mode", "overflow", "paint-order"}
    | {"image-rendering", "shape-rendering", "stroke-linecap", "stroke-linejoin", "text-anchor", "text-decoration"}
    | {"text-orientation", "text-transform", "transform-box", "vector-effect", "visibility", "white-space"}
    | {"writing-mode"}
)
"""Other properties whose values are words, in any case."""
_SPELLINGS = MappingProxyType(
    {"currentcolor": "currentColor", "linearrgb": "linearRGB", "srgb": "sRGB", "rebeccapurple": "#639"}
    | {"bolder": "bold", "lighter": "normal", "canvas": "#fff", "canvastext": "#000", "linktext": "#00e"}
)
"""The words that renderers do not know in lower case."""
_ACROSS = frozenset({"x", "x1", "x2", "cx", "fx", "dx", "rx", "width", "refX", "markerWidth", "textLength"})
_DOWN = frozenset({"y", "y1", "y2", "cy", "fy", "dy", "ry", "height", "refY", "markerHeight"})
_OTHER_LENGTHS = frozenset(
    {"r", "fr", "stroke-width", "stroke-dashoffset", "stroke-dasharray", "font-size", "letter-spacing"}
    | {"word-spacing", "startOffset", "baseline-shift"}
)
LENGTHS = _ACROSS | _DOWN | _OTHER_LENGTHS

URL_OF_ELEMENT = re.compile(r"url\(\s*['\"]?#([^'\")]+)['\"]?\s*\)")
"""A reference to an element of the same file; the group is its id."""

_COLOR_FUNCTIONS = frozenset(
    {"rgb", "rgba", "hsl", "hsla", "hwb", "lab", "lch", "oklab", "oklch", "color", "light-dark", "device-cmyk"}
)
_PLAIN_COLOR = re.compile(r"rgb\(\s*\d+\s*,\s*\d+\s*,\s*\d+\s*\)|url\(\s*#[^()]*\)")
_MATH_FUNCTIONS = frozenset({"calc", "min", "max", "clamp"})
_UNITS = {"px": 1.0, "pt": 4 / 3, "pc": 16.0, "in": 96.0, "cm": 96 / 2.54, "mm": 96 / 25.4, "q": 96 / 101.6}
_UNIT = re.compile(r"(?<![\w#.-])([-+]?(?:\d+\.?\d*|\.\d+)(?:e[-+]?\d+)?)(rem|ch|vw|vh|vmin|vmax|q)\b", re.IGNORECASE)
_ANGLES = {"deg": 1.0, "rad": 180 / math.pi, "grad": 0.9, "turn": 360.0}
_MAX_NESTING = 16  # variables that refer to each other
_MAX_LENGTH = 10_000  # characters of a value with its variables replaced

# Linear light of XYZ (D65) and of Display P3 as sRGB primaries: CSS Color 4.
_XYZ_TO_SRGB = (
    (3.2409699419, -1.5373831776, -0.4986107603),
    (-0.9692436363, 1.8759675015, 0.0415550574),
    (0.0556300797, -0.2039769589, 1.0569715142),
)
_P3_TO_SRGB = (
    (1.2249401763, -0.2249401763, 0.0),
    (-0.0420569547, 1.0420569547, 0.0),
    (-0.0196375546, -0.0786360456, 1.0982736001),
)
_D50_TO_D65 = (
    (0.9554734528, -0.0230985369, 0.0632593086),
    (-0.0283697094, 1.0099954580, 0.0210413990),
    (0.0123140016, -0.0205076964, 1.3303659366),
)


@dataclass(frozen=True)
class Context:
    """The surroundings of a value: the size of the image, font sizes in pixels, and custom properties."""

    viewport: Size
    root_font_size: float
    font_size: Callable[[], float]
    variables: Mapping[str, str]


@lru_cache(maxsize=4096)  # drawings repeat their words
def spell(value: str) -> str:
    """A value of words or numbers as renderers know it; one with functions or strings is only stripped."""
    stripped = value.strip()
    lower = stripped.lower()
    if lower != stripped and ("(" in value or '"' in value or "'" in value):
        return stripped
    return _SPELLINGS.get(lower, lower)


def rewrite(name: str, value: str, context: Context) -> str:
    """The value of the property or attribute `name` in SVG 1.1; unchanged where that is not possible."""
    if "var(" in value:
        value = _substitute(value, context.variables)
    if name in COLORS or name == "filter":
        return rewrite_colors(value) if "(" in value or "#" in value else value
    if name in OPACITIES:
        return _opacity(value, context) if "%" in value or "(" in value else value
    if name in LENGTHS:
        return _lengths(name, value, context)
    return value


def _substitute(value: str, variables: Mapping[str, str]) -> str:
    """`value` with each var() replaced by the custom property or by its fallback. Empty if it becomes too long."""
    for _ in range(_MAX_NESTING):
        if "var(" not in value or len(value) > _MAX_LENGTH:
            break
        tokens = tinycss2.parse_component_value_list(value, skip_comments=True)
        value = "".join(_variable_text(token, variables) for token in tokens)
    return "" if "var(" in value or len(value) > _MAX_LENGTH else value


def _variable_text(token: Any, variables: Mapping[str, str]) -> str:
    if token.type != "function":
        return str(token.serialize())
    if token.lower_name != "var":
        return f"{token.name}({''.join(_variable_text(argument, variables) for argument in token.arguments)})"
    name, _, fallback = tinycss2.serialize(token.arguments).partition(",")
    return str(variables.get(name.strip(), fallback)).strip()


@lru_cache(maxsize=4096)  # drawings repeat their colors
def rewrite_colors(value: str) -> str:
    """`value` with the functions of colors as #rrggbb or rgba()."""
    if _PLAIN_COLOR.fullmatch(value):
        return value
    tokens = tinycss2.parse_component_value_list(value, skip_comments=True)
    return "".join(_color_text(token) for token in tokens)


def _color_text(token: Any) -> str:
    if token.type != "function" and not (token.type == "hash" and len(token.value) in (4, 8)):
        return str(token.serialize())
    if token.type == "function" and token.lower_name not in _COLOR_FUNCTIONS:
        return f"{token.name}({''.join(_color_text(argument) for argument in token.arguments)})"
    color = color5.parse_color(token)
    samples = None if color is None or color == "currentcolor" else _to_srgb(color)
    if samples is None:
        return "currentColor" if color == "currentcolor" else str(token.serialize())
    return _write_color(samples, color.alpha)


def _write_color(samples: Sequence[float], alpha: float | None) -> str:
    red, green, blue = (round(255 * min(max(sample, 0), 1)) for sample in samples)
    if alpha is None or alpha >= 1:
        return f"#{red:02x}{green:02x}{blue:02x}"
    return f"rgba({red}, {green}, {blue}, {alpha:g})"


def linear_color(value: str) -> str:
    """A color with its linear light in place of its samples; unchanged if it is none."""
    color = color5.parse_color(value)
    samples = None if color is None or color == "currentcolor" else _to_srgb(color)
    return value if samples is None else _write_color(decode_srgb(samples).tolist(), color.alpha)


def with_linear_shadows(value: str) -> str:
    """A value of `filter` whose shadows have colors as by `linear_color`."""
    tokens = tinycss2.parse_component_value_list(value, skip_comments=True)
    for token in tokens:
        if token.type == "function" and token.lower_name == "drop-shadow":
            words = "".join(linear_color(word.serialize()) for word in token.arguments)
            token.arguments = tinycss2.parse_component_value_list(words)
    return str(tinycss2.serialize(tokens))


def _to_srgb(color: Any) -> Sequence[float] | None:
    """Red, green and blue, which exceed 0 to 1 outside the gamut. None for spaces that are not converted."""
    samples: Sequence[float] = [sample or 0.0 for sample in color.coordinates]
    match color.space:
        case "srgb" | "hsl" | "hwb":
            return [*color.to("srgb").coordinates]
        case "srgb-linear":
            linear = samples
        case "display-p3":
            linear = _multiply(_P3_TO_SRGB, decode_srgb(samples).tolist())
        case "oklab" | "oklch" | "xyz-d65" | "xyz":
            linear = _multiply(_XYZ_TO_SRGB, color.to("xyz-d65").coordinates)
        case "lab" | "lch" | "xyz-d50":
            linear = _multiply(_XYZ_TO_SRGB, _multiply(_D50_TO_D65, color.to("xyz-d50").coordinates))
        case _:
            return None
    encoded: list[float] = encode_srgb(linear).tolist()
    return encoded


def _multiply(matrix: Sequence[Sequence[float]], vector: Sequence[float]) -> list[float]:
    return [sum(factor * sample for factor, sample in zip(row, vector, strict=True)) for row in matrix]


def length(value: str, context: Context) -> float | None:
    """A single length in pixels; None if it is invalid."""
    return _calculate(tinycss2.parse_component_value_list(value), 0, context)


def _opacity(value: str, context: Context) -> str:
    number = _calculate(tinycss2.parse_component_value_list(value), 1, context)
    return value if number is None else f"{number:g}"


def _lengths(name: str, value: str, context: Context) -> str:
    """`value` with calculations and the units of CSS 3 in pixels."""
    if "(" in value:
        across, down = context.viewport
        reference = across if name in _ACROSS else down if name in _DOWN else math.hypot(across, down) / math.sqrt(2)
        tokens = tinycss2.parse_component_value_list(value, skip_comments=True)
        value = "".join(_length_text(token, reference, context) for token in tokens)
    return _UNIT.sub(lambda match: f"{_pixels(float(match[1]), match[2].lower(), context):g}", value)


def _length_text(token: Any, reference: float, context: Context) -> str:
    if token.type != "function" or token.lower_name not in _MATH_FUNCTIONS:
        return str(token.serialize())
    number = _calculate([token], reference, context)
    return str(token.serialize()) if number is None else f"{number:.6g}"


def _calculate(tokens: Sequence[Any], reference: float, context: Context) -> float | None:
    """The number of pixels of a calculation, in which 100 % are `reference`. None if it is invalid."""
    try:
        return _Calculation([token for token in tokens if token.type != "whitespace"], reference, context).sum()
    except (ArithmeticError, IndexError, KeyError, RecursionError, ValueError):
        return None


class _Calculation:
    """A recursive-descent evaluator of sums and products of CSS."""

    def __init__(self, tokens: list[Any], reference: float, context: Context) -> None:
        self._tokens = tokens[::-1]
        self._reference = reference
        self._context = context

    def sum(self) -> float:
        total = self._product()
        while self._tokens:
            sign = self._tokens.pop()
            if sign != "+" and sign != "-":
                raise ValueError
            total += self._product() if sign == "+" else -self._product()
        return total

    def _product(self) -> float:
        total = self._operand()
        while self._tokens and (self._tokens[-1] == "*" or self._tokens[-1] == "/"):
            total = total * self._operand() if self._tokens.pop() == "*" else total / self._operand()
        return total

    def _operand(self) -> float:
        token = self._tokens.pop()
        if token.type == "number":
            return float(token.value)
        if token.type == "percentage":
            return float(token.value) * self._reference / 100
        if token.type == "dimension":
            return _pixels(token.value, token.lower_unit, self._context)
        if token.type == "() block":
            return self._nested(token.content)
        if token.type == "function" and token.lower_name in _MATH_FUNCTIONS:
            return self._function(token)
        raise ValueError

    def _nested(self, tokens: Sequence[Any]) -> float:
        tokens = [token for token in tokens if token.type != "whitespace"]
        return _Calculation([*tokens], self._reference, self._context).sum()

    def _function(self, token: Any) -> float:
        arguments: list[list[Any]] = [[]]
        for part in token.arguments:
            if part == ",":
                arguments.append([])
            else:
                arguments[-1].append(part)
        numbers = [self._nested(argument) for argument in arguments]
        if token.lower_name == "clamp":
            low, wanted, high = numbers
            return max(low, min(wanted, high))
        if token.lower_name == "min":
            return min(numbers)
        return max(numbers) if token.lower_name == "max" else sum(numbers)


def _pixels(number: float, unit: str, context: Context) -> float:
    """Raises KeyError for an unknown unit."""
    across, down = (side / 100 for side in context.viewport)
    if unit in ("em", "ex", "ch"):
        return number * context.font_size() * (1 if unit == "em" else 0.5)
    relative = {"rem": context.root_font_size, "vw": across, "vh": down}
    relative |= {"vmin": min(across, down), "vmax": max(across, down)}
    return float(number * (relative | _UNITS)[unit])


_FUNCTION = re.compile(r"([a-zA-Z0-9]+)\(([^()]*)\)")
_TRANSFORMS = MappingProxyType(
    {"translatex": "translate({} 0)", "translatey": "translate(0 {})", "scalex": "scale({} 1)", "scaley": "scale(1 {})"}
    | {"translate3d": "translate({} {})", "scale3d": "scale({} {})", "translatez": "", "scalez": ""}
    | {"rotatez": "rotate({})", "skewx": "skewX({})", "skewy": "skewY({})"}
)
"""Functions of CSS as those of SVG. A flat drawing has no third dimension."""


def svg_transform(value: str, viewport: Size) -> str | None:
    """A `transform` of CSS in the notation of SVG. None if it turns out of the plane.

    `viewport` is the size to which percentages refer.
    """
    functions = [_svg_function(name.lower(), arguments, viewport) for name, arguments in _FUNCTION.findall(value)]
    return None if None in functions else " ".join(filter(None, functions))


def _svg_function(name: str, arguments: str, viewport: Size) -> str | None:
    sides = viewport[::-1] if name == "translatey" else viewport
    try:
        words = re.split(r"[\s,]+", arguments.strip())
        numbers = [f"{_transform_number(word, *sides[place:][:1]):.9g}" for place, word in enumerate(words)]
    except (KeyError, TypeError, ValueError):
        return None
    if name in ("matrix", "translate", "scale", "rotate"):
        return f"{name}({' '.join(numbers)})"
    return _TRANSFORMS[name].format(*numbers) if name in _TRANSFORMS else None


def _transform_number(argument: str, side: float = 0) -> float:
    match = re.fullmatch(r"([-+]?(?:\d+\.?\d*|\.\d+)(?:e[-+]?\d+)?)([a-z]*|%)", argument, re.IGNORECASE)
    if match is None:
        raise ValueError(argument)
    return float(match[1]) * ({"": 1.0, "%": side / 100} | _UNITS | _ANGLES)[match[2].lower()]
