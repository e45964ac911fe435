"""HEIF files (HEIC and AVIF): reads and changes their boxes, and makes grids."""

import struct
from collections.abc import Callable, Iterator
from io import BytesIO

import pillow_heif
from PIL import Image

_CODECS = {"avif": (b"av1C", b"av01"), "heic": (b"hvcC", b"hvc1")}  # property and type of items
_BRANDS = {"avif": b"avif\0\0\0\0avifmif1miaf", "heic": b"heic\0\0\0\0mif1heicmiaf"}


def boxes(data: bytes) -> Iterator[tuple[bytes, bytes]]:
    """The type and content of each box."""
    while data:
        size = int.from_bytes(data[:4])
        yield data[4:8], data[8:size]
        data = data[size:]


def box(kind: bytes, content: bytes) -> bytes:
    return struct.pack(">I", 8 + len(content)) + kind + content


def _full_box(kind: bytes, content: bytes, version: int = 0) -> bytes:
    return box(kind, struct.pack(">I", version << 24) + content)


def edited(data: bytes, edit: Callable[[dict[bytes, bytes]], None]) -> bytes:
    """A still of libavif with changed boxes in its box of metadata."""
    file = dict(boxes(data))
    changed = dict(boxes(file[b"meta"][4:]))
    edit(changed)
    shift = 4 + sum(8 + len(content) for content in changed.values()) - len(file[b"meta"])
    entries = struct.iter_unpack(">HHHII", changed[b"iloc"][8:])
    moved = [struct.pack(">HHHII", *entry[:3], entry[3] + shift, entry[4]) for entry in entries]
    changed[b"iloc"] = changed[b"iloc"][:8] + b"".join(moved)
    file[b"meta"] = bytes(4) + b"".join(box(*each) for each in changed.items())
    return b"".join(box(*each) for each in file.items())


def associations(content: bytes) -> Iterator[bytes]:
    """The entries of a list of property associations."""
    content = content[8:]
    while content:
        end = 3 + content[2]
        yield content[:end]
        content = content[end:]


def with_property(kind: bytes, content: bytes) -> Callable[[dict[bytes, bytes]], None]:
    """Adds a property, which precedes the rotation, to all items."""

    def edit(changed: dict[bytes, bytes]) -> None:
        properties = dict(boxes(changed[b"iprp"]))
        kinds = [kind for kind, _ in boxes(properties[b"ipco"])]
        entries = b""
        for entry in associations(properties[b"ipma"]):
            indexes = bytearray(entry[3:])
            turned = [at for at, index in enumerate(indexes) if kinds[(index & 0x7F) - 1] in (b"irot", b"imir")]
            indexes.insert(turned[0] if turned else len(indexes), 0x80 | (len(kinds) + 1))
            entries += entry[:2] + bytes([len(indexes)]) + indexes
        listed = properties[b"ipma"][:8] + entries
        changed[b"iprp"] = box(b"ipco", properties[b"ipco"] + box(kind, content)) + box(b"ipma", listed)

    return edit


def grid(name: str, side: int, tile_side: int, tiles: int | None = None, *, copies: bool = False) -> bytes:
    """An image of `side` x `side` pixels in tiles of one color, all with the same data, or with `copies` of them.

    `name` is heic or avif. A grid with another number of `tiles` than it needs is invalid.
    """
    across = -(-side // tile_side)
    count = across * across if tiles is None else tiles
    numbers = range(2, 2 + count)
    tile = dict(boxes(_encode_tile(name, tile_side)))
    codec, item_type = _CODECS[name]
    meta = dict(boxes(tile[b"meta"][4:]))
    configuration = dict(boxes(dict(boxes(meta[b"iprp"]))[b"ipco"]))[codec]
    items = [_item(1, b"grid"), *(_item(number, item_type) for number in numbers)]
    properties = [_size(side), _full_box(b"pixi", b"\3\x08\x08\x08"), _size(tile_side), box(codec, configuration)]
    listed = [struct.pack(">H3B", 1, 2, 1, 2), *(struct.pack(">H4B", number, 3, 3, 2, 0x84) for number in numbers)]
    layout = struct.pack(">4BII", 0, 1, across - 1, across - 1, side, side)

    def head(offset: int) -> bytes:
        """The file before its data, which is at this offset."""
        size = len(tile[b"mdat"])
        places = [(1, 1, 0, len(layout)), *((one, 0, offset + copies * (one - 2) * size, size) for one in numbers)]
        located = b"".join(struct.pack(">4HII", number, way, 0, 1, *extent) for number, way, *extent in places)
        contents = (
            _full_box(b"hdlr", bytes(4) + b"pict" + bytes(13)),
            _full_box(b"pitm", b"\0\1"),
            _full_box(b"iinf", struct.pack(">H", len(items)) + b"".join(items)),
            _full_box(b"iref", box(b"dimg", struct.pack(f">HH{count}H", 1, count, *numbers))),
            box(b"iprp", box(b"ipco", b"".join(properties)) + _full_box(b"ipma", _counted(listed))),
            _full_box(b"iloc", b"\x44\0" + struct.pack(">H", len(places)) + located, 1),
            box(b"idat", layout),
        )
        return box(b"ftyp", _BRANDS[name]) + _full_box(b"meta", b"".join(contents))

    return head(len(head(0)) + 8) + box(b"mdat", tile[b"mdat"] * (count if copies else 1))


def _encode_tile(name: str, side: int) -> bytes:
    file = BytesIO()
    tile = Image.new("RGB", (side, side), (9, 99, 200))
    if name == "avif":
        tile.save(file, "AVIF", speed=10)
    else:
        pillow_heif.from_pillow(tile).save(file)
    return file.getvalue()


def _item(number: int, item_type: bytes) -> bytes:
    return _full_box(b"infe", struct.pack(">HH", number, 0) + item_type + b"\0", 2)


def _size(side: int) -> bytes:
    return _full_box(b"ispe", struct.pack(">II", side, side))


def _counted(entries: list[bytes]) -> bytes:
    return struct.pack(">I", len(entries)) + b"".join(entries)


def with_gain_map_of_iphone(image: Image.Image, gain_map: Image.Image, headroom: str) -> bytes:
    """A HEIC whose second image is a hidden auxiliary one, with a headroom in its XMP."""
    written = pillow_heif.from_pillow(image)
    written.add_from_pillow(gain_map)
    written[1].info["xmp"] = f'<x HDRGainMap:HDRGainMapHeadroom="{headroom}"/>'.encode()
    buffer = BytesIO()
    written.save(buffer, quality=95)
    file = dict(boxes(buffer.getvalue()))
    meta = dict(boxes(file[b"meta"][4:]))
    properties = dict(boxes(meta[b"iprp"]))
    index = 1 + sum(1 for _ in boxes(properties[b"ipco"]))
    properties[b"ipco"] += _full_box(b"auxC", b"urn:com:apple:photo:2020:aux:hdrgainmap\0")
    first, second = associations(properties[b"ipma"])
    properties[b"ipma"] = (
        properties[b"ipma"][:8] + first + second[:2] + bytes([second[2] + 1]) + second[3:] + bytes([index])
    )
    meta[b"iprp"] = b"".join(box(*each) for each in properties.items())
    meta[b"iref"] += box(b"auxl", struct.pack(">HHH", 2, 1, 1))
    items = [content for _, content in boxes(meta[b"iinf"][6:])]
    items[1] = items[1][:3] + b"\1" + items[1][4:]  # hidden
    meta[b"iinf"] = meta[b"iinf"][:6] + b"".join(box(b"infe", content) for content in items)
    return _rewritten(file, meta)


def with_tone_mapped_item(image: Image.Image, gain_map: Image.Image, numbers: bytes) -> bytes:
    """A HEIC whose second image is hidden: a third item, of the type tmap, applies it to the first one."""
    written = pillow_heif.from_pillow(image)
    written.add_from_pillow(gain_map)
    buffer = BytesIO()
    written.save(buffer, quality=95)
    file = dict(boxes(buffer.getvalue()))
    meta = dict(boxes(file[b"meta"][4:]))
    first, second = (content for _, content in boxes(meta[b"iinf"][6:]))
    items = first, second[:3] + b"\1" + second[4:], b"\2" + bytes(3) + struct.pack(">HH", 3, 0) + b"tmap\0"
    meta[b"iinf"] = bytes(4) + struct.pack(">H", 3) + b"".join(box(b"infe", content) for content in items)
    meta[b"iref"] = bytes(4) + box(b"dimg", struct.pack(">HHHH", 3, 2, 1, 2))
    meta[b"idat"] = b"\0" + numbers
    # With the version 1, the content of an item can be in idat.
    entries = struct.iter_unpack(">HHIHII", meta[b"iloc"][8:])
    stored = [struct.pack(">HHHIHII", entry[0], 0, *entry[1:]) for entry in entries]
    inside = struct.pack(">HHHIHII", 3, 1, 0, 0, 1, 0, len(meta[b"idat"]))
    meta[b"iloc"] = b"\1" + bytes(3) + b"\x44\x40" + struct.pack(">H", 3) + b"".join((*stored, inside))
    return _rewritten(file, meta)


def _rewritten(file: dict[bytes, bytes], meta: dict[bytes, bytes]) -> bytes:
    """The file with another box meta, and the places of its items moved accordingly."""
    shift = 4 + sum(8 + len(content) for content in meta.values()) - len(file[b"meta"])
    entry = ">HHHIHII" if meta[b"iloc"][:1] == b"\1" else ">HHIHII"
    moved = bytearray(meta[b"iloc"])
    for start in range(8, len(moved), struct.calcsize(entry)):
        *head, base, count, offset, size = struct.unpack_from(entry, moved, start)
        if not (len(head) == 3 and head[1]):  # not in idat
            struct.pack_into(entry, moved, start, *head, base + shift, count, offset, size)
    meta[b"iloc"] = bytes(moved)
    file[b"meta"] = bytes(4) + b"".join(box(*each) for each in meta.items())
    return b"".join(box(*each) for each in file.items())
