"""Makes PDF files smaller: without loss first, and then their images with loss."""

from __future__ import annotations

from io import BytesIO

import pikepdf
from pikepdf import Name, ObjectStreamMode, Pdf, Stream

from engine import FidelityWarning
from plugins._pdf import flate
from plugins._pdf.duplicates import merge_duplicates
from plugins._pdf.images.recompression import ImageSettings, recompress
from plugins._pdf.objects import open_pdf
from plugins._pdf.text.fonts import convert_type1, name_descriptors, subset_fonts


def compress(data: bytes, password: str, quality: int, dpi: int) -> bytes:
    """The file, as small as possible with images of a quality from 1 to 100 and a resolution.

    Issues a warning if it has no images that can be stored as JPEG.
    """
    with open_pdf(data, password) as document:
        optimized = optimize(document, password)
    compressed, count = with_images(optimized, password, ImageSettings.of(quality, dpi))
    if not count:
        FidelityWarning.issue("quality_ignored", "The PDF has no images that can be stored as JPEG.")
    return compressed


def with_images(data: bytes, password: str, settings: ImageSettings, *, linearize: bool = False) -> tuple[bytes, int]:
    """The file with compressed images, and the number of images that can be stored as JPEG."""
    with pikepdf.open(BytesIO(data), password=password) as document:
        count = recompress(document, settings)
        return to_bytes(document, linearize=linearize), count


def optimize(document: Pdf, password: str) -> bytes:
    """The document with only what it uses, once, in the best compression without loss. Changes `document`.

    Images stay as they are, because `recompression` compresses them.
    """
    merge_duplicates(document)
    name_descriptors(document)
    convert_type1(document)
    data = to_bytes(document)
    with pikepdf.open(BytesIO(data), password=password) as smaller:
        subset_fonts(smaller, data, password)
        for item in smaller.objects:
            if isinstance(item, Stream) and item.get("/Subtype") != Name.Image:
                flate.recompress(item)
        return to_bytes(smaller)


def to_bytes(document: Pdf, *, linearize: bool = False) -> bytes:
    """The objects that the document uses, in object streams. Its encryption stays, with passwords and permissions."""
    file = BytesIO()
    document.save(
        file, object_stream_mode=ObjectStreamMode.generate, encryption=document.is_encrypted, linearize=linearize
    )
    return file.getvalue()
