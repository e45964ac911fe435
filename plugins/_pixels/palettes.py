"""Palettes: the colors that images have, or those that represent them best, and the indexes of pixels in them.

Pixels and colors are numbers of 32 bits: red, green, blue and alpha from the lowest byte, 0 if they are transparent.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from functools import cached_property
from itertools import count
from typing import TYPE_CHECKING

from PIL import Image

from engine import lazy_imports

if TYPE_CHECKING:
    from numpy.typing import NDArray

with lazy_imports():
    import imagequant
    import numpy as np

MODULES = ("imagequant",)
MIN_COLORS, MAX_COLORS = 2, 256
_OPAQUE = 255
_BLACK = _OPAQUE << 24
_FULL_QUALITY = 100
_TABLE = 65_521  # entries of the table of exact colors, at least
# Cells of a color cube, of which each has one nearest color.
_CELL_BITS = 7
_CELL = 1 << (8 - _CELL_BITS)  # levels of its side
_PART = 1 << 14  # cells whose distances are in memory at a time
_SAMPLES = 1 << 16  # pixels that decide on the palette of a clip
_SCENE = 8  # frames that can have a palette of their own
_GAIN = 0.8  # the error of two palettes relative to that of one, from which on they are worth their bytes


class Palette(ABC):
    """Colors, of which there can be at most `limit`. The index after them is transparent, if one is left."""

    def __init__(self, colors: NDArray[np.uint32], limit: int) -> None:
        self.colors = colors
        self.transparent = len(colors) if len(colors) < limit else None

    @cached_property
    def spacing(self) -> float:
        """The median distance of colors to the next one, in levels."""
        samples = self.samples[:, :3].astype(np.float32)
        distances = np.sqrt(((samples[:, None] - samples[None]) ** 2).sum(axis=-1))
        return float(np.median(np.sort(distances, axis=1)[:, 1])) if len(samples) > 1 else 0.0

    @property
    def samples(self) -> NDArray[np.uint8]:
        """The colors as rows of red, green, blue and alpha."""
        return samples_of(self.colors)

    @abstractmethod
    def indexes(self, pixels: NDArray[np.uint32]) -> NDArray[np.uint8]:
        """The index of the color of each pixel; of transparent ones, any."""


class ExactPalette(Palette):
    """All colors of some images."""

    def __init__(self, colors: NDArray[np.uint32], limit: int) -> None:
        super().__init__(colors, limit)
        # All colors have different remainders: the table finds an index five times faster than a search.
        self._size = next(size for size in count(_TABLE) if len({*(colors % size).tolist()}) == len(colors))
        self._table = np.zeros(self._size, np.uint8)
        self._table[colors % self._size] = np.arange(len(colors))

    def indexes(self, pixels: NDArray[np.uint32]) -> NDArray[np.uint8]:
        indexes: NDArray[np.uint8] = self._table[pixels % np.uint32(self._size)]
        return indexes


class NearestPalette(Palette):
    """Opaque colors, which stand for all others. They are looked up with 7 bits per sample."""

    def __init__(self, colors: NDArray[np.uint32], limit: int) -> None:
        super().__init__(colors, limit)
        self._nearest = np.full(1 << 3 * _CELL_BITS, -1, np.int16)

    def indexes(self, pixels: NDArray[np.uint32]) -> NDArray[np.uint8]:
        # The upper 7 bits of red, green and blue.
        cells = (pixels >> 1 & 0x7F) | (pixels >> 2 & 0x3F80) | (pixels >> 3 & 0x1FC000)
        found = self._nearest[cells]
        if (found < 0).any():
            missing = np.unique(cells[found < 0])
            for start in range(0, len(missing), _PART):
                part = missing[start : start + _PART]
                self._nearest[part] = _nearest(self.samples, part)
            found = self._nearest[cells]
        indexes: NDArray[np.uint8] = found.astype(np.uint8)
        return indexes


def _nearest(samples: NDArray[np.uint8], cells: NDArray[np.uint32]) -> NDArray[np.intp]:
    """The index of the color that is nearest to the center of each cell, of red, green and blue from the lowest bit."""
    levels = np.stack([cells >> shift & (1 << _CELL_BITS) - 1 for shift in (0, _CELL_BITS, 2 * _CELL_BITS)], axis=-1)
    centers = levels.astype(np.float32) * _CELL + (_CELL - 1) / 2
    colors = samples[:, :3].astype(np.float32)
    nearest: NDArray[np.intp] = ((colors**2).sum(axis=1) - 2 * centers @ colors.T).argmin(axis=1)
    return nearest


def samples_of(pixels: NDArray[np.uint32]) -> NDArray[np.uint8]:
    """The pixels as red, green, blue and alpha, in one more dimension."""
    return np.ascontiguousarray(pixels).view(np.uint8).reshape(*pixels.shape, 4)


def difference(one: NDArray[np.uint32], other: NDArray[np.uint32]) -> NDArray[np.uint8]:
    """The largest difference of a sample in each pixel."""
    first, second = samples_of(one), samples_of(other)
    each = np.maximum(first, second) - np.minimum(first, second)
    largest: NDArray[np.uint8] = np.maximum(
        np.maximum(each[..., 0], each[..., 1]), np.maximum(each[..., 2], each[..., 3])
    )
    return largest


def colors_of(pixels: NDArray[np.uint32], limit: int) -> NDArray[np.uint32] | None:
    """The different numbers among pixels in ascending order. None if there are more than `limit`."""
    image = Image.frombuffer("RGBA", (pixels.size, 1), np.ascontiguousarray(pixels))
    found = image.getcolors(limit)
    if found is None:
        return None
    return np.sort(np.array([color for _, color in found], np.uint8).view(np.uint32).ravel())


def not_empty(colors: NDArray[np.uint32]) -> NDArray[np.uint32]:
    """The colors, or black if there are none, so that each index has one."""
    return colors if colors.size else np.array([_BLACK], np.uint32)


def nearest_palette(pixels: NDArray[np.uint32], colors: int, limit: int) -> NearestPalette:
    """The palette of at most so many colors that represents opaque pixels best."""
    pixels = not_empty(pixels)
    indexes, entries = imagequant.quantize_raw_rgba_bytes(
        pixels.tobytes(), pixels.size, 1, dithering_level=0, max_colors=colors
    )
    used = np.unique(np.frombuffer(indexes, np.uint8))
    return NearestPalette(np.unique(np.array(entries, np.uint8).view(np.uint32)[used]), limit)


def sample(pixels: NDArray[np.uint32], frames: int) -> NDArray[np.uint32]:
    """Opaque pixels of a frame, as many as its share of those that decide on the palette of a clip of `frames`.

    They are chosen at random, but always the same.
    """
    flat = pixels.ravel()
    share = max(1, _SAMPLES // frames)
    if flat.size > share:
        flat = flat[np.random.default_rng(0).integers(0, flat.size, share)]
    return flat[flat > 0]


def palettes_of_clip(samples: Sequence[NDArray[np.uint32]], colors: int, limit: int) -> Sequence[Palette]:
    """The palette of each frame, from samples of their pixels: the same one for all, or for each scene."""
    return _split(samples, nearest_palette(np.concatenate(samples), colors, limit), colors, limit)


def _split(samples: Sequence[NDArray[np.uint32]], palette: NearestPalette, colors: int, limit: int) -> list[Palette]:
    """A palette per frame: `palette`, or those of the two halves if they have clearly smaller errors."""
    middle = len(samples) // 2
    if middle >= _SCENE and colors < limit:  # Without a transparent index, what stays needs the same palette.
        parts = samples[:middle], samples[middle:]
        halves = [np.concatenate(part) for part in parts]
        own = [nearest_palette(half, colors, limit) for half in halves]
        if sum(map(_error, own, halves)) < _GAIN * sum(_error(palette, half) for half in halves):
            return [one for part, found in zip(parts, own, strict=True) for one in _split(part, found, colors, limit)]
    return [palette] * len(samples)


def _error(palette: Palette, pixels: NDArray[np.uint32]) -> float:
    """The sum of squared differences."""
    missed = difference(palette.colors[palette.indexes(pixels)], pixels).astype(np.float32)
    return float((missed**2).sum())


def with_entries(indexes: NDArray[np.uint8], entries: NDArray[np.uint8]) -> Image.Image:
    """The image of these indexes of a palette, whose entries are red, green, blue and alpha, with opaque ones last."""
    result = Image.fromarray(indexes)
    result.putpalette(entries[:, :3].tobytes())
    alpha = entries[:, 3]
    if (alpha < _OPAQUE).any():
        result.info["transparency"] = alpha[alpha < _OPAQUE].tobytes()
    return result


def with_palette(
    image: Image.Image, colors: int, dither: float, quality: int | None, *, least_quality: int = 0
) -> Image.Image:
    """The image with at most this number of colors, each with an alpha of its own.

    `dither` is from 0, without, to 1. With a `quality` of 1 to 100, there are no more colors than it needs. An image
    that has so few colors keeps them exactly, unless a quality is given. Raises RuntimeError if the colors have less
    than the least quality.
    """
    rgba = image.convert("RGBA")
    data, entries = imagequant.quantize_raw_rgba_bytes(
        rgba.tobytes(),
        *rgba.size,
        dithering_level=dither,
        max_colors=colors,
        min_quality=least_quality,
        max_quality=quality or _FULL_QUALITY,
    )
    indexes = np.frombuffer(data, np.uint8).reshape(rgba.size[::-1])
    palette = np.array(entries, np.uint8).reshape(-1, 4)
    used = np.flatnonzero(np.bincount(indexes.ravel(), minlength=len(palette)))
    used = used[np.argsort(palette[used, 3], kind="stable")]  # Opaque colors last: tRNS ends before them.
    places = np.zeros(len(palette), np.uint8)
    places[used] = np.arange(len(used))
    return with_entries(places[indexes], palette[used])
