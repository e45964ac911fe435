"""Items of HEIF files, HEIC and AVIF, besides the image, such as EXIF; and brands that decoders do not know."""

from collections.abc import Iterator
from io import BytesIO

from plugins._boxes.heif import VERSION, boxes, find
from plugins._metadata import exif_data

_MIN_LOCATION = 6  # bytes of an entry of any version
_BRAND, _BRANDS = 8, 16  # offsets of the major brand, and of the compatible ones
_CONTAINERS = (b"mif", b"msf")  # how brands of containers for any codec begin


def take_exif(data: bytes) -> tuple[bytes, bytes | None]:
    """The file whose EXIF readers skip, and its EXIF block, which may be damaged. None without.

    libavif refuses files with damaged EXIF, and Pillow encodes the texts of EXIF again.
    """
    hidden, block = bytearray(data), None
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
        start, size = box.content + VERSION, 4 if data[box.content : box.content + 1] > b"\2" else 2
        if start + size + 6 <= box.end:
            yield int.from_bytes(data[start : start + size]), start + size + 2


def item_content(data: bytes, number: int) -> bytes:
    """The content of an item that is stored in one part in the file or in idat; empty for others."""
    found, inside = find(data, b"meta", b"iloc"), find(data, b"meta", b"idat")
    locations = data[found.content : found.end] if found else b""
    stream = BytesIO(locations)

    def read(size: int) -> int:
        return int.from_bytes(stream.read(size))

    version, sizes = read(VERSION) >> 24, read(2)
    offset_size, length_size, base_size, index_size = (sizes >> shift & 15 for shift in (12, 8, 4, 0))
    id_size, index_size = 4 if version > 1 else 2, index_size if version else 0
    for _ in range(min(read(id_size), len(locations) // _MIN_LOCATION)):
        item, method = read(id_size), read(2) & 15 if version else 0
        read(2)  # the file
        base, count = read(base_size), read(2)
        if item == number and count == 1:
            read(index_size)
            start, length = base + read(offset_size), read(length_size)
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
