"""Media queries of CSS, for an image on a screen: light, still, with 96 dots per inch and without a pointer."""

import operator
import re
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import tinycss2

from plugins._svg import css_values
from plugins._svg.css_values import Context, Size

_WORDS: Mapping[str, str] = MappingProxyType(
    {
        **dict.fromkeys(("hover", "any-hover", "pointer", "any-pointer", "forced-colors", "inverted-colors"), "none"),
        **dict.fromkeys(("prefers-reduced-motion", "prefers-contrast"), "no-preference"),
        "prefers-color-scheme": "light",
    }
)
_UNSET = ("none", "no-preference")  # values that are false without a comparison
_NUMBERS: Mapping[str, float] = MappingProxyType(
    {"resolution": 1, "device-pixel-ratio": 1, "color": 8, "monochrome": 0, "color-index": 0, "grid": 0}
)
_RESOLUTION = re.compile(r"([\d.]+)(dppx|x|dpi|dpcm)")
_PER_UNIT = {"dppx": 1.0, "x": 1.0, "dpi": 1 / 96, "dpcm": 2.54 / 96}
_COMPARISONS: Mapping[str, Callable[[float, float], bool]] = MappingProxyType(
    {"<": operator.lt, "<=": operator.le, "=": operator.eq, ">=": operator.ge, ">": operator.gt}
)
_PREFIX = re.compile("^(-webkit-)?(min-|max-)?")


def match(query: str, viewport: Size) -> bool:
    """Whether a list of media queries applies to an image of this size in pixels."""
    queries: list[list[Any]] = [[]]
    for token in tinycss2.parse_component_value_list(query, skip_comments=True):
        if token == ",":
            queries.append([])
        elif token.type != "whitespace":
            queries[-1].append(token)
    return queries == [[]] or any(_query(tokens, viewport) for tokens in queries)


def _query(tokens: Sequence[Any], viewport: Size) -> bool:
    words = [token.lower_value if token.type == "ident" else None for token in tokens]
    modified = words[:1] in (["not"], ["only"]) and len(words) > 1 and words[1] is not None
    start = 1 if modified else 0
    if not words or words[start] in (None, "not"):
        return _condition(tokens, viewport) is True
    applies: bool | None = words[start] in ("all", "screen")
    if len(words) > start + 1:
        rest = _condition(tokens[start + 2 :], viewport) if words[start + 1] == "and" else None
        applies = None if rest is None else applies and rest
    return applies is not None and applies != (modified and words[0] == "not")


def _condition(tokens: Sequence[Any], viewport: Size) -> bool | None:
    """Whether features in parentheses, joined by `and` or `or`, apply. None if one of them is unknown."""
    if tokens and tokens[0].type == "ident" and tokens[0].lower_value == "not":
        negated = _condition(tokens[1:], viewport) if len(tokens) == 2 else None
        return None if negated is None else not negated
    joints = {token.lower_value if token.type == "ident" else "" for token in tokens[1::2]}
    results = [_in_parentheses(token, viewport) for token in tokens[::2]]
    if not results or len(tokens) % 2 == 0 or not (joints <= {"and"} or joints == {"or"}) or None in results:
        return None
    return any(results) if joints == {"or"} else all(results)


def _in_parentheses(token: Any, viewport: Size) -> bool | None:
    if token.type != "() block":
        return None
    tokens = [part for part in token.content if part.type != "whitespace"]
    if any(part.type == "() block" for part in tokens):
        return _condition(tokens, viewport)
    return _feature(tinycss2.serialize(token.content).strip().lower(), viewport)


def _feature(text: str, viewport: Size) -> bool | None:
    name, colon, value = (part.strip() for part in text.partition(":"))
    words = {**_WORDS, "orientation": "portrait" if viewport[1] >= viewport[0] else "landscape"}
    if name in words:
        return words[name] == value if colon else words[name] not in _UNSET
    if colon:
        parts = [_PREFIX.sub("", name), ">=" if "min-" in name else "<=" if "max-" in name else "=", value]
    else:
        parts = re.split(r"\s*([<>]=?|=)\s*", text)
        parts += [">", "0"] if len(parts) == 1 else []
    numbers = [_number(part, viewport) for part in parts[::2]]
    compared = [
        None if first is None or second is None else _COMPARISONS[comparison](first, second)
        for comparison, first, second in zip(parts[1::2], numbers, numbers[1:], strict=False)
    ]
    return None if None in compared else all(compared)


def _number(value: str, viewport: Size) -> float | None:
    """A value, or the value of a feature of the image, in pixels, dots per pixel or as a ratio."""
    width, height = viewport
    features = {**_NUMBERS, "width": width, "height": height, "aspect-ratio": width / height}
    if value in features:
        return features[value]
    match = _RESOLUTION.fullmatch(value)
    if match:
        return float(match[1]) * _PER_UNIT[match[2]]
    first, _, second = value.partition("/")
    context = Context(viewport, 16, lambda: 16, {})
    dividend, divisor = css_values.length(first, context), css_values.length(second or "1", context)
    return dividend / divisor if dividend is not None and divisor else None
