"""BMP (Windows bitmap). Written without alpha, which most readers show as black."""

from engine import (
    RASTER,
    AnyConversion,
    Content,
    FileFormat,
    Raster,
    Signature,
    TargetCapabilities,
    conversion,
    hookimpl,
)
from plugins import _pillow


def _is_complete(content: Content) -> bool:
    return int.from_bytes(content[2:6], "little") == len(content)


BMP = FileFormat(
    "bmp",
    media_type="image/bmp",
    extensions=("bmp", "dib"),
    sniff=Signature((0, b"BM")),
    is_complete=_is_complete,
    bytes_per_pixel=1,
)


@conversion(BMP, RASTER)
def decode(data: bytes) -> Raster:
    return _pillow.decode(data, "BMP")


@conversion(RASTER, BMP)
def encode(raster: Raster) -> bytes:
    frame = raster.first_frame(TargetCapabilities(("1", "L", "P", "RGB")))
    return _pillow.encode(frame.image, "BMP", dpi=raster.dpi)


@hookimpl
def conversions() -> list[AnyConversion]:
    return [decode, encode]
