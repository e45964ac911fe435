"""Encodes animated PNG: of each frame, the rectangle of the pixels that differ from what is shown."""

from __future__ import annotations

import struct
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeAlias

from PIL import Image

from engine import FidelityWarning, Frame, lazy_imports
from plugins._pixels import palettes, pillow
from plugins._pixels.palette_frames import bounds
from plugins._pixels.palettes import ExactPalette
from plugins._pixels.png_chunks import SIGNATURE, chunk, compress

if TYPE_CHECKING:
    from numpy.typing import NDArray

with lazy_imports():
    import numpy as np

# Color types.
_RGB, _INDEXED, _RGBA = 2, 3, 6
_BITS = 8  # per sample, also of few colors: ffmpeg cannot place a frame of fewer bits
_OPAQUE = 255
_ALPHA = 24  # the lowest bit of alpha in a number of `palettes`
_KEYS = (0xFF01FE03, 0xFFFD02FB, 0xFF04F905, 0xFFF608F7)  # A clip rarely has all of these colors.
# Blend operations.
_REPLACE, _OVER = 0, 1
_UNITS_PER_SECOND = (1000, 100, 10, 1)  # Durations are numbers of these.
_LONGEST = 65_535  # units
MAX_PLAYS = (1 << 31) - 1
_Pixels: TypeAlias = "NDArray[np.uint32]"


class _PixelFormat(ABC):
    """How a file stores pixels as samples of 8 bits, after the `chunks` of its colors."""

    color_type: int
    chunks: Sequence[bytes] = ()
    has_transparent = True
    """Whether a value of samples means that a pixel stays as it is."""

    @abstractmethod
    def samples(self, pixels: _Pixels, stays: NDArray[np.bool_] | None) -> NDArray[np.uint8]:
        """The samples of pixels, transparent where they stay."""


class _Indexed(_PixelFormat):
    """Indexes of at most 256 colors, of which the transparent ones come first, because tRNS ends after them."""

    color_type = _INDEXED

    def __init__(self, colors: NDArray[np.uint32]) -> None:
        colors = colors[np.argsort(colors >> _ALPHA, kind="stable")]
        if colors[0] >> _ALPHA and len(colors) < palettes.MAX_COLORS:
            colors = np.insert(colors, 0, 0)
        self.has_transparent = not colors[0] >> _ALPHA
        self._palette = ExactPalette(colors, palettes.MAX_COLORS)
        entries = self._palette.samples
        alpha = entries[:, 3].tobytes().rstrip(bytes([_OPAQUE]))
        self.chunks = [chunk(b"PLTE", entries[:, :3].tobytes()), *([chunk(b"tRNS", alpha)] if alpha else [])]

    def samples(self, pixels: _Pixels, stays: NDArray[np.bool_] | None) -> NDArray[np.uint8]:
        indexes = self._palette.indexes(pixels)
        return indexes if stays is None else np.where(stays, np.uint8(0), indexes)


class _Opaque(_PixelFormat):
    """Red, green and blue, of which one color, the key, means that a pixel is transparent."""

    color_type = _RGB

    def __init__(self, key: int) -> None:
        self._key = palettes.samples_of(np.array([key], np.uint32))[0, :3]
        self.chunks = [chunk(b"tRNS", struct.pack(">3H", *self._key.tolist()))]

    def samples(self, pixels: _Pixels, stays: NDArray[np.bool_] | None) -> NDArray[np.uint8]:
        samples = palettes.samples_of(pixels)[..., :3]
        return samples if stays is None else np.where(stays[..., None], self._key, samples)


class _WithAlpha(_PixelFormat):
    """Red, green, blue and alpha."""

    color_type = _RGBA

    def samples(self, pixels: _Pixels, stays: NDArray[np.bool_] | None) -> NDArray[np.uint8]:
        return palettes.samples_of(pixels if stays is None else np.where(stays, np.uint32(0), pixels))


@dataclass(frozen=True)
class _Change:
    """The pixels of a rectangle at a corner (left, top), for milliseconds.

    `stays` is where they are shown already. It is None if a pixel becomes transparent, which replaces all of them.
    """

    pixels: _Pixels
    corner: tuple[int, int]
    duration: int
    stays: NDArray[np.bool_] | None


def encode(frames: Sequence[Frame], plays: int, metadata: Sequence[bytes], level: int, stray: int) -> bytes:
    """The file of an animation that plays so often, 0: forever. Its pixels are compressed by a level of libdeflate.

    The chunks of metadata precede the pixels, whose samples may stray from their frames by so many levels.
    """
    pixel_format = _pixel_format(frames)
    blocks: list[bytes] = []
    sequence = 0
    count = 0
    for count, change in enumerate(_changes(frames, stray), 1):
        compressed, blend = _compressed(change, pixel_format, level)
        height, width = change.pixels.shape
        control = struct.pack(">5I", sequence, width, height, *change.corner) + _delay(change.duration)
        blocks.append(chunk(b"fcTL", control + bytes([0, blend])))
        sequence += 1
        if count == 1:
            blocks.append(chunk(b"IDAT", compressed))
        else:
            blocks.append(chunk(b"fdAT", sequence.to_bytes(4) + compressed))
            sequence += 1
    header = struct.pack(">2I5B", *frames[0].size, _BITS, pixel_format.color_type, 0, 0, 0)
    start = [SIGNATURE, chunk(b"IHDR", header), *metadata, chunk(b"acTL", struct.pack(">2I", count, plays))]
    return b"".join([*start, *pixel_format.chunks, *blocks, chunk(b"IEND", b"")])


def _pixel_format(frames: Sequence[Frame]) -> _PixelFormat:
    """The one that stores the pixels of all frames without loss in the least bytes."""
    colors: NDArray[np.uint32] | None = np.empty(0, np.uint32)
    opaque = True
    keys = [np.uint32(key) for key in _KEYS]
    for frame in frames:
        pixels = _packed(frame.image)
        found = None if colors is None else palettes.colors_of(pixels, palettes.MAX_COLORS)
        colors = None if colors is None or found is None else np.union1d(colors, found)
        if colors is not None and len(colors) > palettes.MAX_COLORS:
            colors = None
        opaque = opaque and bool((pixels >> _ALPHA == _OPAQUE).all())
        keys = [key for key in keys if not (pixels == key).any()]
    if colors is not None:
        return _Indexed(colors)
    return _Opaque(int(keys[0])) if opaque and keys else _WithAlpha()


def _packed(image: Image.Image) -> _Pixels:
    """The pixels as numbers of `palettes`, but with the color of those that are transparent."""
    pixels: _Pixels = np.asarray(image.convert("RGBA")).view(np.uint32)[..., 0]
    return pixels


def _changes(frames: Sequence[Frame], stray: int) -> Iterator[_Change]:
    """The frames as changes of what is shown. One that changes nothing lengthens the one before."""
    first_duration, *durations = pillow.whole_durations(frames)
    shown = _packed(frames[0].image).copy()
    last = _Change(shown.copy(), (0, 0), first_duration, None)
    for frame, duration in zip(frames[1:], durations, strict=True):
        wanted = _packed(frame.image)
        stays = palettes.difference(shown, wanted) <= stray if stray else shown == wanted
        area = bounds(~stays)
        if area is None:
            last = replace(last, duration=last.duration + duration)
            continue
        yield last
        np.copyto(shown, wanted, where=~stays)
        rows, columns = area
        covers = (wanted[area] >> _ALPHA == _OPAQUE) | stays[area]
        last = _Change(shown[area].copy(), (columns.start, rows.start), duration, stays[area] if covers.all() else None)
    yield last


def _compressed(change: _Change, pixel_format: _PixelFormat, level: int) -> tuple[bytes, int]:
    """The smallest samples of a change, and their blend operation: all pixels, or only those that do not stay."""
    replacing = compress(pixel_format.samples(change.pixels, None), level)
    if change.stays is None or not pixel_format.has_transparent or not change.stays.any():
        return replacing, _REPLACE
    over = compress(pixel_format.samples(change.pixels, change.stays), level)
    return (over, _OVER) if len(over) < len(replacing) else (replacing, _REPLACE)


def _delay(milliseconds: int) -> bytes:
    """A duration as a number of units and the units in a second, which are as short as they can be."""
    for units in _UNITS_PER_SECOND:
        duration = round(milliseconds * units / 1000)
        if duration <= _LONGEST:
            return struct.pack(">2H", duration, units)
    FidelityWarning.issue("timing_rounded", f"PNG shows a frame for at most {_LONGEST} seconds.")
    return struct.pack(">2H", _LONGEST, _UNITS_PER_SECOND[-1])
