"""HEIC (HEIF with HEVC pictures)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from io import BytesIO
from typing import TYPE_CHECKING, Any

from engine import (
    RASTER,
    AnyConversion,
    Brands,
    DeepPixels,
    FileFormat,
    Frame,
    Loss,
    Raster,
    TargetCapabilities,
    boxes_are_complete,
    check_side,
    conversion,
    hookimpl,
)
from engine.option_types import Effort, Lossless, Pages, Quality
from plugins import _pillow

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

HEIC = FileFormat(
    "heic",
    media_type="image/heic",
    extensions=("heic", "heif", "hif"),
    sniff=Brands("heic", "heix", "heim", "heis", "hevc", "hevx", "hevm", "hevs", "mif1", "msf1"),
    is_complete=boxes_are_complete,
    lossy=True,
    bytes_per_pixel=0.05,
)

_MODULES = ("pillow_heif.HeifImagePlugin",)
_MODES = ("L", "RGB", "RGBA")
# Presets of x265 by effort. The default, slow, takes twice the time of veryfast for 5 % fewer bytes.
_PRESETS = (*("ultrafast",) * 3, *("veryfast",) * 3, *("slow",) * 2, "slower")
_EQUAL_QUALITY = {"x265:aq-strength": "1.0"}  # the value of all presets but ultrafast
_LOSSLESS = {
    "quality": -1,
    "chroma": 444,
    "color_primaries": 1,
    "transfer_characteristics": 13,
    "matrix_coefficients": 0,
}


@conversion(HEIC, RASTER, cost=4, modules=_MODULES)
def decode(data: bytes, *, pages: Pages | None = None) -> Raster:
    import pillow_heif.HeifImagePlugin  # noqa: F401, registers the format

    raster = _pillow.decode(data, "HEIF", paged=True, lossy=True, pages=pages)
    bits = _pillow.open_image(data, "HEIF").info["bit_depth"]
    return replace(raster, deep_frames=_decode_deep(data, pages), source_bit_depth=bits) if bits > 8 else raster


def _decode_deep(data: bytes, pages: str | None) -> Iterator[Frame]:
    """The primary picture, then the others. libheif turns them upright and left-aligns samples of more than 8 bits."""
    import numpy as np
    import pillow_heif

    pictures = pillow_heif.open_heif(BytesIO(data), convert_hdr_to_8bit=False)
    others = [index for index in range(len(pictures)) if index != pictures.primary_index]
    for index in _pillow.select([pictures.primary_index, *others], pages):
        picture = pictures[index]
        info: dict[str, Any] = picture.info
        mode, _, deep = picture.mode.partition(";")
        bits = info["bit_depth"] if deep else 8
        array: NDArray[np.uint16] = np.asarray(picture).astype(np.uint16, copy=False)
        samples = np.right_shift(array, 16 - bits if deep else 0, dtype=np.uint16)
        yield Frame(DeepPixels.from_bits(samples, bits, mode), info.get("icc_profile"))


@conversion(RASTER, HEIC, loss=Loss.DETAIL, cost=40, memory=30, modules=_MODULES)
def encode(raster: Raster, *, quality: Quality = 50, lossless: Lossless = False, effort: Effort = 5) -> bytes:
    import pillow_heif

    # Pictures of 12 bits have another HEVC profile, which phones and browsers do not decode.
    frame = raster.first_frame(TargetCapabilities(("RGB", "RGBA"), deep_modes=_MODES, deep_bits=(10,), icc=True))
    # The encoder fails on long pictures that are narrower than two blocks.
    check_side(frame.size, 32_768 if min(frame.size) >= 32 else 4096)
    pixels = frame.pixels
    if isinstance(pixels, DeepPixels):
        picture = pillow_heif.from_bytes(f"{pixels.mode};16", pixels.size, pixels.array.tobytes())
    else:
        picture = pillow_heif.from_bytes(pixels.mode, pixels.size, pixels.tobytes())
    parameters: dict[str, Any] = _LOSSLESS if lossless else {"quality": quality}
    metadata = {"icc_profile": frame.icc_profile, "exif": raster.exif, "xmp": raster.xmp}
    file = BytesIO()
    picture.save(
        file,
        enc_params={"preset": _PRESETS[effort - 1], **_EQUAL_QUALITY},
        **parameters,
        **{name: block for name, block in metadata.items() if block},
    )
    return file.getvalue()


@hookimpl
def conversions() -> list[AnyConversion]:
    return [decode, encode]
