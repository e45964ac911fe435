"""Camera RAW: CR2, NEF, ARW, DNG, RAF, ORF and RW2, developed by LibRaw with the camera's white balance."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from io import BytesIO
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias

from PIL import Image, ImageOps
from pydantic import Field

from engine import (
    RASTER,
    AnyConversion,
    Content,
    ConversionError,
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
from plugins import _exif, _pillow, _tiff_tags, jpeg, tiff

RawMode: TypeAlias = Annotated[
    Literal["develop", "preview"],
    Field(description="`preview` uses the largest JPEG that the camera stored in the file; it can be small."),
]

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from rawpy import RawPy

MODULES = ("rawpy", "multiprocessing", *tiff.MODULES)
_SCANNER = b"NIKON"  # the maker whose film scanners write RAW files
_SRGB = 1  # EXIF value of ColorSpace
_TURNED = (5, 6)  # LibRaw's orientations that exchange width and height

# The brightness is changed if it differs from the camera's own picture by more than the tolerance.
_TOLERANCE = 0.1
_MIN_PREVIEW = 64  # pixels of the shorter side
_SAMPLED_SIDE = 256  # pixels
_CLIPPED = 0.015  # the share of all pixels; LibRaw's own brightening allows 0.01
_MAX_GAIN, _BISECTIONS = 16, 12


def _tiff_raw(maker: bytes, *, dng: bool = False) -> Callable[[Content], int]:
    """A sniffer for TIFF-based RAW files of a manufacturer, or for DNG."""

    def sniff(content: Content) -> int:
        directories = _tiff_tags.read_directories(content)
        if any(_tiff_tags.DNG_VERSION in directory for directory in directories[:1]):
            return 16 if dng else 0
        matches = bool(maker) and _tiff_tags.camera_make(directories).startswith(maker)
        holds_raw = _tiff_tags.holds_sensor_data(directories) or (maker == _SCANNER and _is_scan(directories))
        return 4 + len(maker) if matches and holds_raw else 0

    return any_of(*(Signature((0, magic), then=sniff) for magic in (b"II*\0", b"MM\0*")))


def _is_scan(directories: list[_tiff_tags.Directory]) -> bool:
    """Whether a film scanner wrote a TIFF-based file: a thumbnail, and colors in a sub-directory."""
    return (
        _tiff_tags.camera_make(directories).startswith(_SCANNER)
        and not _tiff_tags.holds_sensor_data(directories)
        and _tiff_tags.hides_picture(directories)
    )


def _format(name: str, media_type: str, sniff: Callable[[Content], int]) -> FileFormat:
    return FileFormat(name, media_type=media_type, extensions=(name,), sniff=sniff, bytes_per_pixel=0.5)


CR2 = _format("cr2", "image/x-canon-cr2", Signature((0, b"II*\0"), (8, b"CR\x02")))
NEF = _format("nef", "image/x-nikon-nef", _tiff_raw(_SCANNER))
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
    if raw_mode == "preview":
        return _read_preview(data)
    return _read_scan(data) if _is_scan(_tiff_tags.read_directories(data)) else _develop(data)


def _read_preview(data: bytes) -> Raster:
    """The largest embedded JPEG, upright, with the metadata of the file. Raises InvalidOption if there is none."""
    import rawpy

    with rawpy.imread(BytesIO(data)) as raw:
        preview = _extract_preview(raw)
    if not isinstance(preview, bytes):  # an array of uncompressed samples, or none
        message = "raw_mode must be develop for this file: it contains no JPEG preview."
        raise InvalidOption(message, reason="unknown", param="raw_mode", details={"available": ["develop"]})
    jpeg.check_scans(preview)
    raster = _pillow.decode(preview, "JPEG", lossy=True)
    block = _read_block(data)
    return replace(raster, exif=_exif.from_file(block), xmp=_read_xmp(block), dpi=None)


def _read_scan(data: bytes) -> Raster:
    """The picture of a film scanner, as bright as its thumbnail."""
    raster = tiff.decode(data)
    brightness = _mean(_to_array(_pillow.open_image(data, "TIFF")))
    deep_frames = None if raster.deep_frames is None else _scan_frames(data, brightness, bits=16)
    return replace(raster, frames=_scan_frames(data, brightness, bits=8), deep_frames=deep_frames)


def _scan_frames(data: bytes, brightness: float, *, bits: int) -> Iterator[Frame]:
    raster = tiff.decode(data)
    for frame in raster.frames if raster.deep_frames is None else raster.deep_frames:
        pixels = frame.pixels if isinstance(frame.pixels, DeepPixels) else DeepPixels.from_image(frame.image)
        _encode_if_linear(pixels.array, brightness)
        yield replace(frame, pixels=pixels.as_image() if bits == 8 else pixels)


def _encode_if_linear(array: NDArray[np.uint16], brightness: float) -> None:
    """Encodes linear samples in place. The mean distinguishes them: scanners write no tag."""
    import numpy as np

    table = np.rint(_encode(np.linspace(0, 1, 65536, dtype=np.float32)) * 65535).astype(np.uint16)
    if abs(_mean(table[_sample(array)]) - brightness) < abs(_mean(array) - brightness):
        for row in array:  # an index of the whole array would take four times its memory
            row[:] = table[row]


def _develop(data: bytes) -> Raster:
    """Develops the sensor data, upright and in sRGB."""
    directories = _tiff_tags.read_directories(data)
    # LibRaw decodes some truncated files to noise without an error.
    if _tiff_tags.is_truncated(data, directories):
        raise CorruptInput("The file is truncated within the sensor data.")
    size = _upright_size(data)
    # LibRaw opens the thumbnail of some files that it does not know.
    if size[0] * size[1] < _tiff_tags.declared_area(directories) // 2:
        raise CorruptInput(f"Only {size[0]} x {size[1]} pixels of a larger picture can be read.")
    block = _read_block(data)
    return Raster(
        _develop_frames(data, bits=8),
        deep_frames=_develop_frames(data, bits=16),
        exif=_exif.from_file(block, color_space=_SRGB),
        xmp=_read_xmp(block),
        lossy=True,
        developed=True,
        sample=_pillow.sample("RGB"),
        sizes=[size],
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
        brightness = _preview_brightness(raw)
        if brightness is not None and abs(_mean(array) / brightness - 1) > _TOLERANCE:
            gain = _matching_gain(raw, brightness)
            array = raw.postprocess(use_camera_wb=True, output_bps=bits, no_auto_bright=True, bright=gain)
    yield Frame(Image.fromarray(array) if bits == 8 else DeepPixels(array, "RGB"))


def _preview_brightness(raw: RawPy) -> float | None:
    """The mean of the camera's own picture, without bars at its sides. None if there is none, or a tiny one."""
    preview = _open_preview(raw)
    if preview is None or min(preview.size) < _MIN_PREVIEW:
        return None
    width, height = sorted((raw.sizes.iwidth, raw.sizes.iheight), reverse=preview.width > preview.height)
    scale = min(preview.width / width, preview.height / height)
    size = max(1, round(width * scale)), max(1, round(height * scale))
    return _mean(_to_array(ImageOps.fit(preview, size)))


def _open_preview(raw: RawPy) -> Image.Image | None:
    """The embedded picture, reduced while it is decoded. None if there is none, or a damaged one."""
    preview = _extract_preview(raw)
    try:
        if not isinstance(preview, bytes):
            return None if preview is None else Image.fromarray(preview)
        jpeg.check_scans(preview)
        image = _pillow.open_image(preview, "JPEG")
        image.draft("RGB", (_SAMPLED_SIDE, _SAMPLED_SIDE))
        image.load()
    except (ConversionError, OSError):
        return None
    return image


def _extract_preview(raw: RawPy) -> bytes | NDArray[Any] | None:
    """A JPEG, or uncompressed samples. None if there is none that LibRaw can read."""
    import rawpy

    try:
        return raw.extract_thumb().data
    except (rawpy.LibRawNoThumbnailError, rawpy.LibRawUnsupportedThumbnailError):
        return None


def _matching_gain(raw: RawPy, brightness: float) -> float:
    """The factor of linear samples, at least 1, for this mean of the developed picture; it clips at most _CLIPPED."""
    import numpy as np

    linear = raw.postprocess(use_camera_wb=True, output_bps=16, no_auto_bright=True, gamma=(1, 1))
    samples = _sample(linear).astype(np.float32) / 65535
    peak = float(np.quantile(samples.max(axis=2), 1 - _CLIPPED))
    low, high = 1.0, max(1.0, 1 / max(peak, 1 / _MAX_GAIN))
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2
        too_bright = _mean(_encode(np.minimum(samples * middle, 1))) > brightness
        low, high = (low, middle) if too_bright else (middle, high)
    return low


def _encode(linear: NDArray[np.float32]) -> NDArray[np.float32]:
    """LibRaw's tone curve, from BT.709: linear samples of 0 to 1, encoded."""
    import numpy as np

    return np.where(linear < 0.018, linear * np.float32(4.5), np.float32(1.099) * linear ** np.float32(0.45) - 0.099)


def _to_array(image: Image.Image) -> NDArray[Any]:
    import numpy as np

    return np.asarray(image.convert("RGB"))


def _sample(array: NDArray[Any]) -> NDArray[Any]:
    """Rows and columns of a picture at equal distances."""
    step = max(1, min(array.shape[:2]) // _SAMPLED_SIDE)
    return array[::step, ::step]


def _mean(array: NDArray[Any]) -> float:
    """The mean of an RGB picture, 0 to 1, of integers or of numbers from 0 to 1."""
    import numpy as np

    maximum = 1 if array.dtype.kind == "f" else np.iinfo(array.dtype).max
    return float((_sample(array)[..., :3] @ np.array([0.299, 0.587, 0.114], np.float32)).mean()) / maximum


def _read_xmp(block: _exif.Block | None) -> bytes | None:
    return _pillow.upright_xmp(block.bytes_of(_exif.XMP)) if block else None


def _read_block(data: bytes) -> _exif.Block | None:
    """The first TIFF directory; in RAF the one of the preview."""
    if data.startswith(b"FUJIFILM"):
        start, size = (int.from_bytes(data[offset : offset + 4], "big") for offset in (84, 88))
        return _exif.parse(_pillow.open_image(data[start : start + size], "JPEG").info.get("exif"))
    # ORF and RW2 differ from TIFF only in the magic number.
    magic = b"\x2a\0" if data.startswith(b"II") else b"\0\x2a"
    return _exif.parse_file(data[:2] + magic + data[4:])


@hookimpl
def conversions() -> list[AnyConversion]:
    return [
        conversion(source, RASTER, loss=Loss.DETAIL, cost=10, memory=17, isolated=True)(decode) for source in FORMATS
    ]
