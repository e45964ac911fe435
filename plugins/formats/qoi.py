"""QOI (Quite OK Image): lossless, with 8 bits per sample."""

from __future__ import annotations

import struct

from PIL import Image

from engine import (
    RASTER,
    CorruptInput,
    FileFormat,
    Raster,
    Signature,
    TargetCapabilities,
    any_of,
    conversion,
    lazy_imports,
)
from plugins._pixels import sample_arrays

with lazy_imports():
    import imagecodecs
    import numpy as np

MODULES = ("numpy", "imagecodecs._qoi")
_HEADER = struct.Struct(">4sIIBB")
_MODES = {3: "RGB", 4: "RGBA"}
_END = bytes(7) + b"\1"


QOI = FileFormat(
    "qoi",
    media_type="image/qoi",
    extensions=("qoi",),
    sniff=any_of(*(Signature((0, b"qoif"), (12, bytes([bands]))) for bands in (3, 4))),
    is_complete=lambda content: _END in content[-2 * len(_END) :],
    must_be_complete=True,
    bytes_per_pixel=0.5,
)


@conversion(QOI, RASTER)
def decode(data: bytes) -> Raster:
    _, width, height, bands, _ = _HEADER.unpack_from(data)
    return sample_arrays.to_raster(lambda: _read(data, (width, height), bands), (width, height), _MODES[bands])


def _read(data: bytes, size: tuple[int, int], bands: int) -> Image.Image:
    array = imagecodecs.qoi_decode(data)
    if array.shape != (*size[::-1], bands):
        raise CorruptInput("The image has another size than its header.")
    return Image.fromarray(array)


@conversion(RASTER, QOI, capabilities=TargetCapabilities(("RGB", "RGBA")))
def encode(raster: Raster) -> bytes:
    return bytes(imagecodecs.qoi_encode(np.asarray(raster.first_frame().image)))
