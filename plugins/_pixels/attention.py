"""The most salient point of an image: where saturation, edges and colors of skin are strongest together.

As smartcrop of libvips finds it, which has the method from smartcrop.js.
"""

from __future__ import annotations

from math import hypot
from typing import TYPE_CHECKING, Any

from PIL import Image

from engine import Frame, Size, color, lazy_imports
from plugins._pixels import resampling
from plugins._pixels.sizes import Focus

if TYPE_CHECKING:
    from numpy.typing import NDArray

with lazy_imports():
    import numpy as np

MODULES = resampling.MODULES
_SIDE = 32  # pixels of the reduced image per side, which is the precision of the point
_EDGES = 5.0  # weight
_SKIN = (0.78, 0.57, 0.44)  # the direction of its colors in XYZ
_DARK = 5.0  # the luminance below which a pixel has no color, of 100
_BLUR = 10  # the crop's diagonal is this multiple of the radius in which salience is summed
_TO_XYZ = ((0.4124, 0.3576, 0.1805), (0.2126, 0.7152, 0.0722), (0.0193, 0.1192, 0.9505))
_WHITE = (0.9505, 1.0, 1.0891)
_LINEAR_PART, _SLOPE, _INTERCEPT = 0.008856, 7.787, 16 / 116  # The curve of lightness in CIE Lab.


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
