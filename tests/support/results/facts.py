"""What can be seen of a result without its pixels, and the colors of its corners. Options are tested by both."""

import re
from collections.abc import Callable
from io import BytesIO
from typing import Any, TypeAlias

import numpy as np
import pikepdf
import pillow_heif
from PIL import Image, JpegImagePlugin
from psd_tools import PSDImage
from psd_tools.api.utils import has_transparency
from psd_tools.constants import Resource

from tests.support.results import readers

Facts: TypeAlias = dict[str, Any]

_RASTERS = ("jpeg", "png", "webp", "avif", "heic", "gif", "bmp", "tiff")
_MAKE, _GPS, _BITS, _COMPRESSION = 271, 0x8825, 258, 259
_COMPRESSIONS = {1: "none", 5: "lzw", 7: "jpeg", 8: "deflate"}
_AV1_SAMPLING = {0: "4:4:4", 0x0C: "4:2:0", 0x1C: "gray"}


def facts(target: str, data: bytes) -> Facts:
    """Size, number of pages or frames, corners, and what the format stores besides."""
    common = _picture(data) if target in _RASTERS else {}
    return {**common, "corners": corners(target, data), **_DETAILS[target](data)}


def corners(target: str, data: bytes) -> str:
    """The colors of the corners, row by row: r, g, b, or - for gray."""
    pixels = readers.read(target, data).pixels.astype(int)
    height, width = pixels.shape[:2]
    inset_y, inset_x = height // 8, width // 8
    rows, columns = (inset_y, height - 1 - inset_y), (inset_x, width - 1 - inset_x)
    return "".join(_name(pixels[row, column]) for row in rows for column in columns)


def _name(sample: Any) -> str:
    return "-" if np.ptp(sample) < 25 else "rgb"[int(np.argmax(sample))]


def _picture(data: bytes) -> Facts:
    image = Image.open(BytesIO(data))
    exif = image.getexif()
    image.load()
    # Without a resolution, Pillow reports 72 dpi for a JPEG with EXIF.
    dpi = image.info.get("dpi") if image.format != "JPEG" or image.info.get("jfif_unit") else None
    return {
        "size": image.size,
        "count": getattr(image, "n_frames", 1),
        "dpi": dpi and tuple(round(float(value)) for value in dpi),
        "profile": image.info.get("icc_profile"),
        "alpha": image.mode in ("LA", "RGBA", "PA") or "transparency" in image.info,
        "camera": exif.get(_MAKE),
        "position": bool(exif.get_ifd(_GPS)),
        "depth": 8,
    }


def _jpeg(data: bytes) -> Facts:
    image = Image.open(BytesIO(data))
    sampling = {0: "4:4:4", 2: "4:2:0"}.get(JpegImagePlugin.get_sampling(image)) if image.mode == "RGB" else "gray"
    return {"progressive": bool(image.info.get("progressive")), "subsampling": sampling}


def _png(data: bytes) -> Facts:
    return {"depth": max(8, data[24]), "progressive": bool(data[28])}


def _webp(data: bytes) -> Facts:
    return {"lossless": b"VP8L" in data and b"VP8 " not in data}


def _avif(data: bytes) -> Facts:
    flags = data[data.index(b"av1C") + 6]
    depth = (12 if flags & 0x20 else 10) if flags & 0x40 else 8
    return {"depth": depth, "lossless": _AV1_SAMPLING[flags & 0x1C] == "4:4:4"}


def _heic(data: bytes) -> Facts:
    info = pillow_heif.open_heif(BytesIO(data), convert_hdr_to_8bit=False).info
    return {"depth": info["bit_depth"], "lossless": info.get("chroma") == 444}


def _psd(data: bytes) -> Facts:
    document = PSDImage.open(BytesIO(data))
    resolution, profile, block = (
        document.image_resources.get_data(number)
        for number in (Resource.RESOLUTION_INFO, Resource.ICC_PROFILE, Resource.EXIF_DATA_1)
    )
    exif = Image.Exif()
    exif.load(block or b"")
    return {
        "size": document.size,
        "count": 1,
        "dpi": resolution and (round(resolution.horizontal / 65536), round(resolution.vertical / 65536)),
        "profile": profile,
        "alpha": has_transparency(document),
        "camera": exif.get(_MAKE),
        "position": bool(exif.get_ifd(_GPS)),
        "depth": document.depth,
    }


def _tiff(data: bytes) -> Facts:
    tags = Image.open(BytesIO(data)).tag_v2  # type: ignore[attr-defined]
    return {"depth": max(8, *tags[_BITS]), "compression": _COMPRESSIONS[tags[_COMPRESSION]]}


def _pdf(data: bytes) -> Facts:
    """The size in pixels of a page that is one picture, as it is shown, otherwise in points."""
    with pikepdf.open(BytesIO(data)) as document:
        page = document.pages[0]
        pictures = list(page.get_images().values())
        box = [float(value) for value in page.mediabox]
        points = round(box[2] - box[0]), round(box[3] - box[1])
        size = (int(pictures[0].Width), int(pictures[0].Height)) if pictures else points
        if (size[0] > size[1]) != (points[0] > points[1]):  # turned by a matrix
            size = size[::-1]
        lossy = [picture.get("/Filter") == "/DCTDecode" for picture in pictures]
        return {"size": size, "count": len(document.pages), "lossy": lossy}


def _eps(data: bytes) -> Facts:
    box = re.search(rb"^%%BoundingBox: (\d+) (\d+) (\d+) (\d+)", data, re.MULTILINE)
    assert box
    left, bottom, right, top = map(int, box.groups())
    return {"size": (right - left, top - bottom), "lossy": [b"/DCTDecode" in data]}


def _svg(data: bytes) -> Facts:
    size = re.search(rb' width="([\d.]+)(pt)?" height="([\d.]+)(pt)?"', data)
    assert size
    return {"size": (round(float(size[1])), round(float(size[3])))}


def _jpeg_2000(data: bytes) -> Facts:
    """From the header of the codestream, and the box with the resolution in dots per meter."""
    codestream = data[data.index(b"\xff\x4f\xff\x51") :]
    width, height = (int.from_bytes(codestream[at : at + 4]) for at in (8, 12))
    resolution = data.find(b"resc") + 4
    down, across = (int.from_bytes(data[at : at + 2]) for at in (resolution, resolution + 4))
    return {
        "size": (width, height),
        "count": 1,
        "alpha": codestream[41] in (2, 4),
        "depth": codestream[42] + 1,
        "lossless": codestream[codestream.index(b"\xff\x52") + 13] == 1,
        "dpi": (round(across / 39.37), round(down / 39.37)) if resolution > 3 else None,
    }


def _read_size(name: str) -> Callable[[bytes], Facts]:
    def details(data: bytes) -> Facts:
        reading = readers.read(name, data)
        return {"size": reading.size, "count": reading.count}

    return details


def _no_details(data: bytes) -> Facts:
    return {}


_DETAILS: dict[str, Callable[[bytes], Facts]] = {
    "j2k": _jpeg_2000,
    "jp2": _jpeg_2000,
    "jpeg": _jpeg,
    "jph": _jpeg_2000,
    "png": _png,
    "webp": _webp,
    "avif": _avif,
    "heic": _heic,
    "gif": _no_details,
    "bmp": _no_details,
    "exr": _read_size("exr"),
    "hdr": _read_size("hdr"),
    "jxr": _read_size("jxr"),
    "psd": _psd,
    "tiff": _tiff,
    "pdf": _pdf,
    "eps": _eps,
    "svg": _svg,
}
