"""JPEG files as streams of PDF and EPS: which readers decode them as they are, and how they are placed upright."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from PIL import Image

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
    dpi, profile = pillow.read_dpi(image), image.info.get("icc_profile")
    size, mode = image.size, image.mode
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
