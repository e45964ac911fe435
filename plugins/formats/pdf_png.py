"""PNG as pages of PDF files: its compressed rows are stored as they are, if PDF can hold them."""

from __future__ import annotations

import struct
import zlib

from engine import EncodedFile, Raster, color, conversion, lazy_imports
from engine.option_types import Dpi, Flip, Metadata, Pages, Rotate
from plugins._metadata import exif_data
from plugins._pixels import pillow, png_chunks
from plugins.formats import pdf_images, png
from plugins.formats.pdf import CAPABILITIES, PDF
from plugins.formats.png import PNG

with lazy_imports():
    from plugins._pdf.images import image_pages

MODULES = ("plugins._pdf.images.image_pages", *png_chunks.MODULES)
TEMPLATE = "documents"
_PALETTE = 3  # a color type
_MODES = {0: "L", 2: "RGB", _PALETTE: "RGB"}  # by color type
_BILEVEL = (1, 0)  # depth and color type of images that Group 4 stores in half the bytes
_LAST_FILTER = 4
# Transparent colors, animations, and what changes how pixels are read: a variant of Apple.
_OTHERS = frozenset({b"tRNS", b"acTL", b"CgBI"})


@conversion(PNG, PDF, terminal=True, cost=0.5)
def embed(
    data: bytes,
    *,
    pages: Pages | None = None,
    metadata: Metadata = "safe",
    rotate: Rotate = 0,
    flip: Flip | None = None,
    dpi: Dpi | None = None,
) -> EncodedFile:
    """A PDF of one page that contains the image with unchanged pixels, and shows it turned.

    What PDF cannot hold is decoded, such as interlaced and transparent images.
    """
    image = pdf_images.Turned(png.decode(data, {"pages": pages} if pages else {}), metadata, rotate, flip, dpi)
    stream = _stored(data, image.raster)
    if stream is None:
        return image.decoded()
    adapt = image.raster.metadata.adapt
    held = adapt(image.raster, CAPABILITIES) if adapt else image.raster
    return image.stored(stream, exif_data.read_orientation(pillow.open_image(data, "PNG")), held.metadata.xmp)


def _stored(data: bytes, raster: Raster) -> image_pages.Stream | None:
    """The compressed rows of a PNG. None if it has to be decoded, or is damaged."""
    chunks = list(png_chunks.read_chunks(memoryview(data)))
    kinds = [kind for kind, _ in chunks]
    width, height, depth, color_type, _, _, interlaced = struct.unpack(">2I5B", chunks[0][1][8:-4])
    mode = _MODES.get(color_type)
    profile = raster.sample.icc_profile if raster.sample else None
    has_late_metadata = not png.METADATA_CHUNKS.isdisjoint(kinds[kinds.index(b"IDAT") :])
    is_plain = not (interlaced or has_late_metadata or raster.hdr) and _OTHERS.isdisjoint(kinds)
    if mode is None or not is_plain or (depth, color_type) == _BILEVEL:
        return None
    if profile is not None and color.matching_profile(mode, profile) is None:
        return None
    rows, colors = (b"".join(chunk[8:-4] for kind, chunk in chunks if kind == one) for one in (b"IDAT", b"PLTE"))
    bands = 1 if color_type == _PALETTE else len(mode)
    size = 3 << depth if color_type == _PALETTE else 0
    if not _is_complete(rows, 1 + (width * bands * depth + 7) // 8, height):
        return None
    return image_pages.Stream(
        rows,
        (width, height),
        mode,
        "FlateDecode",
        f"<</Predictor 15/Colors {bands}/BitsPerComponent {depth}/Columns {width}>>",
        icc_profile=profile,
        bits=depth,
        palette=colors.ljust(size, b"\0")[:size],  # readers of PNG take black for colors beyond its end
    )


def _is_complete(rows: bytes, stride: int, height: int) -> bool:
    """Whether data of zlib has so many rows of `stride` bytes, each after the number of a filter, and nothing else."""
    inflater = zlib.decompressobj()
    try:
        samples = inflater.decompress(rows, stride * height + 1)
    except zlib.error:
        return False
    is_whole = inflater.eof and not inflater.unused_data and len(samples) == stride * height
    return is_whole and max(samples[::stride]) <= _LAST_FILTER
