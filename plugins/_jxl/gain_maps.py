"""Gain maps in files of JPEG XL: the box jhgm, with the numbers of ISO 21496-1 and an image of JPEG XL."""

from __future__ import annotations

import struct

import numpy as np
from PIL import Image

from engine import CorruptInput, GainMap, Size, TooLarge, warn_gain_map_lost
from plugins._color import gain_maps
from plugins._jxl.reader import read_frames, read_header
from plugins._jxl.writer import Encoding, write

BOX = b"jhgm"
_QUALITY, _EFFORT = 92, 5
_HEADER = ">BH"  # version, bytes of the numbers


def write_box(gain_map: GainMap) -> tuple[bytes, bytes]:
    """The type and content of the box. The profile of the map, which few maps need, is left out."""
    image = gain_map.frame.image
    encoded = write([np.asarray(image)], [], image.mode, Encoding(_QUALITY, lossless=False, effort=_EFFORT))
    numbers = gain_maps.to_iso(gain_map)
    # After the numbers come the sizes of a color encoding and of a profile, of which there are none.
    return BOX, struct.pack(_HEADER, 0, len(numbers)) + numbers + bytes(1 + 4) + encoded


def read_box(content: bytes | None, size: Size) -> GainMap | None:
    """The gain map of an image of `size`. None without; issues a FidelityWarning for one that cannot be read."""
    if content is None:
        return None
    try:
        version, length = struct.unpack_from(_HEADER, content)
        end = struct.calcsize(_HEADER) + length
        end += 1 + content[end]  # a color encoding
        image = content[end + 4 + int.from_bytes(content[end : end + 4]) :]
        header = read_header(image)
        (array,) = read_frames(image, header, [0])
    except (struct.error, IndexError, ValueError, CorruptInput, TooLarge):
        version, header, array, length = 1, None, None, 0
    numbers = gain_maps.from_iso(content[struct.calcsize(_HEADER) :][:length]) if not version else None
    if header is None or array is None or numbers is None or header.is_deep or header.mode not in ("L", "RGB"):
        warn_gain_map_lost()
        return None
    return gain_maps.made(Image.fromarray(array[..., 0] if header.mode == "L" else array), numbers, size)
