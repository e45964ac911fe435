"""Cuts pages of a PDF to a part of them."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from engine import InvalidOption, lazy_imports, tool
from engine.option_types import Pages
from plugins._text.paper import POINTS
from plugins.formats import pdf_objects
from plugins.formats.pdf import PDF
from plugins.formats.pdf_objects import OBJECTS, page_count

with lazy_imports():
    import pikepdf

    from plugins._pdf import documents
    from plugins._pdf.pages import marks, placement

MODULES = (*pdf_objects.MODULES, "plugins._pdf.pages.placement")
TEMPLATE = "documents"

_NUMBER = r"\s*\d{1,6}(\.\d{1,6})?\s*"
BOX = f"^{_NUMBER}(,{_NUMBER}){{3}}$"
"""A pattern of x,y,width,height."""
_ROUNDING = 1.0  # points that a box may reach beyond the page, such as 842 of the 841.89 of A4
_SMALLEST = 3.0  # points; PDF/A has no smaller pages

Box = Annotated[
    str,
    Field(
        pattern=BOX,
        examples=["50,50,400,600"],
        description="x,y,width,height of what stays, in points from the upper left corner of the page as shown.",
    ),
]
CutMargin = Annotated[
    float, Field(ge=0, le=5000, examples=[10], description="Width in mm of what is cut off on each side.")
]


@tool(
    "pdf-crop",
    OBJECTS,
    title="Crop PDF pages",
    words="trim cut margins",
    sources=(PDF,),
    count=page_count,
    example=("box",),
)
def crop(
    document: pikepdf.Pdf, *, box: Box | None = None, margin: CutMargin | None = None, pages: Pages = "all"
) -> pikepdf.Pdf:
    """Cuts pages of a PDF to a box, or cuts off a margin. What is outside is not shown, but stays in the file."""
    if (box is None) == (margin is None):
        reason = "missing" if box is None else "exclusive"
        raise InvalidOption("Either box or margin must be given.", reason=reason, param="box")
    for index, page in documents.selected(document, pages):
        geometry = marks.Geometry.of(page)
        if box is None:
            cut = (margin or 0) * POINTS
            area = (cut, cut, geometry.width - 2 * cut, geometry.height - 2 * cut)
        else:
            x, y, width, height = map(float, box.split(","))
            area = (x, y, width, height)
        inner = _box(geometry, area)
        if inner is None:
            param = "margin" if box is None else "box"
            size = {"page": index + 1, "width": round(geometry.width, 2), "height": round(geometry.height, 2)}
            message = f"{param} leaves nothing of page {index + 1}, or is not on it."
            raise InvalidOption(message, reason="out_of_range", param=param, details=size)
        placement.set_box(page, inner)
    return document


def _box(geometry: marks.Geometry, area: marks.Box) -> marks.Box | None:
    """An area of a page as it is shown, left, top, width and height in points, in the units of the page.

    None if it is not on the page.
    """
    left, top, width, height = area
    right, bottom = min(left + width, geometry.width), min(top + height, geometry.height)
    is_beyond = left + width > right + _ROUNDING or top + height > bottom + _ROUNDING
    if is_beyond or right - left < _SMALLEST or bottom - top < _SMALLEST:
        return None
    return geometry.area_in_content(left, top, right - left, bottom - top)
