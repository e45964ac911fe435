"""Color profiles."""

import struct
from functools import cache

from PIL import ImageCms


@cache
def srgb_profile() -> bytes:
    """A profile of sRGB, made at the beginning of 2000."""
    profile = bytearray(ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes())
    profile[24:36] = struct.pack(">6H", 2000, 1, 1, 0, 0, 0)
    return bytes(profile)


def swapped_profile() -> bytes:
    """A profile with red and green swapped, so that ignoring it changes the colors."""
    profile = bytearray(srgb_profile())
    red, green = profile.find(b"rXYZ"), profile.find(b"gXYZ")
    profile[red : red + 4], profile[green : green + 4] = b"gXYZ", b"rXYZ"
    return bytes(profile)


def ink_profile() -> bytes:
    """A profile for CMYK: each ink darkens by a quarter of the lightness, without a color."""
    grid = [255 - 63 * bin(corner).count("1") for corner in range(16)]
    identity = bytes(range(256))
    table = bytes(value for lightness in grid for value in (lightness, 128, 128))
    matrix = b"".join(struct.pack(">i", 65536 * (index % 4 == 0)) for index in range(9))
    lut = b"mft1" + bytes(4) + bytes((4, 3, 2, 0)) + matrix + identity * 4 + table + identity * 3
    text = b"text" + bytes(4) + b"Test\0"
    white = b"XYZ " + bytes(4) + struct.pack(">3i", 63190, 65536, 54061)
    tags, offset, data = [], 132 + 12 * 4, b""
    for name, body in ((b"A2B0", lut), (b"cprt", text), (b"desc", text), (b"wtpt", white)):
        tags.append(name + struct.pack(">II", offset + len(data), len(body)))
        data += body + bytes(-len(body) % 4)
    header = struct.pack(">I4xI4s4s4s", offset + len(data), 0x02400000, b"prtr", b"CMYK", b"Lab ")
    header += bytes(12) + b"acsp" + bytes(28) + struct.pack(">3i", 63190, 65536, 54061)
    return header.ljust(128, b"\0") + struct.pack(">I", len(tags)) + b"".join(tags) + data
