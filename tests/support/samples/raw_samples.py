"""Generated, tiny camera RAW files: one image in the container of each maker.

Each file is what a camera of that maker would write, reduced to what a decoder needs: sensor samples behind a
color filter, as-shot white balance, black and white levels, EXIF, and a smaller JPEG preview. The image is
`scene`, in linear camera colors, so a developed file can be compared with it quadrant by quadrant.
"""

import struct
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from PIL.ExifTags import Base
from PIL.TiffTags import BYTE, IFD, SIGNED_RATIONAL, UNDEFINED

from tests.support.samples import raw_canon
from tests.support.samples.raw_encodings import lossless_jpeg, olympus_packing, packed_bits, panasonic_packing
from tests.support.samples.raw_parts import (
    BGGR,
    BIG,
    BLUE_GAIN,
    GAINS_RGGB,
    GREEN_GAIN,
    LITTLE,
    NEUTRAL,
    NEW_JPEG,
    OLD_JPEG,
    PANASONIC_PACKED,
    RED_GAIN,
    REDUCED_IMAGE,
    SENSITIVITY,
    XYZ_TO_LINEAR_SRGB,
    Camera,
    Directory,
    Entry,
    MakerTag,
    Shot,
    Tag,
    exif_ifd,
    identity,
    ifd,
    jpeg_interchange,
    jpeg_strip,
    longs,
    mosaic,
    octets,
    one_each,
    pointer,
    preview_jpeg,
    rationals,
    rgb_strip,
    sensor_strip,
    shorts,
    sub_ifd,
    sub_ifds,
    text,
    tiff,
)

AS_SHOT_NEUTRAL = rationals(Base.AsShotNeutral, *((GREEN_GAIN, gain) for gain in (RED_GAIN, GREEN_GAIN, BLUE_GAIN)))


def raw_sample(format_name: str, *, width: int = 168, height: int = 120, orientation: int = 1) -> bytes:
    """A camera RAW file of `format_name` ("cr2", "nef", ...) that develops to `width` x `height`.

    The sensor size is always `width` x `height`; orientations 6 and 8 swap the two when developed.
    """
    camera = CAMERAS[format_name]
    width_step, height_step = camera.size_step
    if width % width_step or height % height_step:
        raise ValueError(f"{format_name}: size must be a multiple of {width_step} x {height_step}")
    return CONTAINERS[format_name](camera, Shot(width, height, orientation))


def first_directory(
    camera: Camera, shot: Shot, sensor: Directory, note: Sequence[Entry] = (), more: Sequence[Entry] = ()
) -> Directory:
    """The first directory of most makers: what is known of the image, a preview as JPEG, and the sensor below it."""
    return [
        longs(Base.NewSubfileType, REDUCED_IMAGE),
        *identity(camera, shot),
        *more,
        exif_ifd(*note),
        *jpeg_interchange(shot),
        sub_ifd(Base.SubIFDs, sensor),
    ]


def leveled_strip(camera: Camera, shot: Shot, order: str = LITTLE) -> Directory:
    """Samples of 16 bits with their black and their white level."""
    samples = mosaic(camera, shot).astype(f"{order}u2").tobytes()
    levels = [longs(Base.BlackLevel, camera.black), longs(Base.WhiteLevel, camera.white)]
    return [*levels, *sensor_strip(camera, shot, bits=16, data=samples)]


def cr2(camera: Camera, shot: Shot) -> bytes:
    """Canon: the preview in the first directory, the sensor in one that the header points to."""
    sensor = lossless_jpeg(mosaic(camera, shot), precision=12)
    first = [*identity(camera, shot), exif_ifd(raw_canon.note(camera)), *jpeg_strip(shot, OLD_JPEG)]
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


def nef(camera: Camera, shot: Shot) -> bytes:
    """Nikon, big-endian: an RGB thumbnail first; the JPEG preview and the sensor in sub-directories."""
    preview = [longs(Base.NewSubfileType, REDUCED_IMAGE), *jpeg_interchange(shot)]
    sensor = sensor_strip(camera, shot, bits=14, data=mosaic(camera, shot).astype(">u2").tobytes())
    directory = [
        longs(Base.NewSubfileType, REDUCED_IMAGE),
        *identity(camera, shot),
        exif_ifd(nikon_note()),
        *rgb_strip(shot.width // 4, shot.height // 4),
        sub_ifds(Base.SubIFDs, preview, sensor),
    ]
    return tiff(directory, BIG)


def nikon_note() -> Entry:
    gains = [(gain, GREEN_GAIN) for gain in (RED_GAIN, BLUE_GAIN, GREEN_GAIN, GREEN_GAIN)]
    return octets(Base.MakerNote, b"Nikon\0\x02\x10\0\0" + tiff([rationals(MakerTag.NIKON_GAINS, *gains)], BIG))


def nrw(camera: Camera, shot: Shot) -> bytes:
    """Nikon's compact cameras, little-endian: as ARW, with packed samples."""
    sensor = sensor_strip(camera, shot, bits=12, data=olympus_packing(mosaic(camera, shot)))
    return tiff(first_directory(camera, shot, sensor, note=[nikon_note()]))


def tiff_raw(camera: Camera, shot: Shot, order: str = LITTLE, more: Sequence[Entry] = ()) -> bytes:
    """Most other makers: as ARW, with the tags of TIFF/EP and DNG for the white balance and the levels."""
    sensor = leveled_strip(camera, shot, order)
    return tiff(first_directory(camera, shot, sensor, more=[*more, AS_SHOT_NEUTRAL]), order)


def big_endian_raw(camera: Camera, shot: Shot) -> bytes:
    return tiff_raw(camera, shot, BIG)


def arw(camera: Camera, shot: Shot) -> bytes:
    """Sony: the preview in the first directory, the sensor and its levels in a sub-directory."""
    sensor = [
        shorts(Tag.SONY_BLACK_LEVEL, *[camera.black] * 4),
        shorts(Tag.SONY_GAINS_RGGB, *GAINS_RGGB),
        *sensor_strip(camera, shot, bits=14, data=mosaic(camera, shot).astype("<u2").tobytes()),
    ]
    return tiff(first_directory(camera, shot, sensor))


def dng(camera: Camera, shot: Shot) -> bytes:
    """Adobe: as ARW, but described by standard tags alone. Its camera colors are linear sRGB."""
    standard_light_d65 = 21
    matrix = np.rint(XYZ_TO_LINEAR_SRGB * NEUTRAL[:, np.newaxis] * 10_000).astype(int).ravel().tolist()
    directory = [
        longs(Base.NewSubfileType, REDUCED_IMAGE),
        *identity(camera, shot),
        octets(Base.DNGVersion, bytes([1, 4, 0, 0]), BYTE),
        octets(Base.DNGBackwardVersion, bytes([1, 1, 0, 0]), BYTE),
        text(Base.UniqueCameraModel, f"{camera.make} {camera.model}"),
        rationals(Base.ColorMatrix1, *((number, 10_000) for number in matrix), type_=SIGNED_RATIONAL),
        AS_SHOT_NEUTRAL,
        shorts(Base.CalibrationIlluminant1, standard_light_d65),
        exif_ifd(),
        *jpeg_strip(shot, NEW_JPEG),
        sub_ifd(Base.SubIFDs, leveled_strip(camera, shot)),
    ]
    return tiff(directory)


def orf(camera: Camera, shot: Shot) -> bytes:
    """Olympus: the sensor in the first directory, the preview and the white balance in the maker note."""
    jpeg = preview_jpeg(shot)
    settings = [longs(MakerTag.OLYMPUS_PREVIEW_LENGTH, len(jpeg)), pointer(MakerTag.OLYMPUS_PREVIEW_OFFSET, jpeg)]
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


def mrw(camera: Camera, shot: Shot) -> bytes:
    """Minolta: blocks with the size, a TIFF for metadata, and the white balance; then packed samples."""
    size = (shot.height, shot.width)
    packed, rggb = 0x59, 1
    image = b"27730001" + struct.pack(">4H4B3xB", *size, *size, 12, 12, packed, 0, rggb)
    gains = bytes([2] * 4) + struct.pack(">4H", *(gain // 4 for gain in GAINS_RGGB))
    jpeg = preview_jpeg(shot)
    notes = [pointer(MakerTag.MINOLTA_PREVIEW_OFFSET, jpeg), longs(MakerTag.MINOLTA_PREVIEW_LENGTH, len(jpeg))]
    note = replace(sub_ifd(Base.MakerNote, notes), type=UNDEFINED, count=len(ifd(notes, 0, BIG)))
    metadata = tiff([*identity(camera, shot), exif_ifd(note)], BIG)
    blocks = b"".join(
        name + struct.pack(">I", len(block)) + block
        for name, block in ((b"\0PRD", image.ljust(24, b"\0")), (b"\0TTW", metadata), (b"\0WBG", gains))
    )
    values = mosaic(camera, shot).astype(np.int64).ravel()
    return b"\0MRM" + struct.pack(">I", len(blocks)) + blocks + packed_bits(values, np.full_like(values, 12))


def iiq(camera: Camera, shot: Shot) -> bytes:
    """Phase One: a list of records at byte 8, with the samples, inside a TIFF that describes the same samples."""
    samples = mosaic(camera, shot).astype("<u2").tobytes()
    size = {0x108: shot.width, 0x109: shot.height, 0x10C: shot.width, 0x10D: shot.height}
    gains = struct.pack("<3f", *(gain / GREEN_GAIN for gain in (RED_GAIN, GREEN_GAIN, BLUE_GAIN)))
    uncompressed = {0x10A: 0, 0x10B: 0, 0x10E: 0}
    values: dict[int, int | bytes] = {0x107: gains, **size, **uncompressed, 0x10F: samples}
    start, rows, behind = 12, b"", b""
    for tag, value in values.items():
        place = start + 8 + 16 * len(values) + len(behind)
        length, stored = (4, value) if isinstance(value, int) else (len(value), place)
        rows += struct.pack("<4I", tag, 1, length, stored)
        behind += b"" if isinstance(value, int) else value
    records = b"IIIITwaR" + struct.pack("<3I", start, len(values), 0) + rows + behind
    samples_at = 8 + len(records) - len(samples)
    sensor = [entry for entry in sensor_strip(camera, shot, 16, samples) if entry.tag != Base.StripOffsets]
    preview = [longs(Base.NewSubfileType, REDUCED_IMAGE), *jpeg_interchange(shot)]
    described = [*identity(camera, shot), exif_ifd(), *sensor]
    directory = [*described, longs(Base.StripOffsets, samples_at), sub_ifd(Base.SubIFDs, preview)]
    start = 8 + len(records)
    return b"II*\0" + struct.pack("<I", start) + records + ifd(directory, start, LITTLE)


CAMERAS = {
    "cr2": Camera("Canon", "Canon EOS 350D DIGITAL", black=256, white=4095),
    "cr3": Camera("Canon", "Canon EOS R", black=512, white=16383),
    "crw": Camera("Canon", "Canon EOS 10D", black=0, white=4095, size_step=(8, 8)),
    "nef": Camera("NIKON CORPORATION", "NIKON D3X", black=0, white=16383),
    "nrw": Camera("NIKON", "COOLPIX P7000", black=0, white=4095, size_step=(8, 2)),
    "arw": Camera("SONY", "ILCE-7M2", black=512, white=16383),
    "sr2": Camera("SONY", "DSC-R1", black=0, white=16383),
    "dng": Camera("Google", "Pixel 6", black=1024, white=16383),
    # A Fujifilm with Bayer filters: LibRaw develops X-Trans images only from 512 x 512 pixels.
    "raf": Camera("FUJIFILM", "X-A1", black=1024, white=16383),
    "orf": Camera("OLYMPUS IMAGING CORP.", "E-410", black=0, white=3946, size_step=(4, 2)),
    "rw2": Camera("Panasonic", "DMC-LX3", black=143, white=4095, filters=BGGR, size_step=(14, 2)),
    "rwl": Camera("LEICA", "D-LUX 4", black=143, white=4095, filters=BGGR, size_step=(14, 2)),
    "pef": Camera("PENTAX", "PENTAX K10D", black=0, white=4095),
    "srw": Camera("SAMSUNG", "NX100", black=0, white=4095),
    "3fr": Camera("Hasselblad", "Hasselblad H3D", black=0, white=65535),
    "iiq": Camera("Phase One A/S", "IQ140", black=0, white=65535),
    "erf": Camera("SEIKO EPSON CORP.", "R-D1", black=0, white=4095),
    "mef": Camera("Mamiya-OP Co.,Ltd.", "MAMIYA ZD", black=0, white=4095),
    "mos": Camera("Leaf", "Leaf Aptus 22", black=0, white=16383),
    "mrw": Camera("KONICA MINOLTA", "DYNAX 5D", black=0, white=4095),
    "dcr": Camera("KODAK", "DCS Pro SLR/n", black=0, white=16383),
    "kdc": Camera("EASTMAN KODAK COMPANY", "KODAK P850 ZOOM DIGITAL CAMERA", black=0, white=4095),
}

CONTAINERS = {
    **{container.__name__: container for container in (cr2, nef, nrw, arw, dng, raf, orf, rw2, mrw, iiq)},
    **{container.__name__: container for container in (raw_canon.cr3, raw_canon.crw)},
    "rwl": rw2,
    **dict.fromkeys(("sr2", "srw", "3fr", "erf", "mef"), tiff_raw),
    **dict.fromkeys(("pef", "mos", "dcr", "kdc"), big_endian_raw),
}
