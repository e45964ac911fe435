"""Draws a text or an image on the pages of a PDF."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from engine import InputFile, InvalidOption, color, lazy_imports, tool
from engine.option_types import Background, Pages
from plugins.formats import pdf_objects
from plugins.formats.pdf import PDF
from plugins.formats.pdf_objects import OBJECTS, page_count

with lazy_imports():
    import pikepdf

    from plugins._pdf import archive_claims, documents
    from plugins._pdf.pages import marks

MODULES = (*pdf_objects.MODULES, "encodings.cp1252", "plugins._pdf.pages.marks")
TEMPLATE = "documents"

Text = Annotated[str, Field(min_length=1, max_length=500, examples=["DRAFT"], description="The text to draw.")]
Opacity = Annotated[float, Field(ge=0, le=1, description="1 hides what is below, 0 is invisible.")]
Angle = Annotated[float, Field(ge=-360, le=360, description="Degrees counterclockwise.")]
Place = Annotated[
    Literal["center", "north", "northeast", "east", "southeast", "south", "southwest", "west", "northwest", "tile"],
    Field(description="Where the mark is on the page; `tile` covers the page with it."),
]
MarkSize = Annotated[
    float,
    Field(
        ge=1,
        le=5000,
        examples=[48],
        description="Size of the font, or width of the image, in points. By default the mark fits the page.",
    ),
]
Under = Annotated[bool, Field(description="Draws below the content of the pages.")]
Stamp = Annotated[bytes, InputFile(PDF, "An image to draw instead of a text, or the first page of a PDF.")]
_TEXT_SIZE = 24  # points in the form, of a text that is scaled
# Share of the width or height of the page that a mark without size gets.
_SHARE = 0.7
_TILE_SHARE = 0.25


@tool(
    "pdf-watermark",
    OBJECTS,
    title="Watermark a PDF",
    words="stamp logo draft text",
    sources=(PDF,),
    count=page_count,
    example=("text",),
)
def watermark(
    document: pikepdf.Pdf,
    *,
    text: Text | None = None,
    stamp: Stamp | None = None,
    opacity: Opacity = 0.3,
    angle: Angle = 45,
    position: Place = "center",
    size: MarkSize | None = None,
    color: Background = "#808080",
    pages: Pages = "all",
    under: Under = False,
) -> pikepdf.Pdf:
    """Draws a text or an image on the pages of a PDF."""
    if (text is None) == (stamp is None):
        reason = "missing" if text is None else "exclusive"
        raise InvalidOption("Either text or stamp must be given.", reason=reason, param="text")
    chosen = documents.selected(document, pages)
    archive_claims.remove_claim(document)  # The colors and fonts of marks may be others than PDF/A permits.
    writer = marks.MarkWriter(document)
    if stamp is None:
        mark = writer.text(text or "", _TEXT_SIZE, *_paint(color, opacity))
    else:
        mark = writer.page(stamp, opacity)
    if size is not None:
        mark = mark.scaled(size / (_TEXT_SIZE if stamp is None else mark.width))
    tiled = position == "tile"
    for _, page in chosen:
        geometry = marks.Geometry.of(page)
        shown = mark if size is not None else _fit(mark, geometry, angle, _TILE_SHARE if tiled else _SHARE)
        places = geometry.tile(shown, angle) if tiled else [geometry.place(shown, position, angle)]
        writer.draw(page, shown, places, under=under)
    return document


def _paint(color_name: str, opacity: float) -> tuple[tuple[float, float, float], float]:
    """The color, and the opacity times the alpha of the color."""
    red, green, blue, alpha = color.parse(color_name)
    return (red / 255, green / 255, blue / 255), opacity * alpha / 255


def _fit(mark: marks.Mark, geometry: marks.Geometry, angle: float, share: float) -> marks.Mark:
    """The mark at the size at which it fills this share of the width or height of the page."""
    width, height = mark.extent(angle)
    return mark.scaled(share * min(geometry.width / width, geometry.height / height))
