"""Generated, tiny camera RAW files: one picture in seven containers.

Each file is what a camera of that maker would write, reduced to what a decoder needs: sensor samples behind a
color filter, as-shot white balance, black and white levels, EXIF, and a smaller JPEG preview. The picture is
`scene`, in linear camera colors, so a developed file can be compared with it quadrant by quadrant.
"""

import io
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray
from PIL import Image
from PIL.ExifTags import Base
from PIL.TiffTags import ASCII, BYTE, IFD, LONG, RATIONAL, SHORT, SIGNED_RATIONAL, UNDEFINED

CAPTURED_AT = "2024:05:01 12:00:00"
EXPOSURE_TIME = (1, 125)
F_NUMBER = (56, 10)
SENSITIVITY = 100

# Red, green and blue, row by row of quadrants. Nothing comes near the white level: LibRaw stretches a picture
# whose brightest sample passes three quarters of it.
QUADRANTS = np.array(
    [[[0.60, 0.06, 0.06], [0.06, 0.55, 0.06]], [[0.06, 0.06, 0.60], [0.35, 0.35, 0.35]]], dtype=np.float64
)
LIGHT_FALLOFF = 0.8

RED_GAIN, GREEN_GAIN, BLUE_GAIN = 2048, 1024, 1536
GAINS_RGGB = (RED_GAIN, GREEN_GAIN, GREEN_GAIN, BLUE_GAIN)
NEUTRAL = GREEN_GAIN / np.array([RED_GAIN, GREEN_GAIN, BLUE_GAIN], dtype=np.float64)

RED, GREEN, BLUE = range(3)
RGGB = ((RED, GREEN), (GREEN, BLUE))
BGGR = ((BLUE, GREEN), (GREEN, RED))

XYZ_TO_LINEAR_SRGB = np.array(
    [[3.2406, -1.5372, -0.4986], [-0.9689, 1.8758, 0.0415], [0.0557, -0.2040, 1.0570]], dtype=np.float64
)

LITTLE, BIG = "<", ">"

Samples = NDArray[np.uint16]


@dataclass(frozen=True)
class Camera:
    """A camera whose pictures LibRaw develops uncropped. Sizes must be multiples of `size_step`."""

    make: str
    model: str
    black: int
    white: int
    filters: tuple[tuple[int, ...], ...] = RGGB
    size_step: tuple[int, int] = (2, 2)

    @property
    def filter_bytes(self) -> bytes:
        return bytes(color for row in self.filters for color in row)


@dataclass(frozen=True)
class Shot:
    width: int
    height: int
    orientation: int


def raw_sample(format_name: str, *, width: int = 168, height: int = 120, orientation: int = 1) -> bytes:
    """A camera RAW file of `format_name` ("cr2", "nef", ...) that develops to `width` x `height`.

    The sensor size is always `width` x `height`; orientations 6 and 8 swap the two when developed.
    """
    camera = CAMERAS[format_name]
    width_step, height_step = camera.size_step
    if width % width_step or height % height_step:
        raise ValueError(f"{format_name}: size must be a multiple of {width_step} x {height_step}")
    return CONTAINERS[format_name](camera, Shot(width, height, orientation))


def scene(width: int, height: int) -> NDArray[np.uint16]:
    """Linear RGB of the picture: red, green / blue, gray quadrants, a little darker to the left."""
    rows = np.arange(height) * 2 // height
    columns = np.arange(width) * 2 // width
    light = np.linspace(LIGHT_FALLOFF, 1.0, width)[:, np.newaxis]
    picture = QUADRANTS[rows[:, np.newaxis], columns] * light * 0xFFFF
    return np.rint(picture).astype(np.uint16)


# Picture to samples


def mosaic(camera: Camera, shot: Shot) -> Samples:
    """The sensor samples of the scene: one color per photosite, before white balance."""
    light = scene(shot.width, shot.height) / 0xFFFF * NEUTRAL
    filters = np.array(camera.filters)
    rows = np.arange(shot.height)[:, np.newaxis] % filters.shape[0]
    columns = np.arange(shot.width) % filters.shape[1]
    seen = np.take_along_axis(light, filters[rows, columns][..., np.newaxis], axis=2)[..., 0]
    return np.rint(camera.black + seen * (camera.white - camera.black)).astype(np.uint16)


def displayed(width: int, height: int) -> NDArray[np.uint8]:
    """The scene as 8-bit, gamma-encoded RGB."""
    return np.rint((scene(width, height) / 0xFFFF) ** (1 / 2.2) * 0xFF).astype(np.uint8)


def preview_size(shot: Shot) -> tuple[int, int]:
    return shot.width // 2, shot.height // 2


def preview_jpeg(shot: Shot, exif: bytes = b"") -> bytes:
    """A JPEG of half the size that opens with EXIF, if given, and never with JFIF, like a camera's."""
    buffer = io.BytesIO()
    Image.fromarray(displayed(*preview_size(shot))).save(buffer, "JPEG")
    jpeg = buffer.getvalue()
    start_marker, jfif_length = jpeg[:2], struct.unpack_from(">H", jpeg, 4)[0]
    opening = jpeg_segment(0xE1, b"Exif\0\0" + exif) if exif else b""
    return start_marker + opening + jpeg[4 + jfif_length :]


# TIFF


class Tag(IntEnum):
    """Tags that the makers add to the TIFF directories themselves."""

    FILTER_PATTERN = 0x828E
    CANON_SLICES = 0xC640
    SONY_BLACK_LEVEL = 0x7310
    SONY_GAINS_RGGB = 0x7313

    FUJI_SENSOR_IFD = 0xF000
    FUJI_WIDTH_HEIGHT_BITS = 0xF001
    FUJI_STRIP_OFFSET = 0xF007
    FUJI_STRIP_BYTE_COUNT = 0xF008
    FUJI_BLACK_LEVEL = 0xF00A

    PANASONIC_VERSION = 0x0001
    PANASONIC_WIDTH_HEIGHT = 0x0002
    PANASONIC_TOP_LEFT_BOTTOM_RIGHT = 0x0004
    PANASONIC_FILTERS = 0x0009
    PANASONIC_BITS_PER_SAMPLE = 0x000A
    PANASONIC_COMPRESSION = 0x000B
    PANASONIC_SENSITIVITY = 0x0017
    PANASONIC_BLACK_RED_GREEN_BLUE = 0x001C
    PANASONIC_GAIN_RED_GREEN_BLUE = 0x0024
    PANASONIC_RAW_FORMAT = 0x002D
    PANASONIC_PREVIEW = 0x002E
    PANASONIC_STRIP_OFFSET = 0x0118


class MakerTag(IntEnum):
    """Tags inside maker notes; the names of different makers share numbers."""

    CANON_MODEL_ID = 0x0010
    CANON_COLOR_DATA = 0x4001
    NIKON_GAINS = 0x000C
    OLYMPUS_CAMERA_SETTINGS = 0x2020
    OLYMPUS_PREVIEW_OFFSET = 0x0101
    OLYMPUS_PREVIEW_LENGTH = 0x0102
    OLYMPUS_IMAGE_PROCESSING = 0x2040
    OLYMPUS_GAINS_RED_BLUE = 0x0100


UNCOMPRESSED, OLD_JPEG, NEW_JPEG, PANASONIC_PACKED = 1, 6, 7, 34316
PHOTOMETRIC_RGB, PHOTOMETRIC_YCBCR, PHOTOMETRIC_FILTERS = 2, 6, 32803
FULL_IMAGE, REDUCED_IMAGE = 0, 1


@dataclass(frozen=True)
class Entry:
    """One directory entry. `data` is made once its place in the file and the byte order are known.

    Data over four bytes goes behind the directory, so one LONG with longer data is a pointer to that data.
    """

    tag: int
    type: int
    count: int
    data: Callable[[int, str], bytes]


Directory = Sequence[Entry]


def octets(tag: int, value: bytes, type_: int = UNDEFINED) -> Entry:
    return Entry(tag, type_, len(value), lambda _at, _order: value)


def text(tag: int, value: str) -> Entry:
    return octets(tag, value.encode() + b"\0", ASCII)


def shorts(tag: int, *values: int) -> Entry:
    return Entry(tag, SHORT, len(values), lambda _at, order: struct.pack(f"{order}{len(values)}H", *values))


def longs(tag: int, *values: int) -> Entry:
    return Entry(tag, LONG, len(values), lambda _at, order: struct.pack(f"{order}{len(values)}I", *values))


def one_each(kind: Callable[[int, int], Entry], first_tag: int, *values: int) -> list[Entry]:
    """An entry for each of `values`, in consecutive tags."""
    return [kind(tag, value) for tag, value in enumerate(values, first_tag)]


def rationals(tag: int, *values: tuple[int, int], type_: int = RATIONAL) -> Entry:
    numbers = [number for value in values for number in value]
    code = "i" if type_ == SIGNED_RATIONAL else "I"
    return Entry(tag, type_, len(values), lambda _at, order: struct.pack(f"{order}{len(numbers)}{code}", *numbers))


def pointer(tag: int, value: bytes) -> Entry:
    return Entry(tag, LONG, 1, lambda _at, _order: value)


def sub_ifd(tag: int, directory: Directory, type_: int = LONG) -> Entry:
    return Entry(tag, type_, 1, lambda at, order: ifd(directory, at, order))


def sub_ifds(tag: int, *directories: Directory) -> Entry:
    """Two directories or more: an array of pointers, then what they point to."""

    def array_and_directories(at: int, order: str) -> bytes:
        starts, blocks = [], b""
        for directory in directories:
            starts.append(at + 4 * len(directories) + len(blocks))
            blocks += ifd(directory, starts[-1], order)
        return struct.pack(f"{order}{len(starts)}I", *starts) + blocks

    return Entry(tag, LONG, len(directories), array_and_directories)


def ifd(directory: Directory, at: int, order: str, next_at: int = 0) -> bytes:
    """A directory to be placed at `at`, with all its data behind it, in the order the entries are given."""
    rows: list[tuple[int, bytes]] = []
    behind = b""
    behind_at = at + 2 + 12 * len(directory) + 4
    for entry in directory:
        place = behind_at + len(behind)
        data = entry.data(place, order)
        if len(data) > 4:
            behind += data + b"\0" * (len(data) % 2)
            data = struct.pack(f"{order}I", place)
        head = struct.pack(f"{order}HHI", entry.tag, entry.type, entry.count)
        rows.append((entry.tag, head + data.ljust(4, b"\0")))
    table = b"".join(row for _tag, row in sorted(rows))
    return struct.pack(f"{order}H", len(rows)) + table + struct.pack(f"{order}I", next_at) + behind


def tiff(directory: Directory, order: str = LITTLE, version: int = 42) -> bytes:
    mark = b"II" if order == LITTLE else b"MM"
    return mark + struct.pack(f"{order}HI", version, 8) + ifd(directory, 8, order)


def identity(camera: Camera, shot: Shot) -> list[Entry]:
    return [
        text(Base.Make, camera.make),
        text(Base.Model, camera.model),
        shorts(Base.Orientation, shot.orientation),
        text(Base.DateTime, CAPTURED_AT),
    ]


def exif_ifd(*maker_note: Entry) -> Entry:
    exposure = [
        rationals(Base.ExposureTime, EXPOSURE_TIME),
        rationals(Base.FNumber, F_NUMBER),
        shorts(Base.ISOSpeedRatings, SENSITIVITY),
        octets(Base.ExifVersion, b"0221"),
        text(Base.DateTimeOriginal, CAPTURED_AT),
    ]
    return sub_ifd(Base.ExifOffset, [*exposure, *maker_note])


def strip(size: tuple[int, int], bits: Sequence[int], compression: int, photometric: int, data: bytes) -> list[Entry]:
    """A directory's main image, with as many samples per pixel as there are `bits`."""
    width, height = size
    return [
        longs(Base.ImageWidth, width),
        longs(Base.ImageLength, height),
        shorts(Base.BitsPerSample, *bits),
        shorts(Base.Compression, compression),
        shorts(Base.PhotometricInterpretation, photometric),
        shorts(Base.SamplesPerPixel, len(bits)),
        longs(Base.RowsPerStrip, height),
        longs(Base.StripByteCounts, len(data)),
        pointer(Base.StripOffsets, data),
    ]


def jpeg_strip(shot: Shot, compression: int) -> list[Entry]:
    """The preview as one JPEG strip."""
    return strip(preview_size(shot), (8, 8, 8), compression, PHOTOMETRIC_YCBCR, preview_jpeg(shot))


def jpeg_interchange(shot: Shot) -> list[Entry]:
    """The preview in the older way of embedding a JPEG."""
    jpeg = preview_jpeg(shot)
    return [
        shorts(Base.Compression, OLD_JPEG),
        longs(Base.JpegIFByteCount, len(jpeg)),
        pointer(Base.JpegIFOffset, jpeg),
    ]


def rgb_strip(width: int, height: int) -> list[Entry]:
    """A thumbnail in plain RGB."""
    pixels = displayed(width, height).tobytes()
    return strip((width, height), (8, 8, 8), UNCOMPRESSED, PHOTOMETRIC_RGB, pixels)


def sensor_strip(camera: Camera, shot: Shot, bits: int, data: bytes) -> list[Entry]:
    """Uncompressed sensor samples, and the layout of the color filter."""
    return [
        longs(Base.NewSubfileType, FULL_IMAGE),
        *strip((shot.width, shot.height), (bits,), UNCOMPRESSED, PHOTOMETRIC_FILTERS, data),
        shorts(Base.PlanarConfiguration, 1),
        shorts(Base.CFARepeatPatternDim, len(camera.filters), len(camera.filters[0])),
        octets(Tag.FILTER_PATTERN, camera.filter_bytes, BYTE),
    ]


# Sample encodings


def packed_bits(values: NDArray[np.int64], lengths: NDArray[np.int64]) -> bytes:
    """The low `lengths` bits of each of `values`, one after the other, most significant bit first."""
    ends = np.cumsum(lengths)
    shifts = np.repeat(ends, lengths) - 1 - np.arange(ends[-1])
    bits = np.repeat(values, lengths) >> shifts & 1
    return np.packbits(bits.astype(np.uint8)).tobytes()


def jpeg_segment(marker: int, body: bytes) -> bytes:
    return struct.pack(">BBH", 0xFF, marker, len(body) + 2) + body


def lossless_jpeg(samples: Samples, precision: int) -> bytes:
    """Samples as a lossless JPEG of two components: even columns and odd columns."""
    height, width = samples.shape
    pairs = samples.astype(np.int64).reshape(height, width // 2, 2)
    predictions = np.empty_like(pairs)
    predictions[0, 0] = 1 << (precision - 1)
    predictions[1:, 0] = pairs[:-1, 0]
    predictions[:, 1:] = pairs[:, :-1]
    differences = (pairs - predictions).ravel()

    # Each difference is its bit length, as a Huffman code which always has four bits, then that many bits.
    lengths = np.frexp(np.abs(differences))[1].astype(np.int64)
    code_length, longest = 4, precision + 1
    tails = np.where(differences < 0, differences + (1 << lengths) - 1, differences)
    stream = packed_bits(lengths << lengths | tails, lengths + code_length)

    code_counts = bytes(longest + 1 if length == code_length else 0 for length in range(1, 17))
    components = bytes([1, 0x11, 0, 2, 0x11, 0])
    return (
        b"\xff\xd8"
        + jpeg_segment(0xC4, b"\0" + code_counts + bytes(range(longest + 1)))
        + jpeg_segment(0xC3, struct.pack(">BHHB", precision, height, width // 2, 2) + components)
        + jpeg_segment(0xDA, bytes([2, 1, 0, 2, 0, 1, 0, 0]))
        + stream.replace(b"\xff", b"\xff\0")
        + b"\xff\xd9"
    )


def olympus_packing(samples: Samples) -> bytes:
    """Twelve bits a sample, in words of four bytes, each written backwards."""
    values = samples.astype(np.int64).ravel()
    stream = np.frombuffer(packed_bits(values, np.full_like(values, 12)), dtype=">u4")
    return stream.astype("<u4").tobytes()


def panasonic_packing(samples: Samples) -> bytes:
    """Fourteen samples in sixteen bytes, in blocks of 16 KiB.

    The first two samples of a group are whole. The others are a change, shifted by one of four amounts, to
    the one two columns before. The largest shift fits every change: it replaces all but the low four bits.
    """
    groups = samples.astype(np.int64).reshape(-1, 14)
    low_bits = np.tile(groups[:, :2] & 0xF, 7)
    high_bits = np.clip((groups - low_bits + 8) >> 4, 1, 0xFF)
    high_bits[:, :2] = groups[:, :2] >> 4
    largest_shift = np.full(len(groups), 3)

    columns: list[NDArray[np.int64]] = []
    lengths: list[int] = []
    for index in range(14):
        if index % 3 == 2:
            columns.append(largest_shift)
            lengths.append(2)
        columns.append(high_bits[:, index])
        lengths.append(8)
        if index < 2:
            columns.append(low_bits[:, index])
            lengths.append(4)
    stream = packed_bits(np.stack(columns, axis=1).ravel(), np.tile(lengths, len(groups)))

    # A group is read from its last byte to its first, and a block starts in its own middle.
    backwards = np.frombuffer(stream, dtype=np.uint8).reshape(-1, 16)[:, ::-1].tobytes()
    block_size, block_start = 0x4000, 0x2008
    padded = backwards + bytes(-len(backwards) % block_size)
    blocks = np.frombuffer(padded, dtype=np.uint8).reshape(-1, block_size)
    return np.roll(blocks, -block_start, axis=1).tobytes()


# Containers


def cr2(camera: Camera, shot: Shot) -> bytes:
    """Canon: the preview in the first directory, the sensor in one that the header points to."""
    sensor = lossless_jpeg(mosaic(camera, shot), precision=12)
    first = [*identity(camera, shot), exif_ifd(canon_note(camera)), *jpeg_strip(shot, OLD_JPEG)]
    raw = [
        shorts(Base.Compression, OLD_JPEG),
        shorts(Tag.CANON_SLICES, 0, 0, shot.width),
        longs(Base.StripByteCounts, len(sensor)),
        pointer(Base.StripOffsets, sensor),
    ]
    first_at = 16
    raw_at = first_at + len(ifd(first, first_at, LITTLE))
    header = b"II*\0" + struct.pack("<I", first_at) + b"CR\x02\0" + struct.pack("<I", raw_at)
    return header + ifd(first, first_at, LITTLE, next_at=raw_at) + ifd(raw, raw_at, LITTLE)


def canon_note(camera: Camera) -> Entry:
    model_id, color_data_length, gains_at, black_at = 0x80000189, 582, 0x19, 0xA6
    color_data = [0] * color_data_length
    color_data[gains_at : gains_at + 4] = GAINS_RGGB
    color_data[black_at : black_at + 4] = [camera.black] * 4
    directory = [
        longs(MakerTag.CANON_MODEL_ID, model_id),
        shorts(MakerTag.CANON_COLOR_DATA, *color_data),
    ]
    note = sub_ifd(Base.MakerNote, directory)
    return replace(note, type=UNDEFINED, count=len(ifd(directory, 0, LITTLE)))


def nef(camera: Camera, shot: Shot) -> bytes:
    """Nikon, big-endian: an RGB thumbnail first; the JPEG preview and the sensor in sub-directories."""
    gains = [(gain, GREEN_GAIN) for gain in (RED_GAIN, BLUE_GAIN, GREEN_GAIN, GREEN_GAIN)]
    note = b"Nikon\0\x02\x10\0\0" + tiff([rationals(MakerTag.NIKON_GAINS, *gains)], BIG)
    preview = [longs(Base.NewSubfileType, REDUCED_IMAGE), *jpeg_interchange(shot)]
    sensor = sensor_strip(camera, shot, bits=14, data=mosaic(camera, shot).astype(">u2").tobytes())
    directory = [
        longs(Base.NewSubfileType, REDUCED_IMAGE),
        *identity(camera, shot),
        exif_ifd(octets(Base.MakerNote, note)),
        *rgb_strip(shot.width // 4, shot.height // 4),
        sub_ifds(Base.SubIFDs, preview, sensor),
    ]
    return tiff(directory, BIG)


def arw(camera: Camera, shot: Shot) -> bytes:
    """Sony: the preview in the first directory, the sensor and its levels in a sub-directory."""
    sensor = [
        shorts(Tag.SONY_BLACK_LEVEL, *[camera.black] * 4),
        shorts(Tag.SONY_GAINS_RGGB, *GAINS_RGGB),
        *sensor_strip(camera, shot, bits=14, data=mosaic(camera, shot).astype("<u2").tobytes()),
    ]
    directory = [
        longs(Base.NewSubfileType, REDUCED_IMAGE),
        *identity(camera, shot),
        exif_ifd(),
        *jpeg_interchange(shot),
        sub_ifd(Base.SubIFDs, sensor),
    ]
    return tiff(directory)


def dng(camera: Camera, shot: Shot) -> bytes:
    """Adobe: as ARW, but described by standard tags alone. Its camera colors are linear sRGB."""
    sensor = [
        longs(Base.BlackLevel, camera.black),
        longs(Base.WhiteLevel, camera.white),
        *sensor_strip(camera, shot, bits=16, data=mosaic(camera, shot).astype("<u2").tobytes()),
    ]
    standard_light_d65 = 21
    matrix = np.rint(XYZ_TO_LINEAR_SRGB * NEUTRAL[:, np.newaxis] * 10_000).astype(int).ravel().tolist()
    neutral = [(GREEN_GAIN, gain) for gain in (RED_GAIN, GREEN_GAIN, BLUE_GAIN)]
    directory = [
        longs(Base.NewSubfileType, REDUCED_IMAGE),
        *identity(camera, shot),
        octets(Base.DNGVersion, bytes([1, 4, 0, 0]), BYTE),
        octets(Base.DNGBackwardVersion, bytes([1, 1, 0, 0]), BYTE),
        text(Base.UniqueCameraModel, f"{camera.make} {camera.model}"),
        rationals(Base.ColorMatrix1, *((number, 10_000) for number in matrix), type_=SIGNED_RATIONAL),
        rationals(Base.AsShotNeutral, *neutral),
        shorts(Base.CalibrationIlluminant1, standard_light_d65),
        exif_ifd(),
        *jpeg_strip(shot, NEW_JPEG),
        sub_ifd(Base.SubIFDs, sensor),
    ]
    return tiff(directory)


def orf(camera: Camera, shot: Shot) -> bytes:
    """Olympus: the sensor in the first directory, the preview and the white balance in the maker note."""
    jpeg = preview_jpeg(shot)
    settings = [
        longs(MakerTag.OLYMPUS_PREVIEW_LENGTH, len(jpeg)),
        pointer(MakerTag.OLYMPUS_PREVIEW_OFFSET, jpeg),
    ]
    processing = [shorts(MakerTag.OLYMPUS_GAINS_RED_BLUE, RED_GAIN // 4, BLUE_GAIN // 4)]
    note_header = b"OLYMPUS\0II\x03\0"
    note_directory = [
        sub_ifd(MakerTag.OLYMPUS_CAMERA_SETTINGS, settings, IFD),
        sub_ifd(MakerTag.OLYMPUS_IMAGE_PROCESSING, processing, IFD),
    ]
    note = note_header + ifd(note_directory, len(note_header), LITTLE)
    directory = [
        text(Base.ImageDescription, "OLYMPUS DIGITAL CAMERA"),
        *identity(camera, shot),
        exif_ifd(octets(Base.MakerNote, note)),
        *sensor_strip(camera, shot, bits=12, data=olympus_packing(mosaic(camera, shot))),
    ]
    return tiff(directory, version=int.from_bytes(b"RO", "little"))


def rw2(camera: Camera, shot: Shot) -> bytes:
    """Panasonic: one directory of its own tags, with the preview as a value."""
    filters_bggr, twelve_bit_groups = 4, 4
    implied_black = 15  # the tags of this sample format leave it out
    sensor = panasonic_packing(mosaic(camera, shot))
    directory = [
        octets(Tag.PANASONIC_VERSION, b"0300"),
        *one_each(shorts, Tag.PANASONIC_WIDTH_HEIGHT, shot.width, shot.height),
        *one_each(shorts, Tag.PANASONIC_TOP_LEFT_BOTTOM_RIGHT, 0, 0, shot.height, shot.width),
        shorts(Tag.PANASONIC_FILTERS, filters_bggr),
        shorts(Tag.PANASONIC_BITS_PER_SAMPLE, 12),
        shorts(Tag.PANASONIC_COMPRESSION, PANASONIC_PACKED),
        shorts(Tag.PANASONIC_SENSITIVITY, SENSITIVITY),
        *one_each(shorts, Tag.PANASONIC_BLACK_RED_GREEN_BLUE, *[camera.black - implied_black] * 3),
        *one_each(shorts, Tag.PANASONIC_GAIN_RED_GREEN_BLUE, RED_GAIN, GREEN_GAIN, BLUE_GAIN),
        shorts(Tag.PANASONIC_RAW_FORMAT, twelve_bit_groups),
        *identity(camera, shot),
        longs(Base.StripByteCounts, len(sensor)),
        exif_ifd(),
        octets(Tag.PANASONIC_PREVIEW, preview_jpeg(shot)),
        pointer(Tag.PANASONIC_STRIP_OFFSET, sensor),
    ]
    return tiff(directory, version=int.from_bytes(b"U\0", "little"))


def raf(camera: Camera, shot: Shot) -> bytes:
    """Fujifilm: a header that points to a preview with all the EXIF, a list of records and a sensor TIFF."""
    jpeg = preview_jpeg(shot, exif=tiff([*identity(camera, shot), exif_ifd()]))
    records = fuji_records(camera, shot)
    samples = mosaic(camera, shot).astype("<u2").tobytes()
    sensor_directory = [
        *one_each(longs, Tag.FUJI_WIDTH_HEIGHT_BITS, shot.width, shot.height, 14),
        longs(Tag.FUJI_STRIP_BYTE_COUNT, len(samples)),
        longs(Tag.FUJI_BLACK_LEVEL, *[camera.black] * len(camera.filter_bytes)),
        pointer(Tag.FUJI_STRIP_OFFSET, samples),
    ]
    sensor = tiff([sub_ifd(Tag.FUJI_SENSOR_IFD, sensor_directory, IFD)])

    model = camera.model.encode().ljust(32, b"\0")
    signature = (b"FUJIFILMCCD-RAW 0201FF392101" + model + b"0100").ljust(84, b"\0")
    header_length = 148
    table = b""
    place = header_length
    for part in (jpeg, records, sensor):
        table += struct.pack(">II", place, len(part))
        place += len(part)
    return (signature + table).ljust(header_length, b"\0") + jpeg + records + sensor


def fuji_records(camera: Camera, shot: Shot) -> bytes:
    size = struct.pack(">HH", shot.height, shot.width)
    unrotated_sensor = bytes([1, 8, 0, 0])
    records = {
        0x0100: size,
        0x0110: struct.pack(">HH", 0, 0),
        0x0111: size,
        0x0121: size,
        0x0130: unrotated_sensor,
        0x2FF0: struct.pack(">4H", GREEN_GAIN, RED_GAIN, GREEN_GAIN, BLUE_GAIN),
    }
    listed = b"".join(struct.pack(">HH", tag, len(value)) + value for tag, value in records.items())
    return struct.pack(">I", len(records)) + listed


CAMERAS = {
    "cr2": Camera("Canon", "Canon EOS 350D DIGITAL", black=256, white=4095),
    "nef": Camera("NIKON CORPORATION", "NIKON D3X", black=0, white=16383),
    "arw": Camera("SONY", "ILCE-7M2", black=512, white=16383),
    "dng": Camera("Google", "Pixel 6", black=1024, white=16383),
    # A Fujifilm with Bayer filters: LibRaw develops X-Trans pictures only from 512 x 512 pixels.
    "raf": Camera("FUJIFILM", "X-A1", black=1024, white=16383),
    "orf": Camera("OLYMPUS IMAGING CORP.", "E-410", black=0, white=3946, size_step=(4, 2)),
    "rw2": Camera("Panasonic", "DMC-LX3", black=143, white=4095, filters=BGGR, size_step=(14, 2)),
}

CONTAINERS = {container.__name__: container for container in (cr2, nef, arw, dng, raf, orf, rw2)}
