"""JPEG (ISO/IEC 10918)."""

from engine import (
    RASTER,
    AnyConversion,
    FileFormat,
    Loss,
    Raster,
    Signature,
    TargetCapabilities,
    TooLarge,
    conversion,
    ends_with,
    hookimpl,
)
from engine.option_types import Quality
from plugins import _pillow

JPEG = FileFormat(
    "jpeg",
    media_type="image/jpeg",
    extensions=("jpg", "jpeg", "jpe", "jfif"),
    sniff=Signature((0, b"\xff\xd8\xff")),
    lossy=True,
    is_complete=ends_with(b"\xff\xd9"),
)

_MAX_SEGMENT = 65_500  # bytes; the limit of one APP1 segment
_SCAN = b"\xff\xda"
_MAX_SCANS = 100  # encoders write about ten; each is a pass over all pixels


def check_scans(data: bytes) -> None:
    """Raises TooLarge for a progressive JPEG with too many scans, which would take minutes to decode."""
    scans = data.count(_SCAN)  # cannot occur in entropy-coded data
    if scans > _MAX_SCANS:
        raise TooLarge(
            f"The JPEG has {scans} scans; the limit is {_MAX_SCANS}.",
            reason="scans",
            details={"max_scans": _MAX_SCANS, "scans": scans},
        )


@conversion(JPEG, RASTER, memory=4)
def decode(data: bytes) -> Raster:
    check_scans(data)
    return _pillow.decode(data, "JPEG", lossy=True)


@conversion(RASTER, JPEG, loss=Loss.DETAIL)
def encode(raster: Raster, *, quality: Quality = 85) -> bytes:
    frame = raster.first_frame(TargetCapabilities(("L", "RGB"), icc=True, max_side=65_500))
    return _pillow.encode(
        frame.image,
        "JPEG",
        quality=quality,
        subsampling="4:4:4" if quality >= 90 else "4:2:0",
        icc_profile=frame.icc_profile,
        exif=raster.exif if len(raster.exif or b"") < _MAX_SEGMENT else None,
        xmp=raster.xmp if len(raster.xmp or b"") < _MAX_SEGMENT else None,
        dpi=raster.dpi,
    )


@hookimpl
def conversions() -> list[AnyConversion]:
    return [decode, encode]
