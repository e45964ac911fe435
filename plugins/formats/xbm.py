"""XBM (X BitMap): black and white as C source code."""

from __future__ import annotations

import re

from PIL import Image, ImageChops

from engine import (
    RASTER,
    Content,
    CorruptInput,
    FileFormat,
    Raster,
    Signature,
    TargetCapabilities,
    conversion,
    lazy_imports,
)
from plugins._pixels import pillow, sample_arrays

with lazy_imports():
    import numpy as np

MODULES = ("numpy", "PIL.XbmImagePlugin", "imagecodecs._cms")
_MAX_HEADER = 4096  # bytes
_STARTS = (b"#define", b"/*", b" ", b"\t", b"\n", b"\r", b"\v", b"\f")
_SIZE = re.compile(rb"#define\s+\S*width\s+(\d{1,9})\s+#define\s+\S*height\s+(\d{1,9})\s")
_KIND = re.compile(rb"\b(char|short)\s")
_NUMBER = re.compile(rb"0[xX]([0-9a-fA-F]{1,8})|(\d{1,9})")


def _find_size(source: bytes) -> re.Match[bytes] | None:
    """The width and height of an XBM, which follow only blanks and comments; None if it begins otherwise."""
    head = source[:_MAX_HEADER]
    rest = head.lstrip()
    while rest.startswith(b"/*"):
        rest = rest[2:].partition(b"*/")[2].lstrip()
    return _SIZE.match(head, len(head) - len(rest))


def _sniff(content: Content) -> int:
    return 6 if _find_size(content[:_MAX_HEADER]) else 0


XBM = FileFormat(
    "xbm",
    media_type="image/x-xbitmap",
    extensions=("xbm",),
    sniff=Signature((0, _STARTS), then=_sniff),
    bytes_per_pixel=0.6,
)


@conversion(XBM, RASTER, memory=24)
def decode(data: bytes) -> Raster:
    header = _find_size(data)
    if header is None:
        raise CorruptInput("The header of the XBM is invalid.")
    width, height = int(header[1]), int(header[2])
    return sample_arrays.to_raster(lambda: _read(data[header.end() :], width, height), (width, height), "1")


def _read(source: bytes, width: int, height: int) -> Image.Image:
    start = source.find(b"{")
    end = source.find(b"}", start)
    declared = _KIND.findall(source, source.rfind(b";", 0, start) + 1, max(start, 0))
    if end < 0 or not declared:
        raise CorruptInput("The file is truncated.")
    kind, bits = ("<u2", 16) if declared[-1] == b"short" else ("u1", 8)
    numbers = [int(one[1], 16) if one[1] else int(one[2]) for one in _NUMBER.finditer(source, start, end)]
    per_row = (width + bits - 1) // bits
    if len(numbers) < per_row * height:
        raise CorruptInput("The image has too few numbers.")
    words = np.array(numbers[: per_row * height], np.uint32).astype(kind).reshape(height, per_row)
    ink = np.unpackbits(words.view(np.uint8), axis=1, bitorder="little")[:, :width]
    return Image.fromarray(ink == 0)


@conversion(RASTER, XBM, capabilities=TargetCapabilities(("1",)))
def encode(raster: Raster) -> bytes:
    # Pillow takes the ink for white.
    return pillow.encode(ImageChops.invert(raster.first_frame().image), "XBM")
