"""Parts of images, images on a larger canvas, and the most salient point, on which crops can be centered.

It is where saturation, edges and colors of skin are strongest together, as smartcrop of libvips finds it, which has the
method from smartcrop.js.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from math import hypot
from typing import TYPE_CHECKING, Any, TypeAlias

from PIL import Image

from engine import MAX_PIXELS, DeepPixels, Frame, InvalidOption, Raster, Size, color, lazy_imports
from plugins._color import profiles
from plugins._pixels import resampling
from plugins._pixels.sizes import ATTENTION, Focus, Rectangle, focus_of, pixel_box

with lazy_imports():
    import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

Fill: TypeAlias = tuple[int, int, int, int]
"""Red, green, blue and alpha of a color in sRGB."""


def cut(frame: Frame, rectangle: Rectangle) -> Frame:
    """The part of a frame that a rectangle selects, in pixels of its full size."""
    if frame.cropped:
        return replace(frame, cropped=False, full_size=rectangle[2:])
    left, top, right, bottom = box = pixel_box(rectangle, frame.full_size or frame.size, frame.size)
    pixels = frame.pixels
    if isinstance(pixels, DeepPixels):
        array = np.ascontiguousarray(pixels.array[top:bottom, left:right])
        return replace(frame, pixels=replace(pixels, array=array), full_size=rectangle[2:])
    return replace(frame, pixels=pixels.crop(box), full_size=rectangle[2:])


def with_focus(
    raster: Raster, gravity: str, part: Callable[[Size], tuple[Size, Size]]
) -> tuple[Raster, Callable[[Frame], Focus]]:
    """The raster, and a function that returns the point around which a part of a frame is kept.

    `part` returns the size of the part of an image, and the size of the whole to which it refers. An animation has the
    point of its first frame, because its frames would move otherwise, and a gain map the one of its image.
    """
    if gravity != ATTENTION:
        point = focus_of(gravity)
        return raster, lambda _: point

    def salient(frame: Frame) -> Focus:
        return salient_point(frame, *part(frame.full_size or frame.size))

    if not raster.animated and raster.gain_map is None:
        return raster, salient
    (first, *_), raster = raster.read_ahead(1)
    found = salient(first)
    return raster, lambda _: found


def on_canvas(
    frame: Frame, size: Size, position: tuple[int, int], fill: Fill | None, *, transparent: bool = False
) -> Frame:
    """`frame` on a canvas of `size`. The canvas has alpha if the frame has, or if `fill` is translucent.

    Without `fill`, the canvas is transparent if the frame has alpha, or if it is to be `transparent` and the frame has
    no inks; otherwise white.
    """
    if frame.size == size:
        return frame
    if isinstance(frame.pixels, Image.Image):
        frame = replace(frame, pixels=resampling.continuous(frame.pixels))
    mode = frame.pixels.mode
    is_clear = mode in ("LA", "RGBA") or (transparent and mode != "CMYK")
    red, green, blue, alpha = fill or (*color.WHITE, 0 if is_clear else 255)
    alpha = alpha // 255 * 255  # a translucent background is laid under the whole image later
    if (mode in ("L", "LA") and not red == green == blue) or (mode == "CMYK" and alpha < 255):
        frame = profiles.in_color_space(frame, gray=False)
        mode = frame.pixels.mode
    has_alpha = mode in ("LA", "RGBA")
    frame = replace(frame, padded=frame.padded or (fill is None and is_clear and not has_alpha))
    profile = color.matching_profile(mode, frame.icc_profile)
    samples = color.color_in((red, green, blue), mode.removesuffix("A"), profile)
    if has_alpha or alpha < 255:
        samples = (*samples, alpha)
        mode = mode if has_alpha else mode + "A"
    x, y = position
    pixels = frame.pixels
    if isinstance(pixels, Image.Image):
        canvas = Image.new(mode, size, samples)
        canvas.paste(pixels.convert(mode), (x, y))
        return replace(frame, pixels=canvas)
    array = np.full((size[1], size[0], len(samples)), np.array(samples) * 257, np.uint16)
    part = array[y : y + frame.size[1], x : x + frame.size[0]]
    part[...] = 65535
    source = pixels.array if pixels.array.ndim == 3 else pixels.array[..., None]
    part[..., : source.shape[2]] = source
    return replace(frame, pixels=DeepPixels(array if len(samples) > 1 else array[..., 0], mode))


def continuous(sample: Frame) -> Frame:
    """A frame in a mode whose samples can be averaged."""
    is_image = isinstance(sample.pixels, Image.Image)
    return replace(sample, pixels=resampling.continuous(sample.image)) if is_image else sample


def check_result(size: Size, param: str) -> Size:
    """The size. Raises InvalidOption if it exceeds MAX_PIXELS because of the option `param`."""
    if size[0] * size[1] > MAX_PIXELS:
        raise InvalidOption(
            f"The result must have at most {MAX_PIXELS} pixels.",
            reason="out_of_range",
            param=param,
            details={"max_pixels": MAX_PIXELS, "width": size[0], "height": size[1]},
        )
    return size


MODULES = resampling.MODULES
_SIDE = 32  # pixels of the reduced image per side, which is the precision of the point
_EDGES = 5.0  # weight
_SKIN = (0.78, 0.57, 0.44)  # the direction of its colors in XYZ
_DARK = 5.0  # the luminance below which a pixel has no color, of 100
_BLUR = 10  # the crop's diagonal is this multiple of the radius in which salience is summed
_TO_XYZ = ((0.4124, 0.3576, 0.1805), (0.2126, 0.7152, 0.0722), (0.0193, 0.1192, 0.9505))
_WHITE = (0.9505, 1.0, 1.0891)
# The curve of lightness in CIE Lab.
_LINEAR_PART = 0.008856
_SLOPE = 7.787
_INTERCEPT = 16 / 116


def salient_point(frame: Frame, part: Size, whole: Size) -> Focus:
    """The middle of the part of this size, of an image of the size `whole`, that attracts most attention."""
    scores = _scores(_reduced(frame.image))
    diagonal = _SIDE * hypot(part[0] / whole[0], part[1] / whole[1])
    summed = resampling.gaussian(scores, max(1.0, diagonal / _BLUR))
    row, column = np.unravel_index(int(summed.argmax()), summed.shape)
    return (float(column) + 0.5) / _SIDE, (float(row) + 0.5) / _SIDE


def _reduced(image: Image.Image) -> Image.Image:
    """The image in sRGB with _SIDE pixels per side, on black."""
    image = color.standard_mode(image)
    if image.mode == "CMYK":
        image = color.to_srgb(image, None)
    small = resampling.continuous(image).resize((_SIDE, _SIDE), Image.Resampling.LANCZOS, reducing_gap=3.0)
    if small.mode not in ("LA", "RGBA"):
        return small.convert("RGB")
    small = small.convert("RGBA")
    return Image.alpha_composite(Image.new("RGBA", small.size, (0, 0, 0, 255)), small).convert("RGB")


def _scores(image: Image.Image) -> NDArray[Any]:
    """How much each pixel attracts attention."""
    light = color.decode_srgb(np.asarray(image, np.float32) / 255) @ np.array(_TO_XYZ, np.float32).T
    luminance = light[..., 1] * 100
    around = np.pad(luminance, 1, mode="edge")
    neighbors = around[:-2, 1:-1] + around[2:, 1:-1] + around[1:-1, :-2] + around[1:-1, 2:]
    edges = np.abs(_EDGES * (4 * luminance - neighbors))
    direction = light / np.maximum(np.linalg.norm(light, axis=-1, keepdims=True), 1e-6)
    skin = 100 * (1 - np.linalg.norm(direction - np.array(_SKIN), axis=-1))
    ratio = light / np.array(_WHITE)
    curve = np.where(ratio > _LINEAR_PART, np.cbrt(ratio), _SLOPE * ratio + _INTERCEPT)
    red = 500 * (curve[..., 0] - curve[..., 1])  # a* of Lab
    scores: NDArray[Any] = (edges + np.where(luminance >= _DARK, skin + red, 0)).astype(np.float32)
    return scores
