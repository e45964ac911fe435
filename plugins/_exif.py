"""EXIF: read from pictures and TIFF directories, without orientation and preview; its part that is safe to publish."""

import struct
from collections.abc import Iterable

from PIL import ExifTags, Image

PREFIX = b"Exif\0\0"
ORIENTATION, XMP = 0x0112, 700
DIRECTORIES = (EXPOSURE, GPS) = (0x8769, 0x8825)

# Tags that describe the picture and not its storage: description, maker, model, software, time, artist, host,
# rating, copyright, the texts of Windows, and the EXIF and GPS directories.
DESCRIPTIVE = frozenset(
    {0x010E, 0x010F, 0x0110, 0x0131, 0x0132, 0x013B, 0x013C, 0x4746, 0x4749, 0x8298}
    | {0x9C9B, 0x9C9C, 0x9C9D, 0x9C9E, 0x9C9F, *DIRECTORIES}
)

# Tags of TIFF that describe only how the pixels are stored, their profile and their resolution.
STRUCTURAL = frozenset(
    {254, 255, 256, 257, 258, 259, 262, 266, 273, 277, 278, 279, 280, 281, 282, 283, 284, 296, 301, 317, 318, 319}
    | {320, 322, 323, 324, 325, 338, 339, 347, 512, 513, 514, 529, 530, 531, 532, 34675}
)
_HOST_COMPUTER, _RESOLUTION = 0x013C, frozenset({0x011A, 0x011B, 0x0128})
_SAFE = (DESCRIPTIVE | _RESOLUTION) - {_HOST_COMPUTER, *DIRECTORIES}

# Exposure, dates, lens and title: tags of the EXIF directory that identify neither a device nor a person or place.
SAFE_EXPOSURE = frozenset(
    {0x829A, 0x829D, 0x8822, 0x8824, 0x8827, 0x8828, 0x882A, *range(0x8830, 0x8836)}
    | {0x9000, 0x9003, 0x9004, 0x9010, 0x9011, 0x9012, 0x9290, 0x9291, 0x9292, *range(0x9201, 0x920B)}
    | {0xA000, 0xA001, 0xA20B, 0xA215, 0xA217, 0xA300, 0xA301, 0xA302, *range(0xA401, 0xA40B), 0xA40C}
    | {0xA432, 0xA433, 0xA434, 0xA436, 0xA437, 0xA460, 0xA461, 0xA462}
)
_GPS_VERSION = 0  # tag

# Raised by Pillow for tags with a wrong type, offset or length.
_INVALID_TAGS = (OSError, SyntaxError, ValueError, TypeError, KeyError, IndexError, OverflowError, struct.error)


def read(image: Image.Image) -> bytes | None:
    """The EXIF block of a picture, without orientation. None if it has none, or an invalid one."""
    raw: bytes | None = image.info.get("exif")
    try:
        tags = Image.Image.getexif(image)  # PngImageFile.getexif would decode the pixels
        if raw and tags.get(ORIENTATION, 1) == 1:
            return raw if raw.startswith(PREFIX) else PREFIX + raw
        return _copy(tags, tags if raw else DESCRIPTIVE & set(tags))
    except _INVALID_TAGS:
        return None


def read_orientation(image: Image.Image) -> int:
    """The EXIF orientation of a picture, 1 to 8; 1 if it has none or invalid EXIF."""
    try:
        orientation = Image.Image.getexif(image).get(ORIENTATION, 1)  # PngImageFile.getexif would decode the pixels
    except _INVALID_TAGS:
        return 1
    return orientation if orientation in range(1, 9) else 1


def from_directory(directory: Image.Exif, *, color_space: int | None = None) -> bytes | None:
    """An EXIF block with the descriptive tags of a TIFF directory. `color_space` replaces the camera's."""
    try:
        return _copy(directory, DESCRIPTIVE & set(directory), color_space)
    except _INVALID_TAGS:
        return None


def parse(exif: bytes | None) -> Image.Exif:
    """The tags of an EXIF block; empty for None."""
    tags = Image.Exif()
    if exif:
        tags.load(exif)
    return tags


def safe_part(exif: bytes) -> bytes | None:
    """The tags of an EXIF block that are safe to publish, and its orientation. None if there are none."""
    try:
        tags = parse(exif)
        copy = Image.Exif()
        for tag in (_SAFE | {ORIENTATION}) & set(tags):
            copy[tag] = tags[tag]
        exposure = tags.get_ifd(EXPOSURE)
        if selected := SAFE_EXPOSURE & set(exposure):
            copy.get_ifd(EXPOSURE).update({tag: exposure[tag] for tag in selected})
        return _to_bytes(copy)
    except _INVALID_TAGS:
        return None


def has_position(exif: bytes) -> bool:
    """Whether an EXIF block has a position, or any other tag of the GPS directory but its version."""
    try:
        return bool(parse(exif).get_ifd(GPS).keys() - {_GPS_VERSION})
    except _INVALID_TAGS:
        return False


def without_orientation(exif: bytes) -> bytes | None:
    """An EXIF block without orientation, and without the preview if it had one. None if the block is invalid."""
    try:
        tags = parse(exif)
        return exif if tags.get(ORIENTATION, 1) == 1 else _copy(tags, tags)
    except _INVALID_TAGS:
        return None


def without_preview(exif: bytes | None) -> bytes | None:
    """An EXIF block without the preview, which shows the picture as it was before it was cropped or rotated."""
    try:
        tags = parse(exif)
        return _copy(tags, tags) if tags.get_ifd(ExifTags.IFD.IFD1) else exif
    except _INVALID_TAGS:
        return None


def _copy(tags: Image.Exif, selected: Iterable[int], color_space: int | None = None) -> bytes | None:
    """A new EXIF block with the selected tags. It has no preview, which would show the original orientation."""
    copy = Image.Exif()
    for tag in selected:
        if tag != ORIENTATION and tag not in DIRECTORIES:
            copy[tag] = tags[tag]
    for pointer in DIRECTORIES:
        if values := tags.get_ifd(pointer):
            copy.get_ifd(pointer).update(values)
    if color_space is not None and (exposure := copy.get_ifd(EXPOSURE)):
        exposure[0xA001] = color_space
    return _to_bytes(copy)


def _to_bytes(tags: Image.Exif) -> bytes | None:
    data = tags.tobytes()
    return data if len(data) > len(PREFIX) + 14 else None
