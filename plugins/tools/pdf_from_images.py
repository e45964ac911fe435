"""Makes a PDF of images."""

from __future__ import annotations

from io import BytesIO
from typing import Annotated, Literal

from pydantic import Field

from engine import RASTER, EncodedFile, lazy_imports, tool
from engine.option_types import Margin, Sanitize
from plugins._text.paper import POINTS, SIZES, check_margin, fitted
from plugins.formats.pdf import PDF

with lazy_imports():
    import pikepdf

    from plugins._pdf import documents

MODULES = ("plugins._pdf.documents",)
TEMPLATE = "documents"

PageSize = Annotated[
    Literal["fit", "a3", "a4", "a5", "a6", "letter", "legal", "tabloid"],
    Field(description="Size of the pages; `fit` is the printed size of each image."),
]
Orientation = Annotated[
    Literal["auto", "portrait", "landscape"], Field(description="`auto` turns each page as its image needs it.")
]
ImageFit = Annotated[
    Literal["inside", "cover", "fill"],
    Field(description="How an image fits the page: whole, cut off, or distorted. Small ones are enlarged."),
]


@tool(
    "pdf-from-images",
    PDF,
    title="Create a PDF from images",
    words="jpg to pdf photos png heic scan combine",
    decoded_to=RASTER,
    target=PDF,
    inputs=range(1, 101),
    output_name="images",
    encodes=True,
    opens_with={"metadata": "all"},  # keeps JPEG files as they are
)
def from_images(
    files: list[bytes],
    *,
    page_size: PageSize = "fit",
    orientation: Orientation = "auto",
    margin: Margin = 0,
    fit: ImageFit = "inside",
    sanitize: Sanitize = False,
) -> EncodedFile:
    """Makes a PDF of images, with a page for each image or frame. JPEG files keep their data."""
    made = pikepdf.Pdf.new()
    border = margin * POINTS
    while files:  # releases each image after it is copied
        with pikepdf.open(BytesIO(files.pop(0))) as images:
            made.pages.extend(images.pages)
    for page in made.pages:
        width, height = (float(edge) for edge in list(page.mediabox)[2:])
        if page_size == "fit":
            area = (width + 2 * border, height + 2 * border)
        else:
            short, long = (side * POINTS for side in SIZES[page_size])
            is_wide = width > height if orientation == "auto" else orientation == "landscape"
            area = (long, short) if is_wide else (short, long)
        check_margin(border, min(area))
        frame = (border, border, area[0] - border, area[1] - border)
        matrix = fitted((width, height), frame, fit)
        page.obj.MediaBox = pikepdf.Array([0, 0, *(round(side, 4) for side in area)])
        clip = f"{frame[0]:.4f} {frame[1]:.4f} {frame[2] - frame[0]:.4f} {frame[3] - frame[1]:.4f} re W n"
        start = f"q {clip} {' '.join(f'{value:.6f}' for value in matrix)} cm\n"
        if area != (width, height):
            page.contents_add(made.make_stream(start.encode()), prepend=True)
            page.contents_add(made.make_stream(b"\nQ"))
    return EncodedFile(documents.save_document(made, sanitize=sanitize), pages=len(made.pages))
