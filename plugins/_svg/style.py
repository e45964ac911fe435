"""Resolves the style sheets of an SVG into attributes, so that renderers need not support CSS."""

import re
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, TypeAlias

import cssselect2
import tinycss2
from lxml import etree

from engine import FidelityWarning
from plugins._svg import css_values
from plugins._svg.coordinates import font_size, inherited, size, viewport_size
from plugins._svg.css_values import Context, Size
from plugins._svg.source import SVG, TRANSFORMS

Declarations: TypeAlias = list[tuple[str, str]]

_GEOMETRY = frozenset({"x", "y", "cx", "cy", "r", "rx", "ry", "width", "height"})
_LENGTH = re.compile(r"auto|(?:[-+.\d]|calc\(|min\(|max\(|clamp\(|var\().*", re.IGNORECASE | re.DOTALL)
_DECORATIONS = ("underline", "overline", "line-through", "none")
_VALUES = css_values.COLORS | css_values.OPACITIES | css_values.LENGTHS
_PRESENTED = _VALUES | {"filter"}
_SPELLED = _PRESENTED | css_values.KEYWORDS
_UNKNOWN_FUNCTION = re.compile(r"(?<![\w-])(?!(?:url|icc-color)\(|rgba?\(\s*[-+.\d])[\w-]+\(")
_CURRENT_COLOR = re.compile("currentColor", re.IGNORECASE)
_UNRESOLVED_COLORS = frozenset({"flood-color", "lighting-color", "filter"})  # in which resvg does not know currentColor
# No attributes of SVG: renderers read them in `style`.
_CSS_ONLY = frozenset({"mix-blend-mode", "isolation", "background-color", "font-kerning"})
_PROPERTY = re.compile(r"(?!(?:id|class|href|style)$)[a-z][a-z-]*")
_FEATURE = re.compile(r"\(\s*(?:(min|max)-)?([a-z-]+)\s*(?::\s*([^()]*?)\s*)?\)")  # a feature of a media query
# Features of media for an image on a screen: light, still and without a pointer.
_SCREEN = dict.fromkeys(("hover", "any-hover", "pointer", "any-pointer", "forced-colors"), "none")
_SCREEN |= {"prefers-color-scheme": "light", "prefers-reduced-motion": "no-preference"}
_DEFAULTED = ("initial", "unset", "revert", "revert-layer")
_INITIAL = MappingProxyType({"fill": "#000", "stroke": "none", "color": "#000", "visibility": "visible"})
"""The initial values of inherited properties; without the attribute, others have theirs."""
_NEEDS_REWRITING = re.compile(r"[(%]|^#(?:\w{4}|\w{8})$|\d(?:rem|ch|vw|vh|vmin|vmax|q)\b", re.IGNORECASE)


def resolve(root: etree._Element) -> None:
    """Applies style sheets and `style` attributes: afterwards each property is an attribute of its element.

    Colors, lengths, calculations, variables and transforms are written as in SVG 1.1. Custom properties are inherited.
    """
    viewport = size(root)
    cascade = _Cascade(root, viewport)
    variables: dict[etree._Element, Mapping[str, str]] = {}
    for element, wrapped in cascade.elements(root):
        declared = cascade.declarations(element, wrapped)
        own = {name: value for name, value in declared if name[:2] == "--"}
        outer = variables.get(element.getparent(), {})
        if own or outer:
            variables[element] = {**outer, **own}
        for name, value in declared:
            _apply(element, name, value, viewport)
        if element is root:
            viewport = viewport_size(root)
        _rewrite(element, viewport, variables.get(element, {}), root)
    for style in [*root.iter(f"{SVG}style")]:
        style.clear()


def _media_applies(queries: str, viewport: Size) -> bool:
    """Whether a list of media queries applies to an image of this size in pixels."""
    return not queries.strip() or any(_query_applies(query.lower().split(), viewport) for query in queries.split(","))


def _query_applies(words: Sequence[str], viewport: Size) -> bool:
    """Whether a media query applies. One with an unknown feature does not, and issues a warning."""
    negated = words[:1] == ["not"]
    kind, *features = " ".join(words[1:] if words[:1] in (["not"], ["only"]) else words).split(" and ")
    if kind.startswith("("):
        features = [kind, *features]
        kind = "all"
    results = [_feature_applies(feature, viewport) for feature in features]
    if None in results or not kind.isalpha():
        FidelityWarning.issue("effects_dropped", "Styles for media that are not known were not applied.")
        return False
    return (kind in ("all", "screen") and all(results)) != negated


def _feature_applies(text: str, viewport: Size) -> bool | None:
    found = _FEATURE.fullmatch(text)
    bound, name, value = found.groups() if found else ("", "", None)
    if bound and name in ("width", "height"):
        length = css_values.length(value or "", Context(viewport, 16, lambda: 16, {}))
        side = viewport[0 if name == "width" else 1]
        return None if length is None else side >= length if bound == "min" else side <= length
    screen = {**_SCREEN, "orientation": "portrait" if viewport[1] >= viewport[0] else "landscape"}
    if bound or name not in screen:
        return None
    return screen[name] == value if value else screen[name] not in ("none", "no-preference")


class _Cascade:
    """The declarations of an SVG's style sheets by selector."""

    def __init__(self, root: etree._Element, viewport: Size) -> None:
        self._viewport = viewport
        self._normal = cssselect2.Matcher()
        self._important = cssselect2.Matcher()
        self._empty = True
        for style in root.iter(f"{SVG}style"):
            text = "".join(style.itertext())
            if style.get("type", "text/css") == "text/css" and _media_applies(style.get("media", ""), viewport):
                self._add(tinycss2.parse_stylesheet(text, skip_comments=True, skip_whitespace=True))

    def _add(self, rules: list[Any]) -> None:
        for rule in rules:
            if rule.type == "at-rule" and rule.content is not None:
                if self._applies(rule.lower_at_keyword, tinycss2.serialize(rule.prelude).strip()):
                    self._add(tinycss2.parse_rule_list(rule.content, skip_comments=True, skip_whitespace=True))
            elif rule.type == "qualified-rule":
                self._add_rule(rule)

    def _applies(self, keyword: str, condition: str) -> bool:
        """Whether the rules in an at-rule apply. Of @supports, all do but negations: what is supported is unknown."""
        if keyword == "media":
            return _media_applies(condition, self._viewport)
        if keyword in ("layer", "property", "container", "scope"):
            _warn_dropped(f"@{keyword}")
        return keyword == "layer" or (keyword == "supports" and not condition.startswith("not"))

    def _add_rule(self, rule: Any) -> None:
        normal, important = parse_declarations(rule.content)
        if any(token.type == "{} block" for token in rule.content):
            _warn_dropped("nested styles")
        try:
            selectors = cssselect2.compile_selector_list(rule.prelude)
        except cssselect2.SelectorError:
            return
        for selector in selectors:
            if selector.pseudo_element is None and not selector.never_matches:
                self._normal.add_selector(selector, normal)
                self._important.add_selector(selector, important)
                self._empty = False

    def elements(self, root: etree._Element) -> Iterator[tuple[etree._Element, Any]]:
        """The elements in order, each with its wrapper for `declarations`."""
        if self._empty:
            return ((element, None) for element in root.iter(etree.Element))
        wrapped = cssselect2.ElementWrapper.from_xml_root(root).iter_subtree()
        return ((element.etree_element, element) for element in wrapped)

    def declarations(self, element: etree._Element, wrapped: Any) -> Declarations:
        """The properties of an element in the order in which they override each other. Removes its `style`."""
        style = element.attrib.pop("style", None)
        normal, important = parse_declarations(style) if style else ([], [])
        if wrapped is None:
            return normal + important
        matching = [one for match in self._normal.match(wrapped) for one in match[-1]]
        matching_important = [one for match in self._important.match(wrapped) for one in match[-1]]
        return matching + normal + matching_important + important


_PLAIN = re.compile(r"(?:(?!url\()[^\"'\\/!{}@])*", re.IGNORECASE)


def parse_declarations(content: Any) -> tuple[Declarations, Declarations]:
    """The names and values of a declaration block: those without and those with `!important`."""
    if isinstance(content, str) and _PLAIN.fullmatch(content):
        pairs = (part.partition(":")[::2] for part in content.split(";"))
        return [(_property(name.strip()), value.strip()) for name, value in pairs if value.strip()], []
    normal: Declarations = []
    important: Declarations = []
    for declaration in tinycss2.parse_declaration_list(content, skip_comments=True, skip_whitespace=True):
        if declaration.type == "declaration":
            value = tinycss2.serialize(declaration.value).strip()
            (important if declaration.important else normal).append((_property(declaration.name), value))
    return normal, important


def _property(name: str) -> str:
    return name if name[:2] == "--" else name.lower()


def _apply(element: etree._Element, name: str, value: str, viewport: Size) -> None:
    """Sets the attributes that are equivalent to a declaration."""
    if not _PROPERTY.fullmatch(name) or not value.isprintable() or not value:
        return
    value = css_values.spell(value) if name in css_values.KEYWORDS else value
    keyword = value.lower()
    if keyword in _DEFAULTED:
        element.attrib.pop(name, None)
        if keyword == "initial" and name in _INITIAL:
            element.set(name, _INITIAL[name])
    elif name == "marker":
        for place in ("start", "mid", "end"):
            element.set(f"marker-{place}", value)
    elif name == "font":
        for part, part_value in _font_parts(value):
            element.set(part, part_value)
    elif name in ("background", "background-color"):
        if _known_color(value):
            element.set("background-color", value)
    elif name in ("text-decoration", "text-decoration-line"):
        element.set("text-decoration", " ".join(word for word in value.split() if word in _DECORATIONS) or "none")
    elif name == "transform":
        transform = css_values.svg_transform(value, viewport)
        if transform is None:
            _warn_dropped(value)
        element.set(TRANSFORMS.get(str(element.tag), "transform"), transform or "")
    elif name in ("translate", "rotate", "scale"):
        _warn_dropped(name)  # as an attribute, `rotate` turns letters
    elif name == "d":
        element.set("d", value.partition("(")[2].rpartition(")")[0].strip("\"' "))
    elif name in _GEOMETRY:
        _apply_geometry(element, name, value)
    elif name in css_values.COLORS and not _known_color(value):
        _warn_dropped(value)  # an invalid declaration does not override others
    else:
        element.set(name, value)


def _warn_dropped(value: str) -> None:
    FidelityWarning.issue("effects_dropped", f"Not drawn: {value.partition('(')[0].strip()}.")


def _apply_geometry(element: etree._Element, name: str, value: str) -> None:
    if value == "auto":
        element.attrib.pop(name, None)
    elif _LENGTH.fullmatch(value):
        element.set(name, value)


def _known_color(value: str) -> bool:
    """Whether a value without variables is a color, as far as its functions show."""
    return "(" not in value or "var(" in value or not _UNKNOWN_FUNCTION.search(css_values.rewrite_colors(value))


def _font_parts(value: str) -> Declarations:
    """The properties of the shorthand `font`; none for system fonts."""
    match = re.match(
        r"(.*?)(?<![\w.])([\d.]+(?:[a-z]+|%)|(?:xx?-)?(?:small|large)|medium)(?:\s*/\s*(\S+))?\s+(.+)", value
    )
    if match is None:
        return []
    parts = [("font-style", "normal"), ("font-weight", "normal"), ("font-size", match[2]), ("font-family", match[4])]
    parts.append(("line-height", match[3] or "normal"))
    for word in match[1].split():
        if word in ("italic", "oblique"):
            parts.append(("font-style", word))
        elif word == "small-caps":
            parts.append(("font-variant", word))
        elif word in ("bold", "bolder", "lighter") or word.isdigit():
            parts.append(("font-weight", word))
    return parts


def _rewrite(element: etree._Element, viewport: Size, variables: Mapping[str, str], root: etree._Element) -> None:
    context = None
    for name, given in element.items():
        if given.replace(".", "", 1).isdecimal():
            continue  # most values are plain numbers
        value = css_values.spell(given) if name in _SPELLED else given
        if name in _CSS_ONLY:
            element.set("style", f"{element.get('style', '')}{name}:{value};")
        if name in _UNRESOLVED_COLORS:
            value = _CURRENT_COLOR.sub(inherited(element, "color", "#000"), value)
        if (name in _PRESENTED and _NEEDS_REWRITING.search(value)) or "var(" in value:
            context = context or Context(viewport, font_size(root), lambda: font_size(element), variables)
            value = css_values.rewrite(name, value, context)
        elif name == "font-size" and value[:1].isalpha():
            value = f"{font_size(element):g}"
        if "(" in value and name in _VALUES and _UNKNOWN_FUNCTION.search(value):
            _warn_dropped(value)
            del element.attrib[name]
        elif value != given:
            element.set(name, value)
