"""How JPEG files are encoded, and JPEG files as streams of PDF and EPS.

Which of them readers decode as they are, and how they are placed upright.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from types import MappingProxyType
from typing import Any, Literal, TypeAlias

from PIL import Image, JpegImagePlugin

from engine import FidelityWarning, Raster
from engine.option_types import Flip, Metadata, Rotate
from plugins._jpeg.segments import check_scans, filter_segments, inspect_coding, is_decodable, open_file
from plugins._metadata import exif_data
from plugins._pixels import pillow

JPEG_QUALITY = 92
"""The default quality of images from a lossy codec."""
_QUALITY = 95  # for images without quantization tables that are encoded again


@dataclass(frozen=True)
class EmbeddableJpeg:
    """A JPEG with 8 bits per sample and Huffman coding.

    `size` and `mode` (L, RGB or CMYK) describe the stored pixels, which `orientation` (1 to 8, of EXIF) turns
    upright. `dpi` is None if unknown. CMYK samples are stored inverted.
    """

    data: bytes
    size: tuple[int, int]
    mode: str
    orientation: int
    dpi: tuple[float, float] | None
    icc_profile: bytes | None

    @property
    def upright_size(self) -> tuple[int, int]:
        return self.size[::-1] if self.orientation >= 5 else self.size


def prepare(data: bytes, metadata: Metadata, *, rotate: Rotate = 0, flip: Flip | None = None) -> EmbeddableJpeg:
    """The JPEG with filtered metadata and unchanged pixels; encoded again if few readers decode its coding process.

    Raises OSError if the file is truncated, TooLarge if it has too many pixels or scans.
    """
    check_scans(data)
    data, image = open_file(data)
    orientation = exif_data.orientation_after(exif_data.read_orientation(image), rotate=rotate, flip=flip)
    dpi = pillow.read_dpi(image)
    profile = image.info.get("icc_profile")
    size = image.size
    mode = image.mode
    uses_huffman, is_complete = inspect_coding(data)
    if not uses_huffman:
        data = _encode_again(image)
    elif not (is_complete or is_decodable(image)):
        raise OSError("truncated")
    return EmbeddableJpeg(filter_segments(data, metadata), size, mode, orientation, dpi, profile)


def _encode_again(image: Image.Image) -> bytes:
    """Encodes a JPEG with Huffman coding and the same quantization tables."""
    info = image.info
    return pillow.encode_jpeg(
        image,
        quality="keep" if getattr(image, "quantization", None) else _QUALITY,
        icc_profile=info.get("icc_profile"),
        exif=info.get("exif"),
        xmp=info.get("xmp"),
        dpi=info.get("dpi"),
    )


PLACEMENTS: Mapping[int, Callable[[float, float], tuple[float, ...]]] = MappingProxyType(
    {
        1: lambda w, h: (w, 0, 0, h, 0, 0),
        2: lambda w, h: (-w, 0, 0, h, w, 0),
        3: lambda w, h: (-w, 0, 0, -h, w, h),
        4: lambda w, h: (w, 0, 0, -h, 0, h),
        5: lambda w, h: (0, -h, -w, 0, w, h),
        6: lambda w, h: (0, -h, w, 0, 0, h),
        7: lambda w, h: (0, h, w, 0, 0, 0),
        8: lambda w, h: (0, h, -w, 0, w, 0),
    }
)
"""By EXIF orientation: the matrix that places the unit square of an image on a page of width w and height h."""


def warn_quality_ignored(raster: Raster, quality: int) -> None:
    """Issues a warning if a quality is requested for pixels that are stored without loss."""
    if quality != JPEG_QUALITY and not raster.source.lossy:
        message = "Pictures from lossless formats are stored without loss: quality has no effect."
        FidelityWarning.issue("quality_ignored", message)


Sampling: TypeAlias = Literal["4:4:4", "4:2:2", "4:2:0"]
"""The resolution of colors: full, half the width, or half the width and half the height."""

_SAMPLINGS: tuple[Sampling, ...] = ("4:4:4", "4:2:2", "4:2:0")  # by Pillow's number
_FULL_QUALITY = 90  # Colors have the full resolution from this quality on.
_BLOCK_SIDE = 8
_COLOR_STEPS = 0.8  # A step of the color table divided by the same step of the brightness table.

# N. Robidoux's table in ImageMagick and mozjpeg, to the power of 0.88. With half the resolution of colors, photos are
# 5 % smaller than with the tables of the standard at an equal score of SSIMULACRA2; with the full one, they are larger.
_TABLE = (
    16, 16, 16, 18, 24, 33, 48, 70,
    16, 17, 19, 25, 31, 36, 46, 62,
    16, 19, 23, 29, 38, 53, 74, 105,
    18, 25, 29, 36, 46, 62, 84, 119,
    24, 31, 38, 46, 58, 76, 102, 141,
    33, 36, 53, 62, 76, 97, 127, 172,
    48, 46, 74, 84, 102, 127, 164, 218,
    70, 62, 105, 119, 141, 172, 218, 283,
)  # fmt: skip


def encoding_for(quality: int, sampling: Sampling | None = None) -> dict[str, Any]:
    """Pillow's parameters for a quality of 1 to 100."""
    sampling = sampling or ("4:4:4" if quality >= _FULL_QUALITY else "4:2:0")
    if sampling != "4:2:0":
        return {"quality": quality, "subsampling": sampling}
    return {"quality": -1, "qtables": [list(table) for table in _tables(quality)], "subsampling": sampling}


@cache
def _tables(quality: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The tables of brightness and of colors for a quality of 1 to 100, scaled as libjpeg does."""
    percent = 5000 / quality if quality < 50 else 200 - 2 * quality
    brightness, colors = (
        tuple(min(255, max(1, round(step * percent * share / 100))) for step in _TABLE) for share in (1, _COLOR_STEPS)
    )
    return brightness, colors


def encoding_of(source: Image.Image, orientation: int) -> dict[str, Any]:
    """Pillow's parameters for the tables and the sampling of a JPEG, for its pixels turned by an EXIF orientation.

    A sampling that Pillow cannot write becomes the full resolution. Without tables, there are none in the result.
    """
    assert isinstance(source, JpegImagePlugin.JpegImageFile)
    number = JpegImagePlugin.get_sampling(source) if len(source.layer) == 3 else -1
    sampling = _SAMPLINGS[max(0, number)]
    tables = [source.quantization[number] for number in sorted(source.quantization)]
    if orientation >= 5:
        sampling = "4:4:4" if sampling == "4:2:2" else sampling
        tables = [
            [table[row + _BLOCK_SIDE * column] for row in range(_BLOCK_SIDE) for column in range(_BLOCK_SIDE)]
            for table in tables
        ]
    return {"subsampling": sampling} | ({"quality": -1, "qtables": tables} if tables else {})
