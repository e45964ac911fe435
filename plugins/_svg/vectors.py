"""Writes SVG as PDF and SVG with CairoSVG. Pictures that resvg draws replace what CairoSVG does not draw.

Importing this module raises OSError if the cairo library is missing.
"""

import base64
import ctypes.util
import math
import re
from collections.abc import Iterator
from copy import deepcopy
from io import BytesIO

from lxml import etree
from PIL import Image

from engine import FidelityWarning
from plugins._svg import document
from plugins._svg.coordinates import IDENTITY, Box, Matrix, inherited, scale_to, shown_box, size, to_root
from plugins._svg.document import LINK
from plugins._svg.source import SVG

_find_library = ctypes.util.find_library

# find_library runs a compiler; cairocffi falls back to the loader, which finds cairo without it.
ctypes.util.find_library = lambda name: None
try:
    from cairosvg.parser import Tree
    from cairosvg.surface import PDFSurface, Surface, SVGSurface
    from cairosvg.url import safe_fetch
finally:
    ctypes.util.find_library = _find_library

_SCALE = 3  # pixels of the pictures per pixel at 96 dpi
_MAX_PIXELS = 8_000_000  # all pictures together; above it, their resolution is reduced
_MAX_PARTS = 12  # parts that are drawn one by one; with more, the whole SVG becomes a picture
_GROUPING = frozenset({f"{SVG}{name}" for name in ("g", "a", "switch", "svg")})
_OWN_EFFECTS = ("opacity", "clip-path", "mask", "filter", "style", "background-color")
_DRAWN = frozenset(
    {f"{SVG}{name}" for name in ("path", "rect", "circle", "ellipse", "line", "polyline", "polygon", "text", "tspan")}
)


def to_pdf(data: bytes) -> bytes:
    """An SVG as a PDF of one page. Raises and warns as `document.read`, and warns of effects that become pixels."""
    return _write(data, PDFSurface)


def to_svg(data: bytes) -> bytes:
    """An SVG redrawn: text as outlines, styles resolved, without scripts and external references. As `to_pdf`."""
    return _write(data, SVGSurface)


def _write(data: bytes, surface: type[Surface]) -> bytes:
    root, effects = _rasterize(document.read(data))
    for name, side in zip(("width", "height"), size(root), strict=True):
        root.set(name, f"{side:.9g}")
    try:
        result = _draw_vectors(root, surface)
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError):
        # CairoSVG refuses values that browsers ignore.
        effects.add("all elements")
        result = _draw_vectors(_as_picture(root), surface)
    if effects:
        message = f"Drawn as pixels instead of vectors: {', '.join(sorted(effects))}."
        FidelityWarning.issue("effects_rasterized", message)
    return result


def _draw_vectors(root: etree._Element, surface: type[Surface]) -> bytes:
    file = BytesIO()
    surface(Tree(bytestring=etree.tostring(root), url_fetcher=_fetch), file, 96).finish()
    return file.getvalue()


def _fetch(url: str, kind: str) -> bytes:
    """The content of a data URL, which is checked when the SVG is read; empty for other URLs."""
    data: bytes = safe_fetch(url, kind)
    return data


def _rasterize(root: etree._Element) -> tuple[etree._Element, set[str]]:
    """Returns the root of an SVG for CairoSVG, and the names of the effects that became pixels."""
    by_id = {element.get("id"): element for element in root.iter(etree.Element)}
    found = [(element, {*_effects(element, by_id)}) for element in root.iter(etree.Element)]
    affected = {element: effects for element, effects in found if effects}
    if not affected:
        return root, set()
    names = set().union(*affected.values())
    outermost = [
        element for element in affected if not any(ancestor in affected for ancestor in element.iterancestors())
    ]
    alone = all(_stands_alone(element) for element in outermost) and "mix-blend-mode" not in names
    if alone and len(outermost) <= _MAX_PARTS:
        for element in outermost:
            _replace(root, element, len(outermost))
        return root, names
    return _as_picture(root), names


def _as_picture(root: etree._Element) -> etree._Element:
    """An SVG that contains only a picture of the whole SVG."""
    across, down = size(root)
    picture = etree.Element(f"{SVG}svg", {"width": f"{across:.9g}", "height": f"{down:.9g}"}, nsmap=root.nsmap)
    picture.set("viewBox", f"0 0 {across:.9g} {down:.9g}")
    picture.append(_image(_draw(root, 1), (0, 0, across, down), IDENTITY))
    return picture


def _effects(element: etree._Element, by_id: dict[str | None, etree._Element]) -> Iterator[str]:
    """The names of the effects of an element that CairoSVG does not draw."""
    if element.get("filter", "none") != "none":
        yield "filter"
    if "mix-blend-mode" in element.get("style", ""):
        yield "mix-blend-mode"
    mask, clip = (_linked(element.get(name, ""), by_id) for name in ("mask", "clip-path"))
    if mask is not None and mask.get("mask-type", "luminance") != "alpha":
        yield "mask"
    if clip is not None and any(inherited(part, "clip-rule") == "evenodd" for part in clip.iter(etree.Element)):
        yield "clip-rule"
    if element.tag not in _DRAWN:
        return
    order = inherited(element, "paint-order")
    if order.startswith(("stroke", "markers")) and inherited(element, "stroke", "none") != "none":
        yield "paint-order"
    if element.tag == f"{SVG}text":
        yield from _text_effects(element)
    elif any("context-" in part.get(name, "") for part in _markers(element, by_id) for name in ("fill", "stroke")):
        yield "context-stroke"


def _text_effects(text: etree._Element) -> Iterator[str]:
    if inherited(text, "direction") == "rtl" or re.search("[\u0590-\u08ff]", "".join(text.itertext())):
        yield "direction"
    parts = [*text.iter(etree.Element)]
    if any("textLength" in part.attrib for part in parts):
        yield "textLength"
    if any(part.get("text-decoration", "none") != "none" for part in parts):
        yield "text-decoration"


def _linked(value: str, by_id: dict[str | None, etree._Element]) -> etree._Element | None:
    """The element that the value of a property refers to."""
    link = LINK.match(value)
    return by_id.get(link[1]) if link else None


def _markers(element: etree._Element, by_id: dict[str | None, etree._Element]) -> Iterator[etree._Element]:
    """The elements of the markers of an element."""
    for place in ("start", "mid", "end"):
        marker = _linked(inherited(element, f"marker-{place}"), by_id)
        if marker is not None:
            yield from marker.iter(etree.Element)


def _stands_alone(element: etree._Element) -> bool:
    """Whether an element is drawn once, where it is, so that a picture can replace it."""
    parent = element.getparent()
    return (
        parent is not None
        and all(ancestor.tag in _GROUPING for ancestor in element.iterancestors())
        and (parent.getparent() is None or to_root(parent) is not None)
    )


def _replace(root: etree._Element, element: etree._Element, parts: int) -> None:
    """Puts a picture of an element in its place. `parts` is the number of pictures."""
    parent = element.getparent()
    image = _draw(_isolated(root, element), parts)
    visible = image.getbbox()
    to_picture = IDENTITY if parent.getparent() is None else to_root(parent)
    drawn = etree.Element(f"{SVG}g")
    if visible is not None and to_picture is not None:
        x, y, width, height = shown_box(root)
        across, down = width / image.width, height / image.height
        left, top, right, bottom = _aligned(visible, image.size)
        box = (x + left * across, y + top * down, (right - left) * across, (bottom - top) * down)
        drawn = _image(image.crop((left, top, right, bottom)), box, to_picture)
    if element.get("id"):
        drawn.set("id", element.get("id"))
    drawn.tail = element.tail
    parent.replace(element, drawn)


def _aligned(box: tuple[int, int, int, int], limit: tuple[int, int]) -> tuple[int, int, int, int]:
    """`box` enlarged to whole pixels at 96 dpi, because viewers enlarge pictures to whole pixels of the screen."""
    left, top, right, bottom = box
    across, down = limit
    return (
        left - left % _SCALE,
        top - top % _SCALE,
        min(across, right + -right % _SCALE),
        min(down, bottom + -bottom % _SCALE),
    )


def _isolated(root: etree._Element, element: etree._Element) -> etree._Element:
    """A copy of the SVG that draws only the element, without the effects of the groups around it."""
    path = [node.getparent().index(node) for node in (element, *element.iterancestors()) if node is not root][::-1]
    copy = node = deepcopy(root)
    for index in path:
        for name in _OWN_EFFECTS:
            node.attrib.pop(name, None)
        kept = node[index]
        # Elements that are not drawn can still be referred to.
        definitions = etree.Element(f"{SVG}defs")
        definitions.extend([child for child in node if child is not kept])
        node.insert(0, definitions)
        node = kept
    return copy


def _draw(root: etree._Element, parts: int) -> Image.Image:
    across, down = size(root)
    scale = min(_SCALE, math.sqrt(_MAX_PIXELS / (across * down * parts)))
    wanted = max(1, round(across * scale)), max(1, round(down * scale))
    return document.render(scale_to(deepcopy(root), wanted), (0, 0, *wanted))


def _image(image: Image.Image, box: Box, to_picture: Matrix) -> etree._Element:
    """An <image> at `box` of the root's coordinate system, in a group whose coordinate system is `to_picture`."""
    file = BytesIO()
    image.save(file, "PNG")
    group = etree.Element(
        f"{SVG}g", {"transform": f"matrix({' '.join(f'{value:.9g}' for value in _inverse(to_picture))})"}
    )
    sides = {name: f"{value:.9g}" for name, value in zip(("x", "y", "width", "height"), box, strict=True)}
    link = f"data:image/png;base64,{base64.b64encode(file.getvalue()).decode()}"
    etree.SubElement(group, f"{SVG}image", {**sides, "preserveAspectRatio": "none", "href": link})
    return group


def _inverse(matrix: Matrix) -> Matrix:
    a, b, c, d, e, f = matrix
    area = a * d - b * c or 1.0
    return d / area, -b / area, -c / area, a / area, (c * f - d * e) / area, (b * e - a * f) / area
