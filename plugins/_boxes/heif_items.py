"""Items of HEIC and AVIF files: EXIF, and gain maps of ISO 21496-1 (read and written) and of iPhones (read)."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from io import BytesIO

from PIL import Image, ImageChops

from engine import GainMap, Size, warn_gain_map_lost
from plugins._boxes.heif import (
    FIRST_ASSOCIATIONS,
    ITEM_COUNT,
    LOCATION,
    LOCATION_COUNT,
    VERSION,
    append,
    associations,
    boxes,
    children,
    contents,
    find,
    make_box,
)
from plugins._color import gain_maps
from plugins._metadata import exif_data

_TONE_MAPPED = b"tmap"  # type of an item that applies a gain map to another image
# Types of auxiliary images, of Apple and of ISO 21496-1. A subtype can follow.
_AUXILIARY = (b"urn:com:apple:photo:2020:aux:hdrgainmap\0", b"urn:iso:std:iso:ts:21496:-1\0")
_HIDDEN = 1  # flag of infe
_SHORT_NUMBERS = 2  # version of infe with numbers of 16 bits
_SHARED = (b"ispe", b"pixi")  # properties that the item tmap has as the image
_PRIMARY = 1  # the item of an image of libavif
_MAX_INDEX = 0x7F  # The largest index of a property in ipma that fits into one byte.


def read(data: bytes, decode: Callable[[bytes], Image.Image], size: Size) -> GainMap | None:
    """The gain map of a file whose upright image has this size. None without.

    `decode` returns the upright primary image of a file. Issues a FidelityWarning for a map that cannot be read.
    """
    found = {data[kind : kind + 4]: number for number, kind in items(data)}
    tone_mapped = found.get(_TONE_MAPPED)
    properties = _auxiliary_properties(data)
    if tone_mapped is None and not properties:
        return None
    gain_map = None
    try:
        if tone_mapped is not None:
            _, number = _referenced(data, tone_mapped)
            numbers = gain_maps.from_iso(item_content(data, tone_mapped)[1:])
            gain_map = gain_maps.made(_plain(decode(_with_primary(data, number))), numbers, size)
        else:
            auxiliary = decode(_with_primary(data, _item_with(data, properties)))
            packets = b"".join(item_content(data, number) for number, kind in items(data) if _is_xmp(data, kind))
            gain_map = gain_maps.from_apple(auxiliary, packets, size)
    except Exception:
        pass
    if gain_map is None:
        warn_gain_map_lost()
    return gain_map


def _is_xmp(data: bytes, kind: int) -> bool:
    return data[kind : kind + 4] == b"mime"


def _auxiliary_properties(data: bytes) -> set[int]:
    """The indexes of the properties of auxiliary images that are gain maps."""
    properties = find(data, b"meta", b"iprp", b"ipco")
    kinds = [data[box.content + VERSION : box.end] for box in children(data, properties)] if properties else []
    return {index for index, kind in enumerate(kinds, 1) if kind.startswith(_AUXILIARY)}


def _item_with(data: bytes, properties: set[int]) -> int:
    """The first item with one of the properties. Raises StopIteration."""
    container = find(data, b"meta", b"iprp")
    lists = [box for box in children(data, container) if box.kind == b"ipma"] if container else []
    return next(number for box in lists for number, _, indexes in associations(data, box) if properties & {*indexes})


def _referenced(data: bytes, number: int) -> list[int]:
    """The items from which another one is derived."""
    references = find(data, b"meta", b"iref")
    if references is None:
        return []
    size = 4 if data[references.content] else 2
    for box in boxes(data, references.content + VERSION, references.end):
        values = _numbers(data[box.content : box.end], size)
        if box.kind == b"dimg" and next(values, None) == number:
            return [*_numbers(data[box.content + size + 2 : box.end], size)]
    return []


def _numbers(data: bytes, size: int) -> Iterator[int]:
    for offset in range(0, len(data) - size + 1, size):
        yield int.from_bytes(data[offset : offset + size])


def _with_primary(data: bytes, number: int) -> bytes:
    """The file with another primary item, which is neither hidden nor auxiliary."""
    primary = find(data, b"meta", b"pitm")
    references = find(data, b"meta", b"iref")
    assert primary is not None
    changed = bytearray(data)
    if references is not None:
        size = 4 if data[references.content] else 2
        for box in boxes(data, references.content + VERSION, references.end):
            if box.kind == b"auxl" and int.from_bytes(data[box.content : box.content + size]) == number:
                changed[box.start + 4 : box.content] = b"skip"
    changed[primary.content + VERSION : primary.end] = number.to_bytes(primary.end - primary.content - VERSION)
    for item, kind in items(data):
        if item == number:
            flags = kind - (5 if data[kind - 8] == _SHORT_NUMBERS else 7)
            changed[flags] &= ~_HIDDEN & 0xFF
    return bytes(changed)


def _plain(image: Image.Image) -> Image.Image:
    """The image; gray if its bands are equal, because monochrome images are decoded to RGB."""
    image = image.convert("RGB") if image.mode not in ("L", "RGB") else image
    if image.mode == "L":
        return image
    red, green, blue = image.split()
    differ = ImageChops.difference(red, green).getbbox() or ImageChops.difference(red, blue).getbbox()
    return image if differ else red


def add(data: bytes, gain_map: GainMap, encoded: bytes) -> bytes:
    """The file with a gain map, whose image is `encoded`. Both must be files of libavif without metadata."""
    file = contents(data)
    other = contents(encoded)
    parts, others = (contents(one[b"meta"][VERSION:]) for one in (file, other))
    (count,) = struct.unpack_from(">H", parts[b"iinf"], ITEM_COUNT)
    image = count + 1
    tone_mapped = count + 2
    _, _, _, start, length = struct.unpack_from(LOCATION, others[b"iloc"], LOCATION_COUNT + 2)
    added = {image: encoded[start : start + length], tone_mapped: b"\0" + gain_maps.to_iso(gain_map)}
    for number, flags, kind in ((image, _HIDDEN, b"av01\0"), (tone_mapped, 0, _TONE_MAPPED + b"\0")):
        entry = make_box(b"infe", struct.pack(">IHH", 2 << 24 | flags, number, 0) + kind)
        parts[b"iinf"] = append(parts[b"iinf"], ITEM_COUNT, entry)
    parts[b"iprp"] = _merged_properties(parts[b"iprp"], others[b"iprp"], image, tone_mapped)
    reference = make_box(b"dimg", struct.pack(">HHHH", tone_mapped, 2, _PRIMARY, image))
    parts[b"iref"] = parts.get(b"iref", bytes(VERSION)) + reference
    group = make_box(b"altr", bytes(VERSION) + struct.pack(">IIII", tone_mapped + 1, 2, tone_mapped, _PRIMARY))
    parts[b"grpl"] = group
    file[b"ftyp"] += _TONE_MAPPED
    size = VERSION + sum(8 + len(content) for content in parts.values()) + 2 * struct.calcsize(LOCATION)
    growth = size - len(file[b"meta"]) + len(_TONE_MAPPED)
    locations = [*struct.iter_unpack(LOCATION, parts[b"iloc"][LOCATION_COUNT + 2 :])]
    moved = [(item, source, extents, offset + growth, length) for item, source, extents, offset, length in locations]
    end = len(data) + growth
    for number, content in added.items():
        moved.append((number, 0, 1, end, len(content)))
        end += len(content)
    head = parts[b"iloc"][:LOCATION_COUNT] + struct.pack(">H", len(moved))
    parts[b"iloc"] = head + b"".join(struct.pack(LOCATION, *location) for location in moved)
    file[b"meta"] = bytes(VERSION) + b"".join(make_box(kind, content) for kind, content in parts.items())
    file[b"mdat"] += b"".join(added.values())
    return b"".join(make_box(kind, content) for kind, content in file.items())


def _merged_properties(data: bytes, others: bytes, image: int, tone_mapped: int) -> bytes:
    """The content of iprp in which `image` has the properties of the other file, `tone_mapped` some of this one."""
    properties = contents(data)
    added = contents(others)
    kinds = [box.kind for box in boxes(properties[b"ipco"])]
    own = [index for index in _first_indexes(properties) if kinds[(index & _MAX_INDEX) - 1] in _SHARED]
    moved = [index + len(kinds) for index in _first_indexes(added)]
    properties[b"ipco"] += added[b"ipco"]
    entries = b"".join(
        struct.pack(">HB", number, len(indexes)) + bytes(indexes)
        for number, indexes in ((image, moved), (tone_mapped, own))
    )
    (count,) = struct.unpack_from(">I", properties[b"ipma"], VERSION)
    lists = properties[b"ipma"][VERSION + 4 :]
    properties[b"ipma"] = properties[b"ipma"][:VERSION] + struct.pack(">I", count + 2) + lists + entries
    return b"".join(make_box(kind, content) for kind, content in properties.items())


def _first_indexes(properties: dict[bytes, bytes]) -> list[int]:
    """The indexes of the properties of the first item, with their flags."""
    lists = properties[b"ipma"]
    count = lists[FIRST_ASSOCIATIONS]
    return [*lists[FIRST_ASSOCIATIONS + 1 : FIRST_ASSOCIATIONS + 1 + count]]


_MIN_LOCATION = 6  # bytes of an entry of any version
# Offsets of the major brand, and of the compatible ones.
_BRAND = 8
_BRANDS = 16
_CONTAINERS = (b"mif", b"msf")  # how brands of containers for any codec begin


def take_exif(data: bytes) -> tuple[bytes, bytes | None]:
    """The file whose EXIF readers skip, and its EXIF block, which may be damaged. None without.

    libavif refuses files with damaged EXIF, and Pillow encodes the texts of EXIF again.
    """
    hidden = bytearray(data)
    block = None
    for number, kind in items(data):
        if data[kind : kind + 4] == b"Exif":
            content = item_content(data, number)
            # The offset of the TIFF header in the rest comes first.
            header = 4 + int.from_bytes(content[:4])
            block = block or (exif_data.PREFIX + content[header:] if content else None)
            hidden[kind : kind + 4] = b"skip"
    return (bytes(hidden) if hidden != data else data), block


def items(data: bytes) -> Iterator[tuple[int, int]]:
    """The number of each item, and the offset of its type."""
    found = find(data, b"meta", b"iinf")
    if found is None:
        return
    count_size = 4 if data[found.content : found.content + 1] > b"\0" else 2
    for box in boxes(data, found.content + VERSION + count_size, found.end):
        start = box.content + VERSION
        size = 4 if data[box.content : box.content + 1] > b"\2" else 2
        if start + size + 6 <= box.end:
            yield int.from_bytes(data[start : start + size]), start + size + 2


def item_content(data: bytes, number: int) -> bytes:
    """The content of an item that is stored in one part in the file or in idat; empty for others."""
    found = find(data, b"meta", b"iloc")
    inside = find(data, b"meta", b"idat")
    locations = data[found.content : found.end] if found else b""
    stream = BytesIO(locations)

    def read(size: int) -> int:
        return int.from_bytes(stream.read(size))

    version = read(VERSION) >> 24
    sizes = read(2)
    offset_size, length_size, base_size, index_size = (sizes >> shift & 15 for shift in (12, 8, 4, 0))
    id_size = 4 if version > 1 else 2
    index_size = index_size if version else 0
    for _ in range(min(read(id_size), len(locations) // _MIN_LOCATION)):
        item = read(id_size)
        method = read(2) & 15 if version else 0
        read(2)  # the file
        base = read(base_size)
        count = read(2)
        if item == number and count == 1:
            read(index_size)
            start = base + read(offset_size)
            length = read(length_size)
            start += inside.content if inside and method else 0
            return data[start : start + length] if length else data[start:]
        stream.seek(count * (index_size + offset_size + length_size), 1)
    return b""


def with_brand(data: bytes, brand: bytes) -> bytes:
    """The file with this brand, if its major brand is one of containers, such as mif2, which not all decoders know."""
    if data[_BRAND : _BRAND + 3] not in _CONTAINERS:
        return data
    changed = bytearray(data)
    changed[_BRAND : _BRAND + 4] = brand
    if int.from_bytes(data[:4]) > _BRANDS:
        changed[_BRANDS : _BRANDS + 4] = brand
    return bytes(changed)
