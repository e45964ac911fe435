"""PSD (Adobe Photoshop): the merged picture, through Pillow or psd-tools. Layers are not kept."""

from __future__ import annotations

from dataclasses import replace

from engine import (
    RASTER,
    AnyConversion,
    FileFormat,
    Loss,
    Raster,
    Signature,
    TargetCapabilities,
    check_size,
    conversion,
    hookimpl,
)
from plugins import _exif, _pillow, _psd_tools

PSD = FileFormat(
    "psd",
    media_type="image/vnd.adobe.photoshop",
    extensions=("psd",),
    sniff=Signature((0, b"8BPS"), (4, b"\0\1")),
    bytes_per_pixel=0.5,
)

_GREY, _RGB = 1, 3  # colour modes that are read with 16 bits
_VERSION, _EXIF, _XMP = 1057, 1058, 1060  # resource ids
_MERGED_FLAG = 4  # offset in the version resource: whether the file has a merged picture


@conversion(PSD, RASTER, loss=Loss.STRUCTURE, cost=2, isolated=True)
def decode(data: bytes) -> Raster:
    depth, mode = (int.from_bytes(data[offset : offset + 2], "big") for offset in (22, 24))
    check_size(int.from_bytes(data[18:22], "big"), int.from_bytes(data[14:18], "big"))
    if depth > 8:
        deep = _psd_tools.deep_frames(data) if mode in (_GREY, _RGB) else None
        return Raster(_psd_tools.composite(data), deep_frames=deep)
    image = _pillow.open_image(data, "PSD")
    resources = {number: block for number, _, block in getattr(image, "resources", ())}
    version = resources.get(_VERSION, b"\0\0\0\0\1")
    raster = _pillow.to_raster(image, [image.tell()])
    if not version[_MERGED_FLAG]:
        # Compositing layers takes more memory than the size of the picture suggests.
        raster = replace(raster, frames=_psd_tools.composite(data), sizes=())
    exif = resources.get(_EXIF)
    return replace(
        raster,
        exif=_exif.PREFIX + exif if exif else None,
        xmp=resources.get(_XMP),
    )


# Memory for pictures with alpha, for which psd-tools writes a layer too.
@conversion(RASTER, PSD, cost=3, memory=70)
def encode(raster: Raster) -> bytes:
    frame = raster.first_frame(TargetCapabilities(("L", "RGB", "RGBA", "CMYK"), icc=True, max_side=30_000))
    return _psd_tools.encode(frame, raster.exif and raster.exif.removeprefix(_exif.PREFIX), raster.xmp)


@hookimpl
def conversions() -> list[AnyConversion]:
    return [decode, encode]
