"""Makes PDF files smaller: without loss first, and then their pictures with loss."""

from __future__ import annotations

from io import BytesIO

import pikepdf
from pikepdf import ObjectStreamMode, Pdf, Stream

from plugins._pdf import flate
from plugins._pdf.duplicates import merge_duplicates
from plugins._pdf.fonts import subset_fonts


def optimize(document: Pdf, data: bytes, password: str) -> None:
    """Makes a document smaller that was read from `data`: only what it uses stays, once, in the best compression.

    Pictures stay as they are, because `recompression` compresses them.
    """
    subset_fonts(document, data, password)
    merge_duplicates(document)
    for item in document.objects:
        if isinstance(item, Stream) and item.get("/Subtype") != pikepdf.Name.Image:
            flate.recompress(item)


def to_bytes(document: Pdf, *, linearize: bool = False) -> bytes:
    """The objects that the document uses, in object streams. Its encryption stays, with passwords and permissions."""
    file = BytesIO()
    document.save(
        file, object_stream_mode=ObjectStreamMode.generate, encryption=document.is_encrypted, linearize=linearize
    )
    return file.getvalue()
