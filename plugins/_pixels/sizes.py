"""Sizes and positions: what crop and resizing make of a size, and at which size decoders need to draw for it."""

from __future__ import annotations

from dataclasses import dataclass
from math import floor, sqrt
from typing import NamedTuple, TypeAlias

from engine import FidelityWarning, InvalidOption, Size
from engine.option_types import Crop, Dpr, Enlarge, Fit, Gravity, Height, MaxPixels, Rotate, Scale, Trim, Width

Focus: TypeAlias = tuple[float, float]
"""A point of an image: shares of its width and height."""

Rectangle: TypeAlias = tuple[int, int, int, int]
"""x, y, width and height in pixels."""

ATTENTION = "attention"
"""The gravity that depends on the pixels."""

_ROUNDING = 1e-6  # pixels, of percentages
_MIN_OVERSAMPLING = 2  # a decoder that scales by itself keeps at least this multiple of the size


class Sizes(NamedTuple):
    """The size of the whole image after scaling, the part of it that is kept, and the canvas that `contain` makes."""

    whole: Size
    part: Size
    canvas: Size | None = None

    @property
    def result(self) -> Size:
        return self.canvas or self.part


@dataclass(frozen=True)
class Sizing:
    """The options that determine the size of a resized image."""

    width: Width | None = None
    height: Height | None = None
    fit: Fit = "inside"
    enlarge: Enlarge = False
    scale: Scale | None = None
    dpr: Dpr = 1
    max_pixels: MaxPixels | None = None

    @property
    def is_given(self) -> bool:
        """Whether a size is requested."""
        return any((self.width, self.height, self.scale, self.max_pixels))

    @property
    def has_box(self) -> bool:
        """Whether width and height are requested."""
        return self.width is not None and self.height is not None

    def sizes(self, size: Size, *, enlarge: bool, warn: bool = False) -> Sizes:
        """What resizing makes of an image of this size. With `warn`, warns if it is too small for the request."""
        width, height, fit = self._requested(size)
        box = (width, height) if width and height else None
        canvas = box if fit == "contain" else None
        whole = part = size
        if width or height:
            if box and fit in ("cover", "fill") and not enlarge:
                width, height = _reachable_box(size, box)
            whole = scaled_size(size, width, height, fit=fit, enlarge=enlarge)
            part = (min(width, whole[0]), min(height, whole[1])) if width and height and fit == "cover" else whole
            exact = box is not None and fit in ("cover", "fill")
            wanted = box if exact else scaled_size(size, *(box or (width, height)), fit=fit, enlarge=True)
            if warn and part != wanted and not canvas:
                message = f"The image is too small: the result has {part[0]} x {part[1]} pixels."
                FidelityWarning.issue("not_enlarged", message)
        return self._limited(Sizes(whole, part, canvas))

    def _requested(self, size: Size) -> tuple[int | None, int | None, Fit]:
        """Width, height and fit for an image of this size."""
        if self.width or self.height:
            width, height = (side and max(1, round(side * self.dpr)) for side in (self.width, self.height))
            return width, height, self.fit
        if self.scale:
            share = float(self.scale.strip(" %")) / 100
            return max(1, round(size[0] * share)), max(1, round(size[1] * share)), "fill"
        return None, None, self.fit

    def _limited(self, sizes: Sizes) -> Sizes:
        """The sizes with at most `max_pixels` in the result."""
        width, height = sizes.result
        if self.max_pixels is None or width * height <= self.max_pixels:
            return sizes
        ratio = sqrt(self.max_pixels / (width * height))

        def reduced(size: Size) -> Size:
            return max(1, int(size[0] * ratio)), max(1, int(size[1] * ratio))

        across, down = reduced(sizes.result)
        across = max(1, min(across, self.max_pixels // down))  # one side of a narrow image is 1, which is not reduced
        down = min(down, self.max_pixels // across)
        part = min(across, reduced(sizes.part)[0]), min(down, reduced(sizes.part)[1])
        whole = max(part[0], reduced(sizes.whole)[0]), max(part[1], reduced(sizes.whole)[1])
        return Sizes(part if sizes.part == sizes.whole else whole, part, sizes.canvas and (across, down))


@dataclass(frozen=True)
class Drawing(Sizing):
    """The options that determine which part of an image is needed at which size, for decoders that can draw it so."""

    trim: Trim | None = None
    crop: Crop | None = None
    gravity: Gravity = "center"
    rotate: Rotate = 0

    def needed_size(self, size: Size, *, enlarge: bool = False) -> Size:
        """The size at which a whole upright image of `size` must be produced, so that resizing loses nothing.

        `enlarge` is for images that are drawn from vectors. The size is not known before a border is removed.
        """
        if self.trim is not None or not self.is_given:
            return size
        part = size if self.crop is None else crop_size(self.crop, size)
        scaled = self.sizes(rotated_size(part, self.rotate), enlarge=enlarge).whole
        across, down = rotated_size(scaled, self.rotate)
        return -(-size[0] * across // part[0]), -(-size[1] * down // part[1])

    def needed_box(self, full: Size, size: Size) -> tuple[int, int, int, int] | None:
        """Left, top, right and bottom of the part that is needed of an image of `full` that is drawn at `size`.

        None for the whole, which is also needed where the part depends on the pixels.
        """
        crop = self.crop
        by_attention = self.gravity == ATTENTION
        if crop is None or self.trim is not None or (by_attention and is_ratio(crop)):
            return None
        return pixel_box(crop_rectangle(crop, full, focus_of(self.gravity)), full, size)


def focus_of(gravity: str) -> Focus:
    """The point that a gravity names; the middle for ATTENTION."""
    if "," in gravity:
        x, y = map(float, gravity.split(","))
        return x, y
    x = 0 if gravity.endswith("west") else 1 if gravity.endswith("east") else 0.5
    y = 0 if gravity.startswith("north") else 1 if gravity.startswith("south") else 0.5
    return x, y


def offset(focus: Focus, outer: Size, inner: Size) -> tuple[int, int]:
    """The position of the smaller rectangle in the larger one, as near to the focus as the edges allow."""
    (x, y) = focus
    (width, height) = inner
    across, down = floor(x * outer[0] - width / 2), floor(y * outer[1] - height / 2)
    return max(0, min(across, outer[0] - width)), max(0, min(down, outer[1] - height))


def is_ratio(crop: str) -> bool:
    """Whether the option `crop` is a ratio, and not a rectangle."""
    return ":" in crop


def crop_size(crop: str, size: Size) -> Size:
    """Width and height of what the option `crop` selects of an image, as far as it is inside."""
    if is_ratio(crop):
        across, down = map(float, crop.split(":"))
        width, height = round(size[1] * across / down), round(size[0] * down / across)
    else:
        left, top, right, bottom = (round(edge) for edge in _edges(crop, size))
        width, height = right - left, bottom - top
    return max(1, min(width, size[0])), max(1, min(height, size[1]))


def crop_rectangle(crop: str, size: Size, focus: Focus) -> Rectangle:
    """What the option `crop` selects, a ratio around the focus. Raises InvalidOption if it is outside the image."""
    part = crop_size(crop, size)
    if is_ratio(crop):
        return *offset(focus, size, part), *part
    left, top, right, bottom = _edges(crop, size)
    if right > size[0] + _ROUNDING or bottom > size[1] + _ROUNDING or left == right or top == bottom:
        raise InvalidOption(
            f"crop must be inside the image of {size[0]} x {size[1]} pixels.",
            reason="out_of_range",
            param="crop",
            details={"width": size[0], "height": size[1]},
        )
    return min(round(left), size[0] - part[0]), min(round(top), size[1] - part[1]), *part


def _edges(crop: str, size: Size) -> tuple[float, float, float, float]:
    """Left, top, right and bottom of a rectangle."""
    x, y, width, height = (length(text, side) for text, side in zip(crop.split(","), (*size, *size), strict=True))
    return x, y, x + width, y + height


def length(text: str, side: int) -> float:
    """A length in pixels, or in percent of a side."""
    text = text.strip()
    return side * float(text[:-1]) / 100 if text.endswith("%") else float(text)


def scaled_box(rectangle: tuple[int, ...], size: Size, new_size: Size) -> tuple[float, float, float, float]:
    """The edges of a rectangle of x, y, width and height after scaling the image from `size` to `new_size`."""
    x, y, width, height = rectangle
    (across, down) = size
    (new_across, new_down) = new_size
    left, right = (edge * new_across / across for edge in (x, x + width))  # exact at the edges of the image
    top, bottom = (edge * new_down / down for edge in (y, y + height))
    return left, top, right, bottom


def pixel_box(rectangle: Rectangle, size: Size, new_size: Size) -> tuple[int, int, int, int]:
    """As `scaled_box`, in whole pixels, at least one."""
    left, top, right, bottom = (round(side) for side in scaled_box(rectangle, size, new_size))
    return left, top, max(right, left + 1), max(bottom, top + 1)


def rotated_size(size: Size, rotate: int) -> Size:
    """`size` after a rotation by a multiple of 90 degrees."""
    return (size[1], size[0]) if rotate % 180 else size


def scaled_size(size: Size, width: int | None, height: int | None, *, fit: Fit, enlarge: bool) -> Size:
    """The size of a whole image after scaling, before `cover` cuts it or `contain` pads it.

    The side that decides the scale has exactly the requested length, the other one is rounded to the nearest pixel,
    at least 1.
    """
    across, down = size
    if fit == "fill" and width and height:
        scaled = (width, height) if enlarge else (min(width, across), min(height, down))
    elif width and (not height or (width * down <= height * across) == (fit in ("inside", "contain"))):
        scaled = width, max(1, (2 * down * width + across) // (2 * across))
    else:
        assert height
        scaled = max(1, (2 * across * height + down) // (2 * down)), height
    return scaled if enlarge or (scaled[0] <= across and scaled[1] <= down) else size


def _reachable_box(size: Size, box: Size) -> Size:
    """The largest box with the ratio of `box` that an image fills without becoming larger; at most `box`."""
    (across, down) = size
    (width, height) = box
    if width <= across and height <= down:
        return box
    if width * down >= height * across:  # the width is the limit
        return across, max(1, (2 * height * across + width) // (2 * width))
    return max(1, (2 * width * down + height) // (2 * height)), down


def reduced_scale(size: Size, needed: Size, scales: tuple[int, ...] = (8, 4, 2)) -> int:
    """The largest of `scales` by which a decoder can divide `size` and still keep twice the needed pixels per side."""
    ratio = min(size[0] / needed[0], size[1] / needed[1]) / _MIN_OVERSAMPLING
    return next((scale for scale in scales if scale <= ratio), 1)
