"""Extracts the images of a PDF."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from engine import (
    CorruptInput,
    EncodedFile,
    FidelityWarning,
    FileFormat,
    InvalidOption,
    PageRanges,
    Signature,
    ToolResult,
    any_of,
    lazy_imports,
    tool,
)
from engine.option_types import Pages, Password
from plugins.formats.jpeg import JPEG
from plugins.formats.pdf import PDF
from plugins.formats.png import PNG
from plugins.formats.tiff import TIFF

with lazy_imports():
    from plugins._pdf import documents
    from plugins._pdf.images import extraction

MODULES = ("plugins._pdf.documents", "plugins._pdf.images.extraction")
TEMPLATE = "documents"

JPEG_2000 = FileFormat(
    "jp2",
    media_type="image/jp2",
    extensions=("jp2",),
    sniff=any_of(Signature((4, b"jP  \r\n\x87\n")), Signature((0, b"\xff\x4f\xff\x51"))),
)
_FORMATS = {"jpeg": JPEG, "jp2": JPEG_2000, "png": PNG, "tiff": TIFF}
MinPixels = Annotated[int, Field(ge=1, examples=[10_000], description="Width times height of the smallest image.")]


@tool(
    "pdf-extract-images",
    PDF,
    title="Extract images of a PDF",
    words="pictures photos save get",
    sources=(PDF,),
    target=PNG,
    isolated=True,
    archive=True,
    encodes=True,
    memory=12,
)
def extract_images(
    data: bytes, *, pages: Pages = "all", min_pixels: MinPixels = 1, password: Password | None = None
) -> ToolResult[bytes]:
    """Extracts the images of a PDF: JPEG and JPEG 2000 as they are, others as PNG, and CMYK as TIFF."""
    document = documents.open_document(data, password)
    indexes = sorted(PageRanges.parse(pages).indexes(len(document.pages)))
    extractor = extraction.Extractor(document, data, password or "")
    found = extractor.find(indexes, min_pixels)
    if not found:
        raise InvalidOption("The pages have no image of this size.", reason="nothing_found", param="file")
    extracted = [(number, image) for number, one in enumerate(found, 1) if (image := extractor.extract(one))]
    if not extracted:
        raise CorruptInput("All images of the PDF are damaged or too large.")
    if len(extracted) < len(found):
        message = f"{len(found) - len(extracted)} images of the PDF are damaged or too large."
        FidelityWarning.issue("pictures_dropped", message)
    digits = max(2, len(str(len(found))))
    files = (
        (f"{number:0{digits}}", EncodedFile(content, format=_FORMATS[kind])) for number, (kind, content) in extracted
    )
    return ToolResult(files=files)
