"""WebP, still and animated."""

from dataclasses import replace
from typing import Annotated, TypeAlias

from pydantic import Field

from engine import RASTER, Content, FileFormat, Loss, OptionValues, Raster, Signature, TargetCapabilities, conversion
from engine.option_types import Effort, Lossless, Pages, Quality
from plugins._pixels import animations, pillow


def _is_complete(content: Content) -> bool:
    return int.from_bytes(content[4:8], "little") + 8 <= len(content)


WEBP = FileFormat(
    "webp",
    media_type="image/webp",
    extensions=("webp",),
    sniff=Signature((0, b"RIFF"), (8, b"WEBP")),
    lossy=True,
    animated=True,
    is_complete=_is_complete,
    bytes_per_pixel=0.05,
)

MODULES = ("PIL.WebPImagePlugin",)
_MODES = ("RGB", "RGBA")
_CAPABILITIES = TargetCapabilities(
    _MODES,
    icc=True,
    animation_modes=_MODES,
    max_side=16_383,
    encoding=True,
    metadata=frozenset({"exif", "xmp"}),
)
_METHODS = (0, 1, 2, 3, 4, 5, 5, 6, 6)  # libwebp's method by effort
# A lossy file holds the prediction modes of all blocks in 512 KiB. Where large images exceed that, methods 0 and 1
# fail, and methods from 3 encode the image up to three times more. Method 2 keeps to the limit.
_MAX_PIXELS = 26_000_000
_LARGE_METHOD = 2
# Method and quality of libwebp by effort. Methods 5 and 6 take a multiple of the time and save nothing in photos.
_LOSSLESS = ((0, 0), (1, 20), (2, 25), (3, 30), (4, 50), (4, 65), (4, 75), (4, 85), (4, 95))
_MAX_PLAYS = 65_535
_FIRST_CHUNK = 12  # offset in a file
_FRAME_HEADER = 16  # bytes
# Offset and bit in the extended header.
_FLAGS = 20
_ALPHA = 0x10


@conversion(WEBP, RASTER, memory=16)
def decode(data: bytes, *, pages: Pages | None = None) -> Raster:
    return pillow.decode(data, "WEBP", animated=True, lossy=_is_lossy(data), pages=pages)


def _is_lossy(data: bytes) -> bool:
    """Whether an image or a frame is lossy."""
    start = _FIRST_CHUNK
    while start + 8 <= len(data):
        kind = data[start : start + 4]
        size = int.from_bytes(data[start + 4 : start + 8], "little")
        if kind == b"VP8 ":
            return True
        start += 8 + (_FRAME_HEADER if kind == b"ANMF" else size + size % 2)  # the chunks of a frame are inside it
    return False


AlphaQuality: TypeAlias = Annotated[
    int, Field(ge=0, le=100, examples=[50], description="Quality of the transparency in lossy WebP; 100 is lossless.")
]


def _holds(options: OptionValues) -> TargetCapabilities:
    return replace(_CAPABILITIES, without=frozenset({"alpha_quality"})) if options.get("lossless") else _CAPABILITIES


@conversion(RASTER, WEBP, loss=Loss.DETAIL, cost=8, memory=10, capabilities=_holds)
def encode(
    raster: Raster,
    *,
    quality: Quality = 87,
    lossless: Lossless = False,
    effort: Effort = 5,
    alpha_quality: AlphaQuality = 100,
) -> bytes:
    frames = list(raster.frames)
    if lossless:
        method, quality = _LOSSLESS[effort - 1]
    else:
        width, height = frames[0].size
        method = _METHODS[effort - 1] if width * height <= _MAX_PIXELS else _LARGE_METHOD
    animation = pillow.animation_parameters(raster, frames)
    if animation:
        animation["loop"] = animations.plays(raster, _MAX_PLAYS)
    data = pillow.encode(
        frames[0].image,
        "WEBP",
        quality=quality,
        method=method,
        lossless=lossless,
        alpha_quality=alpha_quality,
        exact=lossless,  # also keeps the colors of transparent pixels
        kmin=4,  # Frames after it, up to `kmax`, are encoded twice, as key frames, too.
        kmax=0 if lossless else 5,  # Key frames remove what errors add up to; 0: there are none.
        icc_profile=frames[0].icc_profile,
        exif=raster.metadata.exif,
        xmp=raster.metadata.xmp,
        **animation,
    )
    return _set_alpha_flag(data) if any(frame.image.mode == "RGBA" for frame in frames) else data


def _set_alpha_flag(data: bytes) -> bytes:
    """Sets the alpha flag of an extended file. libwebp omits it if only the canvas is transparent."""
    if data[12:16] != b"VP8X":
        return data
    return data[:_FLAGS] + bytes([data[_FLAGS] | _ALPHA]) + data[_FLAGS + 1 :]
