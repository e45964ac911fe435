"""The containers of Canon besides CR2, CRW and CR3, with their own lossless encodings."""

import struct
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
from PIL.ExifTags import Base

from tests.support.samples.raw_encodings import packed_bits
from tests.support.samples.raw_parts import (
    GAINS_RGGB,
    LITTLE,
    Camera,
    Entry,
    MakerTag,
    Samples,
    Shot,
    displayed_jpeg,
    exposure,
    identity,
    ifd,
    longs,
    mosaic,
    preview_jpeg,
    preview_size,
    shorts,
    sub_ifd,
    tiff,
)

# CRW: the Huffman codes of the bit lengths of differences, as (code, bits), in the first of Canon's tables. Zeros have
# codes for runs, which are not needed here.
_FIRST = ((30, 5), (13, 4), (5, 3), (2, 3), (0, 2), (3, 3), (4, 3), (12, 4), (28, 5), (29, 5), (62, 6), (126, 7))
_OTHER = ((0, 0), (12, 4), (4, 3), (0, 2), (1, 2), (5, 3), (13, 4), (28, 5), (58, 6), (125, 7), (1018, 10))
_BLOCK = 64  # samples

# CR3
_TRACK, _MOVIE = b"trak", b"moov"
_CANON = bytes.fromhex("85c0b687820f11e08111f4ce462b6a48")
_PREVIEW = bytes.fromhex("eaf42b5e1c984b88b9fbb7dc406e4d16")
_BITS, _ESCAPE, _ESCAPE_BITS, _MAX_PARAMETER = 14, 41, 21, 15


def note(camera: Camera) -> Entry:
    """Canon's maker note: the model, the white balance and the black level."""
    model_id, color_data_length, gains_at, black_at = 0x80000189, 582, 0x19, 0xA6
    color_data = [0] * color_data_length
    color_data[gains_at : gains_at + 4] = GAINS_RGGB
    color_data[black_at : black_at + 4] = [camera.black] * 4
    directory = [longs(MakerTag.CANON_MODEL_ID, model_id), shorts(MakerTag.CANON_COLOR_DATA, *color_data)]
    return replace(sub_ifd(Base.MakerNote, directory), type=7, count=len(ifd(directory, 0, LITTLE)))


def crw(camera: Camera, shot: Shot) -> bytes:
    """A heap of records (CIFF): the low bits of the samples, then the differences of the others."""
    # An odd sample beside each even one of its color: no difference is zero.
    odd = ((np.arange(shot.width) // 2 + 1) % 2 * 4).astype(np.uint16)
    samples = (mosaic(camera, shot) & ~np.uint16(4) | odd).astype(np.uint16)
    low = (samples & 3).reshape(-1, 4) @ np.array([1, 4, 16, 64])
    sensor = low.astype(np.uint8).tobytes() + b"\xff" * 514 + _differences((samples >> 2).astype(np.uint16))
    properties = _heap(
        {
            0x080A: f"{camera.make}\0{camera.model}\0".encode().ljust(64 + len(camera.make) + 1, b"\0"),
            0x1031: struct.pack("<3H", 0, shot.width, shot.height).ljust(26, b"\0"),
            0x10A9: struct.pack("<41H", 82, *GAINS_RGGB * 9, *[camera.black] * 4),
            0x1810: struct.pack("<2If3I", shot.width, shot.height, 1, _DEGREES[shot.orientation], 0, 0),
            0x1835: bytes(8),
        }
    )
    return struct.pack("<2sI8sI8x", b"II", 26, b"HEAPCCDR", 0x10002) + _heap(
        {0x2005: sensor, 0x2007: preview_jpeg(shot), 0x300A: properties}
    )


_DEGREES = {1: 0, 3: 180, 6: 90, 8: 270}


def _heap(records: dict[int, bytes]) -> bytes:
    """The values of records, a table of them, and the position of the table."""
    values, table = b"", struct.pack("<H", len(records))
    for tag, value in records.items():
        table += struct.pack("<HII", tag, len(value), len(values))
        values += value + bytes(len(value) % 2)
    return values + table + struct.pack("<I", len(values))


def _differences(samples: Samples) -> bytes:
    """Samples of 10 bits as differences to the one two columns before, Huffman-coded in blocks."""
    values = samples.astype(np.int64)
    before = np.full_like(values, 512)
    before[:, 2:] = values[:, :-2]
    blocks = (values - before).reshape(-1, _BLOCK)
    blocks[1:, 0] -= blocks[:-1, 0].copy()
    lengths = np.frexp(np.abs(blocks))[1].astype(np.int64)
    tails = np.where(blocks < 0, blocks + (1 << lengths) - 1, blocks)
    codes, bits = (np.array([row[part] for row in _OTHER])[np.minimum(lengths, 10)] for part in (0, 1))
    for part, column in enumerate((codes, bits)):
        column[:, 0] = np.array([row[part] for row in _FIRST])[lengths[:, 0]]
    stream = packed_bits((codes << lengths | tails).ravel(), (bits + lengths).ravel())
    return stream.replace(b"\xff", b"\xff\0") + bytes(64)


def cr3(camera: Camera, shot: Shot) -> bytes:
    """Boxes as in MP4: Canon's with metadata, tracks for the preview and the sensor, and their data."""
    jpeg, sensor = preview_jpeg(shot), _planes(camera, shot)
    opening = _box(b"ftyp", b"crx ", struct.pack(">I", 1), b"crx isom")
    preview = _preview_box(shot)
    header = 0
    for _ in range(2):  # the second time with the position of the data
        movie = _movie(camera, shot, (len(jpeg), header), (len(sensor), header + len(jpeg)))
        header = len(opening + movie + preview) + 16
    return opening + movie + preview + struct.pack(">I4sQ", 1, b"mdat", 16 + len(jpeg + sensor)) + jpeg + sensor


def _preview_box(shot: Shot) -> bytes:
    width, height = preview_size(shot)
    jpeg = displayed_jpeg(width, height)
    head = struct.pack(">I4sIHHHHI", 24 + len(jpeg), b"PRVW", 0, 1, width, height, 1, len(jpeg))
    return _box(b"uuid", _PREVIEW, bytes(8), head, jpeg)


def _movie(camera: Camera, shot: Shot, *tracks: tuple[int, int]) -> bytes:
    (jpeg_size, jpeg_at), (sensor_size, sensor_at) = tracks
    size = [longs(Base.ImageWidth, shot.width), longs(Base.ImageLength, shot.height)]
    maker = tiff([longs(MakerTag.CANON_MODEL_ID, 0x80000424), *_color_data(camera)])
    metadata = _box(
        b"uuid",
        _CANON,
        _box(b"CNCV", b"CanonCR3_001/00.09.00/00.00.00"),
        _box(b"CMT1", tiff([*size, *identity(camera, shot)])),
        _box(b"CMT2", tiff(exposure())),
        _box(b"CMT3", maker),
    )
    sensor = _box(b"CMP1", _compression(shot))
    preview = _track(shot, _box(b"JPEG", bytes(4)), jpeg_size, jpeg_at)
    return _box(_MOVIE, metadata, preview, _track(shot, sensor, sensor_size, sensor_at))


def _color_data(camera: Camera) -> list[Entry]:
    values = [0] * 1816
    values[0] = 16  # the version, which says where the others are
    values[0x47:0x4B] = GAINS_RGGB
    values[0x149:0x14D] = [camera.black] * 4
    return [shorts(MakerTag.CANON_COLOR_DATA, *values)]


def _box(kind: bytes, *content: bytes) -> bytes:
    body = b"".join(content)
    return struct.pack(">I4s", 8 + len(body), kind) + body


def _track(shot: Shot, format_box: bytes, size: int, at: int) -> bytes:
    image = bytes(24) + struct.pack(">HH", shot.width, shot.height) + bytes(54)
    table = _box(
        b"stbl",
        _box(b"stsd", struct.pack(">II", 0, 1), _box(b"CRAW", image, format_box)),
        _box(b"stsc", struct.pack(">5I", 0, 1, 1, 1, 1)),
        _box(b"stsz", struct.pack(">4I", 0, 0, 1, size)),
        _box(b"co64", struct.pack(">IIQ", 0, 1, at)),
    )
    handler = _box(b"hdlr", bytes(8), b"vide", bytes(13))
    return _box(_TRACK, _box(b"mdia", handler, _box(b"minf", table)))


def _compression(shot: Shot) -> bytes:
    """Four planes of 14 bits, without a wavelet, in one tile."""
    size = (shot.width, shot.height)
    fields = struct.pack(">HHHHIIII", 0xFFF0, 0x2C, 0x100, 0, *size, *size)
    return (fields + bytes([_BITS, 0x40, 0x00, 0x00]) + struct.pack(">I", 12 + 24 * 4)).ljust(52, b"\0")


def _planes(camera: Camera, shot: Shot) -> bytes:
    """The tile: its headers, then each color of the filter."""
    samples = mosaic(camera, shot).astype(int)
    planes = [_plane(samples[row::2, column::2] - (1 << (_BITS - 1))) for row in (0, 1) for column in (0, 1)]
    headers = struct.pack(">HHIHH", 0xFF01, 8, sum(map(len, planes)), 0, 0)
    for number, plane in enumerate(planes):
        headers += struct.pack(">HHIB3x", 0xFF02, 8, len(plane), number << 4 | 8)
        headers += struct.pack(">HHII", 0xFF03, 8, len(plane), 0)
    return headers + b"".join(planes)


def _plane(samples: "np.ndarray[tuple[int, int], np.dtype[np.int64]]") -> bytes:
    """Adaptive Golomb-Rice codes of the errors of a prediction from the left and from above."""
    parts = list(_codes(samples.tolist()))
    stream = packed_bits(np.array([value for value, _ in parts]), np.array([bits for _, bits in parts]))
    return stream.ljust((len(stream) + 7) // 8 * 8, b"\0")


def _codes(rows: list[list[int]]) -> Iterator[tuple[int, int]]:
    """Values, and how many bits each has."""
    parameter = 0
    above: list[int] = []
    for row in rows:
        # One more on both sides: the first value of the line before, and what the decoder puts behind a line.
        line = [above[1] if above else 0, *row]
        for at in range(1, len(row) + 1):
            last = at == len(row)
            if not above:
                run, predicted = line[at - 1] == 0 and not last, line[at - 1]
            else:
                run = line[at - 1] == above[at] == above[at + 1] and not last
                predicted = above[at] if run else _median(line[at - 1], above[at - 1], above[at])
            if run:
                yield 0, 1
            error = line[at] - predicted
            code = -2 * error - 1 if error < 0 else 2 * error
            yield from _rice(code, parameter)
            if above and not last:
                code = (code + 2 * abs(above[at + 1] - above[at])) >> 1
            parameter = _adapted(parameter, code)
        above = [*line, row[-1] + 1]


def _median(left: int, corner: int, above: int) -> int:
    gradient = left + above - corner
    return sorted((left, gradient, above))[1]


def _rice(code: int, parameter: int) -> Iterator[tuple[int, int]]:
    zeros = code >> parameter
    if zeros >= _ESCAPE:
        yield 1, _ESCAPE + 1
        yield code, _ESCAPE_BITS
    else:
        yield 1, zeros + 1
        if parameter:
            yield code & ((1 << parameter) - 1), parameter


def _adapted(parameter: int, code: int) -> int:
    scaled = code >> parameter
    return min(parameter - (code < (1 << parameter >> 1)) + (scaled > 2) + (scaled > 5), _MAX_PARAMETER)
