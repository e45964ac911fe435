"""Radiance HDR: RGB with 8 bits per sample and a common exponent, in linear light. Also XYZ in."""

from __future__ import annotations

import re
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from engine import (
    PRIMARIES,
    RASTER,
    Content,
    CorruptInput,
    DeepPixels,
    FileFormat,
    Loss,
    Primaries,
    Raster,
    Signature,
    Size,
    TargetCapabilities,
    any_of,
    check_size,
    conversion,
    lazy_imports,
)
from engine.option_types import Exposure
from plugins._color import cicp
from plugins._pixels import linear_light, pillow

if TYPE_CHECKING:
    from numpy.typing import NDArray

with lazy_imports():
    import imagecodecs
    import numpy as np

_MAX_HEADER = 1 << 16  # bytes
_SIZE = re.compile(rb"^([-+])([XY]) +(\d+) +([-+])([XY]) +(\d+)[ \r]*$")
_ORIENTATIONS = {"-Y+X": 1, "-Y-X": 2, "+Y-X": 3, "+Y+X": 4, "-X-Y": 6, "-X+Y": 7, "+X-Y": 5, "+X+Y": 8}
_XYZ = 10  # primaries
_PIXEL_BYTES = 4
# The widths of rows whose runs are by component.
_MIN_RUNS = 8
_MAX_RUNS = 0x7FFF
_MAX_RUN = 128  # samples of a run
_HEADER = 1024  # bytes, of which a header needs fewer
_LARGEST = 1e37
_MANTISSA = 256


def _sniff(content: Content) -> int:
    """The length of the signature if the format of the pixels follows in the header."""
    header = content[:_MAX_HEADER].partition(b"\n\n")[0]
    return 10 if b"FORMAT=32-bit_rle_" in header or _SIZE.search(header.rpartition(b"\n")[2]) else 0


HDR = FileFormat(
    "hdr",
    media_type="image/vnd.radiance",
    extensions=("hdr", "rgbe", "xyze", "pic"),
    sniff=any_of(Signature((0, b"#?RADIANCE"), then=_sniff), Signature((0, b"#?RGBE"), then=_sniff)),
    bytes_per_pixel=0.5,
)

MODULES = ("imagecodecs._rgbe",)


class _Header(NamedTuple):
    columns: int
    rows: int
    orientation: int
    start: int
    primaries: Primaries

    @property
    def upright_size(self) -> Size:
        return (self.rows, self.columns) if self.orientation >= 5 else (self.columns, self.rows)


@conversion(HDR, RASTER, cost=2, memory=40, isolated=True)
def decode(data: bytes, *, exposure: Exposure = 0) -> Raster:
    header = _read_header(data)
    check_size(header.columns, header.rows)
    return linear_light.raster(partial(_read, data, header), "RGB", header.upright_size, bits=16, exposure=exposure)


def _read_header(data: bytes) -> _Header:
    end = data.find(b"\n\n", 0, _MAX_HEADER)
    line_end = data.find(b"\n", end + 2, end + 2 + 100)
    found = _SIZE.match(data[end + 2 : line_end]) if 0 <= end < line_end else None
    orientation = found and _ORIENTATIONS.get(b"".join(found.group(1, 2, 4, 5)).decode())
    if found is None or orientation is None or int(found[3]) == 0 or int(found[6]) == 0:
        raise CorruptInput("The header states no size.")
    values = dict(line.split(b"=", 1) for line in data[:end].split(b"\n") if b"=" in line)
    xyz = values.get(b"FORMAT", b"").strip() == b"32-bit_rle_xyze"
    primaries = PRIMARIES[_XYZ] if xyz else _read_primaries(values.get(b"PRIMARIES", b""))
    return _Header(int(found[6]), int(found[3]), orientation, line_end + 1, primaries)


def _read_primaries(text: bytes) -> Primaries:
    """Converts the header's chromaticities of red, green, blue and white. Invalid ones are replaced by sRGB's."""
    try:
        x_red, y_red, x_green, y_green, x_blue, y_blue, *white = map(float, text.split())
        primaries = (*white, x_red, y_red, x_green, y_green, x_blue, y_blue)
    except ValueError:
        return cicp.SRGB
    return primaries if len(white) == 2 and cicp.are_valid(primaries) else cicp.SRGB


def _read(data: bytes, header: _Header) -> NDArray[np.float32]:
    body = data[header.start :]
    if _MIN_RUNS <= header.columns <= _MAX_RUNS and body[:2] == b"\2\2":
        size = f"-Y {header.rows} +X {header.columns}\n".encode()
        array = imagecodecs.rgbe_decode(b"#?RADIANCE\nFORMAT=32-bit_rle_rgbe\n\n" + size + body)
    else:
        array = _without_exponent(_expand(body, header.rows * header.columns))
        array = array.reshape(header.rows, header.columns, 3)
    if array.shape != (header.rows, header.columns, 3):
        raise CorruptInput("The file has other pixels than its header states.")
    array = pillow.apply_orientation(array, header.orientation)
    return linear_light.from_primaries(header.primaries, np.asarray(array, np.float32))


def _expand(body: bytes, count: int) -> NDArray[np.uint8]:
    """Pixels of rows without runs, or with runs of whole pixels, which are marked by 1, 1, 1 and their length."""
    pixels = np.frombuffer(body, np.uint8, len(body) // _PIXEL_BYTES * _PIXEL_BYTES).reshape(-1, _PIXEL_BYTES)
    marks = (pixels[:, :3] == 1).all(axis=1)
    # Lengths of marks that follow each other are digits, the lowest first.
    digit = np.zeros(len(pixels), np.int64)
    for index in np.flatnonzero(marks[1:]) + 1:
        digit[index] = digit[index - 1] + 1 if marks[index - 1] else 0
    lengths = np.where(marks, pixels[:, 3].astype(np.int64) << (8 * np.minimum(digit, 3)), 1)
    ends = np.cumsum(lengths)
    needed = int(np.searchsorted(ends, count)) + 1
    if needed > len(pixels) or marks[:1].any():
        raise CorruptInput("The file is truncated.")
    source = np.maximum.accumulate(np.where(marks[:needed], 0, np.arange(needed)))
    return np.repeat(pixels[source], lengths[:needed], axis=0)[:count]


def _without_exponent(pixels: NDArray[np.uint8]) -> NDArray[np.float32]:
    scale = np.where(pixels[:, 3] > 0, np.exp2(pixels[:, 3].astype(np.float32) - 136), 0).astype(np.float32)
    return pixels[:, :3] * scale[:, None]


_CAPABILITIES = TargetCapabilities(("RGB",), linear=True, max_side=_MAX_RUNS)


@conversion(RASTER, HDR, loss=Loss.DETAIL, cost=2, memory=50, capabilities=_CAPABILITIES)
def encode(raster: Raster) -> bytes:
    frame = raster.first_frame()
    assert isinstance(frame.pixels, DeepPixels)
    width, height = frame.size
    # Each component of a row, which has a header, takes a byte per run more than its samples if none of them repeats.
    # imagecodecs would reserve less, and fail for narrow images.
    size = _HEADER + height * _PIXEL_BYTES * (1 + width + -(-width // _MAX_RUN))
    return bytes(imagecodecs.rgbe_encode(_rounded(frame.pixels.array), header=True, rle=width >= _MIN_RUNS, out=size))


def _rounded(array: NDArray[np.float32]) -> NDArray[np.float32]:
    """The nearest values that a common exponent allows, and a bit more, because the encoder rounds them down."""
    finite = np.clip(np.nan_to_num(array, nan=0), 0, _LARGEST)
    # The brightest component may be rounded up to the next power of two.
    exponent = np.frexp(finite.max(axis=2) * np.float32(_MANTISSA / (_MANTISSA - 0.5)))[1]
    unit = np.exp2(exponent).astype(np.float32)[..., None] / _MANTISSA
    rounded: NDArray[np.float32] = (np.floor(finite / unit + 0.5) + 0.25) * unit
    return rounded
