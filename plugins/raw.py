"""Camera RAW: CR2, NEF, ARW, DNG, RAF, ORF and RW2, developed by LibRaw with the camera's white balance."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from io import BytesIO
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias

from PIL import Image
from pydantic import Field

from engine import (
    RASTER,
    AnyConversion,
    Content,
    CorruptInput,
    DeepPixels,
    FileFormat,
    Frame,
    InvalidOption,
    Loss,
    Raster,
    Signature,
    Size,
    any_of,
    check_size,
    conversion,
    hookimpl,
)
from plugins import _exif, _pillow, _tiff_tags, jpeg

RawMode: TypeAlias = Annotated[
    Literal["develop", "preview"],
    Field(description="`preview` uses the largest JPEG that the camera stored in the file; it can be small."),
]

if TYPE_CHECKING:
    from numpy.typing import NDArray

_SRGB = 1  # EXIF value of ColorSpace
_TURNED = (5, 6)  # LibRaw's orientations that exchange width and height


def _tiff_raw(maker: bytes, *, dng: bool = False) -> Callable[[Content], int]:
    """A sniffer for TIFF-based RAW files of a manufacturer, or for DNG."""

    def sniff(content: Content) -> int:
        directories = _tiff_tags.read_directories(content)
        if any(_tiff_tags.DNG_VERSION in directory for directory in directories[:1]):
            return 16 if dng else 0
        matches = bool(maker) and _tiff_tags.camera_make(directories).startswith(maker)
        return 4 + len(maker) if matches and _tiff_tags.holds_sensor_data(directories) else 0

    return any_of(*(Signature((0, magic), then=sniff) for magic in (b"II*\0", b"MM\0*")))


def _format(name: str, media_type: str, sniff: Callable[[Content], int]) -> FileFormat:
    return FileFormat(name, media_type=media_type, extensions=(name,), sniff=sniff, bytes_per_pixel=0.5)


CR2 = _format("cr2", "image/x-canon-cr2", Signature((0, b"II*\0"), (8, b"CR\x02")))
NEF = _format("nef", "image/x-nikon-nef", _tiff_raw(b"NIKON"))
ARW = _format("arw", "image/x-sony-arw", _tiff_raw(b"SONY"))
DNG = _format("dng", "image/x-adobe-dng", _tiff_raw(b"", dng=True))
RAF = _format("raf", "image/x-fuji-raf", Signature((0, b"FUJIFILMCCD-RAW")))
ORF = _format(
    "orf",
    "image/x-olympus-orf",
    any_of(*(Signature((0, magic)) for magic in (b"IIRO", b"IIRS", b"MMOR"))),
)
RW2 = _format("rw2", "image/x-panasonic-rw2", Signature((0, b"IIU\0")))

FORMATS = (CR2, NEF, ARW, DNG, RAF, ORF, RW2)


def decode(data: bytes, *, raw_mode: RawMode = "develop") -> Raster:
    return _read_preview(data) if raw_mode == "preview" else _develop(data)


def _read_preview(data: bytes) -> Raster:
    """The largest embedded JPEG, upright, with the metadata of the file. Raises InvalidOption if there is none."""
    import rawpy

    with rawpy.imread(BytesIO(data)) as raw:
        try:
            preview = raw.extract_thumb().data
        except (rawpy.LibRawNoThumbnailError, rawpy.LibRawUnsupportedThumbnailError):
            preview = None
    if not isinstance(preview, bytes):  # an array of uncompressed samples, or none
        message = "raw_mode must be develop for this file: it contains no JPEG preview."
        raise InvalidOption(message, reason="unknown", param="raw_mode", details={"available": ["develop"]})
    jpeg.check_scans(preview)
    raster = _pillow.decode(preview, "JPEG", lossy=True)
    directory = _read_directory(data)
    return replace(raster, exif=_exif.from_directory(directory), xmp=_read_xmp(directory), dpi=None)


def _develop(data: bytes) -> Raster:
    """Develops the sensor data, upright and in sRGB."""
    # LibRaw decodes some truncated files to noise without an error.
    if _tiff_tags.is_truncated(data, _tiff_tags.read_directories(data)):
        raise CorruptInput("The file is truncated within the sensor data.")
    directory = _read_directory(data)
    return Raster(
        _develop_frames(data, bits=8),
        deep_frames=_develop_frames(data, bits=16),
        exif=_exif.from_directory(directory, color_space=_SRGB),
        xmp=_read_xmp(directory),
        lossy=True,
        sizes=[_upright_size(data)],
    )


def _upright_size(data: bytes) -> Size:
    """The size of the developed picture, from the header."""
    import rawpy

    with rawpy.imread(BytesIO(data)) as raw:
        sizes = raw.sizes
    return (sizes.iheight, sizes.iwidth) if sizes.flip in _TURNED else (sizes.iwidth, sizes.iheight)


def _develop_frames(data: bytes, *, bits: int) -> Iterator[Frame]:
    import rawpy

    with rawpy.imread(BytesIO(data)) as raw:
        check_size(raw.sizes.width, raw.sizes.height)
        array: NDArray[Any] = raw.postprocess(use_camera_wb=True, output_bps=bits)
    yield Frame(Image.fromarray(array) if bits == 8 else DeepPixels(array, "RGB"))


def _read_xmp(directory: Image.Exif) -> bytes | None:
    xmp = directory.get(_exif.XMP)
    return xmp if isinstance(xmp, bytes) else None


def _read_directory(data: bytes) -> Image.Exif:
    """The first TIFF directory; in RAF that of the preview."""
    if data.startswith(b"FUJIFILM"):
        start, size = (int.from_bytes(data[offset : offset + 4], "big") for offset in (84, 88))
        return _pillow.open_image(data[start : start + size], "JPEG").getexif()
    # ORF and RW2 differ from TIFF only in the magic number.
    magic = b"\x2a\0" if data.startswith(b"II") else b"\0\x2a"
    return _exif.parse(data[:2] + magic + data[4:])


@hookimpl
def conversions() -> list[AnyConversion]:
    modules = ("rawpy", "multiprocessing")
    return [
        conversion(source, RASTER, loss=Loss.DETAIL, cost=10, memory=17, isolated=True, modules=modules)(decode)
        for source in FORMATS
    ]
