"""GIF, still and animated."""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import count, islice, pairwise
from typing import TYPE_CHECKING

from PIL import Image
from PIL.PngImagePlugin import Disposal

from engine import (
    MAX_FRAMES,
    RASTER,
    FidelityWarning,
    FileFormat,
    Frame,
    Loss,
    Raster,
    Signature,
    Size,
    TargetCapabilities,
    any_of,
    check_size,
    conversion,
    ends_with,
    lazy_imports,
)
from engine.option_types import Pages
from plugins._metadata import writing
from plugins._pixels import animations, pillow
from plugins._pixels.animations import Block

if TYPE_CHECKING:
    from numpy.typing import NDArray

with lazy_imports():
    import numpy as np

_TRAILER = b";"
_DESCRIPTOR = struct.Struct("<4HB")  # of an image: its corner, its size and flags

GIF = FileFormat(
    "gif",
    media_type="image/gif",
    extensions=("gif",),
    sniff=any_of(Signature((0, b"GIF89a")), Signature((0, b"GIF87a"))),
    animated=True,
    is_complete=ends_with(_TRAILER),
)

MODULES = ("numpy",)
_MODES = ("L", "P", "PA", "RGB", "RGBA")
_CAPABILITIES = TargetCapabilities(_MODES, animation_modes=_MODES, max_side=65_535, metadata=frozenset({"text"}))
_LOOPING = b"NETSCAPE2.0\x03\x01"
_OPAQUE = 128  # the least alpha of an opaque pixel; GIF has one bit of it
_COLORS = 256  # colors of a frame, with the transparent one
_PART = 1 << 16  # pixels that are looked up at a time
_BLOCK = re.compile(rb"[!,;]")  # the first bytes of an extension, an image and the end
_CONTROL = b"\xf9"  # the extension of transparency and timing
_HAS_COLORS = 0x80
_INTERLACED = 0x40
_GRAYS = bytes(level for level in range(256) for _ in range(3))
_DISPOSALS = (0, 0, 1, 2, 2, 0, 0, 0)  # Pillow's by the number in a file; browsers take 4 for 3
# Disposal methods: keep the frame, or clear to transparency.
_KEEP = 1
_CLEAR = 2
_SPARSE = 0.5  # the share of changed pixels up to which only they are reduced; among more, gaps compress badly
_UNIT = 10  # milliseconds; browsers play frames of at most one unit, of any format, as ten
_SHORTEST = 2  # units of a frame that browsers play in time
_TOLERANCE = 0.01  # milliseconds; sources store fractions


@conversion(GIF, RASTER)
def decode(data: bytes, *, pages: Pages | None = None) -> Raster:
    image = pillow.open_image(data, "GIF")
    blocks = list(islice(_read_blocks(data), MAX_FRAMES + 1))
    return replace(animations.to_raster(image, blocks, pages), loop_count=_loop_count(data))


def _read_blocks(data: bytes) -> Iterator[Block]:
    """The images of a file. Issues a FidelityWarning if the trailer is missing after them."""
    shared, position = _read_colors(data, data[10], 13)
    control = bytes(4)
    while (start := _BLOCK.search(data, position)) and start[0] != _TRAILER:
        position = start.end()
        if start[0] == b"!":
            if data[position : position + 1] == _CONTROL:
                control = data[position + 2 : position + 6]
            position = _end_of_parts(data, position + 1)
            continue
        if position + _DESCRIPTOR.size > len(data):
            break
        left, top, width, height, flags = _DESCRIPTOR.unpack_from(data, position)
        colors, begin = _read_colors(data, flags, position + 9)
        position = _end_of_parts(data, begin + 1)
        box = left, top, left + width, top + height
        check_size(*box[2:])  # the canvas of readers that grow it to show the whole frame
        yield _block(box, colors or shared, control, data[begin:position], interlaced=bool(flags & _INTERLACED))
        control = bytes(4)
    if start is None or start[0] != _TRAILER:
        FidelityWarning.issue("repaired", "The end of the GIF is missing, and with it any further frames.")


def _block(box: tuple[int, int, int, int], colors: bytes, control: bytes, content: bytes, *, interlaced: bool) -> Block:
    packed, delay, transparent = struct.unpack("<BHB", control)
    is_gray = colors == _GRAYS[: len(colors)]

    def decode() -> Image.Image:
        size = box[2] - box[0], box[3] - box[1]
        image = Image.frombytes("L", size, content[1:], "gif", content[0], interlaced, -1)
        if not is_gray:
            image.putpalette(colors)
        if packed & 1:
            image.info["transparency"] = transparent
        return image

    disposal = Disposal(_DISPOSALS[packed >> 2 & 7])
    return Block(box, decode, delay * _UNIT, disposal, gray=is_gray, opaque=not packed & 1)


def _read_colors(data: bytes, flags: int, start: int) -> tuple[bytes, int]:
    """The table of colors that `flags` announce at `start`, empty if there is none, and its end."""
    end = start + (3 << (flags & 7) + 1 if flags & _HAS_COLORS else 0)
    return data[start:end], end


def _end_of_parts(data: bytes, start: int) -> int:
    """The end of the parts of a block, of which the last is empty."""
    while start < len(data) and (size := data[start]):
        start += 1 + size
    return start + 1


def _loop_count(data: bytes) -> int:
    """How often the animation plays: 1 without the looping extension, which counts repetitions; 0: forever."""
    offset = data.find(_LOOPING)
    if offset < 0:
        return 1
    repeats = int.from_bytes(data[offset + len(_LOOPING) :][:2], "little")
    return repeats + 1 if repeats else 0


@conversion(RASTER, GIF, loss=Loss.DETAIL, cost=2, memory=16, capabilities=_CAPABILITIES, in_dry_run=True)
def encode(raster: Raster) -> bytes:
    """Each frame has a palette of its own, with exactly its colors if there are at most 256."""
    frames = list(raster.frames)
    comment = b"\n".join(writing.comments(raster)) or None
    if len(frames) == 1:
        return pillow.encode(_to_still(frames[0].image), "GIF", comment=comment)
    frames, disposal = _with_palettes(_with_whole_durations(frames))
    parameters = pillow.animation_parameters(raster, frames) | {"comment": comment}
    if raster.loop_count:
        # GIF counts repetitions after the first play; no value means none.
        parameters["loop"] = raster.loop_count - 1 or None
    return pillow.encode(frames[0].image, "GIF", disposal=disposal, **parameters)


def _with_whole_durations(frames: list[Frame]) -> list[Frame]:
    """The frames with durations in hundredths of a second; the end of each is at most one hundredth off.

    Leaves out frames that would be too short for browsers, which would play them in a tenth of a second.
    """
    timed: list[Frame] = []
    ends = rounded = 0.0
    for frame in frames:
        ends += frame.duration / _UNIT
        units = round(ends - rounded)
        if frame.duration > _UNIT:
            if ends - rounded < 1:
                timed[-1] = replace(frame, duration=timed[-1].duration)
                continue
            units = max(units, _SHORTEST)
        rounded += units
        timed.append(replace(frame, duration=float(units * _UNIT)))
    changes = [abs(after.duration - before.duration) for before, after in zip(frames, timed, strict=False)]
    if len(timed) < len(frames) or max(changes) > _TOLERANCE:
        FidelityWarning.issue("timing_rounded", "GIF stores durations in hundredths of a second.")
    return timed


def _with_palettes(frames: list[Frame]) -> tuple[list[Frame], int]:
    """The frames with palettes, and the disposal method of all.

    Where no pixel becomes transparent again, a frame shows only what has changed; without a change, the frame before is
    shown longer. A frame can so have 256 new colors besides those that stay.
    """
    masks = [_opaque(frame.image) for frame in frames]
    clears = any(after is not None and (before is None or (before & ~after).any()) for before, after in pairwise(masks))
    kept: list[tuple[Frame, _Indexed]] = []
    before = None
    for frame, mask in zip(frames, masks, strict=True):
        image = frame.image.convert("RGB")
        pixels = _packed(image) if mask is None else _packed(image) * mask
        shown = mask
        if before is not None and not clears:
            shown = (pixels != before) & (pixels > 0)
            if not shown.any():
                kept[-1] = (replace(kept[-1][0], duration=kept[-1][0].duration + frame.duration), kept[-1][1])
                continue
        before = pixels
        reduced = shown if shown is not None and shown.mean() <= _SPARSE else mask
        kept.append((frame, _exact(image, shown) or _exact(image, mask) or _reduced(image, reduced, dither=False)))
    # Pillow takes opaque pixels for background if they have the color of the transparent ones.
    used = {color for _, indexed in kept for color in indexed.colors}
    spare = next(color for color in count() if color not in used)
    return [replace(frame, pixels=indexed.image(spare)) for frame, indexed in kept], _CLEAR if clears else _KEEP


def _opaque(image: Image.Image) -> NDArray[np.bool_] | None:
    """Where `image` is opaque. None if it is everywhere."""
    if image.mode not in ("LA", "RGBA") and "transparency" not in image.info:
        return None
    alpha = np.asarray(image.convert("RGBA").getchannel("A"))
    if ((alpha > 0) & (alpha < 255)).any():
        _warn_thresholded()
    opaque: NDArray[np.bool_] = alpha >= _OPAQUE
    return None if opaque.all() else opaque


def _warn_thresholded() -> None:
    FidelityWarning.issue("alpha_thresholded", "Pixels of GIF are either transparent or opaque.")


def _packed(image: Image.Image) -> NDArray[np.uint32]:
    """The pixels of an RGB image as a number above 0 each."""
    return np.asarray(image.convert("RGBX")).view(np.uint32)[..., 0]


@dataclass
class _Indexed:
    """An image as indexes into a palette of `colors` (0xRRGGBB). The index after the last color is transparent."""

    indexes: NDArray[np.uint8]
    colors: list[int]
    transparent: bool

    def image(self, transparent_color: int) -> Image.Image:
        image = Image.fromarray(self.indexes)
        colors = [*self.colors, transparent_color] if self.transparent else self.colors
        image.putpalette(b"".join(color.to_bytes(3) for color in colors))
        if self.transparent:
            image.info["transparency"] = len(self.colors)
        return image


def _to_still(image: Image.Image) -> Image.Image:
    """`image` with at most 256 colors, dithered if colors are lost."""
    if image.mode in ("L", "P"):
        return _with_one_transparent_color(image)
    rgb = image.convert("RGB")
    mask = _opaque(image)
    return (_exact(rgb, mask) or _reduced(rgb, mask, dither=True)).image(0)


def _exact(image: Image.Image, mask: NDArray[np.bool_] | None) -> _Indexed | None:
    """An RGB image with a palette of all colors inside the mask; outside, it is transparent. None for too many."""
    shown = image if mask is None else _strip(image, mask)
    found = shown.getcolors(_COLORS if mask is None else _COLORS - 1)
    if found is None:
        return None
    colors = sorted(_number(*color) for _, color in found)  # type: ignore[misc]
    return _place(_look_up(np.asarray(shown).reshape(-1, 3), colors), colors, image.size, mask)


def _reduced(image: Image.Image, mask: NDArray[np.bool_] | None, *, dither: bool) -> _Indexed:
    """As `_exact`, with the colors that represent the others best."""
    FidelityWarning.issue("colors_reduced", "The target supports 256 colors.")
    shown = image if mask is None else _strip(image, mask)
    paletted = shown.quantize(_COLORS if mask is None else _COLORS - 1, method=Image.Quantize.MEDIANCUT)
    samples = paletted.getpalette() or []
    colors = [_number(*samples[start : start + 3]) for start in range(0, len(samples), 3)]
    if dither:
        paletted = image.quantize(palette=paletted, dither=Image.Dither.FLOYDSTEINBERG)
    indexes = np.asarray(paletted)
    return _place(indexes[mask] if dither and mask is not None else indexes.ravel(), colors, image.size, mask)


def _strip(image: Image.Image, mask: NDArray[np.bool_]) -> Image.Image:
    """The pixels inside the mask as an image of one row; a black pixel if there are none."""
    pixels = _packed(image)[mask] if mask.any() else np.zeros(1, np.uint32)
    return Image.frombytes("RGB", (pixels.size, 1), pixels.tobytes(), "raw", "RGBX")


def _place(indexes: NDArray[np.uint8], colors: list[int], size: Size, mask: NDArray[np.bool_] | None) -> _Indexed:
    """The indexes of the pixels inside the mask as an image."""
    if mask is None:
        return _Indexed(indexes.reshape(size[::-1]), colors, transparent=False)
    placed = np.full(mask.shape, len(colors), np.uint8)
    np.place(placed, mask, indexes)
    return _Indexed(placed, colors, transparent=True)


def _number(red: int, green: int, blue: int) -> int:
    return red << 16 | green << 8 | blue


def _look_up(samples: NDArray[np.uint8], colors: list[int]) -> NDArray[np.uint8]:
    """The indexes of the samples in the sorted `colors`, which contain all of them."""
    table = np.array(colors, np.uint32)
    indexes = np.empty(len(samples), np.uint8)
    for start in range(0, len(samples), _PART):
        red, green, blue = samples[start : start + _PART].astype(np.uint32).T
        indexes[start : start + _PART] = np.searchsorted(table, red << 16 | green << 8 | blue)
    return indexes


def _with_one_transparent_color(image: Image.Image) -> Image.Image:
    """An image whose palette may have an alpha per color, with at most one color that is transparent."""
    alphas = image.info.get("transparency")
    if not isinstance(alphas, bytes):
        return image
    if any(0 < alpha < 255 and pixels for alpha, pixels in zip(alphas, image.histogram(), strict=False)):
        _warn_thresholded()
    transparent = [color for color, alpha in enumerate(alphas) if alpha < _OPAQUE]
    merged = image.point([transparent[0] if color in transparent else color for color in range(256)])
    del merged.info["transparency"]
    if transparent:
        merged.info["transparency"] = transparent[0]
    return merged
