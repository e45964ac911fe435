"""Crop, rotation and resizing of images, applied in this order."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from PIL import Image

from engine import (
    RASTER,
    DeepPixels,
    FidelityWarning,
    Frame,
    OptionValues,
    Raster,
    Size,
    color,
    transform,
)
from engine.option_types import Background, Crop, Flip, Gravity, Rotate
from plugins._color import profiles
from plugins._metadata.exif_data import FLIPS, ROTATIONS
from plugins._pixels import canvases, pillow, resampling
from plugins._pixels.sizes import (
    ATTENTION,
    Sizing,
    crop_rectangle,
    crop_size,
    focus_of,
    is_ratio,
    length,
    offset,
    scaled_box,
)
from plugins.operations import trim as borders

MODULES = resampling.MODULES + canvases.MODULES
# Pillow's methods for EXIF orientations, which turn counterclockwise.
_METHODS = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    6: Image.Transpose.ROTATE_270,
    8: Image.Transpose.ROTATE_90,
}


@transform(RASTER, after=borders.trim)
def crop(raster: Raster, *, crop: Crop | None = None, gravity: Gravity = "center") -> Raster:
    """Cuts a rectangle out of each frame. Raises InvalidOption if it is not inside a frame."""
    if crop is None:
        return raster
    if raster.sizes:
        rectangle = crop_rectangle(crop, raster.sizes[0], focus_of(gravity))
    by_ratio = is_ratio(crop)
    origin = raster.origin
    if origin:
        by_pixels = by_ratio and gravity == ATTENTION
        origin = origin.changed() if by_pixels else origin.cropped(*rectangle)

    def part(size: Size) -> Size:
        return crop_size(crop, size)

    raster, focus = canvases.with_focus(raster, gravity if by_ratio else "center", lambda size: (part(size), size))

    def cut(frame: Frame) -> Frame:
        return canvases.cut(frame, crop_rectangle(crop, frame.full_size or frame.size, focus(frame)))

    request = replace(raster.request, placed=by_ratio)
    return replace(profiles.map_frames(raster, cut, part), origin=origin, request=request)


@transform(RASTER, after=crop)
def rotate(raster: Raster, *, rotate: Rotate = 0) -> Raster:
    """Rotates each frame clockwise."""
    if not rotate:
        return raster
    if rotate != 180 and raster.dpi:
        raster = replace(raster, dpi=raster.dpi[::-1])
    return _turn(raster, ROTATIONS[rotate])


@transform(RASTER, after=rotate)
def flip(raster: Raster, *, flip: Flip | None = None) -> Raster:
    """Mirrors each frame: `horizontal` exchanges left and right."""
    return _turn(raster, FLIPS[flip]) if flip else raster


def _turn(raster: Raster, orientation: int) -> Raster:
    turned = profiles.map_frames(
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
        array = pillow.apply_orientation(pixels.array, orientation)
        return replace(frame, pixels=replace(pixels, array=array), full_size=full_size)
    return replace(frame, pixels=pixels.transpose(_METHODS[orientation]), full_size=full_size)


def _enlarged(options: OptionValues, pixels: float) -> float:
    """The pixels of an image that is made larger, which is taken for square if it has one side only."""
    if not options.get("enlarge"):
        return pixels
    sides = [float(options[name]) * float(options.get("dpr", 1)) for name in ("width", "height") if name in options]
    if not sides:
        return pixels * (length(str(options.get("scale", "100%")), 1)) ** 2
    return sides[0] * sides[-1]


@transform(RASTER, after=flip, memory=8, pixels=_enlarged)
def resize(
    raster: Raster,
    *,
    sizing: Sizing,
    gravity: Gravity = "center",
    background: Background | None = None,
) -> Raster:
    """Resizes each frame. Images that are not drawn from vectors become larger only with `enlarge`.

    `contain` pads with `background`, by default transparent where the target can be. Raises InvalidOption if the
    result would exceed MAX_PIXELS.
    """
    _warn_ignored(sizing, gravity, placed=raster.request.placed)
    if not sizing.is_given:
        return raster
    enlarge = sizing.enlarge or raster.source.scalable
    pads = sizing.has_box and sizing.fit == "contain"
    fill = color.parse(background) if background else None
    if pads:
        raster = raster.tone_mapped()  # the color around it is in sRGB

    def new_size(size: Size) -> Size:
        return canvases.check_result(sizing.sizes(size, enlarge=enlarge, warn=True).result, "width")

    def part(size: Size) -> tuple[Size, Size]:
        sizes = sizing.sizes(size, enlarge=enlarge)
        return sizes.part, sizes.whole

    covers = sizing.has_box and sizing.fit == "cover"
    raster, focus = canvases.with_focus(raster, gravity if covers else "center", part)

    def fitted(frame: Frame) -> Frame:
        full = frame.full_size or frame.size
        new_size(full)
        whole, kept, canvas = sizing.sizes(full, enlarge=enlarge)
        box = scaled_box((*offset(focus(frame), whole, kept), *kept), whole, frame.size)
        frame = replace(frame, pixels=resampling.resample(frame.pixels, kept, box), full_size=None)
        if canvas is None:
            return frame
        return canvases.on_canvas(frame, canvas, offset(focus_of(gravity), canvas, kept), fill, transparent=True)

    resized = _resized(raster, fitted, new_size)
    if pads and resized.sample:
        sample = canvases.continuous(resized.sample)
        resized = replace(resized, sample=canvases.on_canvas(sample, (2, 1), (0, 0), fill, transparent=True))
    return resized


def _resized(raster: Raster, fitted: Callable[[Frame], Frame], new_size: Callable[[Size], Size]) -> Raster:
    """The raster with these changes of its frames and sizes, and with the sample and the origin that it then has."""
    resized = replace(profiles.map_frames(raster, fitted, new_size), request=replace(raster.request, resized=True))
    if [*resized.sizes] != [*raster.sizes]:
        resized = replace(resized, sample=raster.sample and canvases.continuous(raster.sample))
    is_unchanged = raster.origin is not None and [raster.origin.size] == [*resized.sizes]
    return replace(resized, origin=raster.origin) if is_unchanged else resized


def _warn_ignored(sizing: Sizing, gravity: Gravity, *, placed: bool) -> None:
    """Warns of options that have no effect without a side, with one side, or with this `fit`.

    `placed`: gravity has had an effect.
    """
    has_side = sizing.width or sizing.height
    has_box = sizing.has_box
    places = placed or (has_box and (sizing.fit == "cover" or (sizing.fit == "contain" and gravity != ATTENTION)))
    without_effect = {
        "fit": sizing.fit != "inside" and not has_box,
        "gravity": gravity != "center" and not places,
        "enlarge": sizing.enlarge and not (has_side or sizing.scale),
        "scale": sizing.scale is not None and has_side,
        "dpr": sizing.dpr != 1 and not has_side,
    }
    ignored = [name for name, has_none in without_effect.items() if has_none]
    if ignored:
        message = f"Options without effect in this combination: {', '.join(ignored)}."
        FidelityWarning.issue("option_ignored", message)
