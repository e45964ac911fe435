"""Metafiles of Windows that draw four quadrants, in units of a point."""

import struct

from tests.support.samples.generated import COLORS, SIZE

_BOXES = [(index % 2 * SIZE[0] // 2, index // 2 * SIZE[1] // 2, color) for index, color in enumerate(COLORS)]
_HALF = SIZE[0] // 2, SIZE[1] // 2
_NO_PEN = 8  # among the stock objects of EMF


def emf() -> bytes:
    """One pixel of the device is a point."""
    records = [_emf_record(37, 0x80000000 | _NO_PEN)]
    for x, y, (red, green, blue) in _BOXES:
        records.append(_emf_record(39, 1, 0, red | green << 8 | blue << 16, 0))  # a brush
        records.append(_emf_record(37, 1))
        records.append(_emf_record(43, x, y, x + _HALF[0] + 1, y + _HALF[1] + 1))  # without pen, a pixel less is filled
        records.append(_emf_record(40, 1))
    records.append(_emf_record(14, 0, 16, 20))
    size = 88 + sum(map(len, records))
    device = 168_000, 120_000, 59_267, 42_333  # pixels, mm
    frame = tuple(round(side * 2540 / 72) for side in SIZE)
    numbers = (0, 0, *SIZE, 0, 0, *frame)
    counts = 0x10000, size, len(records) + 1, 2, 0, 0, 0, 0
    return struct.pack("<2I8i4s3I2H3I4I", 1, 88, *numbers, b" EMF", *counts, *device) + b"".join(records)


def _emf_record(kind: int, *values: int) -> bytes:
    return struct.pack(f"<{2 + len(values)}I", kind, 8 + 4 * len(values), *values)


def wmf(mode: int = 8) -> bytes:
    """With 72 units per inch in the header of its size, which are the first 22 bytes. `mode` is that of mapping."""
    records = [_wmf_record(0x0103, mode), _wmf_record(0x020C, SIZE[1], SIZE[0])]
    records += [_wmf_record(0x02FA, 5, 0, 0, 0, 0), _wmf_record(0x012D, 0)]
    for number, (x, y, (red, green, blue)) in enumerate(_BOXES, 1):
        records.append(_wmf_record(0x02FC, 0, red | green << 8, blue, 0))  # a brush
        records.append(_wmf_record(0x012D, number))
        records.append(_wmf_record(0x041B, y + _HALF[1] + 1, x + _HALF[0] + 1, y, x))
    records.append(_wmf_record(0))
    body = b"".join(records)
    box = struct.pack("<I5hHI", 0x9AC6CDD7, 0, 0, 0, *SIZE, 72, 0)
    words = struct.unpack("<10H", box)
    checksum = 0
    for word in words:
        checksum ^= word
    largest = max(map(len, records)) // 2
    header = struct.pack("<3HIHIH", 1, 9, 0x300, 9 + len(body) // 2, 5, largest, 0)
    return box + struct.pack("<H", checksum) + header + body


def _wmf_record(kind: int, *values: int) -> bytes:
    return struct.pack(f"<IH{len(values)}H", 3 + len(values), kind, *values)
