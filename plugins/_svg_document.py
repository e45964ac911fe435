"""Reads SVG into a tree that renderers of SVG 1.1 draw as browsers do, and warns about what they do not draw."""

from __future__ import annotations

import warnings

from lxml import etree

from engine import FidelityWarning, Size
from plugins import _resvg, _svg_effects, _svg_html, _svg_source, _svg_style, _svg_text
from plugins._svg_geometry import size, view_box
from plugins._svg_text import Families

__all__ = ["read", "scaled", "size"]


def read(data: bytes) -> etree._Element:
    """The root of an SVG without style sheets, HTML and references to other files, for resvg.

    Raises TooLarge, CorruptInput. Issues a FidelityWarning for each kind of loss.
    """
    families = Families(_resvg.FAMILIES)
    missing: set[str] = set()

    def normalize(root: etree._Element) -> None:
        _svg_style.resolve(root)
        if _svg_html.replace_html(root):
            missing.add("foreignObject")
        _svg_text.normalize(root, families)
        missing.update(_svg_effects.normalize(root))

    root, removed = _svg_source.parse(data, normalize)
    if missing:
        _warn("effects_dropped", f"Not drawn: {', '.join(sorted(missing))}.")
    if families.substituted:
        pairs = ", ".join(f"{name} by {found}" for name, found in families.substituted.items())
        _warn("font_substituted", f"Fonts that are not installed were replaced: {pairs}.")
    if removed:
        _warn("references_dropped", "References to other files were not followed.")
    return root


def read_vectors(data: bytes) -> bytes:
    """An SVG for CairoSVG."""
    return etree.tostring(read(data))


def _warn(code: str, message: str) -> None:
    warnings.warn(FidelityWarning(code, message), stacklevel=4)


def scaled(root: etree._Element, wanted: Size) -> etree._Element:
    """Sets the size of the root to `wanted` pixels and scales its content to it. Returns the root."""
    across, down = size(root)
    x, y, width, height = view_box(root) or (0.0, 0.0, across, down)
    align, _, meet = root.get("preserveAspectRatio", "xMidYMid").strip().partition(" ")
    if view_box(root) is not None and align != "none":
        # The part of the coordinate system that the picture shows at its own size.
        scales = across / width, down / height
        scale = max(scales) if meet.strip() == "slice" else min(scales)
        left, top = (_ALIGNMENTS.get(part, 0.5) for part in (align[:4], align[4:]))
        x, y = x - (across / scale - width) * left, y - (down / scale - height) * top
        width, height = across / scale, down / scale
    root.set("viewBox", f"{x:.9g} {y:.9g} {width:.9g} {height:.9g}")
    root.set("preserveAspectRatio", "none")
    root.set("width", str(wanted[0]))
    root.set("height", str(wanted[1]))
    return root


_ALIGNMENTS = {"xMin": 0.0, "xMid": 0.5, "xMax": 1.0, "YMin": 0.0, "YMid": 0.5, "YMax": 1.0}
