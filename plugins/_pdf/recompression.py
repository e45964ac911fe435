"""Compresses the pictures of a document again, as JPEG, where that makes them smaller."""

from __future__ import annotations

import re

from PIL import Image

from engine import MAX_PIXELS, FidelityWarning
from engine.mupdf import pymupdf
from plugins import _pillow

_MODES = {1: "L", 3: "RGB", 4: "CMYK"}
# Other color spaces, such as Indexed, have no equal in JPEG.
_COLOR_SPACE = re.compile(r"/Device(Gray|RGB|CMYK)\b|\[\s*/(ICCBased|CalGray|CalRGB)\b")
_INVERTED = "[1 0 1 0 1 0 1 0]"  # as Pillow stores CMYK


def recompress(document: pymupdf.Document, quality: int) -> None:
    """Replaces pictures of 8 bits by JPEGs of this quality, if they are smaller.

    Masks, and pictures with other depths or color spaces, stay. Issues a warning if there are no other pictures.
    """
    pictures = [xref for xref in range(1, document.xref_length()) if document.xref_is_image(xref)]
    masks = {document.xref_get_key(xref, "SMask")[1] for xref in pictures}
    photos = [xref for xref in pictures if f"{xref} 0 R" not in masks and _is_photo(document, xref)]
    if not photos:
        FidelityWarning.issue("quality_ignored", "The PDF has no pictures that can be stored as JPEG.")
    for xref in photos:
        image = _decode(document, xref)
        if image is None:
            continue
        data = _pillow.encode_jpeg(image, quality=quality)
        if len(data) < len(document.xref_stream_raw(xref)):
            document.update_stream(xref, data, compress=False)
            # Updating a stream removes the keys of its compression.
            document.xref_set_key(xref, "Filter", "/DCTDecode")
            document.xref_set_key(xref, "Decode", _INVERTED if image.mode == "CMYK" else "null")


def _is_photo(document: pymupdf.Document, xref: int) -> bool:
    """Whether a picture has 8 bits per sample in a color space of JPEG, and no colors that are transparent."""
    kind, space = document.xref_get_key(xref, "ColorSpace")
    if kind == "xref":
        space = document.xref_object(int(space.split()[0]), compressed=True)
    keys = ("BitsPerComponent", "Width", "Height")
    bits, width, height = (document.xref_get_key(xref, key)[1] for key in keys)
    is_small = width.isdigit() and height.isdigit() and int(width) * int(height) <= MAX_PIXELS
    transparent_colors = document.xref_get_key(xref, "Mask")[0] == "array"
    return bits == "8" and is_small and not transparent_colors and _COLOR_SPACE.match(space) is not None


def _decode(document: pymupdf.Document, xref: int) -> Image.Image | None:
    """The picture. None if it is damaged: what MuPDF cannot decode would become black for all readers."""
    pymupdf.TOOLS.reset_mupdf_warnings()
    try:
        pixels = pymupdf.Pixmap(document, xref)
    except RuntimeError:
        return None
    mode = _MODES.get(pixels.n)
    if mode is None or pixels.alpha or pymupdf.TOOLS.mupdf_warnings():
        return None
    return Image.frombytes(mode, (pixels.width, pixels.height), pixels.samples)
