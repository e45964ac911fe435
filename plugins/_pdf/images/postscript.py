"""Images as EPS: PostScript programs of language level 3 with 7-bit characters."""

from collections.abc import Mapping, Sequence
from itertools import product
from math import ceil
from types import MappingProxyType

from PIL import Image, ImageChops

from engine import Raster, Size, TargetCapabilities, color, lazy_imports
from engine.option_types import Dpi, Metadata, Quality
from plugins._jpeg import embedding
from plugins._jpeg.embedding import JPEG_QUALITY, PLACEMENTS, EmbeddableJpeg, warn_quality_ignored
from plugins._jpeg.segments import open_file
from plugins._pixels import pillow

with lazy_imports():
    import imagecodecs
    import numpy as np

MODULES = ("numpy", "imagecodecs._deflate", "PIL.MpoImagePlugin")

_FLATE = "/FlateDecode"
_POINTS = 72  # per inch
_DEFLATE_LEVEL = 6  # libdeflate
_SRGB_TOLERANCE = 3  # 8-bit levels
_SPACES: Mapping[str, tuple[str, int]] = MappingProxyType(
    {"1": ("DeviceGray", 1), "L": ("DeviceGray", 1), "RGB": ("DeviceRGB", 3), "CMYK": ("DeviceCMYK", 4)}
)
CAPABILITIES = TargetCapabilities(tuple(_SPACES), metadata=frozenset({"resolution"}))
"""What an EPS with an image can store."""
_LINE = 60  # bytes of data in a line of 75 characters
_BLOCK = _LINE * 10_000

_PROGRAM = """%!PS-Adobe-3.0 EPSF-3.0
%%BoundingBox: 0 0 {page_width} {page_height}
%%HiResBoundingBox: 0 0 {width_in_points:g} {height_in_points:g}
%%LanguageLevel: 3
%%DocumentData: Clean7Bit
%%Pages: 1
%%EndComments
%%Page: 1 1
save
/{space} setcolorspace
[{matrix}] concat
{{
/Encoded currentfile /ASCII85Decode filter def
<<
/ImageType 1 /Width {width} /Height {height} /ImageMatrix [{width} 0 0 -{height} 0 {height}]
/BitsPerComponent {bits} /Decode [{decode}]
/DataSource Encoded {filter} filter
>> image
Encoded flushfile
}} exec
"""
_END = b"~>\nrestore\nshowpage\n%%EOF\n"


def embed_jpeg(data: bytes, *, metadata: Metadata = "safe", dpi: Dpi | None = None) -> bytes:
    """Contains the JPEG with unchanged pixels, unless they are gray or RGB in another profile than sRGB."""
    embeddable = embedding.prepare(data, metadata)
    if embeddable.icc_profile and embeddable.mode == "CMYK":
        color.warn_profile_dropped()
    elif embeddable.icc_profile and not _is_srgb(embeddable):
        _, image = open_file(data)
        return from_raster(pillow.to_raster(image, [0], lossy=True).converted_for(CAPABILITIES), dpi=dpi)
    return _draw_jpeg(embeddable, dpi)


def _is_srgb(image: EmbeddableJpeg) -> bool:
    """Whether colors in the profile of the image are, within rounding, the same in sRGB."""
    steps = range(0, 256, 51)
    colors = bytes(value for rgb in product(steps, repeat=3) for value in rgb)
    patches = Image.frombytes("RGB", (len(colors) // 3, 1), colors).convert(image.mode)
    profile = color.matching_profile(patches.mode, image.icc_profile)
    difference = ImageChops.difference(color.to_srgb(patches, profile), patches.convert("RGB"))
    return max(difference.tobytes()) <= _SRGB_TOLERANCE


def from_raster(raster: Raster, *, quality: Quality = JPEG_QUALITY, dpi: Dpi | None = None) -> bytes:
    """Writes the first image: as JPEG if the pixels come from a lossy codec, otherwise without loss."""
    warn_quality_ignored(raster, quality)
    image = raster.first_frame().image
    if raster.source.lossy and image.mode != "1":
        return _draw_jpeg(embedding.prepare(pillow.encode_jpeg(image, quality=quality), "none"), dpi)
    return image_program(
        _compress(image),
        filter_=_FLATE
        if image.mode == "1"
        else f"<< /Predictor 2 /Colors {len(image.mode)} /Columns {image.width} >> {_FLATE}",
        size=image.size,
        mode=image.mode,
        page=_in_points(image.size, dpi),
        matrix=PLACEMENTS[1](*_in_points(image.size, dpi)),
    )


def _in_points(size: Size, dpi: int | None) -> tuple[float, float]:
    """The size of an image; by default, a pixel is a point."""
    scale = _POINTS / (dpi or _POINTS)
    return size[0] * scale, size[1] * scale


def _compress(image: Image.Image) -> bytes:
    """The samples, as differences to their left neighbors if they have 8 bits, compressed."""
    if image.mode == "1":
        return bytes(imagecodecs.deflate_encode(image.tobytes(), _DEFLATE_LEVEL))
    samples = np.array(image)
    samples[:, 1:] -= samples[:, :-1]
    return bytes(imagecodecs.deflate_encode(samples.tobytes(), _DEFLATE_LEVEL))


def _draw_jpeg(image: EmbeddableJpeg, dpi: int | None) -> bytes:
    page = _in_points(image.upright_size, dpi)
    return image_program(
        image.data,
        filter_="/DCTDecode",
        size=image.size,
        mode=image.mode,
        page=page,
        matrix=PLACEMENTS[image.orientation](*page),
        inverted=image.mode == "CMYK",
    )


def image_program(
    data: bytes,
    *,
    filter_: str,
    size: Size,
    mode: str,
    page: tuple[float, float],
    matrix: Sequence[float],
    inverted: bool = False,
) -> bytes:
    """The program of an EPS with one image of the mode 1, L, RGB or CMYK, on a page in points.

    `filter_` decodes `data`, with its parameters in PostScript. `matrix` places the unit square of the image.
    """
    space, samples = _SPACES[mode]
    head = _PROGRAM.format(
        page_width=ceil(page[0]),
        page_height=ceil(page[1]),
        width_in_points=page[0],
        height_in_points=page[1],
        space=space,
        matrix=" ".join(f"{value:g}" for value in matrix),
        width=size[0],
        height=size[1],
        bits=1 if mode == "1" else 8,
        decode=" ".join(["1 0" if inverted else "0 1"] * samples),
        filter=filter_,
    )
    blocks = (_ascii85(data[start : start + _BLOCK]) for start in range(0, len(data), _BLOCK))
    return b"".join([head.encode("ascii"), *blocks, _END])


def _ascii85(data: bytes) -> bytes:
    """The data in ASCII85, in lines that begin with a space: readers take %% at the start of a line for a comment.

    The encoder of the standard library takes eight times as long.
    """
    padding = -len(data) % 4
    words = np.frombuffer(data + bytes(padding), ">u4").astype(np.uint32)
    digits = np.empty((len(words), 5), np.uint8)
    for column in range(4, -1, -1):
        words, digits[:, column] = np.divmod(words, 85)
    characters = (digits + 33).tobytes()[: digits.size - padding]
    width = _LINE * 5 // 4
    lines = (characters[start : start + width] for start in range(0, len(characters), width))
    return b"".join(b" " + line + b"\n" for line in lines)
