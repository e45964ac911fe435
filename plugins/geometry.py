"""Crop, rotation, resizing, background, color space and bit depth of pictures, applied in this order."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

from PIL import Image

from engine import (
    MAX_PIXELS,
    RASTER,
    DeepPixels,
    FidelityWarning,
    Frame,
    InvalidOption,
    Raster,
    Size,
    color,
    combined_orientation,
    transform,
)
from engine.option_types import Background, BitDepth, Crop, Enlarge, Fit, Flip, Gravity, Height, Rotate, Width
from plugins import _color_space, _pillow, _resampling

MODULES = _resampling.MODULES
_MIN_OVERSAMPLING = 2  # a decoder that scales by itself keeps at least this multiple of the size
# The EXIF orientations that have the same effect, and Pillow's methods for them, which turn counterclockwise.
_ROTATIONS = {90: 6, 180: 3, 270: 8}
_FLIPS = {"horizontal": 2, "vertical": 4}
_METHODS = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    6: Image.Transpose.ROTATE_270,
    8: Image.Transpose.ROTATE_90,
}


@transform(RASTER)
def crop(raster: Raster, *, crop: Crop | None = None) -> Raster:
    """Cuts a rectangle out of each frame. Raises InvalidOption if it is not inside a frame."""
    import numpy as np

    if crop is None:
        return raster
    rectangle = _parse_crop(crop)
    if raster.sizes:
        _check_crop(rectangle, raster.sizes[0])
    origin = raster.origin and raster.origin.cropped(*rectangle)

    def cut(frame: Frame) -> Frame:
        if frame.cropped:
            return replace(frame, cropped=False, full_size=rectangle[2:])
        left, top, right, bottom = box = crop_box(crop, frame.full_size or frame.size, frame.size)
        pixels = frame.pixels
        if isinstance(pixels, DeepPixels):
            array = np.ascontiguousarray(pixels.array[top:bottom, left:right])
            return replace(frame, pixels=replace(pixels, array=array), full_size=rectangle[2:])
        return replace(frame, pixels=pixels.crop(box), full_size=rectangle[2:])

    raster = _color_space.map_frames(raster, cut, lambda size: (min(size[0], rectangle[2]), min(size[1], rectangle[3])))
    return replace(raster, origin=origin)


def _parse_crop(crop: str) -> tuple[int, int, int, int]:
    """x, y, width and height of the option `crop`."""
    x, y, width, height = (int(number) for number in crop.split(","))
    return x, y, width, height


def crop_box(crop: str, full: Size, size: Size) -> tuple[int, int, int, int]:
    """Left, top, right and bottom of a crop from a picture that has `size` instead of its full size.

    Raises InvalidOption if the crop is not inside a picture of the full size.
    """
    rectangle = _parse_crop(crop)
    _check_crop(rectangle, full)
    left, top, right, bottom = (round(side) for side in _scaled_box(rectangle, full, size))
    return left, top, max(right, left + 1), max(bottom, top + 1)


def _check_crop(rectangle: tuple[int, int, int, int], size: Size) -> None:
    """Raises InvalidOption if a rectangle of x, y, width and height is not inside a picture of `size`."""
    x, y, width, height = rectangle
    if x + width > size[0] or y + height > size[1]:
        raise InvalidOption(
            f"crop must be inside the picture of {size[0]} x {size[1]} pixels.",
            reason="out_of_range",
            param="crop",
            details={"width": size[0], "height": size[1]},
        )


@transform(RASTER, after=crop)
def rotate(raster: Raster, *, rotate: Rotate = 0) -> Raster:
    """Rotates each frame clockwise."""
    if not rotate:
        return raster
    if rotate != 180 and raster.dpi:
        raster = replace(raster, dpi=raster.dpi[::-1])
    return _turn(raster, _ROTATIONS[rotate])


@transform(RASTER, after=rotate)
def flip(raster: Raster, *, flip: Flip | None = None) -> Raster:
    """Mirrors each frame: `horizontal` exchanges left and right."""
    return _turn(raster, _FLIPS[flip]) if flip else raster


def rotated_size(size: Size, rotate: int) -> Size:
    """`size` after a rotation by a multiple of 90 degrees."""
    return (size[1], size[0]) if rotate % 180 else size


def orientation_after(orientation: int, *, rotate: Rotate, flip: Flip | None) -> int:
    """The EXIF orientation with the effect of another one, followed by the options `rotate` and `flip`."""
    orientation = combined_orientation(orientation, _ROTATIONS[rotate]) if rotate else orientation
    return combined_orientation(orientation, _FLIPS[flip]) if flip else orientation


def _turn(raster: Raster, orientation: int) -> Raster:
    turned = _color_space.map_frames(
        raster,
        lambda frame: _transpose(frame, orientation),
        lambda size: size[::-1] if orientation >= 5 else size,
    )
    return replace(turned, origin=raster.origin and raster.origin.turned(orientation))


def _transpose(frame: Frame, orientation: int) -> Frame:
    full_size = frame.full_size[::-1] if frame.full_size and orientation >= 5 else frame.full_size
    frame = replace(frame, dpi=frame.dpi[::-1]) if frame.dpi and orientation >= 5 else frame
    pixels = frame.pixels
    if isinstance(pixels, DeepPixels):
        array = _pillow.apply_orientation(pixels.array, orientation)
        return replace(frame, pixels=replace(pixels, array=array), full_size=full_size)
    return replace(frame, pixels=pixels.transpose(_METHODS[orientation]), full_size=full_size)


@transform(RASTER, after=flip, memory=8)
def resize(
    raster: Raster,
    *,
    width: Width | None = None,
    height: Height | None = None,
    fit: Fit = "inside",
    enlarge: Enlarge = False,
    gravity: Gravity = "center",
    background: Background | None = None,
) -> Raster:
    """Resizes each frame. Pictures that are not drawn from vectors become larger only with `enlarge`.

    `contain` pads with `background`, by default transparent if the picture has alpha, otherwise white. Raises
    InvalidOption if the result would exceed MAX_PIXELS.
    """
    box = (width, height) if width and height else None
    _warn_ignored(box, fit=fit, gravity=gravity, enlarge=enlarge and not (width or height))
    if width is None and height is None:
        return raster
    fill = color.parse(background) if background else None
    padded = box if fit == "contain" else None
    if padded:
        raster = raster.tone_mapped()  # the color around it is in sRGB
    sizes = partial(_fitted_sizes, width=width, height=height, fit=fit, enlarge=enlarge or raster.scalable)

    def new_size(size: Size) -> Size:
        _check_result(padded or sizes(size)[1])
        return padded or sizes(size)[1]

    def fitted(frame: Frame) -> Frame:
        full = frame.full_size or frame.size
        new_size(full)
        whole, part = sizes(full)
        kept = _scaled_box((*_offset(gravity, whole, part), *part), whole, frame.size)
        frame = replace(frame, pixels=_resampling.resample(frame.pixels, part, kept), full_size=None)
        return _pad(frame, padded, gravity, fill) if padded else frame

    return _resized(raster, fitted, new_size)


def _resized(raster: Raster, fitted: Callable[[Frame], Frame], new_size: Callable[[Size], Size]) -> Raster:
    """The raster with these changes of its frames and sizes, and with the sample and the origin that it then has."""
    resized = replace(_color_space.map_frames(raster, fitted, new_size), resized=True)
    if [*resized.sizes] != [*raster.sizes]:
        resized = replace(resized, sample=raster.sample and _continuous(raster.sample))
    is_unchanged = raster.origin is not None and [raster.origin.size] == [*resized.sizes]
    return replace(resized, origin=raster.origin) if is_unchanged else resized


def _continuous(sample: Frame) -> Frame:
    """The sample of resized frames."""
    is_image = isinstance(sample.pixels, Image.Image)
    return replace(sample, pixels=_resampling.continuous(sample.image)) if is_image else sample


def _fitted_sizes(size: Size, width: int | None, height: int | None, *, fit: Fit, enlarge: bool) -> tuple[Size, Size]:
    """The size of the whole picture after scaling, and the part of it that is kept; warns if it is too small."""
    box = (width, height) if width and height else None
    if box and fit in ("cover", "fill") and not enlarge:
        width, height = _reachable_box(size, box)
    whole = scaled_size(size, width, height, fit=fit, enlarge=enlarge)
    part = (min(width, whole[0]), min(height, whole[1])) if width and height and fit == "cover" else whole
    wanted = box if box and fit in ("cover", "fill") else scaled_size(size, width, height, fit=fit, enlarge=True)
    if part != wanted and fit != "contain":
        message = f"The picture is too small: the result has {part[0]} x {part[1]} pixels."
        FidelityWarning.issue("not_enlarged", message)
    return whole, part


def _warn_ignored(box: Size | None, *, fit: Fit, gravity: Gravity, enlarge: bool) -> None:
    """Warns of options that have no effect without a side, with one side, or with this `fit`."""
    without_effect = {
        "fit": fit != "inside" and box is None,
        "gravity": gravity != "center" and (box is None or fit not in ("cover", "contain")),
        "enlarge": enlarge,
    }
    ignored = [name for name, has_none in without_effect.items() if has_none]
    if ignored:
        message = f"Options without effect in this combination: {', '.join(ignored)}."
        FidelityWarning.issue("option_ignored", message)


def _reachable_box(size: Size, box: Size) -> Size:
    """The largest box with the ratio of `box` that a picture fills without becoming larger; at most `box`."""
    (across, down), (width, height) = size, box
    if width <= across and height <= down:
        return box
    if width * down >= height * across:  # the width is the limit
        return across, max(1, (2 * height * across + width) // (2 * width))
    return max(1, (2 * width * down + height) // (2 * height)), down


def _check_result(size: Size) -> None:
    if size[0] * size[1] > MAX_PIXELS:
        raise InvalidOption(
            f"width and height must give at most {MAX_PIXELS} pixels.",
            reason="out_of_range",
            param="width",
            details={"max_pixels": MAX_PIXELS, "width": size[0], "height": size[1]},
        )


def scaled_size(size: Size, width: int | None, height: int | None, *, fit: Fit, enlarge: bool) -> Size:
    """The size of a whole picture after scaling, before `cover` cuts it or `contain` pads it.

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


def needed_size(
    size: Size,
    width: int | None,
    height: int | None,
    *,
    fit: Fit = "inside",
    crop: str | None = None,
    rotate: int = 0,
    enlarge: bool = False,
) -> Size:
    """The size at which a decoder must produce a whole upright picture of `size`, so that resizing loses nothing.

    `enlarge` is for pictures that are drawn from vectors.
    """
    if width is None and height is None:
        return size
    part = size if crop is None else _parse_crop(crop)[2:]
    scaled = scaled_size(rotated_size(part, rotate), width, height, fit=fit, enlarge=enlarge)
    across, down = rotated_size(scaled, rotate)
    return -(-size[0] * across // part[0]), -(-size[1] * down // part[1])


def reduced_scale(size: Size, needed: Size, scales: tuple[int, ...] = (8, 4, 2)) -> int:
    """The largest of `scales` by which a decoder can divide `size` and still keep twice the needed pixels per side."""
    ratio = min(size[0] / needed[0], size[1] / needed[1]) / _MIN_OVERSAMPLING
    return next((scale for scale in scales if scale <= ratio), 1)


@transform(RASTER, after=resize, memory=0)
def background(raster: Raster, *, background: Background | None = None) -> Raster:
    """Sets the color under the frames. The result has alpha only if the color is translucent."""
    return replace(raster, background=color.parse(background)) if background else raster


color_space = transform(RASTER, after=background, memory=8)(_color_space.color_space)


@transform(RASTER, after=color_space, memory=0)
def bit_depth(raster: Raster, *, bit_depth: BitDepth | None = None) -> Raster:
    """Requests a number of bits per sample. Encoders raise InvalidOption for one that their format does not have."""
    return replace(raster, bit_depth=bit_depth) if bit_depth else raster


def _scaled_box(rectangle: tuple[int, ...], size: Size, new_size: Size) -> _resampling.Box:
    """The edges of a rectangle of x, y, width and height after scaling the picture from `size` to `new_size`."""
    x, y, width, height = rectangle
    across, down = new_size[0] / size[0], new_size[1] / size[1]
    return x * across, y * down, (x + width) * across, (y + height) * down


def _offset(gravity: Gravity, outer: Size, inner: Size) -> tuple[int, int]:
    """The position of the smaller rectangle in the larger one."""
    free_x, free_y = outer[0] - inner[0], outer[1] - inner[1]
    x = 0 if gravity.endswith("west") else free_x if gravity.endswith("east") else free_x // 2
    y = 0 if gravity.startswith("north") else free_y if gravity.startswith("south") else free_y // 2
    return x, y


def _pad(frame: Frame, size: Size, gravity: Gravity, fill: tuple[int, int, int, int] | None) -> Frame:
    """`frame` on a canvas of `size`. The canvas has alpha if the frame has, or if `fill` is translucent."""
    import numpy as np

    if frame.size == size:
        return frame
    if isinstance(frame.pixels, Image.Image):
        frame = replace(frame, pixels=_resampling.continuous(frame.pixels))
    mode = frame.pixels.mode
    red, green, blue, alpha = fill or (*color.WHITE, 0 if mode in ("LA", "RGBA") else 255)
    alpha = alpha // 255 * 255  # a translucent background is laid under the whole picture later
    if (mode in ("L", "LA") and not red == green == blue) or (mode == "CMYK" and alpha < 255):
        frame = _color_space.in_color_space(frame, gray=False)
        mode = frame.pixels.mode
    has_alpha = mode in ("LA", "RGBA")
    profile = color.matching_profile(mode, frame.icc_profile)
    samples = color.color_in((red, green, blue), mode.removesuffix("A"), profile)
    if has_alpha or alpha < 255:
        samples, mode = (*samples, alpha), mode if has_alpha else mode + "A"
    x, y = _offset(gravity, size, frame.size)
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
