"""GIF, still and animated."""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import islice
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
    OptionValues,
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
from engine.option_types import Colors, Dither, Lossy, Pages, Quality
from plugins._metadata import writing
from plugins._pixels import animations, palette_frames, palettes, pillow
from plugins._pixels.animations import Block
from plugins._pixels.palette_frames import PaletteFrame, Reduction
from plugins._pixels.palettes import Palette

if TYPE_CHECKING:
    from numpy.typing import NDArray

with lazy_imports():
    import imagecodecs
    import numpy as np

_TRAILER = b";"
_SCREEN = struct.Struct("<2H3B")  # Width, height, flags, background color and aspect ratio.
_DESCRIPTOR = struct.Struct("<4HB")  # of an image: its corner, its size and flags

GIF = FileFormat(
    "gif",
    media_type="image/gif",
    extensions=("gif",),
    sniff=any_of(Signature((0, b"GIF89a")), Signature((0, b"GIF87a"))),
    animated=True,
    is_complete=ends_with(_TRAILER),
)

MODULES = ("imagecodecs._gif", *palette_frames.MODULES)
_MODES = ("L", "P", "PA", "RGB", "RGBA")
_FULL_QUALITY = 100
_LOSSY_BY_QUALITY = 2  # so that the option `lossy` is 198 at the lowest quality
_CAPABILITIES = TargetCapabilities(_MODES, animation_modes=_MODES, max_side=65_535, metadata=frozenset({"text"}))
_LOOPING = b"NETSCAPE2.0\x03\x01"
_OPAQUE = 128  # the least alpha of an opaque pixel; GIF has one bit of it
_BLOCK = re.compile(rb"[!,;]")  # the first bytes of an extension, an image and the end
_CONTROL = b"\xf9"  # the extension of transparency and timing
_HAS_COLORS = 0x80
_INTERLACED = 0x40
_DEEPEST = 0x70  # the samples of the source have 8 bits
_ALPHA = 0xFF << 24
_EMPTY_FILE = 1024  # bytes; the most that giflib writes besides the codes
_SUB_BLOCK = 255  # bytes
_END = b"\0"  # The block of no bytes ends a sequence of sub-blocks.
_MAX_PLAYS = 65_536  # one and the repetitions
_LONGEST = 65_535  # units
_GRAYS = bytes(level for level in range(256) for _ in range(3))
_DISPOSALS = (0, 0, 1, 2, 2, 0, 0, 0)  # Pillow's by the number in a file; browsers take 4 for 3
# Disposal methods: keep the frame, or clear to transparency.
_KEEP = 1
_CLEAR = 2
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


def _holds(options: OptionValues) -> TargetCapabilities:
    """Without `max_bytes`, there is no quality: `colors` and `lossy` say what is lost."""
    return _CAPABILITIES if options.get("max_bytes") else replace(_CAPABILITIES, without=frozenset({"quality"}))


@conversion(RASTER, GIF, loss=Loss.DETAIL, cost=2, memory=16, capabilities=_holds, in_dry_run=True)
def encode(
    raster: Raster,
    *,
    colors: Colors | None = None,
    dither: Dither | None = None,
    lossy: Lossy | None = None,
    quality: Quality | None = None,
) -> bytes:
    """Frames have exactly their colors if they add at most 256; else a palette of the clip, or of a scene of it.

    A quality below 100 takes colors away, and lets pixels of animations stray.
    """
    frames = list(raster.frames)
    most = colors or palettes.MAX_COLORS
    stray = palette_frames.stray(lossy)
    if quality is not None:
        most = max(palettes.MIN_COLORS, most * quality // _FULL_QUALITY)
        stray = max(stray, palette_frames.stray(_LOSSY_BY_QUALITY * (_FULL_QUALITY - quality)))
    if len(frames) == 1:
        if lossy:
            FidelityWarning.issue("option_ignored", "Options without effect on a GIF that is not animated: lossy.")
        parts = [palette_frames.still(frames[0], _packed, Reduction(most, 1 if dither is None else dither))]
    else:
        reduction = Reduction(most, dither or 0, stray)
        parts = list(palette_frames.changes(_with_whole_durations(frames), _packed, reduction))
    plays = animations.plays(raster, _MAX_PLAYS) if len(frames) > 1 else 1
    return _file(frames[0].size, parts, plays, b"\n".join(writing.comments(raster)))


def _file(size: Size, parts: Sequence[PaletteFrame], plays: int, comment: bytes) -> bytes:
    shared = parts[0].palette
    clears = any(part.clears for part in parts)  # Pillow clears to transparency after a frame that has it
    flags, table = _table(shared)
    blocks = [b"GIF89a", _SCREEN.pack(*size, flags | _DEEPEST, 0, 0), table]
    if plays != 1:
        # GIF counts repetitions after the first play.
        blocks += [b"!\xff\x0b", _LOOPING, struct.pack("<H", max(plays - 1, 0)), _END]
    if comment:
        blocks += [b"!\xfe", *_sub_blocks(comment), _END]
    for part in parts:
        if part.palette is not shared:
            part = palette_frames.with_used_colors(part)
        transparent = part.palette.transparent
        is_seen = transparent is not None and (clears or bool((part.indexes == transparent).any()))
        flags = (_CLEAR if part.clears else _KEEP) << 2 | is_seen
        duration = round(part.duration / _UNIT)
        if duration > _LONGEST:
            FidelityWarning.issue("timing_rounded", "GIF shows a frame for at most 655.35 seconds.")
            duration = _LONGEST
        blocks += [b"!", _CONTROL, b"\x04", struct.pack("<BHB", flags, duration, transparent or 0), _END]
        height, width = part.indexes.shape
        flags, table = (0, b"") if part.palette is shared else _table(part.palette)
        blocks += [b",", _DESCRIPTOR.pack(*part.corner, width, height, flags), table, _compressed(part.indexes)]
    return b"".join([*blocks, _TRAILER])


def _table(palette: Palette) -> tuple[int, bytes]:
    """The flags of a table of colors, and the table, which has a power of two of them."""
    entries = max(2, len(palette.colors) + (palette.transparent is not None))
    bits = (entries - 1).bit_length()
    return _HAS_COLORS | bits - 1, palette.samples[:, :3].tobytes().ljust(3 << bits, b"\0")


def _compressed(indexes: NDArray[np.uint8]) -> bytes:
    """The bits of an index and the compressed indexes of an image."""
    colors = np.zeros((palettes.MAX_COLORS, 3), np.uint8)
    most = _EMPTY_FILE + 2 * indexes.size  # codes have at most 12 bits; imagecodecs would reserve less
    file = bytes(imagecodecs.gif_encode(np.ascontiguousarray(indexes), colormap=colors, out=most))
    start = file.index(b",", 13 + 3 * palettes.MAX_COLORS)
    return file[start + 1 + _DESCRIPTOR.size : -len(_TRAILER)]


def _sub_blocks(content: bytes) -> Iterator[bytes]:
    for start in range(0, len(content), _SUB_BLOCK):
        part = content[start : start + _SUB_BLOCK]
        yield bytes([len(part)]) + part


def _with_whole_durations(frames: list[Frame]) -> list[Frame]:
    """The frames with durations in hundredths of a second; the end of each is at most one hundredth off.

    Leaves out frames that would be too short for browsers, which would play them in a tenth of a second.
    """
    timed: list[Frame] = []
    ends = rounded = 0.0
    for frame in frames:
        ends += frame.duration / _UNIT
        units = max(round(ends - rounded), 0)
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


def _packed(image: Image.Image) -> NDArray[np.uint32]:
    """The pixels as numbers of `palettes`, opaque or transparent. Issues a FidelityWarning if others were not."""
    samples = np.asarray(image.convert("RGBA"))
    pixels: NDArray[np.uint32] = samples.view(np.uint32)[..., 0]
    if not image.has_transparency_data:
        return pixels
    alpha = samples[..., 3]
    if ((alpha > 0) & (alpha < 255)).any():
        FidelityWarning.issue("alpha_thresholded", "Pixels of GIF are either transparent or opaque.")
    pixels = pixels | np.uint32(_ALPHA)
    pixels[alpha < _OPAQUE] = 0
    return pixels
