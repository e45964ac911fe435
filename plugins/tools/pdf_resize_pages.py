"""Scales pages of a PDF to a size."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from engine import lazy_imports, tool
from engine.option_types import Pages
from plugins._text.paper import POINTS, SIZES, fitted
from plugins.formats import pdf_objects
from plugins.formats.pdf import PDF
from plugins.formats.pdf_objects import OBJECTS, page_count

with lazy_imports():
    import pikepdf

    from plugins._pdf import documents
    from plugins._pdf.pages import marks, placement

MODULES = (*pdf_objects.MODULES, "plugins._pdf.pages.placement")
TEMPLATE = "documents"

PageSize = Annotated[
    Literal["a3", "a4", "a5", "a6", "letter", "legal", "tabloid"],
    Field(description="Size of the pages; those that are wider than high stay so."),
]
PageFit = Annotated[
    Literal["inside", "cover", "fill"],
    Field(description="How the content fits the page: whole, cut off, or distorted. Small pages are enlarged."),
]


@tool(
    "pdf-resize-pages",
    OBJECTS,
    title="Resize PDF pages",
    words="a4 letter paper size scale",
    sources=(PDF,),
    count=page_count,
)
def resize_pages(
    document: pikepdf.Pdf, *, page_size: PageSize, fit: PageFit = "inside", pages: Pages = "all"
) -> pikepdf.Pdf:
    """Scales pages of a PDF to a size of paper, with their annotations, form fields and links."""
    sides = [side * POINTS for side in SIZES[page_size]]
    placements = [_resize(document, page, sides, fit) for _, page in documents.selected(document, pages)]
    placement.follow(document, [made for made in placements if made is not None])
    return document


def _resize(document: pikepdf.Pdf, page: pikepdf.Page, sides: list[float], fit: str) -> placement.Placement | None:
    """Scales a page to a size with these sides, in points. None if it has the size."""
    before = marks.Geometry.of(page)
    width, height = sides[::-1] if before.width > before.height else sides
    if abs(before.width - width) < 1 and abs(before.height - height) < 1:
        return None
    form = placement.page_form(document, page)
    is_turned = before.to_content.a == 0
    placement.set_box(page, (0, 0, height, width) if is_turned else (0, 0, width, height))
    if "/UserUnit" in page.obj:
        del page.obj["/UserUnit"]
    after = marks.Geometry.of(page)
    scaled = pikepdf.Matrix(fitted((before.width, before.height), (0, 0, width, height), fit))
    matrix = before.to_shown @ scaled @ after.to_content
    placement.draw(document, page, [(form, matrix)])
    return placement.Placement.of(page.obj, page.obj, form, before, matrix)
