"""EXIF taken out of files, made to describe an upright picture, and read back for formats that spread it."""

from __future__ import annotations

import struct
from collections.abc import Iterable

from PIL import Image

PREFIX = b"Exif\0\0"
ORIENTATION, XMP = 0x0112, 700
DIRECTORIES = (EXPOSURE, GPS) = (0x8769, 0x8825)

# What describes a picture rather than its storage: all that may be taken from, or put into, a TIFF directory.
# Description, maker, model, software, time, artist, host, rating, copyright, Windows' own texts.
DESCRIPTIVE = frozenset(
    {0x010E, 0x010F, 0x0110, 0x0131, 0x0132, 0x013B, 0x013C, 0x4746, 0x4749, 0x8298}
    | {0x9C9B, 0x9C9C, 0x9C9D, 0x9C9E, 0x9C9F, *DIRECTORIES}
)

# What Pillow raises on tags that lie about their type, place or length.
_BROKEN = (OSError, SyntaxError, ValueError, TypeError, KeyError, IndexError, OverflowError, struct.error)


def of(image: Image.Image) -> bytes | None:
    """The picture's EXIF without orientation, which is applied; None where there is none or it is broken."""
    raw: bytes | None = image.info.get("exif")
    try:
        tags = Image.Image.getexif(image)  # a PNG's own would decode its pixels
        if raw and tags.get(ORIENTATION, 1) == 1:
            return raw if raw.startswith(PREFIX) else PREFIX + raw
        return _copied(tags, tags if raw else DESCRIPTIVE & set(tags))
    except _BROKEN:
        return None


def described(directory: Image.Exif, *, color_space: int | None = None) -> bytes | None:
    """EXIF of the descriptive tags of a TIFF directory; `color_space` replaces what the camera noted."""
    try:
        return _copied(directory, DESCRIPTIVE & set(directory), color_space)
    except _BROKEN:
        return None


def parsed(exif: bytes | None) -> Image.Exif:
    """`exif` as tags; none where there is none."""
    tags = Image.Exif()
    if exif:
        tags.load(exif)
    return tags


def _copied(tags: Image.Exif, wanted: Iterable[int], color_space: int | None = None) -> bytes | None:
    """A fresh directory: without a preview, which would show the picture as it was, and in a form all can read."""
    copy = Image.Exif()
    for tag in wanted:
        if tag != ORIENTATION and tag not in DIRECTORIES:
            copy[tag] = tags[tag]
    for pointer in DIRECTORIES:
        if values := tags.get_ifd(pointer):
            copy.get_ifd(pointer).update(values)
    if color_space is not None and (exposure := copy.get_ifd(EXPOSURE)):
        exposure[0xA001] = color_space
    data = copy.tobytes()
    return data if len(data) > len(PREFIX) + 14 else None
