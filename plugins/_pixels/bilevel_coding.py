"""Compresses images of 1 bit without loss, as TIFF and PDF store them."""

import zlib
from io import BytesIO

from PIL import Image, ImageChops, TiffImagePlugin


def compress(image: Image.Image) -> tuple[bool, bytes]:
    """The samples of an image of mode 1, of which 0 is white: whether by Group 4 or by deflate, and the smaller."""
    inverted = ImageChops.invert(image)
    group4, deflated = _group4(inverted), zlib.compress(inverted.tobytes())
    return len(group4) <= len(deflated), min(group4, deflated, key=len)


def _group4(image: Image.Image) -> bytes:
    """An image of mode 1 compressed by Group 4, as one strip."""
    file = BytesIO()
    image.save(file, "TIFF", compression="group4", strip_size=image.width * image.height)
    data = file.getvalue()
    with TiffImagePlugin.TiffImageFile(BytesIO(data)) as written:
        (offset,) = written.tag_v2[TiffImagePlugin.STRIPOFFSETS]
        (size,) = written.tag_v2[TiffImagePlugin.STRIPBYTECOUNTS]
    return data[offset : offset + size]
