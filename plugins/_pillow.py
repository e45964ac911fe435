"""Bytes to Raster through Pillow, for the formats beside this file."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from io import BytesIO
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageOps

from engine import Frame, Raster, TooLarge, color
from engine.decode_limits import MAX_FRAMES, MAX_PIXELS, Size
from plugins import _exif

_XMP_ORIENTATION = re.compile(rb"""(tiff:Orientation(?:=["']|>))[2-8](?=["'<])""")


def opened(data: bytes, *decoders: str) -> Image.Image:
    """The picture, its header read, its pixels not: only by the named decoders, never by Pillow's own choice."""
    try:
        image = Image.open(BytesIO(data), formats=decoders)
    except Image.DecompressionBombError as error:
        raise TooLarge(
            f"The picture exceeds the limit of {MAX_PIXELS} pixels.",
            reason="pixels",
            details={"max_pixels": MAX_PIXELS, "pixels": _told(error)},
        ) from error
    return image


def _told(error: Image.DecompressionBombError) -> int | None:
    """How many pixels there are, which Pillow tells in words alone."""
    found = re.search(r"\((\d+) pixels\)", str(error))
    return int(found[1]) if found else None


def decode(data: bytes, decoder: str, *, animated: bool = False, paged: bool = False, lossy: bool = False) -> Raster:
    """The file as a raster: upright, with profile, EXIF, XMP and resolution.

    `animated` and `paged` tell what several frames mean; where neither is set the first one counts alone.
    """
    image = opened(data, decoder)
    # More than are allowed are told from those at once, however many there are.
    count = min(getattr(image, "n_frames", 1), MAX_FRAMES + 1) if animated or paged else 1
    # HEIF opens at its primary picture, which need not be the first in the file.
    start = image.tell()
    order = [start, *(index for index in range(count) if index != start)][:count]
    return raster(image, order, animated=animated and count > 1, lossy=lossy)


def raster(
    image: Image.Image,
    order: list[int],
    *,
    animated: bool = False,
    lossy: bool = False,
    sizes: Sequence[Size] = (),
) -> Raster:
    """The frames of an opened picture in that order; `sizes` where they do not share a canvas."""
    return Raster(
        frames(image, order),
        count=len(order),
        animated=animated,
        loop_count=int(image.info.get("loop", 0) or 0),
        exif=_exif.of(image),
        xmp=xmp(image),
        dpi=dpi(image),
        lossy=lossy,
        sizes=sizes or [image.size] * (len(order) if animated else 1),
    )


def frames(image: Image.Image, order: list[int]) -> Iterator[Frame]:
    """The frames in that order, each decoded when it is asked for."""
    for index in order:
        if index != image.tell():
            image.seek(index)
        color.preload_cmyk(image.mode, image.info.get("icc_profile"))
        image.load()
        duration = float(image.info.get("duration", 0) or 0)
        # A file that stands at a later frame would be sought again by encoders.
        frame = image.copy() if len(order) > 1 or index else image
        profile = frame.info.get("icc_profile")
        ImageOps.exif_transpose(frame, in_place=True)
        yield Frame(frame, profile, duration)


def xmp(image: Image.Image) -> bytes | None:
    """The XMP packet, with the orientation that is applied set to upright."""
    packet = image.info.get("xmp")
    packet = packet.encode() if isinstance(packet, str) else packet
    return _XMP_ORIENTATION.sub(rb"\g<1>1", packet) if isinstance(packet, bytes) else None


def dpi(image: Image.Image) -> tuple[float, float] | None:
    """Dots per inch, where the file tells a believable figure."""
    try:
        across, down = (float(value) for value in image.info["dpi"])
    except (KeyError, TypeError, ValueError, ZeroDivisionError):
        return None
    return (across, down) if 10 <= across <= 10_000 and 10 <= down <= 10_000 else None


def upright(array: NDArray[np.uint16], orientation: int) -> NDArray[np.uint16]:
    """Height x width x bands turned as an EXIF orientation (1 to 8) says."""
    if orientation in (5, 6, 7, 8):
        array = array.swapaxes(0, 1)
    if orientation in (3, 4, 7, 8):
        array = array[::-1]
    if orientation in (2, 3, 6, 7):
        array = array[:, ::-1]
    return np.ascontiguousarray(array)


def animation(raster: Raster, frames: list[Frame]) -> dict[str, Any]:
    """What Pillow's encoders want to be told of an animation; nothing for a still picture."""
    if len(frames) == 1:
        return {}
    return {
        "save_all": True,
        "append_images": [frame.image for frame in frames[1:]],
        "duration": [round(frame.duration) for frame in frames],
        "loop": raster.loop_count,
    }


def saved(image: Image.Image, encoder: str, **parameters: Any) -> bytes:
    """`image` encoded; parameters that are None are left to the encoder."""
    # What a decoder noted about its own file (compression, palettes, loops) must not steer the encoder.
    image.info = {key: image.info[key] for key in ("transparency",) if key in image.info}
    buffer = BytesIO()
    image.save(buffer, encoder, **{key: value for key, value in parameters.items() if value is not None})
    return buffer.getvalue()
