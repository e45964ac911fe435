"""Reads SVG into a tree that renderers of SVG 1.1 draw as browsers do, and warns about what they do not draw."""

from __future__ import annotations

from collections.abc import Callable
from warnings import warn

from lxml import etree

from engine import FidelityWarning
from plugins._svg import effects, html, resvg_renderer, source, style, text, vectors
from plugins._svg.coordinates import size
from plugins._svg.text import Families


def read(data: bytes) -> etree._Element:
    """The root of an SVG without style sheets, HTML and references to other files, for resvg.

    Raises TooLarge, CorruptInput. Issues a FidelityWarning for each kind of loss.
    """
    families = Families(resvg_renderer.FAMILIES)
    missing: set[str] = set()

    def normalize(root: etree._Element) -> None:
        style.resolve(root)
        if html.replace_html(root):
            missing.add("foreignObject")
        text.normalize(root, families)
        missing.update(effects.normalize(root))

    root, removed = source.parse(data, normalize)
    if removed:
        missing.add("references to other files")
    if missing:
        message = f"Not drawn: {', '.join(sorted(missing))}."
        warn(FidelityWarning("effects_dropped", message), stacklevel=3)
    if families.substituted:
        pairs = ", ".join(f"{name} by {found}" for name, found in families.substituted.items())
        message = f"Fonts that are not installed were replaced: {pairs}."
        warn(FidelityWarning("font_substituted", message), stacklevel=3)
    return root


def write_vectors(data: bytes, write: Callable[[bytes], bytes]) -> bytes:
    """The result of `write`, for an SVG in which pictures replace what CairoSVG does not draw. As `read`.

    The whole SVG becomes a picture if it has values that CairoSVG refuses, although browsers ignore them.
    """
    root, effects = vectors.rasterize(read(data))
    for name, side in zip(("width", "height"), size(root), strict=True):
        root.set(name, f"{side:.9g}")
    try:
        result = write(etree.tostring(root))
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError):
        effects.add("all elements")
        result = write(etree.tostring(vectors.as_picture(root)))
    if effects:
        message = f"Drawn as pixels instead of vectors: {', '.join(sorted(effects))}."
        warn(FidelityWarning("effects_rasterized", message), stacklevel=3)
    return result
