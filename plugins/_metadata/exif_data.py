"""EXIF as directories of TIFF whose values stay bytes: what is safe to publish, orientation, preview, and sizes."""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import NamedTuple, TypeAlias

from PIL import Image

from engine import Size, combined_orientation
from engine.option_types import Flip, Rotate
from plugins._tiff import tiff_directories
from plugins._tiff.tiff_directories import Layout

ROTATIONS = {90: 6, 180: 3, 270: 8}
"""The EXIF orientations that turn clockwise by an angle in degrees."""
FLIPS = {"horizontal": 2, "vertical": 4}
"""The EXIF orientations that mirror."""

PREFIX = b"Exif\0\0"
ORIENTATION = 0x0112
XMP = 700
IPTC = 33723
PHOTOSHOP = 34377
DIRECTORIES = (EXPOSURE, GPS) = (0x8769, 0x8825)
_INTEROPERABILITY = 0xA005
# The tags that point to directories, by the tag of the directory that has them; 0 for the first one.
_POINTERS: Mapping[int, tuple[int, ...]] = MappingProxyType({0: DIRECTORIES, EXPOSURE: (_INTEROPERABILITY,)})

# Tags that describe the image and not its storage: name, description, maker, model, software, time, artist, host,
# rating, copyright, the texts of Windows, and the EXIF and GPS directories.
DESCRIPTIVE = frozenset(
    {0x010D, 0x010E, 0x010F, 0x0110, 0x0131, 0x0132, 0x013B, 0x013C, 0x4746, 0x4749, 0x8298}
    | {0x9C9B, 0x9C9C, 0x9C9D, 0x9C9E, 0x9C9F, *DIRECTORIES}
)

# Tags of TIFF that describe only how the pixels are stored, their profile and their resolution.
STRUCTURAL = frozenset(
    {254, 255, 256, 257, 258, 259, 262, 266, 273, 277, 278, 279, 280, 281, 282, 283, 284, 296, 301, 317, 318, 319}
    | {320, 322, 323, 324, 325, 338, 339, 347, 512, 513, 514, 529, 530, 531, 532, 34675}
)
_SOFTWARE = 0x0131
_TIME = 0x0132
_HOST_COMPUTER = 0x013C
# Dots per unit, and the unit.
_ACROSS = 0x011A
_DOWN = 0x011B
_UNIT = 0x0128
_RESOLUTION = (_ACROSS, _DOWN, _UNIT)
# A type, a unit, the denominator of integers.
_RATIONAL = 5
_INCH = 2
_DENOMINATOR = 1
_SAFE = (DESCRIPTIVE | {*_RESOLUTION, ORIENTATION}) - {0x010D, _HOST_COMPUTER, *DIRECTORIES}

# Exposure, dates, lens and title: tags of the EXIF directory that identify neither a device nor a person or place.
SAFE_EXPOSURE = frozenset(
    {0x829A, 0x829D, 0x8822, 0x8824, 0x8827, 0x8828, 0x882A, *range(0x8830, 0x8836)}
    | {0x9000, 0x9003, 0x9004, 0x9010, 0x9011, 0x9012, 0x9290, 0x9291, 0x9292, *range(0x9201, 0x920B)}
    | {0xA000, 0xA001, 0xA20B, 0xA215, 0xA217, 0xA300, 0xA301, 0xA302, *range(0xA401, 0xA40B), 0xA40C}
    | {0xA432, 0xA433, 0xA434, 0xA436, 0xA437, 0xA460, 0xA461, 0xA462}
)
_COLOR_SPACE = 0xA001
_UNCALIBRATED = b"\xff\xff"  # in both byte orders
# The index of interoperability (DCF), and its values for Adobe RGB and sRGB.
_INDEX = 1
OPTION_FILE = b"R03"
_BASIC_FILE = b"R98"
_GPS_VERSION = 0
_SIZES: Mapping[int, tuple[int, int]] = MappingProxyType({0: (0x0100, 0x0101), EXPOSURE: (0xA002, 0xA003)})
# Versions, components, color space and sizes of the EXIF directory, which describe the file and not the image.
_TECHNICAL = frozenset({0x9000, 0xA000, _COLOR_SPACE, 0x9101, 0x9102, *_SIZES[EXPOSURE], _INTEROPERABILITY})

_PREVIEW_DATA = ((0x0201, 0x0202), (tiff_directories.STRIP_OFFSETS, tiff_directories.STRIP_BYTE_COUNTS))
# Types.
_SHORT = 3
LONG = 4
_CODES: Mapping[int, str] = MappingProxyType({_SHORT: "H", LONG: "I"})
_HEADER_SIZE = 8
_ENTRY_SIZE = 12
_MAX_SIZE = 32 << 20  # bytes
_XMP_ORIENTATION = re.compile(rb"""tiff:Orientation(?:=["']|>)([1-8])["'<]""")


class Value(NamedTuple):
    """The values of a tag as they are stored. `start` is their offset in the block or file that was read."""

    kind: int
    length: int
    data: bytes | memoryview
    start: int = 0


Directory: TypeAlias = "dict[int, Value | Directory]"
"""The tags of a directory. Tags that point to directories have the directories as values."""


@dataclass(frozen=True)
class Block:
    """The directories of an EXIF block, of a TIFF file or of camera RAW.

    `preview` is the offset of the directory of the preview, 0 without one. `order` is the byte order, "<" or ">".
    """

    data: bytes
    directory: Directory
    layout: Layout
    preview: int = 0

    @property
    def first(self) -> int:
        """The offset of the first directory."""
        return self.layout.read_offset(self.data, self.layout.first)

    @property
    def order(self) -> str:
        return self.layout.order

    def child(self, tag: int) -> Directory:
        """The directory that a tag of the first one points to; empty if there is none. 0 is the first one."""
        found = self.directory.get(tag) if tag else self.directory
        return found if isinstance(found, dict) else {}

    def integer(self, tag: int) -> int:
        """The first value of a tag of the first directory, of type short or long; 0 if there is none."""
        found = self.directory.get(tag)
        if not isinstance(found, Value) or found.kind not in _CODES:
            return 0
        return self.layout.read(_CODES[found.kind], bytes(found.data[:4]))

    def bytes_of(self, tag: int) -> bytes | None:
        """The values of a tag of the first directory, such as XMP. None if there are none."""
        found = self.directory.get(tag)
        return bytes(found.data) if isinstance(found, Value) else None


def read(image: Image.Image) -> bytes | None:
    """The EXIF block of an image that Pillow opened, for upright pixels; as it is if it is damaged. None without."""
    block = _raw(image)
    return upright(block) if block else None


def _raw(image: Image.Image) -> bytes | None:
    block: bytes | None = image.info.get("exif") or raw_profile(image.info.get("Raw profile type exif"))
    return PREFIX + block.removeprefix(PREFIX) if block else None


def raw_profile(text: object) -> bytes | None:
    """The content of a "Raw profile" in the text of a PNG: a name, a length and hexadecimal digits, in lines."""
    try:
        return bytes.fromhex("".join(text.split("\n")[3:])) if isinstance(text, str) else None
    except ValueError:
        return None


def read_orientation(image: Image.Image) -> int:
    """The orientation of an image that Pillow opened, 1 to 8, from EXIF or else XMP; 1 if neither has it."""
    block = parse(_raw(image))
    orientation = block.integer(ORIENTATION) if block else 0
    if not orientation and isinstance(packet := image.info.get("xmp"), bytes):
        found = _XMP_ORIENTATION.search(packet)
        orientation = int(found[1]) if found else 0
    return orientation if orientation in range(1, 9) else 1


def orientation_of(exif: bytes | None) -> int:
    """The orientation in an EXIF block, 1 to 8; 1 without."""
    block = parse(exif)
    orientation = block.integer(ORIENTATION) if block else 1
    return orientation if orientation in range(1, 9) else 1


def parse(exif: bytes | None) -> Block | None:
    """The directories of an EXIF block. None if there is none, or a damaged one."""
    block = parse_file(exif.removeprefix(PREFIX)) if exif else None
    # Values that overlap could be written as any number of bytes.
    return block if block and size_of(block.directory) <= len(block.data) else None


def parse_file(data: bytes) -> Block | None:
    """The first directory of a TIFF file, and those that it points to. None if they are invalid or empty."""
    layout = tiff_directories.read_layout(data)
    if layout is None:
        return None
    offset = layout.read_offset(data, layout.first)
    directory, preview = _read_directory(data, offset, layout, 0)
    return Block(data, directory, layout, preview) if directory else None


def _read_directory(data: bytes, offset: int, layout: Layout, parent: int) -> tuple[Directory, int]:
    """A directory, without values that are beyond the end of the file, and the offset of the next one."""
    entries, following = tiff_directories.read_entries(data, offset, layout) if offset >= _HEADER_SIZE else ([], 0)
    directory: Directory = {}
    for entry in {entry.tag: entry for entry in entries}.values():
        values = memoryview(data)[entry.start : entry.start + entry.size]
        if len(values) < max(entry.size, 1):
            continue
        if entry.tag in _POINTERS.get(parent, ()):
            # Pointers of deeper directories are not followed, so that there are no loops.
            (position, *_) = tiff_directories.read_values(data, entry, layout) or (0,)
            if child := _read_directory(data, position, layout, entry.tag)[0]:
                directory[entry.tag] = child
        elif 0 < entry.kind < 16:  # the types of BigTIFF are for offsets
            directory[entry.tag] = Value(entry.kind, entry.length, values, entry.start)
    return directory, following


def write_block(directory: Directory, order: str) -> bytes | None:
    """An EXIF block of directories in this byte order. None if they are empty or too large."""
    if not directory or size_of(directory) > _MAX_SIZE:
        return None
    magic = b"II*\0" if order == "<" else b"MM\0*"
    body = write_directory(directory, order, _HEADER_SIZE)
    return PREFIX + magic + struct.pack(f"{order}I", _HEADER_SIZE) + body


def size_of(directory: Directory) -> int:
    """The size of all values in bytes. Values of a damaged or hostile file can overlap and exceed the file."""
    return sum(size_of(value) if isinstance(value, dict) else len(value.data) for value in directory.values())


def write_directory(directory: Directory, order: str, offset: int, following: int = 0) -> bytes:
    """A directory for this offset, and after it its values and the directories it points to."""
    end = offset + 2 + _ENTRY_SIZE * len(directory) + 4
    table = [struct.pack(f"{order}H", len(directory))]
    values = bytearray()
    for tag, value in sorted(directory.items(), key=lambda item: item[0]):
        position = end + len(values)
        if isinstance(value, dict):
            kind = LONG
            length = 1
            data = struct.pack(f"{order}I", position)
            stored = b""
            stored = write_directory(value, order, position)
        else:
            kind = value.kind
            length = value.length
            data = bytes(value.data)
            stored = b""
            if len(data) > 4:
                data, stored = struct.pack(f"{order}I", position), data
        table.append(struct.pack(f"{order}HHI", tag, kind, length) + data.ljust(4, b"\0"))
        values += stored + bytes(len(stored) % 2)
    return b"".join(table) + struct.pack(f"{order}I", following) + values


def from_file(block: Block | None, *, color_space: int | None = None) -> bytes | None:
    """An EXIF block with the descriptive tags of a TIFF file. `color_space` replaces the camera's."""
    if block is None:
        return None
    directory = {tag: value for tag, value in block.directory.items() if tag in DESCRIPTIVE}
    if color_space is not None and isinstance(exposure := directory.get(EXPOSURE), dict):
        exposure[_COLOR_SPACE] = Value(_SHORT, 1, struct.pack(f"{block.order}H", color_space))
    return write_block(directory, block.order)


def safe_part(block: Block) -> bytes | None:
    """The tags of an EXIF block that are safe to publish. None if there are none."""
    safe = {tag: value for tag, value in block.directory.items() if tag in _SAFE}
    if exposure := {tag: value for tag, value in block.child(EXPOSURE).items() if tag in SAFE_EXPOSURE}:
        safe[EXPOSURE] = exposure
    return write_block(safe, block.order)


def describes(block: Block, *, program: bool) -> bool:
    """Whether an EXIF block has more than facts about the file, such as resolution and versions.

    The name of the `program` and the time of the last change count only if they are asked for.
    """
    technical = STRUCTURAL | {ORIENTATION, *DIRECTORIES} | (set() if program else {_SOFTWARE, _TIME})
    return bool(block.directory.keys() - technical or block.child(EXPOSURE).keys() - _TECHNICAL or has_position(block))


def has_position(block: Block) -> bool:
    """Whether an EXIF block has a position, or any other tag of the GPS directory but its version."""
    return bool(block.child(GPS).keys() - {_GPS_VERSION})


def upright(exif: bytes) -> bytes | None:
    """An EXIF block for upright pixels: if it has another orientation, without it and without the preview."""
    block = parse(exif)
    if block is None or block.integer(ORIENTATION) in (0, 1):
        return exif
    return _changed(block, {}, preview=False)


def is_adobe_rgb(exif: bytes | None) -> bool:
    """Whether an EXIF block states that the colors are Adobe RGB, which cameras need no profile for (DCF)."""
    return _index_of_option_file(parse(exif)) is not None


def for_srgb(exif: bytes | None) -> bytes | None:
    """An EXIF block that does not state that the colors are Adobe RGB."""
    block = parse(exif)
    index = _index_of_option_file(block)
    return _changed(block, {index.start: _BASIC_FILE}, preview=True) if block and index else exif


def _index_of_option_file(block: Block | None) -> Value | None:
    """The index of interoperability that stands for Adobe RGB. None for other blocks."""
    exposure = block.child(EXPOSURE) if block else {}
    space = exposure.get(_COLOR_SPACE)
    directory = exposure.get(_INTEROPERABILITY)
    index = directory.get(_INDEX) if isinstance(directory, dict) else None
    if not isinstance(space, Value) or bytes(space.data) != _UNCALIBRATED or not isinstance(index, Value):
        return None
    return index if bytes(index.data[: len(OPTION_FILE)]) == OPTION_FILE else None


def with_orientation(exif: bytes | None, orientation: int) -> bytes:
    """An EXIF block with another orientation, and without preview. Its values are at other offsets."""
    block = parse(exif)
    order = block.order if block else "<"
    value = Value(_SHORT, 1, struct.pack(f"{order}H", orientation))
    return write_block({**(block.directory if block else {}), ORIENTATION: value}, order) or b""


def without_orientation(exif: bytes | None) -> bytes | None:
    """An EXIF block of the same tags but the orientation. Its values are at other offsets."""
    block = parse(exif)
    tags = block.directory.items() if block else ()
    return write_block({tag: value for tag, value in tags if tag != ORIENTATION}, block.order) if block else None


def without_preview(exif: bytes | None) -> bytes | None:
    """An EXIF block without the preview, which shows the image as it was before it was cropped or rotated."""
    block = parse(exif)
    return _changed(block, {}, preview=False) if block and block.preview else exif


def with_size(exif: bytes | None, size: Size) -> bytes | None:
    """An EXIF block whose tags of width and height, if it has them, have the size of the image."""
    block = parse(exif)
    if block is None:
        return exif
    changes = {}
    for parent, tags in _SIZES.items():
        for tag, side in zip(tags, size, strict=True):
            value = block.child(parent).get(tag)
            if isinstance(value, Value) and value.kind in _CODES:
                code = block.order + _CODES[value.kind]
                changes[value.start] = struct.pack(code, min(side, (1 << 8 * struct.calcsize(code)) - 1))
    return _changed(block, changes, preview=True)


def with_resolution(exif: bytes | None, dpi: float) -> bytes | None:
    """An EXIF block whose tags of the resolution have this number of dots per inch.

    A block of these tags only, if there is none. Without the tags, its values move.
    """
    block = parse(exif)
    dots = (round(dpi * _DENOMINATOR), _DENOMINATOR)
    order = block.order if block else "<"
    rational = Value(_RATIONAL, 1, struct.pack(f"{order}II", *dots))
    inch = Value(_SHORT, 1, struct.pack(f"{order}H", _INCH))
    if block is None or not {_ACROSS, _DOWN} & block.directory.keys():
        own = block.directory if block else {}
        return write_block({**own, _ACROSS: rational, _DOWN: rational, _UNIT: inch}, order)
    changes = {}
    for tag in (_ACROSS, _DOWN):
        value = block.directory.get(tag)
        if isinstance(value, Value) and value.kind == _RATIONAL:
            changes[value.start] = bytes(rational.data)
    unit = block.directory.get(_UNIT)
    if isinstance(unit, Value) and unit.kind == _SHORT:
        changes[unit.start] = bytes(inch.data)
    return _changed(block, changes, preview=True)


def _changed(block: Block, changes: Mapping[int, bytes], *, preview: bool) -> bytes | None:
    """The EXIF block with other bytes at some offsets, orientation 1, and its `preview` or without it.

    All other values stay where they are, because maker notes refer to them by their offsets.
    """
    data = bytearray(block.data)
    orientation = block.directory.get(ORIENTATION)
    if isinstance(orientation, Value) and block.integer(ORIENTATION):
        changes = {**changes, orientation.start: struct.pack(f"{block.order}{_CODES[orientation.kind]}", 1)}
    if block.preview and not preview:
        changes = {**changes, _entries_end(block, block.first): bytes(block.layout.offset_size)}
    for start, change in changes.items():
        data[start : start + len(change)] = change
    size = len(data)
    ranges = [] if preview else sorted(_preview_ranges(block), reverse=True)
    if sum(min(end, size) - start for start, end in ranges) > size:
        return None  # they overlap
    for start, end in ranges:
        data[start:end] = bytes(len(data[start:end]))
        size = start if end >= size - 1 else size  # a value of odd length has a byte after it
    changed = PREFIX + bytes(data[:size])
    return changed if parse(changed) else None


def _entries_end(block: Block, directory: int) -> int:
    """The end of the entries of the directory at an offset, where the offset of the next one is."""
    count = directory + struct.calcsize(block.layout.count)
    entries = block.layout.read(block.layout.count, block.data[directory:count])
    return count + block.layout.entry_size * entries


def _preview_ranges(block: Block) -> Iterator[tuple[int, int]]:
    """The start and end of the directory of the preview, its values and its pixels; none without a preview."""
    if not block.preview:
        return
    yield block.preview, _entries_end(block, block.preview) + block.layout.offset_size
    entries, _ = tiff_directories.read_entries(block.data, block.preview, block.layout)
    yield from ((entry.start, entry.start + entry.size) for entry in entries if entry.size > block.layout.offset_size)
    values = {entry.tag: tiff_directories.read_values(block.data, entry, block.layout) for entry in entries}
    for offsets, sizes in _PREVIEW_DATA:
        starts = values.get(offsets, ())
        lengths = values.get(sizes, ())
        yield from ((start, start + length) for start, length in zip(starts, lengths, strict=False))


def orientation_after(orientation: int, *, rotate: Rotate, flip: Flip | None) -> int:
    """The EXIF orientation with the effect of another one, followed by the options `rotate` and `flip`."""
    orientation = combined_orientation(orientation, ROTATIONS[rotate]) if rotate else orientation
    return combined_orientation(orientation, FLIPS[flip]) if flip else orientation
