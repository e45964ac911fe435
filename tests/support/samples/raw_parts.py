"""The parts of generated camera RAW files: the image, its samples and their encodings, and TIFF directories."""

import io
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray
from PIL import Image
from PIL.ExifTags import Base
from PIL.TiffTags import ASCII, BYTE, LONG, RATIONAL, SHORT, SIGNED_RATIONAL, UNDEFINED

CAPTURED_AT = "2024:05:01 12:00:00"
EXPOSURE_TIME = (1, 125)
F_NUMBER = (56, 10)
SENSITIVITY = 100

# Red, green and blue, row by row of quadrants. Nothing comes near the white level: LibRaw stretches an image
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
    """A camera whose images LibRaw develops uncropped. Sizes must be multiples of `size_step`."""

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


def scene(width: int, height: int) -> NDArray[np.uint16]:
    """Linear RGB of the image: red, green / blue, gray quadrants, a little darker to the left."""
    rows = np.arange(height) * 2 // height
    columns = np.arange(width) * 2 // width
    light = np.linspace(LIGHT_FALLOFF, 1.0, width)[:, np.newaxis]
    image = QUADRANTS[rows[:, np.newaxis], columns] * light * 0xFFFF
    return np.rint(image).astype(np.uint16)


# Image to samples


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
    """A JPEG of half the size."""
    return displayed_jpeg(*preview_size(shot), exif)


def displayed_jpeg(width: int, height: int, exif: bytes = b"") -> bytes:
    """A JPEG of the scene that opens with EXIF, if given, and never with JFIF, like a camera's."""
    buffer = io.BytesIO()
    Image.fromarray(displayed(width, height)).save(buffer, "JPEG")
    jpeg = buffer.getvalue()
    start_marker, jfif_length = jpeg[:2], struct.unpack_from(">H", jpeg, 4)[0]
    opening = jpeg_segment(0xE1, b"Exif\0\0" + exif) if exif else b""
    return start_marker + opening + jpeg[4 + jfif_length :]


def jpeg_segment(marker: int, body: bytes) -> bytes:
    return struct.pack(">BBH", 0xFF, marker, len(body) + 2) + body


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
    MINOLTA_PREVIEW_OFFSET = 0x0088
    MINOLTA_PREVIEW_LENGTH = 0x0089
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
    return sub_ifd(Base.ExifOffset, [*exposure(), *maker_note])


def exposure() -> list[Entry]:
    return [
        rationals(Base.ExposureTime, EXPOSURE_TIME),
        rationals(Base.FNumber, F_NUMBER),
        shorts(Base.ISOSpeedRatings, SENSITIVITY),
        octets(Base.ExifVersion, b"0221"),
        text(Base.DateTimeOriginal, CAPTURED_AT),
    ]


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
    length = longs(Base.JpegIFByteCount, len(jpeg))
    return [shorts(Base.Compression, OLD_JPEG), length, pointer(Base.JpegIFOffset, jpeg)]


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
