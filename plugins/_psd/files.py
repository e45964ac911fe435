"""PSD and PSB files: reads header, image resources and the merged image with its channels, but no layers.

Written are the merged image, and one layer if it is transparent, because only layers can be.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from imagecodecs import packbits_encode
from numpy.typing import NDArray
from PIL import Image
from psd_tools.compression import decode_prediction, decode_rle

from engine import CorruptInput, DeepPixels, check_size

# Color modes.
BITMAP = 0
GRAY = 1
INDEXED = 2
RGB = 3
CMYK = 4
MULTICHANNEL = 7
DUOTONE = 8
LAB = 9

_HEADER = struct.Struct(">4sH6xHIIHH")
_PSB = 2  # version
_RAW, _RLE, _ZIP, _ZIP_WITH_PREDICTION = range(4)
_SAMPLE_TYPES = {1: "u1", 8: "u1", 16: ">u2", 32: ">f4"}
# Bytes.
_MIN_RESOURCE = 11
_MIN_BLOCK = 12
# Resource, and the offset in it of whether the file has a merged image.
_VERSION_INFO = 1057
_MERGED_FLAG = 4

_EFFECTS = frozenset({b"lfx2", b"lmfx", b"lrFX"})
_LONG = frozenset(
    {b"Alph", b"FEid", b"FMsk", b"FXid", b"LMsk", b"PxSD", b"cinf", b"lnk2"}
)  # blocks with a length of 8 bytes in PSB
# Blocks after the layers. In PSB, these and others have a length of 8 bytes; the others are never before these.
_LAYERS = frozenset({b"Lr16", b"Lr32", b"Layr"})
_TRANSPARENCY = frozenset({b"Mt16", b"Mt32", b"Mtrn"})


class _Cursor:
    """A position in a file or a section of it. Raises CorruptInput at the end of the data."""

    def __init__(self, data: memoryview) -> None:
        self._data = data
        self._position = 0

    def __len__(self) -> int:
        return len(self._data) - self._position

    def take(self, size: int) -> memoryview:
        if size > len(self):
            raise CorruptInput("The file is truncated.")
        self._position += size
        return self._data[self._position - size : self._position]

    def integer(self, size: int) -> int:
        return int.from_bytes(self.take(size), "big")

    def rest(self) -> memoryview:
        return self.take(len(self))

    def section(self, length_size: int = 4) -> _Cursor:
        """The content of a section that begins with its length."""
        return _Cursor(self.take(self.integer(length_size)))


class Layers(NamedTuple):
    """Facts about the layers, of which one may be the background only.

    `has_alpha`: the first channel after the colors is the transparency of the merged image. Without it, all further
    channels are saved selections or spot colors. `has_effects`: the only layer has effects.
    """

    number: int = 0
    has_alpha: bool = False
    has_effects: bool = False


@dataclass(frozen=True)
class PsdFile:
    """The parts of a file without its layers. `palette` is the data of the color mode."""

    version: int
    channels: int
    width: int
    height: int
    depth: int
    mode: int
    palette: bytes
    resources: Mapping[int, bytes]
    layers: Layers
    _merged: memoryview = field(repr=False)

    @property
    def has_merged_image(self) -> bool:
        """Whether the file has a merged image. Photoshop writes a white one if it saves only layers."""
        version = self.resources.get(_VERSION_INFO, b"")
        return len(self._merged) > 2 and (len(version) <= _MERGED_FLAG or version[_MERGED_FLAG] > 0)

    def planes(self, count: int) -> NDArray[Any]:
        """The first `count` channels of the merged image: channels x height x width; width in bytes for bitmaps.

        Raises CorruptInput.
        """
        merged = _Cursor(self._merged)
        samples = self._decompress(merged.integer(2), merged, count * self.height, (self.width * self.depth + 7) // 8)
        planes: NDArray[Any] = np.frombuffer(samples, _SAMPLE_TYPES[self.depth])
        return planes.reshape(count, self.height, -1)

    def _decompress(self, compression: int, merged: _Cursor, rows: int, row_bytes: int) -> bytes | memoryview:
        if compression == _RAW:
            return merged.take(rows * row_bytes)
        if compression == _RLE:
            count_bytes = 2 * self.version
            counts = merged.take(self.channels * self.height * count_bytes)[: rows * count_bytes]
            packed = merged.take(int(np.frombuffer(counts, f">u{count_bytes}").sum(dtype=np.int64)))
            rle: bytes = decode_rle(bytes(counts) + packed, self.width, rows, self.depth, self.version)
            return rle
        if compression not in (_ZIP, _ZIP_WITH_PREDICTION):
            raise CorruptInput("The merged image has an unknown compression.")
        try:
            samples = zlib.decompressobj().decompress(merged.rest(), rows * row_bytes)
        except zlib.error as error:
            raise CorruptInput("The merged image cannot be decompressed.") from error
        if len(samples) < rows * row_bytes:
            raise CorruptInput("The file is truncated.")
        if compression == _ZIP_WITH_PREDICTION:
            samples = decode_prediction(samples, self.width, rows, self.depth)
        return samples


def read(data: bytes) -> PsdFile:
    """Reads everything but the samples. Raises CorruptInput, and TooLarge for too many pixels."""
    file = _Cursor(memoryview(data))
    signature, version, channels, height, width, depth, mode = _HEADER.unpack(file.take(_HEADER.size))
    if signature != b"8BPS" or version not in (1, _PSB) or depth not in _SAMPLE_TYPES or not width * height:
        raise CorruptInput("The header of the file is invalid.")
    check_size(width, height)
    palette = bytes(file.section().rest())
    resources = dict(_resources(file.section()))
    layers = _read_layers(file.section(4 * version), version)
    return PsdFile(
        version=version,
        channels=channels,
        width=width,
        height=height,
        depth=depth,
        mode=mode,
        palette=palette,
        resources=resources,
        layers=layers,
        _merged=file.rest(),
    )


def _resources(section: _Cursor) -> Iterator[tuple[int, bytes]]:
    """The numbers and contents of image resources. Stops at invalid ones, because the image can do without."""
    while len(section) > _MIN_RESOURCE:
        try:
            section.take(4)  # the signature, of which there are several
            number = section.integer(2)
            name_size = section.integer(1)
            section.take(name_size | 1)  # padded, with its length, to an even number of bytes
            content = bytes(section.section().rest())
        except CorruptInput:
            return
        if len(content) % 2 and len(section):
            section.take(1)
        yield number, content


def _read_layers(section: _Cursor, version: int) -> Layers:
    if not len(section):
        return Layers()
    content = section.section(4 * version)
    if len(content) >= 2 or not len(section):
        return _read_records(content, version)
    # Files with 16 and 32 bits per sample have the layers in a block.
    section.section()  # mask
    layers = Layers()
    while len(section) >= _MIN_BLOCK and bytes(section.take(4)) in (b"8BIM", b"8B64"):
        key = bytes(section.take(4))
        content = section.section(4 * version if key in _LAYERS | _TRANSPARENCY else 4)
        section.take(min(-len(content) % 4, len(section)))
        if key in _LAYERS:
            found = _read_records(content, version)
            layers = found._replace(has_alpha=found.has_alpha or layers.has_alpha)
        if key in _TRANSPARENCY:
            layers = layers._replace(has_alpha=True)
    return layers


def _read_records(content: _Cursor, version: int) -> Layers:
    if len(content) < 2:
        return Layers()
    count = int.from_bytes(content.take(2), "big", signed=True)  # negative: the merged image has transparency
    has_effects = False
    if abs(count) == 1:
        with suppress(CorruptInput):  # the image can do without its layers
            has_effects = _has_effects(content, version)
    return Layers(abs(count), count < 0, has_effects)


def _has_effects(record: _Cursor, version: int) -> bool:
    record.take(16)  # rectangle
    record.take(record.integer(2) * (2 + 4 * version))  # channels
    record.take(12)  # blending
    extra = record.section()
    extra.section()  # mask
    extra.section()  # blending ranges
    extra.take(extra.integer(1) // 4 * 4 + 3)  # name
    while len(extra) >= _MIN_BLOCK:
        extra.take(4)  # the signature
        key = bytes(extra.take(4))
        if key in _EFFECTS:
            return True
        extra.section(4 * version if key in _LONG else 4)
    return False


_MODES = {"1": BITMAP, "L": GRAY, "P": INDEXED, "RGB": RGB, "RGBA": RGB, "CMYK": CMYK, "LAB": LAB}
_ALPHA = -1  # id of the channel of a layer
_LAYER_NAME = b"\7Layer 1"  # a Pascal string, padded to a multiple of four bytes


def write(pixels: Image.Image | DeepPixels, resources: Mapping[int, bytes], *, large: bool) -> bytes:
    """A file with 1, 8 or 16 bits per sample; a PSB if it is `large`. `resources` are its image resources by number."""
    mode = pixels.mode
    (width, height) = pixels.size
    array = pixels.array if isinstance(pixels, DeepPixels) else np.asarray(pixels)
    planes: NDArray[Any] = np.moveaxis(array, -1, 0) if array.ndim == 3 else array[None]
    if mode == "CMYK":
        planes = np.iinfo(array.dtype).max - planes  # stored inverted
    if mode == "LAB":
        planes = planes ^ np.array([0, 128, 128], np.uint8).reshape(3, 1, 1)  # a and b are signed outside of Pillow
    depth = array.itemsize * 8
    if mode == "1":
        # 1 is black.
        planes = np.packbits(~planes, axis=-1)
        depth = 1
    return b"".join(
        (
            struct.pack(">4sH6xHIIHH", b"8BPS", 2 if large else 1, len(planes), height, width, depth, _MODES[mode]),
            _section(_palette(pixels) if isinstance(pixels, Image.Image) and mode == "P" else b""),
            _section(b"".join(_resource(number, content) for number, content in resources.items())),
            _section(_layers(planes, depth, large=large) if mode == "RGBA" else b"", large=large),
            _compress(_on_white(planes) if mode == "RGBA" else planes, large=large),
        )
    )


def _section(content: bytes, multiple: int = 1, *, large: bool = False) -> bytes:
    """The content after its length, of 8 bytes if `large`, which includes padding to a `multiple` of bytes."""
    content += b"\0" * (-len(content) % multiple)
    return len(content).to_bytes(8 if large else 4) + content


def _palette(image: Image.Image) -> bytes:
    """The colors of a palette: all of red, then of green and of blue."""
    colors = np.zeros((256, 3), np.uint8)
    samples = np.array(image.getpalette(), np.uint8).reshape(-1, 3)
    colors[: len(samples)] = samples
    return colors.T.tobytes()


def _resource(number: int, content: bytes) -> bytes:
    return struct.pack(">4sHHI", b"8BIM", number, 0, len(content)) + content + b"\0" * (len(content) % 2)


def _layers(planes: NDArray[Any], depth: int, *, large: bool) -> bytes:
    """The content of the section of layers. The number of layers is negative: the merged image has transparency."""
    height, width = planes.shape[1:]
    channels = {_ALPHA: _compress(planes[-1:], large=large)}
    channels |= {number: _compress(plane[None], large=large) for number, plane in enumerate(planes[:-1])}
    lengths = [struct.pack(">hQ" if large else ">hI", number, len(content)) for number, content in channels.items()]
    record = struct.pack(">hIIIIH", -1, 0, 0, height, width, len(channels)) + b"".join(lengths)
    record += struct.pack(">4s4sBBBx", b"8BIM", b"norm", 255, 0, 0)
    record += _section(_section(b"") + _section(b"") + _LAYER_NAME)  # no mask, no blending ranges
    layers = _section(record + b"".join(channels.values()), 4, large=large)
    if depth == 8:
        return layers + _section(b"")
    empty = _section(b"", large=large)
    return empty + _section(b"") + b"8BIMMt16" + empty + b"8BIMLr16" + layers


def _on_white(planes: NDArray[Any]) -> NDArray[Any]:
    """The colors blended with white by the last plane, and that plane."""
    maximum = np.iinfo(planes.dtype).max
    opacity = planes[-1] / np.float32(maximum)
    blended = planes.copy()
    for plane in blended[:-1]:
        plane[:] = maximum - (maximum - plane) * opacity + 0.5
    return blended


def _compress(planes: NDArray[Any], *, large: bool) -> bytes:
    """The compression, the lengths of the rows, and the rows in PackBits."""
    samples = planes.astype(planes.dtype.newbyteorder(">"), copy=False).ravel().view(np.uint8)
    rows = [packbits_encode(row) for row in samples.reshape(-1, planes.shape[2] * planes.itemsize)]
    return struct.pack(f">H{len(rows)}{'I' if large else 'H'}", _RLE, *map(len, rows)) + b"".join(rows)
