"""JPEG (ISO/IEC 10918)."""

from dataclasses import replace

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
from engine.option_types import Crop, Fit, Height, Quality, Rotate, Width
from plugins import _pillow
from plugins.geometry import needed_size, reduced_scale

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
def decode(
    data: bytes,
    *,
    width: Width | None = None,
    height: Height | None = None,
    fit: Fit = "inside",
    crop: Crop | None = None,
    rotate: Rotate = 0,
) -> Raster:
    """Decodes at 1/2, 1/4 or 1/8 of the size if that is enough for the requested one."""
    check_scans(data)
    image = _pillow.open_image(data, "JPEG")
    size = _pillow.upright_size(image)
    scale = reduced_scale(size, needed_size(size, width, height, fit=fit, crop=crop, rotate=rotate))
    if scale > 1:
        image.draft(None, (image.width // scale, image.height // scale))
    raster = _pillow.to_raster(image, [0], lossy=True)
    return raster.map(lambda frame: replace(frame, full_size=size)) if scale > 1 else raster


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
