"""The boxes of HEIF files, HEIC and AVIF (ISO/IEC 14496-12 and 23008-12): reads and writes what the codecs do not."""

import struct
from collections.abc import Iterator
from dataclasses import replace
from itertools import chain
from typing import NamedTuple

import engine
from engine import HdrColors, Raster, Size
from plugins._color import cicp
from plugins._metadata import exif_data

_IMAGE = 1  # the first item of a file of libavif
VERSION = 4  # bytes of version and flags at the start of the content of a full box
# Offsets in iinf and iloc.
ITEM_COUNT = VERSION
LOCATION_COUNT = VERSION + 2
LOCATION = ">HHHII"  # an entry of iloc: item, file, number of extents (1), offset and length
FIRST_ASSOCIATIONS = VERSION + 6  # offset in ipma of the number of properties of the first item
_REPEATS = 1  # flag of elst
_MAX_PLAYS = (1 << 31) - 1  # the most that PNG can say; they take years
_DURATIONS = {b"mvhd": (16, 24), b"tkhd": (20, 28), b"elst": (8, 8)}  # offsets in versions 0 and 1

_SIZE = 8  # bytes of ispe after version and flags, and of the size at the end of tkhd
_VIDEO_TRANSFERS = (1, 6, 14, 15)  # code points that browsers take for sRGB in images
_CODE_POINTS = 4  # bytes of primaries and transfer in the color property, before the matrix
_IDENTITY = b"\0\0"  # the matrix of RGB
# Bytes of clli and mdcv.
_LIGHT_LEVELS = 4
_MASTERING_DISPLAY = 24


Rectangle = tuple[int, int, int, int]
"""Left, top, right and bottom in pixels."""


class Box(NamedTuple):
    """The type of a box, and the offsets of the box, its content and its end in the file."""

    kind: bytes
    start: int
    content: int
    end: int


def boxes(data: bytes, start: int = 0, end: int | None = None) -> Iterator[Box]:
    """The boxes between two offsets, up to the first invalid one."""
    end = len(data) if end is None else end
    while start + 8 <= end:
        size, kind = struct.unpack_from(">I4s", data, start)
        content = start + 8
        if size == 1 and start + 16 <= end:
            (size,) = struct.unpack_from(">Q", data, content)
            content += 8
        size = size or end - start
        if start + size < content or start + size > end:
            return
        yield Box(kind, start, content, start + size)
        start += size


def find(data: bytes, *path: bytes, inside: Box | None = None) -> Box | None:
    """The first box at a path of types, from the top of the file or `inside` a box."""
    for kind in path:
        candidates = boxes(data) if inside is None else children(data, inside)
        inside = next((box for box in candidates if box.kind == kind), None)
        if inside is None:
            return None
    return inside


def children(data: bytes, box: Box) -> Iterator[Box]:
    return boxes(data, box.content + (VERSION if box.kind == b"meta" else 0), box.end)


def bit_depth(data: bytes) -> int:
    """Bits per sample from the first AV1 configuration, preferably the one of the primary image: 8, 10 or 12."""
    configuration = next((content for kind, content in _primary_properties(data) if kind == b"av1C"), None)
    if configuration is None:  # a grid or a sequence
        configuration = data[data.find(b"av1C") + 4 :][:4] if b"av1C" in data else bytes(4)
    flags = configuration[2] if len(configuration) > 2 else 0
    return (12 if flags & 0x20 else 10) if flags & 0x40 else 8


def check_size(data: bytes) -> None:
    """Raises TooLarge if the primary image, or else the first track, has too many pixels.

    The codecs report large images as invalid.
    """
    size = _image_size(data)
    if size is not None:
        engine.check_size(*size)


def _image_size(data: bytes) -> Size | None:
    """Width and height in the header."""
    size = next((content[VERSION:] for kind, content in _primary_properties(data) if kind == b"ispe"), b"")
    if len(size) == _SIZE:
        width, height = struct.unpack(">II", size)
        return width, height
    header = find(data, b"moov", b"trak", b"tkhd")
    if header is None or header.end - header.content < _SIZE:
        return None
    width, height = struct.unpack_from(">II", data, header.end - _SIZE)
    return width >> 16, height >> 16  # the integer parts


def with_colors(raster: Raster, data: bytes) -> Raster:
    """The raster with the colors that the primary image describes by code points, unless it has a profile.

    HDR stays as it is, other colors become a profile. A still whose samples are stored as RGB is not lossy: encoders
    store them so for no other purpose.
    """
    properties = list(_primary_properties(data))
    descriptions = {content[:4]: content[4:] for kind, content in properties if kind == b"colr"}
    if descriptions.get(b"nclx", b"")[_CODE_POINTS : _CODE_POINTS + 2] == _IDENTITY and not raster.animated:
        raster = replace(raster, source=replace(raster.source, lossy=False))
    if descriptions.keys() & {b"prof", b"rICC"} or len(descriptions.get(b"nclx", b"")) < _CODE_POINTS:
        return raster
    primaries, transfer = struct.unpack_from(">HH", descriptions[b"nclx"])
    primaries = cicp.SRGB_PRIMARIES if primaries == cicp.UNSPECIFIED else primaries
    transfer = cicp.SRGB_TRANSFER if transfer in (cicp.UNSPECIFIED, *_VIDEO_TRANSFERS) else transfer
    if (primaries, transfer) == (cicp.SRGB_PRIMARIES, cicp.SRGB_TRANSFER) or not cicp.are_known(primaries, transfer):
        return raster
    content, screen = (dict(properties).get(kind, b"") for kind in (b"clli", b"mdcv"))
    levels = struct.unpack(">2H", content) if len(content) == _LIGHT_LEVELS else (0, 0)  # cd/m²
    light_levels = (float(levels[0]), float(levels[1])) if any(levels) else None
    mastering_display = _turned(screen, 2) if len(screen) == _MASTERING_DISPLAY else None
    return cicp.with_colors(raster, primaries, transfer, light_levels, mastering_display)


def _turned(screen: bytes, colors: int) -> bytes:
    """A mastering display whose first `colors` follow the others: red, green, blue in PNG, green, blue, red in HEIF."""
    return screen[4 * colors : 12] + screen[: 4 * colors] + screen[12:]


def clean_aperture(data: bytes, width: int, height: int) -> Rectangle | None:
    """The part of the primary image, of `width` x `height` pixels before it is turned, that is to be shown.

    None for the whole image, and if the property is invalid.
    """
    content = next((content for kind, content in _primary_properties(data) if kind == b"clap"), b"")
    if len(content) != 32:
        return None
    values = struct.unpack(">4I iI iI", content)
    if 0 in values[1::2]:
        return None
    shown_width, shown_height, right, down = (a / b for a, b in zip(values[::2], values[1::2], strict=True))
    left, top = (width - shown_width) / 2 + right, (height - shown_height) / 2 + down
    edges = (left, top, left + shown_width, top + shown_height)
    rectangle = tuple(map(round, edges))
    inside = 0 <= rectangle[0] < rectangle[2] <= width and 0 <= rectangle[1] < rectangle[3] <= height
    return rectangle if inside and rectangle != (0, 0, width, height) else None


def _primary_properties(data: bytes) -> Iterator[tuple[bytes, bytes]]:
    """The type and content of each property of the primary item."""
    item = find(data, b"meta", b"pitm")
    container = find(data, b"meta", b"iprp")
    properties = find(data, b"ipco", inside=container) if container else None
    if item is None or container is None or properties is None:
        return
    primary = int.from_bytes(data[item.content + VERSION : item.end])
    known = [(box.kind, data[box.content : box.end]) for box in children(data, properties)]
    lists = (associations(data, box) for box in children(data, container) if box.kind == b"ipma")
    for number, _, indexes in chain.from_iterable(lists):
        if number == primary:
            yield from (known[index - 1] for index in indexes if 0 < index <= len(known))


def associations(data: bytes, box: Box) -> Iterator[tuple[int, bytes, list[int]]]:
    """Of each entry of ipma: the item, the entry itself, and the indexes of its properties from 1."""
    if box.end - box.content < VERSION + 4:
        return
    wide_items = data[box.content] > 0
    wide_indexes = data[box.content + 3] & 1
    (count,) = struct.unpack_from(">I", data, box.content + VERSION)
    start = box.content + VERSION + 4
    size = 4 if wide_items else 2
    step = 2 if wide_indexes else 1
    mask = 0x7FFF if wide_indexes else 0x7F  # without the flag of essential properties
    for _ in range(count):
        first = start + size + 1
        end = first + step * data[first - 1] if first <= box.end else box.end + 1
        if end > box.end:
            return
        indexes = [int.from_bytes(data[offset : offset + step]) & mask for offset in range(first, end, step)]
        yield int.from_bytes(data[start : start + size]), data[start:end], indexes
        start = end


def repair(data: bytes) -> bytes:
    """The file without two errors of older encoders for which libavif refuses it.

    They are several ipma boxes of the same version and flags, and alpha of the item 0 instead of the primary item.
    """
    properties = find(data, b"meta", b"iprp")
    references = find(data, b"meta", b"iref")
    if references is not None:
        data = _with_valid_references(data, references)
    return data if properties is None else _with_single_associations(data, properties)


def _with_valid_references(data: bytes, references: Box) -> bytes:
    item = find(data, b"meta", b"pitm")
    if item is None or references.end - references.content < VERSION:
        return data
    size = 4 if data[references.content] else 2  # bytes of an item number
    primary = data[item.content + VERSION : item.end]  # as long as an item number, or shorter
    changed = bytearray(data)
    for box in boxes(data, references.content + VERSION, references.end):
        for offset in range(box.content + size + 2, box.end - size + 1, size):
            if box.kind == b"auxl" and not any(data[offset : offset + size]):
                changed[offset : offset + size] = primary.rjust(size, b"\0")[-size:]
    return bytes(changed)


def _with_single_associations(data: bytes, properties: Box) -> bytes:
    parts = [box for box in children(data, properties) if box.kind == b"ipma"]
    kinds = {data[box.content : box.content + VERSION] for box in parts}
    if len(parts) < 2 or len(kinds) > 1:
        return data
    entries = sorted(entry for box in parts for _, entry, _ in associations(data, box))
    merged = make_box(b"ipma", kinds.pop() + struct.pack(">I", len(entries)) + b"".join(entries))
    others = [data[box.start : box.end] for box in children(data, properties) if box.kind != b"ipma"]
    content = make_box(b"iprp", b"".join([*others, merged]))
    # A box that readers skip keeps all offsets.
    spare = properties.end - properties.start - len(content)
    return data[: properties.start] + content + make_box(b"free", bytes(spare - 8)) + data[properties.end :]


def frame_count(data: bytes) -> int:
    """The number of frames of the sequence in a file, in the track of images that has the most; 0 without."""
    movie = find(data, b"moov")
    counts = [0]
    for track in children(data, movie) if movie else ():
        handler = find(data, b"mdia", b"hdlr", inside=track)
        samples = find(data, b"mdia", b"minf", b"stbl", b"stsz", inside=track)
        if handler and samples and data[handler.content + 8 : handler.content + 12] == b"pict":
            counts.append(int.from_bytes(data[samples.content + 8 : samples.content + 12]))
    return max(counts)


def loop_count(data: bytes) -> int:
    """How often a sequence plays, from the edit list of its first track; 0: forever."""
    track = find(data, b"moov", b"trak")
    header = find(data, b"tkhd", inside=track) if track else None
    edits = find(data, b"edts", b"elst", inside=track) if track else None
    if header is None or edits is None:
        return 0  # browsers do the same
    if not data[edits.content + 3] & _REPEATS:
        return 1
    total = _duration(data, header)
    once = _duration(data, edits)
    return min(-(-total // once), _MAX_PLAYS) if total is not None and once else 0


def with_loop_count(data: bytes, count: int) -> bytes:
    """A sequence of libavif, which plays forever, that plays `count` times; 0: forever."""
    movie = find(data, b"moov")
    changed = bytearray(data)
    for track in children(data, movie) if movie and count else ():
        edits = find(data, b"edts", b"elst", inside=track)
        once = _duration(data, edits) if edits else None
        if once is not None:
            for header in (find(data, b"moov", b"mvhd"), find(data, b"tkhd", inside=track)):
                if header is not None:
                    offset, layout = _duration_field(data, header)
                    struct.pack_into(layout, changed, offset, once * count)
    return bytes(changed)


def _duration(data: bytes, box: Box) -> int | None:
    """The duration in mvhd, tkhd or elst, in units of the movie's timescale. None if it is indefinite."""
    offset, layout = _duration_field(data, box)
    (duration,) = struct.unpack_from(layout, data, offset)
    return None if duration == (1 << 8 * struct.calcsize(layout)) - 1 else int(duration)


def _duration_field(data: bytes, box: Box) -> tuple[int, str]:
    """The offset of the duration in mvhd, tkhd or elst, and its type."""
    version = min(data[box.content], 1)
    return box.content + _DURATIONS[box.kind][version], (">I", ">Q")[version]


def add_metadata(
    data: bytes, icc_profile: bytes | None, hdr: HdrColors | None, exif: bytes | None, xmp: bytes | None
) -> bytes:
    """`data` with metadata. It must be a file of libavif: one extent per item, offsets of 4 bytes, no metadata."""
    blocks = []
    if exif:
        # Four bytes for the offset of the TIFF header in the rest.
        blocks.append((b"Exif\0", b"\0\0\0\0" + exif.removeprefix(exif_data.PREFIX)))
    if xmp:
        blocks.append((b"mime\0application/rdf+xml\0", xmp))
    file = contents(data)
    parts = contents(file[b"meta"][VERSION:])
    for kind, content in _color_properties(icc_profile, hdr):
        parts[b"iprp"] = _with_property(parts[b"iprp"], make_box(kind, content))
    (count,) = struct.unpack_from(">H", parts[b"iinf"], ITEM_COUNT)
    for number, (kind, _) in enumerate(blocks, count + 1):
        entry = make_box(b"infe", struct.pack(">IHH", 2 << 24, number, 0) + kind)
        parts[b"iinf"] = append(parts[b"iinf"], ITEM_COUNT, entry)
        reference = make_box(b"cdsc", struct.pack(">HHH", number, 1, _IMAGE))
        parts[b"iref"] = parts.get(b"iref", bytes(VERSION)) + reference
    size = struct.calcsize(LOCATION)
    new_size = VERSION + sum(8 + len(content) for content in parts.values()) + size * len(blocks)
    growth = new_size - len(file[b"meta"])
    locations = parts[b"iloc"][LOCATION_COUNT + 2 :]
    moved = (
        struct.pack(LOCATION, item, source, extents, offset + growth, length)
        for item, source, extents, offset, length in struct.iter_unpack(LOCATION, locations)
    )
    parts[b"iloc"] = parts[b"iloc"][: LOCATION_COUNT + 2] + b"".join(moved)
    end = len(data) + growth + 8
    for number, (_, content) in enumerate(blocks, count + 1):
        location = struct.pack(LOCATION, number, 0, 1, end, len(content))
        parts[b"iloc"] = append(parts[b"iloc"], LOCATION_COUNT, location)
        end += len(content)
    file[b"meta"] = bytes(VERSION) + b"".join(make_box(kind, content) for kind, content in parts.items())
    added = [make_box(b"mdat", b"".join(content for _, content in blocks))] if blocks else []
    return b"".join([*(make_box(kind, content) for kind, content in file.items()), *added])


def _color_properties(icc_profile: bytes | None, hdr: HdrColors | None) -> Iterator[tuple[bytes, bytes]]:
    """The type and content of the properties for a profile and for the brightness of HDR."""
    if icc_profile:
        yield b"colr", b"prof" + icc_profile
    if hdr and hdr.light_levels:
        yield b"clli", struct.pack(">2H", *(min(round(level), 0xFFFF) for level in hdr.light_levels))
    if hdr and hdr.mastering_display:
        yield b"mdcv", _turned(hdr.mastering_display, 1)


def _with_property(properties: bytes, box: bytes) -> bytes:
    """The content of iprp with one more property of the image."""
    parts = contents(properties)
    index = 1 + sum(1 for _ in boxes(parts[b"ipco"]))
    parts[b"ipco"] += box
    associations = bytearray(parts[b"ipma"])
    associations[FIRST_ASSOCIATIONS] += 1
    associations.insert(FIRST_ASSOCIATIONS + 1, index)
    parts[b"ipma"] = bytes(associations)
    return b"".join(make_box(kind, content) for kind, content in parts.items())


def contents(data: bytes) -> dict[bytes, bytes]:
    """The contents of boxes by type, in their order."""
    return {box.kind: data[box.content : box.end] for box in boxes(data)}


def make_box(kind: bytes, content: bytes) -> bytes:
    return struct.pack(">I4s", 8 + len(content), kind) + content


def append(content: bytes, count_offset: int, entry: bytes) -> bytes:
    """A list with a 16-bit count, and one more entry."""
    (count,) = struct.unpack_from(">H", content, count_offset)
    return content[:count_offset] + struct.pack(">H", count + 1) + content[count_offset + 2 :] + entry
