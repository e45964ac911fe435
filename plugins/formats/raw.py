"""Camera RAW of all makers (`plugins/_tiff/raw_containers.py`), developed by LibRaw."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from io import BytesIO
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias

from PIL import Image, ImageOps
from pydantic import Field

from engine import (
    RASTER,
    AnyConversion,
    ConversionError,
    CorruptInput,
    DeepPixels,
    FidelityWarning,
    Frame,
    ImageMetadata,
    ImageSource,
    InvalidOption,
    Loss,
    Raster,
    Size,
    check_size,
    conversion,
    hookimpl,
    lazy_imports,
)
from engine.option_types import Exposure
from plugins._jpeg import segments
from plugins._metadata import exif_data
from plugins._pixels import pillow
from plugins._tiff import raw_containers, tiff_directories
from plugins._tiff.raw_containers import FORMATS
from plugins.formats import tiff

WhiteBalance: TypeAlias = Annotated[
    str,
    Field(
        pattern=r"^(camera|auto|[2-9]\d{3}|1[01]\d{3}|12000)$",
        examples=["5500"],
        description="camera, auto, or the color temperature of the light, 2000 to 12000 kelvin.",
    ),
]
HalfSize: TypeAlias = Annotated[
    bool, Field(description="Makes one pixel of each 2 x 2 of the sensor: four times faster, without interpolation.")
]
RawMode: TypeAlias = Annotated[
    Literal["develop", "preview"],
    Field(description="`preview` uses the largest JPEG that the camera stored in the file; it can be small."),
]

if TYPE_CHECKING:
    from numpy.typing import NDArray

with lazy_imports():
    import numpy as np
    import rawpy

MODULES = ("rawpy", "multiprocessing", "numpy.ma", *tiff.MODULES)  # NumPy imports the third one for quantiles
_JPEG_XL = 52546  # compression of DNG 1.7, which LibRaw does not decode
_SRGB = 1  # EXIF value of ColorSpace
_TURNED = (5, 6)  # LibRaw's orientations that exchange width and height
_FLIPS: Mapping[int, int] = MappingProxyType({3: 3, 6: 6, 8: 5})  # LibRaw's orientations by EXIF's
_METHODS: Mapping[int, Image.Transpose] = MappingProxyType(
    {3: Image.Transpose.ROTATE_180, 6: Image.Transpose.ROTATE_270, 8: Image.Transpose.ROTATE_90}
)
_DAYLIGHT = (0.9505, 1.0, 1.0888)  # D65 in CIE XYZ
_XYZ_TO_SRGB = ((3.2406, -1.5372, -0.4986), (-0.9689, 1.8758, 0.0415), (0.0557, -0.2040, 1.0570))

# The brightness is changed if it differs from the camera's own image by more than the tolerance.
_TOLERANCE = 0.1
_MIN_PREVIEW = 64  # pixels of the shorter side
_SAMPLED_SIDE = 256  # pixels
_CLIPPED = 0.015  # the share of all pixels; LibRaw's own brightening allows 0.01
_MAX_GAIN = 16
_BISECTIONS = 12


@dataclass(frozen=True)
class _Settings:
    """How sensor data becomes an image. Each field has the name of its option."""

    exposure: float = 0
    white_balance: str = "camera"
    half_size: bool = False

    @property
    def gain(self) -> float:
        return float(2**self.exposure)

    def parameters(self, raw: rawpy.RawPy, data: bytes) -> dict[str, Any]:
        """The parameters of `RawPy.postprocess`, besides those for brightness and depth."""
        found: dict[str, Any] = {"half_size": self.half_size}
        if raw.sizes.flip == 0 and (flip := _FLIPS.get(raw_containers.orientation(data))):
            found["user_flip"] = flip
        if self.white_balance.isdigit():
            return {**found, "user_wb": _multipliers(raw, int(self.white_balance))}
        return {**found, "use_camera_wb": self.white_balance == "camera", "use_auto_wb": self.white_balance == "auto"}


def decode(
    data: bytes,
    *,
    raw_mode: RawMode = "develop",
    exposure: Exposure = 0.0,
    white_balance: WhiteBalance = "camera",
    half_size: HalfSize = False,
) -> Raster:
    settings = _Settings(exposure, white_balance, half_size)
    is_scan = raw_containers.is_scan(tiff_directories.read_directories(data))
    if (raw_mode == "preview" or is_scan) and settings != _Settings():
        message = "exposure, white_balance and half_size have no effect on previews and on images of film scanners."
        FidelityWarning.issue("option_ignored", message)
    if raw_mode == "preview":
        return _read_preview(data)
    return _read_scan(data) if is_scan else _develop(data, settings)


def _read_preview(data: bytes) -> Raster:
    """The largest embedded JPEG, upright, with the metadata of the file. Raises InvalidOption if there is none."""
    with rawpy.imread(BytesIO(data)) as raw:
        preview = _extract_preview(raw)
    if not isinstance(preview, bytes):  # an array of uncompressed samples, or none
        message = "raw_mode must be develop for this file: it contains no JPEG preview."
        raise InvalidOption(message, reason="unknown", param="raw_mode", details={"available": ["develop"]})
    segments.check_scans(preview)
    raster = pillow.decode(preview, "JPEG", lossy=True)
    orientation = raw_containers.orientation(data)
    if method := _METHODS.get(orientation):
        raster = raster.map(
            lambda frame: replace(frame, pixels=frame.image.transpose(method)),
            lambda size: size[::-1] if orientation >= 5 else size,
        )
    block = raw_containers.read_block(data)
    metadata = replace(raster.metadata, exif=exif_data.from_file(block), xmp=_read_xmp(block))
    return replace(raster, metadata=metadata, dpi=None)


def _read_scan(data: bytes) -> Raster:
    """The image of a film scanner, as bright as its thumbnail."""
    raster = tiff.decode(data)
    brightness = _mean(_to_array(pillow.open_image(data, "TIFF")))
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
    table = np.rint(_encode(np.linspace(0, 1, 65536, dtype=np.float32)) * 65535).astype(np.uint16)
    if abs(_mean(table[_sample(array)]) - brightness) < abs(_mean(array) - brightness):
        for row in array:  # an index of the whole array would take four times its memory
            row[:] = table[row]


def _develop(data: bytes, settings: _Settings) -> Raster:
    """Develops the sensor data, upright and in sRGB."""
    if raw_containers.is_truncated(data):
        raise CorruptInput("The file is truncated within the sensor data.")
    directories = tiff_directories.read_directories(data)
    in_jpeg_xl = [one for one in directories if one.get(tiff_directories.COMPRESSION) == (_JPEG_XL,)]
    if tiff_directories.holds_sensor_data(in_jpeg_xl):
        raise CorruptInput("The sensor data of the DNG is in JPEG XL, which is not supported.")
    size = _upright_size(data, settings)
    block = raw_containers.read_block(data)
    return Raster(
        _develop_frames(data, settings, bits=8),
        deep_frames=_develop_frames(data, settings, bits=16),
        metadata=ImageMetadata(exif=exif_data.from_file(block, color_space=_SRGB), xmp=_read_xmp(block)),
        source=ImageSource(lossy=True, developed=True),
        sample=pillow.sample("RGB"),
        sizes=[size],
    )


def _upright_size(data: bytes, settings: _Settings) -> Size:
    """The size of the developed image, from the header."""
    with rawpy.imread(BytesIO(data)) as raw:
        sizes = raw.sizes
        flip = settings.parameters(raw, data).get("user_flip", raw.sizes.flip)
        halved = settings.half_size and raw.raw_type == rawpy.RawType.Flat
    width, height = sizes.iwidth, sizes.iheight
    # LibRaw opens the thumbnail of some files that it does not know.
    if width * height < tiff_directories.declared_area(tiff_directories.read_directories(data)) // 2:
        raise CorruptInput(f"Only {width} x {height} pixels of a larger image can be read.")
    if halved:
        width, height = (width + 1) // 2, (height + 1) // 2
    return (height, width) if flip in _TURNED else (width, height)


def _develop_frames(data: bytes, settings: _Settings, *, bits: int) -> Iterator[Frame]:
    with rawpy.imread(BytesIO(data)) as raw:
        check_size(raw.sizes.width, raw.sizes.height)
        parameters = settings.parameters(raw, data)
        array: NDArray[Any] = raw.postprocess(output_bps=bits, **parameters)
        brightness = _preview_brightness(raw)
        if brightness is not None and abs(_mean(array) / brightness - 1) > _TOLERANCE:
            gain = _matching_gain(raw, brightness, parameters)
        elif settings.exposure:
            gain = _automatic_gain(raw, parameters)
        else:
            gain = None
        if gain is not None:
            bright = gain * settings.gain
            array = raw.postprocess(output_bps=bits, no_auto_bright=True, bright=bright, **parameters)
    yield Frame(Image.fromarray(array) if bits == 8 else DeepPixels(array, "RGB"))


def _multipliers(raw: rawpy.RawPy, temperature: int) -> list[float]:
    """The factors of the sensor's colors for the light of a black body: those for daylight, changed in proportion."""
    matrix = raw.rgb_xyz_matrix[:3]
    response = np.asarray(matrix if matrix.any() else _XYZ_TO_SRGB)
    change = (response @ _DAYLIGHT) / np.maximum(response @ _black_body(temperature), 1e-3)
    red, green, blue = np.asarray(raw.daylight_whitebalance[:3]) * change
    return [float(red), float(green), float(blue), float(green)]


def _black_body(temperature: int) -> tuple[float, float, float]:
    """The color of a black body in CIE XYZ, by the approximation of Kim et al. (2002) for 1667 to 25000 K."""
    inverse = 1000 / temperature
    if temperature <= 4000:
        x = ((-0.2661239 * inverse - 0.2343589) * inverse + 0.8776956) * inverse + 0.179910
    else:
        x = ((-3.0258469 * inverse + 2.1070379) * inverse + 0.2226347) * inverse + 0.240390
    if temperature <= 2222:
        y = ((-1.1063814 * x - 1.34811020) * x + 2.18555832) * x - 0.20219683
    elif temperature <= 4000:
        y = ((-0.9549476 * x - 1.37418593) * x + 2.09137015) * x - 0.16748867
    else:
        y = ((3.0817580 * x - 5.87338670) * x + 3.75112997) * x - 0.37001483
    return x / y, 1.0, (1 - x - y) / y


def _preview_brightness(raw: rawpy.RawPy) -> float | None:
    """The mean of the camera's own image, without bars at its sides. None if there is none, or a tiny one."""
    preview = _open_preview(raw)
    if preview is None or min(preview.size) < _MIN_PREVIEW:
        return None
    width, height = sorted((raw.sizes.iwidth, raw.sizes.iheight), reverse=preview.width > preview.height)
    scale = min(preview.width / width, preview.height / height)
    size = max(1, round(width * scale)), max(1, round(height * scale))
    return _mean(_to_array(ImageOps.fit(preview, size)))


def _open_preview(raw: rawpy.RawPy) -> Image.Image | None:
    """The embedded image, reduced while it is decoded. None if there is none, or a damaged one."""
    preview = _extract_preview(raw)
    try:
        if not isinstance(preview, bytes):
            return None if preview is None else Image.fromarray(preview)
        segments.check_scans(preview)
        image = pillow.open_image(preview, "JPEG")
        image.draft("RGB", (_SAMPLED_SIDE, _SAMPLED_SIDE))
        image.load()
    except (ConversionError, OSError):
        return None
    return image


def _extract_preview(raw: rawpy.RawPy) -> bytes | NDArray[Any] | None:
    """A JPEG, or uncompressed samples. None if there is none that LibRaw can read."""
    try:
        return raw.extract_thumb().data
    except (rawpy.LibRawNoThumbnailError, rawpy.LibRawUnsupportedThumbnailError):
        return None


def _matching_gain(raw: rawpy.RawPy, brightness: float, parameters: dict[str, Any]) -> float:
    """The factor of linear samples, at least 1, for this mean of the developed image; it clips at most _CLIPPED."""
    samples = _linear_samples(raw, parameters)
    low, high = 1.0, _gain_that_clips(samples.max(axis=2), _CLIPPED)
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2
        too_bright = _mean(_encode(np.minimum(samples * middle, 1))) > brightness
        low, high = (low, middle) if too_bright else (middle, high)
    return low


def _automatic_gain(raw: rawpy.RawPy, parameters: dict[str, Any]) -> float:
    """The factor of LibRaw's own brightening, which lets at most 1 % of each color clip."""
    samples = _linear_samples(raw, parameters)
    return min(_gain_that_clips(samples[..., color], 0.01) for color in range(3))


def _linear_samples(raw: rawpy.RawPy, parameters: dict[str, Any]) -> NDArray[np.float32]:
    linear = raw.postprocess(output_bps=16, no_auto_bright=True, gamma=(1, 1), **parameters)
    return np.asarray(_sample(linear) / 65535, np.float32)


def _gain_that_clips(samples: NDArray[np.float32], share: float) -> float:
    return max(1.0, 1 / max(float(np.quantile(samples, 1 - share)), 1 / _MAX_GAIN))


def _encode(linear: NDArray[np.float32]) -> NDArray[np.float32]:
    """LibRaw's tone curve, from BT.709: linear samples of 0 to 1, encoded."""
    bright = 1.099 * linear**0.45 - 0.099
    return np.asarray(np.where(linear < 0.018, linear * 4.5, bright), np.float32)


def _to_array(image: Image.Image) -> NDArray[Any]:
    return np.asarray(image.convert("RGB"))


def _sample(array: NDArray[Any]) -> NDArray[Any]:
    """Rows and columns of an image at equal distances."""
    step = max(1, min(array.shape[:2]) // _SAMPLED_SIDE)
    return array[::step, ::step]


def _mean(array: NDArray[Any]) -> float:
    """The mean of an RGB image, 0 to 1, of integers or of numbers from 0 to 1."""
    maximum = 1 if array.dtype.kind == "f" else np.iinfo(array.dtype).max
    return float((_sample(array)[..., :3] @ np.array([0.299, 0.587, 0.114], np.float32)).mean()) / maximum


def _read_xmp(block: exif_data.Block | None) -> bytes | None:
    return pillow.upright_xmp(block.bytes_of(exif_data.XMP)) if block else None


@hookimpl
def conversions() -> list[AnyConversion]:
    return [
        conversion(source, RASTER, loss=Loss.DETAIL, cost=10, memory=17, isolated=True)(decode) for source in FORMATS
    ]
