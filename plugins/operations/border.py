"""Rounded corners of images, and padding around them, applied in this order."""

from __future__ import annotations

from dataclasses import replace
from math import ceil, sqrt
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

from PIL import Image
from pydantic import Field

from engine import RASTER, DeepPixels, Frame, OptionValues, Raster, Size, color, lazy_imports, transform
from engine.option_types import Background
from plugins._color import profiles
from plugins._pixels import canvases
from plugins._pixels.sizes import length
from plugins.operations import watermark

if TYPE_CHECKING:
    from numpy.typing import NDArray

with lazy_imports():
    import numpy as np

_LENGTH = r"\s*(\d{1,5}|\d{1,3}(\.\d{1,4})?\s*%)\s*"
Radius: TypeAlias = Annotated[
    str,
    Field(
        pattern=f"^{_LENGTH}$",
        examples=["20", "50%"],
        description="Radius of rounded corners in pixels, or in percent of the shorter side; 50% makes a circle.",
    ),
]
Pad: TypeAlias = Annotated[
    str,
    Field(
        pattern=f"^{_LENGTH}(,{_LENGTH},{_LENGTH},{_LENGTH})?$",
        examples=["10", "10,20,10,20", "5%"],
        description="Adds a border of `background`: one width, or top,right,bottom,left, in pixels or percent of the "
        "height (top, bottom) and width. Without `background` it is transparent where the image has transparency, "
        "otherwise white.",
    ),
]

MODULES = ("numpy",)
_LARGE = 10  # pixels; with this radius, the pixel of a corner is transparent


@transform(RASTER, after=watermark.watermark, memory=8)
def radius(raster: Raster, *, radius: Radius | None = None) -> Raster:
    """Makes the corners of each frame transparent outside of circles. CMYK becomes sRGB, which can have alpha."""
    if radius is None or length(radius, 1) == 0:
        return raster

    def rounded(frame: Frame) -> Frame:
        shorter = min(frame.size)
        return _with_corners(frame, min(length(radius, shorter), shorter / 2))

    sample = raster.sample and _with_corners(raster.sample, _LARGE)  # a transparent pixel
    return replace(profiles.map_frames(raster, rounded), gain_map=raster.gain_map, sample=sample)


def _with_corners(frame: Frame, radius: float) -> Frame:
    frame = canvases.continuous(frame)
    if frame.pixels.mode in ("CMYK", "LAB"):
        color.warn_converted(frame.pixels.mode)
        frame = profiles.in_color_space(frame, gray=False)
    pixels = frame.pixels
    if isinstance(pixels, Image.Image):
        image = pixels.convert(pixels.mode if pixels.mode.endswith("A") else pixels.mode + "A")
        alpha = np.array(image.getchannel("A"))
        _round(alpha, radius)
        image.putalpha(Image.fromarray(alpha))
        return replace(frame, pixels=image, padded=False)
    array, mode = pixels.array, pixels.mode
    if not mode.endswith("A"):
        opaque = np.full(array.shape[:2], 1 if array.dtype.kind == "f" else 65535, array.dtype)
        array, mode = np.dstack((array, opaque)), mode + "A"
    array = array.copy()
    _round(array[..., -1], radius)
    return replace(frame, pixels=DeepPixels(array, mode), padded=False)


def _round(alpha: NDArray[Any], radius: float) -> None:
    """Multiplies alpha at the corners with the share of each pixel that is inside of a circle."""
    side = min(ceil(radius), *alpha.shape)
    distance = radius - np.arange(0.5, side)
    inside = np.clip(radius - np.hypot(distance[:, None], distance[None]) + 0.5, 0, 1)
    rounding = 0 if alpha.dtype.kind == "f" else 0.5
    for corner, share in (
        (alpha[:side, :side], inside),
        (alpha[:side, -side:], inside[:, ::-1]),
        (alpha[-side:, :side], inside[::-1]),
        (alpha[-side:, -side:], inside[::-1, ::-1]),
    ):
        corner[...] = corner * share + rounding


def _padded(options: OptionValues, pixels: float) -> float:
    """The pixels of a padded image, which is taken for square."""
    side = round(sqrt(pixels))
    top, right, bottom, left = _widths(str(options.get("pad", "0")), (side, side))
    return float((left + side + right) * (top + side + bottom))


@transform(RASTER, after=radius, memory=8, pixels=_padded)
def pad(raster: Raster, *, pad: Pad | None = None, background: Background | None = None) -> Raster:
    """Puts each frame on a larger canvas. Raises InvalidOption if the result would exceed MAX_PIXELS."""
    if pad is None:
        return raster
    fill = color.parse(background) if background else None

    def new_size(size: Size) -> Size:
        top, right, bottom, left = _widths(pad, size)
        return canvases.check_result((left + size[0] + right, top + size[1] + bottom), "pad")

    def padded(frame: Frame) -> Frame:
        top, _, _, left = _widths(pad, frame.size)
        return canvases.on_canvas(frame, new_size(frame.size), (left, top), fill)

    raster = raster.tone_mapped()  # the color around it is in sRGB
    sample = raster.sample and padded(canvases.continuous(raster.sample))
    request = replace(raster.request, resized=True)
    return replace(profiles.map_frames(raster, padded, new_size), sample=sample, request=request)


def _widths(pad: str, size: Size) -> tuple[int, int, int, int]:
    """Top, right, bottom and left in pixels."""
    texts = pad.split(",") if "," in pad else [pad] * 4
    top, right, bottom, left = (round(length(text, size[1 - index % 2])) for index, text in enumerate(texts))
    return top, right, bottom, left
