"""JPEG (ISO/IEC 10918)."""

from engine import RASTER, FileFormat, Holds, Loss, Options, Raster, Signature, conversion, hookimpl
from engine.conversions import AnyConversion
from plugins import _pillow

JPEG = FileFormat(
    "jpeg",
    media_type="image/jpeg",
    extensions=("jpg", "jpeg", "jpe", "jfif"),
    sniff=Signature((0, b"\xff\xd8\xff")),
    lossy=True,
)

_SEGMENT = 65_500  # bytes that fit into one APP1 marker


@conversion(JPEG, RASTER)
def decode(data: bytes, _options: Options) -> Raster:
    return _pillow.decode(data, "JPEG", lossy=True)


@conversion(RASTER, JPEG, loss=Loss.DETAIL)
def encode(raster: Raster, options: Options) -> bytes:
    frame = raster.single(Holds(("L", "RGB"), icc=True))
    quality = options.quality or 85
    return _pillow.saved(
        frame.image,
        "JPEG",
        quality=quality,
        subsampling="4:4:4" if quality >= 90 else "4:2:0",
        icc_profile=frame.icc_profile,
        exif=raster.exif if len(raster.exif or b"") < _SEGMENT else None,
        xmp=raster.xmp if len(raster.xmp or b"") < _SEGMENT else None,
        dpi=raster.dpi,
    )


@hookimpl
def conversions() -> list[AnyConversion]:
    return [decode, encode]
