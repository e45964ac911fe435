"""EXIF: read from pictures and TIFF directories, without orientation and preview."""

from __future__ import annotations

import struct
from collections.abc import Iterable

from PIL import Image

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
    data = copy.tobytes()
    return data if len(data) > len(PREFIX) + 14 else None
