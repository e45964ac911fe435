"""Writes SVG as vectors: PDF with Typst, which parses SVG as resvg does, and SVG as the tree that resvg draws."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import typst
from lxml import etree

from engine import CorruptInput, FidelityWarning
from engine.mupdf import pymupdf
from plugins._fonts.choice import FontChooser
from plugins._fonts.installed import INSTALLED
from plugins._svg import coordinates, document

_POINTS = 0.75  # per pixel at 96 dpi
_MAX_SCALE = 3  # of what is drawn as pixels
_MAX_SIDE = 4000  # pixels
_PAGE = """#set page(width: {width:.6f}pt, height: {height:.6f}pt, margin: 0pt)
#let text-of(name) = sys.inputs.at(name, default: none)
#set document(date: none, title: text-of("Title"), description: text-of("Description"))
#image(bytes(sys.inputs.svg), format: "svg", width: 100%, height: 100%)"""


def _load_fonts(*folders: str) -> typst.Fonts:
    """The fonts in the folders, and those of the system."""
    installed = sorted({str(font.path.parent) for font in INSTALLED})
    return typst.Fonts(include_system_fonts=False, include_embedded_fonts=False, font_paths=[*folders, *installed])


_FONTS = _load_fonts()  # at import, because a fork server imports once what jobs share


def to_pdf(data: bytes) -> bytes:
    """An SVG as a PDF of one page. Raises and warns as `document.read`, and warns of filters, which become images."""
    chooser = FontChooser()
    root = document.read(data, chooser, rasterizes_filters=True)
    document.simplify(root)
    width, height = coordinates.size(root)
    svg: str = etree.tostring(coordinates.scale_to(root, (width, height)), encoding="unicode")
    page = _PAGE.format(width=width * _POINTS, height=height * _POINTS).encode()
    try:
        with document.failures(), _fonts_for(chooser) as fonts:
            inputs = {"svg": svg, **dict(document.texts(root))}
            return typst.compile(page, format="pdf", font_paths=fonts, sys_inputs=inputs, pdf_tags=False)
    except CorruptInput:
        FidelityWarning.issue("effects_rasterized", "Drawn as pixels instead of vectors: the whole image.")
        return draw_pixels(root, chooser)


@contextmanager
def _fonts_for(chooser: FontChooser) -> Iterator[typst.Fonts]:
    """The fonts of the system, and those of MuPDF that were chosen."""
    if not chooser.builtin:
        yield _FONTS
        return
    with TemporaryDirectory() as folder:
        for number, font in enumerate(chooser.builtin.values()):
            Path(folder, f"{number}.otf").write_bytes(font.data)
        yield _load_fonts(folder)


def draw_pixels(root: etree._Element, chooser: FontChooser) -> bytes:
    """An SVG that `document.read` returned as an image on a page, if Typst refuses it. Raises CorruptInput."""
    width, height = coordinates.size(root)
    scale = min(_MAX_SCALE, _MAX_SIDE / max(width, height))
    across, down = (max(1, round(side * scale)) for side in (width, height))
    png = document.render(coordinates.scale_to(root, (across, down)), chooser, (0, 0, across, down))
    made = pymupdf.open()
    page = made.new_page(width=width * _POINTS, height=height * _POINTS)
    page.insert_image(page.rect, stream=png)
    return bytes(made.tobytes())


def to_svg(data: bytes, *, keep_texts: bool) -> bytes:
    """An SVG with resolved styles, without scripts and references to other files. As `document.read`.

    `keep_texts`: with the title and the description.
    """
    root = document.read(data)
    if not keep_texts:
        etree.strip_elements(root, *document.TEXTS, with_tail=False)
    for name, side in zip(("width", "height"), coordinates.size(root), strict=True):
        root.set(name, f"{side:.9g}")
    # An empty text makes lxml write the end tag, by which complete files are recognized.
    root.text = root.text or ""
    etree.cleanup_namespaces(root)
    return bytes(etree.tostring(root, encoding="utf-8", xml_declaration=False))
