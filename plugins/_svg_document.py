"""Reads SVG into a tree that renderers of SVG 1.1 draw as browsers do, and warns about what they do not draw."""

from __future__ import annotations

import warnings

from lxml import etree

from engine import FidelityWarning, Size
from plugins import _resvg, _svg_effects, _svg_html, _svg_source, _svg_style, _svg_text, _svg_vectors
from plugins._svg_geometry import size
from plugins._svg_text import Families

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
    """An SVG for CairoSVG, in which pictures replace what it does not draw. Raises and warns as `read`."""
    root, effects = _svg_vectors.rasterize(read(data))
    if effects:
        _warn("effects_rasterized", f"Drawn as pixels instead of vectors: {', '.join(sorted(effects))}.")
    for name, side in zip(("width", "height"), size(root), strict=True):
        root.set(name, f"{side:.9g}")
    svg: bytes = etree.tostring(root)
    return svg


def _warn(code: str, message: str) -> None:
    warnings.warn(FidelityWarning(code, message), stacklevel=4)
