"""The text that images show, by Tesseract."""

from __future__ import annotations

from functools import partial
from math import sqrt

from engine import (
    AnyConversion,
    Blocks,
    FidelityWarning,
    Format,
    Frame,
    Loss,
    Raster,
    conversion,
    hookimpl,
    lazy_imports,
)
from engine.option_types import Pages
from plugins.formats import jpeg, md, pdf_blocks, png, tiff, txt
from plugins.formats.pdf_blocks import Ocr
from plugins.tools import pdf_ocr
from plugins.tools.pdf_ocr import Language

with lazy_imports():
    from engine.mupdf import pymupdf
    from plugins._pdf.text import layout, text_layer

MODULES = (*pdf_blocks.MODULES, *jpeg.MODULES, *tiff.MODULES, *txt.MODULES)
TEMPLATE = pdf_blocks.TEMPLATE

RECOGNIZED = Format("recognized", Blocks)
"""The text that an image shows: no step leads on to formats that would lose what else it shows."""

_MIN_PIXELS = 2_000_000  # a page at 150 dpi; smaller images have letters of few pixels
_MAX_SCALE = 2.0
_step = partial(conversion, loss=Loss.STRUCTURE, cost=40, programs=pdf_ocr.PROGRAMS, isolated=True)


@_step(jpeg.JPEG, RECOGNIZED)
def from_jpeg(data: bytes, *, ocr: Ocr = True, language: Language | None = None) -> Blocks:
    return _read(jpeg.decode(data), language, ocr=ocr)


def _from_pages(decode: AnyConversion) -> AnyConversion:
    @_step(decode.source, RECOGNIZED)
    def read(data: bytes, *, ocr: Ocr = True, language: Language | None = None, pages: Pages | None = None) -> Blocks:
        return _read(decode(data, {"pages": pages} if pages else {}), language, ocr=ocr)

    return read


def _read(raster: Raster, language: str | None, *, ocr: bool) -> Blocks:
    """The text of all pages. Issues a warning if there is none, as without `ocr`."""
    document = pymupdf.open()
    for layer in text_layer.recognized(map(_scan, raster.frames), pdf_ocr.commands(language)) if ocr else ():
        if layer is not None:
            document.insert_pdf(pymupdf.open(stream=layer.data, filetype="pdf"))
    if not any(page.get_text().strip() for page in document):
        FidelityWarning.issue("no_text", "No text was recognized in the image.")
    return layout.read(document)


def _scan(frame: Frame) -> text_layer.Scan:
    image = frame.on_white().image.convert("L")
    scale = min(_MAX_SCALE, sqrt(_MIN_PIXELS / (image.width * image.height)))
    return text_layer.Scan(image.resize([round(side * scale) for side in image.size]) if scale > 1 else image)


@hookimpl
def conversions() -> list[AnyConversion]:
    written = [
        conversion(RECOGNIZED, one.target, loss=one.loss, terminal=True)(one.run) for one in (txt.write, md.write)
    ]
    return [from_jpeg, *map(_from_pages, (png.decode, tiff.decode)), *written] if pdf_ocr.TESSERACT.present else []
