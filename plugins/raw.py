"""Camera RAW: CR2, NEF, ARW, DNG, RAF, ORF and RW2, developed by LibRaw with the camera's white balance."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from io import BytesIO
from typing import TYPE_CHECKING, Any

from numpy.typing import NDArray
from PIL import Image

from engine import (
    RASTER,
    Content,
    CorruptInput,
    DeepPixels,
    FileFormat,
    Frame,
    Loss,
    Options,
    Raster,
    Signature,
    any_of,
    conversion,
    hookimpl,
)
from engine.conversions import AnyConversion
from engine.decode_limits import check_size
from engine.lazy_import import lazy_import
from plugins import _exif, _pillow, _tiff_tags

if TYPE_CHECKING:
    import rawpy as _rawpy
else:
    _rawpy = lazy_import("rawpy")

_SRGB = 1  # as EXIF counts colour spaces


def _made_by(maker: bytes, *, dng: bool = False) -> Callable[[Content], int]:
    """A sniffer for TIFFs that hold the sensor data of a maker's cameras, or that say they are DNG."""

    def sniff(content: Content) -> int:
        if content[:4] not in (b"II*\0", b"MM\0*"):
            return 0
        found = _tiff_tags.directories(content)
        if any(_tiff_tags.DNG_VERSION in directory for directory in found[:1]):
            return 16 if dng else 0
        named = bool(maker) and _tiff_tags.make(found).startswith(maker)
        return 4 + len(maker) if named and _tiff_tags.holds_sensor_data(found) else 0

    return sniff


def _format(name: str, media_type: str, sniff: Callable[[Content], int]) -> FileFormat:
    return FileFormat(name, media_type=media_type, extensions=(name,), sniff=sniff, bytes_per_pixel=0.5)


CR2 = _format("cr2", "image/x-canon-cr2", Signature((0, b"II*\0"), (8, b"CR\x02")))
NEF = _format("nef", "image/x-nikon-nef", _made_by(b"NIKON"))
ARW = _format("arw", "image/x-sony-arw", _made_by(b"SONY"))
DNG = _format("dng", "image/x-adobe-dng", _made_by(b"", dng=True))
RAF = _format("raf", "image/x-fuji-raf", Signature((0, b"FUJIFILMCCD-RAW")))
ORF = _format(
    "orf",
    "image/x-olympus-orf",
    any_of(*(Signature((0, magic)) for magic in (b"IIRO", b"IIRS", b"MMOR"))),
)
RW2 = _format("rw2", "image/x-panasonic-rw2", Signature((0, b"IIU\0")))

FORMATS = (CR2, NEF, ARW, DNG, RAF, ORF, RW2)


def develop(data: bytes, _options: Options) -> Raster:
    """The full picture, upright, in sRGB: not the preview that such files carry."""
    # LibRaw makes a picture of noise from some files that end where the sensor data should begin.
    if _tiff_tags.is_cut_off(data, _tiff_tags.directories(data)):
        raise CorruptInput("The file ends before its sensor data does.")
    directory = _directory(data)
    xmp = directory.get(_exif.XMP)
    return Raster(
        _developed(data, bits=8),
        deep_frames=_developed(data, bits=16),
        exif=_exif.described(directory, color_space=_SRGB),
        xmp=xmp if isinstance(xmp, bytes) else None,
        lossy=True,
    )


def _developed(data: bytes, *, bits: int) -> Iterator[Frame]:
    with _rawpy.imread(BytesIO(data)) as raw:
        check_size(raw.sizes.width, raw.sizes.height)
        array: NDArray[Any] = raw.postprocess(use_camera_wb=True, output_bps=bits)
    yield Frame(Image.fromarray(array) if bits == 8 else DeepPixels(array, "RGB"))


def _directory(data: bytes) -> Image.Exif:
    """The file's own directory; in a RAF that of its preview."""
    if data.startswith(b"FUJIFILM"):
        start, size = (int.from_bytes(data[at : at + 4], "big") for at in (84, 88))
        return _pillow.opened(data[start : start + size], "JPEG").getexif()
    # ORF and RW2 are TIFFs but for their magic number.
    magic = b"\x2a\0" if data.startswith(b"II") else b"\0\x2a"
    return _exif.parsed(data[:2] + magic + data[4:])


@hookimpl
def conversions() -> list[AnyConversion]:
    declare = [conversion(source, RASTER, loss=Loss.DETAIL, cost=10, memory=17, lazy=True) for source in FORMATS]
    return [step(develop) for step in declare]
