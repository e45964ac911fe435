"""Frames of animations with palettes: of each, the rectangle of the pixels that differ from what is shown."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from math import sqrt
from typing import TYPE_CHECKING, TypeAlias

from PIL import Image

from engine import FidelityWarning, Frame, lazy_imports
from plugins._pixels import palettes
from plugins._pixels.palettes import ExactPalette, NearestPalette, Palette

if TYPE_CHECKING:
    from numpy.typing import NDArray

with lazy_imports():
    import numpy as np

MODULES = palettes.MODULES
_TOLERANCE = 1  # levels by which a pixel that stays may be worse than the nearest color; they cannot be seen
_BRIGHTEST = 255
_LOSSY = 2  # so that files of photos are about as large as those of gifsicle
_DITHERING = 4  # the height of the pattern, at most, by what is missing to the nearest color
_PATTERN_BITS = 3  # The pattern of dithering is a square with a side of 8 pixels.
_Pixels: TypeAlias = "NDArray[np.uint32]"
Packing: TypeAlias = Callable[[Image.Image], "NDArray[np.uint32]"]
"""Returns the pixels of an image as numbers of `palettes`, 0 where they are transparent."""


@dataclass(frozen=True)
class Reduction:
    """How colors are reduced: the most of a palette, how much they are mixed (0 to 1), and how far pixels may stray."""

    colors: int = palettes.MAX_COLORS
    dither: float = 0
    stray: int = 0


@dataclass(frozen=True)
class PaletteFrame:
    """What a frame changes: the indexes of a rectangle at a corner (left, top), for milliseconds.

    `clears`: the rectangle becomes transparent before the next frame.
    """

    indexes: NDArray[np.uint8]
    corner: tuple[int, int]
    palette: Palette
    duration: float
    clears: bool


def changes(frames: Sequence[Frame], packed: Packing, reduction: Reduction) -> Iterator[PaletteFrame]:
    """The frames as changes of what is shown. One that changes nothing lengthens the one before.

    Frames of at most 256 new colors keep them all, unless `reduction` says otherwise.
    """
    exact = exact_palettes(frames, packed, reduction.colors)
    each = exact or _reduced_palettes(frames, packed, reduction.colors)
    upcoming = packed(frames[0].image)
    shown = np.zeros_like(upcoming)
    last: PaletteFrame | None = None
    for index, (frame, palette) in enumerate(zip(frames, each, strict=True)):
        wanted = upcoming
        upcoming = packed(frames[index + 1].image) if index + 1 < len(frames) else wanted
        vanishing = (wanted > 0) & (upcoming == 0)
        indexes = palette.indexes(wanted if exact else _dithered(wanted, palette, reduction.dither))
        drawn = palette.colors[indexes]
        missing = (wanted > 0) & ~_stays(shown, wanted, drawn, 0 if exact else _TOLERANCE, reduction.stray)
        if reduction.stray:
            indexes = _in_runs(indexes, wanted, missing, palette, reduction.stray)
            drawn = palette.colors[indexes]
        area = bounds(missing | vanishing)
        if area is None and last is not None and not last.clears:
            last = replace(last, duration=last.duration + frame.duration)
            continue
        if last is not None:
            yield last
        area = area or (slice(0, 1), slice(0, 1))
        if palette.transparent is None:
            missing[area] = True
        else:
            indexes[~missing] = palette.transparent
        np.copyto(shown, drawn, where=missing)
        clears = bool(vanishing.any())
        last = PaletteFrame(indexes[area], (area[1].start, area[0].start), palette, frame.duration, clears)
        if clears:
            shown[area] = 0
    if last is not None:
        yield last


def still(frame: Frame, packed: Packing, reduction: Reduction) -> PaletteFrame:
    """The frame alone, with exactly its colors if there are few enough."""
    pixels = packed(frame.image)
    exact = exact_palettes([frame], packed, reduction.colors)
    if exact is None:
        indexes, palette = _reduced_still(frame.image, pixels, reduction)
    else:
        (palette,) = exact
        indexes = palette.indexes(pixels)
    if pixels.all():
        palette.transparent = None
    elif palette.transparent is not None:
        indexes[pixels == 0] = palette.transparent
    return PaletteFrame(indexes, (0, 0), palette, frame.duration, clears=False)


def with_used_colors(frame: PaletteFrame) -> PaletteFrame:
    """The frame with a palette of its own, which has only the colors that it uses."""
    palette = frame.palette
    is_used = np.bincount(frame.indexes.ravel(), minlength=palettes.MAX_COLORS) > 0
    used = np.flatnonzero(is_used[: len(palette.colors)])
    colors = palettes.not_empty(palette.colors[used])
    places = np.zeros(palettes.MAX_COLORS, np.uint8)
    places[used] = np.arange(len(used))
    if palette.transparent is not None:
        places[palette.transparent] = len(colors)
    limit = len(colors) + (palette.transparent is not None)
    return replace(frame, indexes=places[frame.indexes], palette=ExactPalette(colors, limit))


def _reduced_still(image: Image.Image, pixels: _Pixels, reduction: Reduction) -> tuple[NDArray[np.uint8], Palette]:
    """The indexes of pixels in the palette of the colors that represent them best."""
    _warn_reduced(reduction.colors)
    opaque = bool(pixels.all())
    count = reduction.colors - (not opaque)
    if reduction == Reduction(dither=1):
        rgb = image.convert("RGB")
        paletted = (rgb if opaque else _in_a_row(pixels[pixels > 0])).quantize(count, Image.Quantize.MEDIANCUT)
        paletted = rgb.quantize(palette=paletted, dither=Image.Dither.FLOYDSTEINBERG)
    else:
        paletted = palettes.with_palette(Image.fromarray(palettes.samples_of(pixels)), count, reduction.dither, None)
    colors = np.pad(np.array(paletted.getpalette(), np.uint8).reshape(-1, 3), ((0, 0), (0, 1)), constant_values=255)
    return np.array(paletted), NearestPalette(colors.view(np.uint32).ravel(), reduction.colors)


def _warn_reduced(colors: int) -> None:
    FidelityWarning.issue("colors_reduced", f"Colors were reduced to a palette of {colors}.")


def _in_a_row(pixels: _Pixels) -> Image.Image:
    """The opaque pixels as an image in RGB."""
    return Image.frombuffer("RGBA", (pixels.size, 1), pixels).convert("RGB")


def _stays(shown: _Pixels, wanted: _Pixels, drawn: _Pixels, tolerance: int, stray: int) -> NDArray[np.bool_]:
    """Where what is shown is as good as what would be drawn. It is compared with the source: errors do not add up."""
    if not tolerance and not stray:
        same: NDArray[np.bool_] = shown == wanted
        return same
    least = np.minimum(palettes.difference(drawn, wanted), _BRIGHTEST - tolerance) + np.uint8(tolerance)
    stays: NDArray[np.bool_] = palettes.difference(shown, wanted) <= np.maximum(least, stray)
    return stays


def _in_runs(
    indexes: NDArray[np.uint8], wanted: _Pixels, missing: NDArray[np.bool_], palette: Palette, stray: int
) -> NDArray[np.uint8]:
    """The indexes, where missing pixels get that of the missing one before in their row if it strays no further."""
    columns, pixels, drawn = (
        np.ascontiguousarray(each.T) for each in (indexes, wanted, missing[:, :-1] & missing[:, 1:])
    )
    for before, here, pixel, is_drawn in zip(columns, columns[1:], pixels[1:], drawn, strict=False):
        is_near = palettes.difference(palette.colors[before], pixel) <= stray
        np.copyto(here, before, where=is_near & is_drawn)
    return np.ascontiguousarray(columns.T)


def stray(lossy: int | None) -> int:
    """How many levels a sample may differ, for a number on the scale of gifsicle, which grows with the square."""
    return round(sqrt(_LOSSY * (lossy or 0)))


def bounds(mask: NDArray[np.bool_]) -> tuple[slice, slice] | None:
    """The rows and columns of the smallest rectangle that is True somewhere on each side. None if it is nowhere."""
    rows, columns = np.flatnonzero(mask.any(axis=1)), np.flatnonzero(mask.any(axis=0))
    if not len(rows):
        return None
    return slice(int(rows[0]), int(rows[-1]) + 1), slice(int(columns[0]), int(columns[-1]) + 1)


def exact_palettes(frames: Sequence[Frame], packed: Packing, limit: int) -> list[Palette] | None:
    """A palette for each frame with all colors that it adds, the same for as many as it serves.

    None if a frame adds too many.
    """
    added: list[NDArray[np.uint32]] = []
    before: _Pixels | None = None
    for frame in frames:
        pixels = packed(frame.image)
        clears = before is not None and bool(((before > 0) & (pixels == 0)).any())
        new = pixels > 0 if before is None or clears else (pixels > 0) & (pixels != before)
        found = palettes.colors_of(pixels[new], limit - 1)
        if found is None and (pixels > 0).all():
            found = palettes.colors_of(pixels, limit)  # the whole frame, without a transparent index
        if found is None:
            return None
        added.append(found)
        before = pixels
    return _shared(added, limit)


def _shared(added: Sequence[NDArray[np.uint32]], limit: int) -> list[Palette]:
    """The palettes of these colors: the same one for consecutive frames while it has a transparent index."""
    each: list[Palette] = []
    start = 0
    while start < len(added):
        joined, end = added[start], start + 1
        while end < len(added) and len(union := np.union1d(joined, added[end])) < limit:
            joined, end = union, end + 1
        each += [ExactPalette(palettes.not_empty(joined), limit)] * (end - start)
        start = end
    return each


def _reduced_palettes(frames: Sequence[Frame], packed: Packing, limit: int) -> Sequence[Palette]:
    _warn_reduced(limit)
    samples = []
    opaque = True
    for frame in frames:
        pixels = packed(frame.image)
        opaque = opaque and bool(pixels.all())
        samples.append(palettes.sample(pixels, len(frames)))
    # With two colors, none is left for pixels that stay.
    return palettes.palettes_of_clip(samples, limit if opaque and limit == palettes.MIN_COLORS else limit - 1, limit)


def _dithered(pixels: _Pixels, palette: Palette, strength: float) -> _Pixels:
    """The pixels with a pattern of brightness, which is the same in all frames: what stays looks the same.

    It is weaker where the palette has a near color.
    """
    if not strength:
        return pixels
    pattern = np.zeros((1, 1))
    for _ in range(_PATTERN_BITS):
        pattern = np.block([[4 * pattern, 4 * pattern + 2], [4 * pattern + 3, 4 * pattern + 1]])
    height, width = pixels.shape
    repeats = -(-height // len(pattern)), -(-width // len(pattern))
    offsets = np.tile((pattern + 0.5) / pattern.size - 0.5, repeats)[:height, :width]
    missed = palettes.difference(palette.colors[palette.indexes(pixels)], pixels).astype(np.float32)
    offsets = offsets * strength * np.minimum(palette.spacing, _DITHERING * missed)
    samples = palettes.samples_of(pixels).astype(np.int16)
    samples[..., :3] += np.rint(offsets).astype(np.int16)[..., None]
    return np.clip(samples, 0, _BRIGHTEST).astype(np.uint8).view(np.uint32)[..., 0]
