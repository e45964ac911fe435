"""What can be seen of a result without its pixels, and the colors of its corners. Options are tested by both."""

import re
import subprocess
from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeAlias

import imagecodecs
import numpy as np
import pikepdf
import pillow_heif
from numpy.typing import NDArray
from PIL import Image, JpegImagePlugin
from psd_tools import PSDImage
from psd_tools.api.utils import has_transparency
from psd_tools.constants import Resource

from tests.support.results import readers

Facts: TypeAlias = dict[str, Any]

_RASTERS = ("jpeg", "png", "webp", "avif", "heic", "gif", "bmp", "tiff")
_MAKE, _GPS, _BITS, _COMPRESSION = 271, 0x8825, 258, 259
_COMPRESSIONS = {1: "none", 5: "lzw", 7: "jpeg", 8: "deflate"}
_JXR = b"II\xbc"
_JXL = (b"\xff\x0a", b"\0\0\0\x0cJXL ")
_JXR = b"II\xbc"
_AV1_SAMPLING = {0: "4:4:4", 0x0C: "4:2:0", 0x1C: "gray", 8: "4:2:2"}


def facts(target: str, data: bytes) -> Facts:
    """Size, number of pages or frames, corners, and what the format stores besides."""
    common = _image(data) if target in _RASTERS else {}
    details = _DETAILS[target](data) if target in _DETAILS else _simple(target, data)
    return {**common, "corners": corners(target, data), **details}


def corners(target: str, data: bytes) -> str:
    """The colors of the corners, row by row: r, g, b, or - for gray."""
    pixels = readers.read(target, data).pixels.astype(int)
    height, width = pixels.shape[:2]
    inset_y, inset_x = height // 8, width // 8
    rows, columns = (inset_y, height - 1 - inset_y), (inset_x, width - 1 - inset_x)
    return "".join(_name(pixels[row, column]) for row in rows for column in columns)


def pixels(data: bytes) -> list[NDArray[Any]]:
    """The frames of an image, as RGBA with 8 bits per sample."""
    data = readers.decode_jxl(data, "apng", "--bits_per_sample=8") if data.startswith(_JXL) else data
    if data.startswith(_JXR):
        return [np.asarray(Image.fromarray(imagecodecs.jpegxr_decode(data)).convert("RGBA"))]
    image = Image.open(BytesIO(data))
    frames = []
    for index in range(getattr(image, "n_frames", 1)):
        image.seek(index)
        frames.append(np.asarray(image.convert("RGBA")))
    return frames


def _name(sample: Any) -> str:
    return "-" if np.ptp(sample) < 25 else "rgb"[int(np.argmax(sample))]


def _image(data: bytes) -> Facts:
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


def _jxl(data: bytes) -> Facts:
    with TemporaryDirectory() as folder:
        file = Path(folder, "in.jxl")
        file.write_bytes(data)
        told = subprocess.run(["jxlinfo", "-v", file], capture_output=True, text=True, check=True).stdout
    described = re.search(r"(\d+)x(\d+), .*?(lossless|lossy), (\d+)-bit ", told)
    assert described
    exif = Image.Exif()
    start = data.find(b"Exif\0\0\0\0")
    exif.load(b"Exif\0\0" + data[start + 8 :] if start > 0 else b"")
    return {
        "size": (int(described[1]), int(described[2])),
        "count": told.count("\nframe: ") or 1,
        "dpi": None,
        "alpha": "type: Alpha" in told,
        "camera": exif.get(_MAKE),
        "position": bool(exif.get_ifd(_GPS)),
        "depth": int(described[4]),
        "lossless": described[3] == "lossless" and b"jbrd" not in data,
    }


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
    return {"depth": max(8, *tags.get(_BITS, ())), "compression": _COMPRESSIONS[tags[_COMPRESSION]]}


def _pdf(data: bytes) -> Facts:
    """The size in pixels of a page that is one image, as it is shown, otherwise in points."""
    with pikepdf.open(BytesIO(data)) as document:
        page = document.pages[0]
        images = list(page.get_images().values())
        box = [float(value) for value in page.mediabox]
        points = round(box[2] - box[0]), round(box[3] - box[1])
        size = (int(images[0].Width), int(images[0].Height)) if images else points
        if (size[0] > size[1]) != (points[0] > points[1]):  # turned by a matrix
            size = size[::-1]
        lossy = [image.get("/Filter") == "/DCTDecode" for image in images]
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


def _simple(target: str, data: bytes) -> Facts:
    """Of a format that stores little besides its pixels."""
    reading = readers.read(target, data)
    return {"size": tuple(map(round, reading.size)), "count": reading.count}


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
    "jxl": _jxl,
    "gif": _no_details,
    "bmp": _no_details,
    "psd": _psd,
    "tiff": _tiff,
    "pdf": _pdf,
    "eps": _eps,
    "svg": _svg,
}
