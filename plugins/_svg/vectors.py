"""Writes SVG as vectors: PDF with Typst, which parses SVG as resvg does, and SVG as the tree that resvg draws."""

import typst
from lxml import etree

from engine import CorruptInput, FidelityWarning, lazy_imports
from plugins._svg import coordinates, document

with lazy_imports():
    import cairosvg

_POINTS = 0.75  # per pixel at 96 dpi
_PAGE = """#set page(width: {width:.6f}pt, height: {height:.6f}pt, margin: 0pt)
#let text-of(name) = sys.inputs.at(name, default: none)
#set document(date: none, title: text-of("Title"), description: text-of("Description"))
#image(bytes(sys.inputs.svg), format: "svg", width: 100%, height: 100%)"""
_FONTS = typst.Fonts(
    include_system_fonts=False, include_embedded_fonts=False, font_paths=[*document.FONT_FOLDERS]
)  # at import, because a fork server imports once what jobs share


def to_pdf(data: bytes) -> bytes:
    """An SVG as a PDF of one page. Raises and warns as `document.read`, and warns of filters, which become images."""
    root = document.read(data, rasterizes_filters=True)
    document.simplify(root)
    width, height = coordinates.size(root)
    svg: str = etree.tostring(coordinates.scale_to(root, (width, height)), encoding="unicode")
    page = _PAGE.format(width=width * _POINTS, height=height * _POINTS).encode()
    try:
        with document.failures():
            inputs = {"svg": svg, **dict(document.texts(root))}
            return typst.compile(page, format="pdf", font_paths=_FONTS, sys_inputs=inputs, pdf_tags=False)
    except CorruptInput:
        FidelityWarning.issue("effects_dropped", "Filters and blend modes were not drawn.")
        return draw_with_cairo(svg)


def draw_with_cairo(svg: str) -> bytes:
    """A normalized SVG as a PDF of one page, for drawings that Typst refuses. Raises CorruptInput.

    CairoSVG draws no filters and no blend modes.
    """
    with document.failures():
        return bytes(cairosvg.svg2pdf(bytestring=svg.encode()))


def to_svg(data: bytes, *, keep_texts: bool) -> bytes:
    """An SVG with resolved styles, without scripts and references to other files. As `document.read`.

    `keep_texts`: with the title and the description.
    """
    root = document.read(data, for_browsers=True)
    if not keep_texts:
        etree.strip_elements(root, *document.TEXTS, with_tail=False)
    for name, side in zip(("width", "height"), coordinates.size(root), strict=True):
        root.set(name, f"{side:.9g}")
    # An empty text makes lxml write the end tag, by which complete files are recognized.
    root.text = root.text or ""
    etree.cleanup_namespaces(root)
    return bytes(etree.tostring(root, encoding="utf-8", xml_declaration=False))
