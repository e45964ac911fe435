"""Rewrites the filters of an SVG so that resvg draws them as browsers do, and names those that it draws otherwise."""

import math
from collections.abc import Mapping
from contextlib import suppress

from lxml import etree

from plugins._svg import coordinates, css_values
from plugins._svg.coordinates import inherited
from plugins._svg.css_values import URL_OF_ELEMENT
from plugins._svg.source import SVG

_REGION = ("x", "y", "width", "height")
_SPACE = "color-interpolation-filters"
_SECOND_INPUTS = (f"{SVG}feBlend", f"{SVG}feComposite", f"{SVG}feDisplacementMap")
_CHANNELS = ("R", "G", "B", "A")
_LUMINANCE = (0.213, 0.715, 0.072)  # of red, green and blue
_UNDIRECTED = frozenset(
    f"{SVG}fe{name}"
    for name in ("Blend", "ColorMatrix", "ComponentTransfer", "Composite", "Flood", "GaussianBlur", "Merge")
)
"""Primitives whose results turn with the element, without a region of their own."""
_TURN = 1e-6  # the largest factor from x to y, or from y to x, that counts as none


def adapt(root: etree._Element) -> set[str]:
    """Rewrites an SVG whose CSS is resolved. Returns the names of the filters that resvg draws otherwise."""
    filters = {element.get("id"): element for element in root.iter(f"{SVG}filter")}
    missing: set[str] = set()
    for element in root.iter(etree.Element):
        value = element.get("filter", "none")
        if value != "none" and _is_turned(element) and not _turns(value, filters):
            missing.add("filters of what is rotated")
        if "drop-shadow(" in value:
            element.set("filter", css_values.with_linear_shadows(value))
    for element in filters.values():
        if element.get("primitiveUnits") == "objectBoundingBox" and any(map(_needs_box, element)):
            missing.add("lengths of filters in units of the object")
        _name_results(element)
        for primitive in [*element]:
            _adapt_primitive(primitive)
    return missing


def _needs_box(primitive: etree._Element) -> bool:
    """Whether resvg takes a length in units of the object for another one."""
    region = _region(primitive) and primitive.tag not in (f"{SVG}feFlood", f"{SVG}feImage")
    return bool(region) or primitive.tag == f"{SVG}feDisplacementMap"


def _is_turned(element: etree._Element) -> bool:
    _, b, c, *_ = coordinates.to_root(element) or coordinates.IDENTITY
    return max(abs(b), abs(c)) > _TURN


def _turns(value: str, filters: Mapping[str | None, etree._Element]) -> bool:
    """Whether resvg draws a value of `filter` on a rotated element as the same rotated."""
    primitives = [one for name in URL_OF_ELEMENT.findall(value) if name in filters for one in filters[name]]
    return "drop-shadow(" not in value and all(
        one.tag in _UNDIRECTED and not _region(one) and len({*one.get("stdDeviation", "").split()}) < 2
        for one in primitives
    )


def _name_results(element: etree._Element) -> None:
    """Gives each primitive a `result`, and names its inputs, which are the previous result where they are unknown."""
    known = {"SourceGraphic", "SourceAlpha"}
    previous = "SourceGraphic"
    for number, primitive in enumerate(element):
        inputs = [(one, "in") for one in primitive.iter(primitive.tag, f"{SVG}feMergeNode")]
        if primitive.tag in _SECOND_INPUTS:
            inputs.append((primitive, "in2"))
        for reader, name in inputs:
            if reader.get(name) not in known:
                reader.set(name, previous)
        previous = primitive.get("result") or f"result {number}"
        primitive.set("result", previous)
        known.add(previous)


def _adapt_primitive(primitive: etree._Element) -> None:
    name = str(primitive.tag).removeprefix(f"{SVG}fe")
    linear = inherited(primitive, _SPACE, "linearRGB") == "linearRGB"
    if name == "Offset" and _region(primitive):
        _clip_offset(primitive)
    elif name == "Tile":
        _copy_tile(primitive)
    elif name == "DisplacementMap":
        _adapt_displacement(primitive)
    elif name == "Composite" and primitive.get("operator") == "lighter":
        primitive.attrib.update({"operator": "arithmetic", "k1": "0", "k2": "1", "k3": "1", "k4": "0"})
    elif name == "ColorMatrix" and primitive.get("type") == "saturate":
        _write_saturation(primitive)
    elif name == "DropShadow" and not linear:
        primitive.set(_SPACE, "linearRGB")  # resvg takes the color of a shadow in sRGB for linear light
    elif name.endswith("Lighting") and linear and "lighting-color" in primitive.attrib:
        # resvg takes the color of a light to be in the space of the primitive.
        primitive.set("lighting-color", css_values.linear_color(primitive.get("lighting-color", "")))


def _region(primitive: etree._Element) -> dict[str, str]:
    return {name: primitive.get(name, "") for name in _REGION if name in primitive.attrib}


def _copy(source: str, result: str, region: Mapping[str, str]) -> etree._Element:
    """A primitive that copies a region of a result."""
    merge = etree.Element(f"{SVG}feMerge", {**region, "result": result})
    etree.SubElement(merge, f"{SVG}feMergeNode", {"in": source})
    return merge


def _clip_offset(offset: etree._Element) -> None:
    """Moves the region of an feOffset, which resvg ignores, to a copy."""
    result = offset.get("result", "")
    offset.set("result", f"{result} ")
    offset.addnext(_copy(f"{result} ", result, _region(offset)))
    etree.strip_attributes(offset, *_REGION)


def _copy_tile(tile: etree._Element) -> None:
    """Lets an feTile repeat a copy in sRGB, in which resvg takes its input to be. Without a region it is a copy."""
    source = tile.get("in", "")
    region = next((_region(one) for one in tile.itersiblings(preceding=True) if one.get("result") == source), {})
    copy = _copy(source, f"{source} ", region)
    if region:
        copy.set(_SPACE, "sRGB")
        tile.addprevious(copy)
        tile.set("in", f"{source} ")
    else:
        tile.tag = copy.tag
        tile.extend(copy)


def _adapt_displacement(displacement: etree._Element) -> None:
    """Writes the channels of the map as opaque red and green, because resvg reads them premultiplied.

    It squares the scale, so that a negative one becomes positive, and inverts the channels.
    """
    scale = 0.0
    with suppress(ValueError):
        scale = float(displacement.get("scale", "0"))
    factor, constant = ("-1", "1") if scale < 0 else ("1", "0")
    values = []
    for selector in ("xChannelSelector", "yChannelSelector"):
        channel = displacement.get(selector, "A")
        values += [factor if name == channel else "0" for name in _CHANNELS] + [constant]
    source = displacement.get("in2", "")
    matrix = etree.Element(f"{SVG}feColorMatrix", {"in": source, "result": f"{source} map"})
    matrix.set("values", " ".join([*values, "0 0 0 0 0 0 0 0 0 1"]))
    matrix.set(_SPACE, inherited(displacement, _SPACE, "linearRGB"))
    displacement.addprevious(matrix)
    changed = {"in2": f"{source} map", "xChannelSelector": "R", "yChannelSelector": "G"}
    displacement.attrib.update({**changed, "scale": f"{math.sqrt(abs(scale)):.9g}"})


def _write_saturation(primitive: etree._Element) -> None:
    """Writes a saturation as a matrix, because resvg limits it to 1."""
    values: list[float] = []
    with suppress(ValueError):
        amount = float(primitive.get("values", "1"))
        for row in range(len(_LUMINANCE)):
            factors = (weight + ((row == column) - weight) * amount for column, weight in enumerate(_LUMINANCE))
            values += [*factors, 0, 0]
    if values:
        changed = " ".join(f"{value:g}" for value in (*values, 0, 0, 0, 1, 0))
        primitive.attrib.update({"type": "matrix", "values": changed})
