"""Turns pages of a PDF so that their text is upright."""

from __future__ import annotations

from collections import Counter
from math import atan2, degrees

from engine import FidelityWarning, lazy_imports, tool
from engine.option_types import Pages
from plugins.formats import pdf_objects
from plugins.formats.pdf import PDF
from plugins.formats.pdf_objects import OBJECTS, page_count
from plugins.tools import pdf_ocr

with lazy_imports():
    import pikepdf

    from engine.mupdf import pymupdf
    from plugins._pdf import documents, objects
    from plugins._pdf.text import text_layer

MODULES = (*pdf_objects.MODULES, "plugins._pdf.text.text_layer")
TEMPLATE = "documents"

_MAJORITY = 0.5  # share of the characters in the direction that counts


@tool(
    "pdf-auto-rotate",
    OBJECTS,
    title="Turn PDF pages upright",
    words="straighten orientation upside down scan",
    sources=(PDF,),
    count=page_count,
    programs=pdf_ocr.PROGRAMS,
)
def auto_rotate(document: pikepdf.Pdf, *, pages: Pages = "all") -> pikepdf.Pdf:
    """Turns pages so that their text is upright; that of scans is recognized if Tesseract is installed."""
    unknown = 0
    with pymupdf.open(stream=objects.saved(document, encryption=False), filetype="pdf") as shown:
        for index, page in documents.selected(document, pages):
            drawn = shown[index]
            rotation = _rotation_of_text(drawn)
            if rotation is None and pdf_ocr.PROGRAMS and drawn.get_images():
                turn = text_layer.orientation(text_layer.draw(drawn), pdf_ocr.PROGRAMS)
                rotation = None if turn is None else (drawn.rotation + turn) % 360
            if rotation is None:
                unknown += bool(drawn.get_images())
            elif rotation != drawn.rotation:
                page.rotate(rotation, relative=False)
    if unknown:
        FidelityWarning.issue("no_text", f"{unknown} pages stay as they are: no text was found that tells their top.")
    return document


def _rotation_of_text(page: pymupdf.Page) -> int | None:
    """The rotation with which most text of a page is upright, in degrees clockwise. None without such text."""
    directions = Counter[int]()
    for line in (line for block in page.get_text("dict", flags=0)["blocks"] for line in block["lines"]):
        across, down = line["dir"]  # on the page without rotation
        if line["wmode"] == 0:
            angle = round(degrees(atan2(-down, across)) / 90) * 90 % 360
            directions[angle] += sum(len("".join(span["text"].split())) for span in line["spans"])
    most = directions.most_common(1)
    return most[0][0] if most and most[0][1] > _MAJORITY * directions.total() else None
