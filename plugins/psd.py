"""PSD (Adobe Photoshop): the merged picture, read by Pillow; what Pillow cannot read or write, by psd-tools."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from engine import RASTER, FileFormat, Loss, Options, Raster, Signature, TargetCapabilities, conversion, hookimpl
from engine.conversions import AnyConversion
from engine.decode_limits import check_size
from engine.lazy_import import lazy_import
from plugins import _exif, _pillow

if TYPE_CHECKING:
    from plugins import _psd_tools
else:
    _psd_tools = lazy_import("plugins._psd_tools")

PSD = FileFormat(
    "psd",
    media_type="image/vnd.adobe.photoshop",
    extensions=("psd",),
    sniff=Signature((0, b"8BPS"), (4, b"\0\1")),
    bytes_per_pixel=0.5,
)

_GREY, _RGB = 1, 3  # colour modes that have a 16-bit form here
_VERSION, _EXIF, _XMP = 1057, 1058, 1060  # numbers of resources
_MERGED_FLAG = 4  # in the version resource: whether the merged picture is there


@conversion(PSD, RASTER, loss=Loss.STRUCTURE, cost=2)
def decode(data: bytes, _options: Options) -> Raster:
    depth, mode = (int.from_bytes(data[at : at + 2], "big") for at in (22, 24))
    check_size(int.from_bytes(data[18:22], "big"), int.from_bytes(data[14:18], "big"))
    if depth > 8:
        deep = _psd_tools.deep_frames(data) if mode in (_GREY, _RGB) else None
        return Raster(_psd_tools.composite(data), deep_frames=deep)
    image = _pillow.opened(data, "PSD")
    resources = {number: block for number, _, block in getattr(image, "resources", ())}
    version = resources.get(_VERSION, b"\0\0\0\0\1")
    raster = _pillow.raster(image, [image.tell()])
    if not version[_MERGED_FLAG]:
        # What composing layers takes is not told by the size of the picture.
        raster = replace(raster, frames=_psd_tools.composite(data), sizes=())
    exif = resources.get(_EXIF)
    return replace(
        raster,
        exif=_exif.PREFIX + exif if exif else None,
        xmp=resources.get(_XMP),
    )


# So much only where there is transparency, of which psd-tools makes a layer.
@conversion(RASTER, PSD, cost=3, memory=70, lazy=True)
def encode(raster: Raster, _options: Options) -> bytes:
    frame = raster.first_frame(TargetCapabilities(("L", "RGB", "RGBA", "CMYK"), icc=True, max_side=30_000))
    return _psd_tools.encode(frame, raster.exif and raster.exif.removeprefix(_exif.PREFIX), raster.xmp)


@hookimpl
def conversions() -> list[AnyConversion]:
    return [decode, encode]
