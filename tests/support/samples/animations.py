"""GIF and animated PNG made of rectangles, with every disposal, blend, palette and transparency."""

import struct
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from engine import Size
from tests.support.samples.hostile import png_chunk

_CODE_BITS = 9  # of LZW without compression: each index is a code, and the table never grows
_COLOR_TYPES = {"L": 0, "RGB": 2, "P": 3, "LA": 4, "RGBA": 6}


@dataclass(frozen=True)
class Part:
    """A rectangle of an animation: indexes or samples of rows x columns (x bands), and what its header says of it.

    `delay` is in hundredths of a second. `transparent` and `colors`, three bytes each, are those of a GIF.
    """

    pixels: NDArray[np.uint8] | NDArray[np.uint16]
    left: int = 0
    top: int = 0
    disposal: int = 0
    delay: int = 10
    blend: int = 0
    transparent: int | None = None
    colors: bytes = b""
    interlaced: bool = False


def gif_file(size: Size, colors: bytes, parts: Sequence[Part], repeats: int | None = 0) -> bytes:
    """A GIF with these parts; without a value for repeats, it plays once."""
    file = b"GIF89a" + struct.pack("<2H3B", *size, _table_flags(colors), 1, 0) + colors
    if repeats is not None:
        file += b"!\xff\x0bNETSCAPE2.0\x03\x01" + struct.pack("<HB", repeats, 0)
    for part in parts:
        height, width = part.pixels.shape
        flags = part.disposal << 2 | (part.transparent is not None)
        file += struct.pack("<4BHBB", 0x21, 0xF9, 4, flags, part.delay, part.transparent or 0, 0)
        flags = _table_flags(part.colors) | part.interlaced << 6
        file += struct.pack("<B4HB", 0x2C, part.left, part.top, width, height, flags) + part.colors
        rows = [part.pixels[start::step] for start, step in ((0, 8), (4, 8), (2, 4), (1, 2))]
        file += _lzw((np.concatenate(rows) if part.interlaced else part.pixels).tobytes())
    return file + b";"


def _table_flags(colors: bytes) -> int:
    return 0x80 | (len(colors) // 3 - 1).bit_length() - 1 if colors else 0


def _lzw(indexes: bytes) -> bytes:
    codes = [
        256,
        *(code for start in range(0, len(indexes), 250) for code in (256, *indexes[start : start + 250])),
        257,
    ]
    bits = sum(code << _CODE_BITS * number for number, code in enumerate(codes))
    data = bits.to_bytes(-(-_CODE_BITS * len(codes) // 8), "little")
    blocks = (data[start : start + 255] for start in range(0, len(data), 255))
    return b"\x08" + b"".join(bytes([len(block)]) + block for block in blocks) + b"\0"


def apng_file(
    size: Size,
    mode: str,
    parts: Sequence[Part],
    *,
    plays: int = 0,
    default: NDArray[Any] | None = None,
    colors: bytes = b"",
    transparency: bytes = b"",
) -> bytes:
    """An animated PNG with these parts; a default image is none of them."""
    chunks = [
        png_chunk(b"IHDR", struct.pack(">2I5B", *size, 8 * parts[0].pixels.itemsize, _COLOR_TYPES[mode], 0, 0, 0)),
        png_chunk(b"acTL", struct.pack(">2I", len(parts), plays)),
        *([png_chunk(b"PLTE", colors)] if colors else []),
        *([png_chunk(b"tRNS", transparency)] if transparency else []),
        *([] if default is None else [png_chunk(b"IDAT", _deflated(default))]),
    ]
    sequence = 0
    for index, part in enumerate(parts):
        height, width = part.pixels.shape[:2]
        place = width, height, part.left, part.top, part.delay, 100, part.disposal, part.blend
        chunks.append(png_chunk(b"fcTL", struct.pack(">5I2H2B", sequence, *place)))
        sequence += 1
        pixels = _deflated(part.pixels)
        if index == 0 and default is None:
            chunks.append(png_chunk(b"IDAT", pixels))
            continue
        for data in (pixels[:9], pixels[9:]):
            chunks.append(png_chunk(b"fdAT", struct.pack(">I", sequence) + data))
            sequence += 1
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunks) + png_chunk(b"IEND", b"")


def _deflated(pixels: NDArray[Any]) -> bytes:
    return zlib.compress(b"".join(b"\0" + row.astype(row.dtype.newbyteorder(">")).tobytes() for row in pixels))


def random_gif(seed: int) -> bytes:
    """A GIF of rectangles, some beyond the screen, with all disposals and palettes of their own."""
    rng = np.random.default_rng(seed)
    parts = []
    for _ in range(6):
        size = rng.integers(1, 16, 2)
        parts.append(
            Part(
                rng.integers(0, 8, size).astype(np.uint8) // rng.integers(1, 4).astype(np.uint8),
                left=int(rng.integers(0, 18)),
                top=int(rng.integers(0, 18)),
                disposal=int(rng.integers(0, 4)),
                delay=int(rng.integers(0, 30)),
                transparent=int(rng.integers(0, 3)) if rng.random() < 0.5 else None,
                colors=rng.bytes(24) if rng.random() < 0.5 else b"",
                interlaced=rng.random() < 0.3,
            )
        )
    if rng.random() < 0.5:  # otherwise the first one is smaller than the screen, or beyond it
        parts.insert(0, Part(rng.integers(0, 8, (16, 20)).astype(np.uint8), disposal=int(rng.integers(0, 4))))
    return gif_file((20, 16), rng.bytes(24), parts, int(rng.integers(0, 4)))


def random_apng(seed: int) -> bytes:
    """An animated PNG of rectangles with all disposals and blends, in one of the kinds of pixels."""
    rng = np.random.default_rng(seed)
    mode = ("L", "RGB", "P", "LA", "RGBA")[seed % 5]
    bands = {"L": (), "P": (), "LA": (2,), "RGB": (3,), "RGBA": (4,)}[mode]
    levels = 8 if mode == "P" else 3 if mode in ("L", "RGB") else 256  # so that some have the transparent color

    def pixels(height: int, width: int) -> NDArray[np.uint8]:
        return rng.integers(0, levels, (height, width, *bands)).astype(np.uint8)

    parts = [Part(pixels(16, 20), disposal=int(rng.integers(0, 3)), blend=int(rng.integers(0, 2)))]
    for _ in range(6):
        height, width = (int(side) for side in rng.integers(1, 17, 2))
        left, top = int(rng.integers(0, 21 - width)), int(rng.integers(0, 17 - height))
        blend, disposal, delay = (int(rng.integers(0, limit)) for limit in (2, 3, 30))
        parts.append(Part(pixels(height, width), left, top, disposal, delay, blend))
    keys = {"P": rng.bytes(6), "L": struct.pack(">H", 1), "RGB": struct.pack(">3H", 1, 2, 0)}
    return apng_file(
        (20, 16),
        mode,
        parts,
        plays=int(rng.integers(0, 4)),
        default=pixels(16, 20) if rng.random() < 0.3 else None,
        colors=rng.bytes(24) if mode == "P" else b"",
        transparency=keys.get(mode, b"") if rng.random() < 0.6 else b"",
    )
