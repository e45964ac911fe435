"""Images of a PDF as files: JPEG and JPEG 2000 as they are stored, others decoded by MuPDF."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from typing import Any

from pikepdf import Array, Name, Object, Pdf, PdfError, Stream
from PIL import Image

from engine import MAX_PIXELS
from engine.mupdf import pymupdf
from plugins._jpeg.segments import inspect_coding
from plugins._pdf.name_trees import Ids, as_list
from plugins._pdf.passwords import authenticate
from plugins._pdf.resources import drawn_objects
from plugins._pixels import pillow

_MODES = {1: "L", 3: "RGB", 4: "CMYK"}
_BANDS = {"/DeviceGray": 1, "/CalGray": 1, "/DeviceRGB": 3, "/CalRGB": 3, "/DeviceCMYK": 4}
_ADOBE = b"Adobe\x00"  # in a marker of JPEG files, whose CMYK samples are then inverted


class Extractor:
    """Finds and extracts the images of a document. `data` is the file that it was read from."""

    def __init__(self, document: Pdf, data: bytes, password: str) -> None:
        self._pages = list(document.pages)
        self._shown = pymupdf.open(stream=data, filetype="pdf")
        authenticate(self._shown, password)

    def find(self, indexes: Iterable[int], min_pixels: int) -> list[Object]:
        """The different images that these pages draw, without masks, of at least so many pixels."""
        found: list[Object] = []
        seen: Ids = set()
        contents: set[bytes] = set()
        for index in indexes:
            for image in _images(self._pages[index].obj, seen):
                width, height = image.get("/Width"), image.get("/Height")
                if not (isinstance(width, int) and isinstance(height, int) and width * height >= min_pixels):
                    continue
                keys = [image.get(key) for key in ("/Width", "/Height", "/ColorSpace", "/Filter", "/Decode")]
                described = b" ".join(key.unparse() if isinstance(key, Object) else str(key).encode() for key in keys)
                digest = hashlib.blake2b(described + image.read_raw_bytes()).digest()
                if digest not in contents:
                    contents.add(digest)
                    found.append(image)
        return found

    def extract(self, image: Object) -> tuple[str, bytes] | None:
        """The format and the file of an image. None if it is damaged or too large."""
        filters = [str(item) for item in as_list(image.get("/Filter"))]
        if filters == ["/JPXDecode"]:
            return "jp2", image.read_raw_bytes()
        if filters == ["/DCTDecode"]:
            data = image.read_raw_bytes()
            if _is_complete(data) and _has_colors_of_file(image, data):
                return "jpeg", data
        if int(image.Width) * int(image.Height) > MAX_PIXELS:
            return None
        return self._decode(image)

    def _decode(self, stored: Object) -> tuple[str, bytes] | None:
        pymupdf.TOOLS.mupdf_warnings()  # also that the last one is repeated
        try:
            pixels = pymupdf.Pixmap(self._shown, stored.objgen[0])
            if pixels.colorspace is None:
                return None
            if pixels.colorspace.n not in _MODES or pixels.n != pixels.colorspace.n:
                pixels = pymupdf.Pixmap(pymupdf.csRGB, pixels)
                pixels = pymupdf.Pixmap(pixels, 0) if pixels.alpha else pixels
        except (RuntimeError, ValueError):
            return None
        if pymupdf.TOOLS.mupdf_warnings():
            return None
        image = Image.frombytes(_MODES[pixels.n], (pixels.width, pixels.height), pixels.samples_mv)
        if stored.get("/BitsPerComponent") == 1 and image.mode == "L":
            image = image.convert("1", dither=Image.Dither.NONE)
        profile = _profile(stored, pixels.n)
        if image.mode == "CMYK":
            return "tiff", pillow.encode(image, "TIFF", compression="tiff_lzw", icc_profile=profile)
        return "png", pillow.encode(image, "PNG", icc_profile=profile)


def _images(page: Object, seen: Ids) -> Iterator[Object]:
    """The images that a page draws and that are not `seen` yet, to which they are added."""
    for drawn in drawn_objects(page):
        if drawn.objgen in seen:
            continue
        seen.add(drawn.objgen)
        if drawn.get("/Subtype") == Name.Image and not drawn.get("/ImageMask"):
            yield drawn


def _is_complete(data: bytes) -> bool:
    try:
        return inspect_coding(data)[1]
    except (OSError, ValueError, IndexError):
        return False


def _has_colors_of_file(image: Object, data: bytes) -> bool:
    """Whether readers of the JPEG file show the colors that the PDF shows."""
    space = image.get("/ColorSpace")
    kind = str(space[0]) if isinstance(space, Array) and len(space) else str(space)
    bands = int(space[1].get("/N", 0)) if kind == "/ICCBased" and isinstance(space, Array) else _BANDS.get(kind)
    if bands not in _MODES:
        return False
    values = [float(value) for value in as_list(image.get("/Decode"))]
    if bands == 4:
        return (values == [1, 0] * 4) is (_ADOBE in data[:4096]) and values in ([], [0, 1] * 4, [1, 0] * 4)
    return values in ([], [0, 1] * bands)


def _profile(image: Object, bands: int) -> bytes | None:
    """The ICC profile of an image, if its samples are those that were decoded."""
    space = image.get("/ColorSpace")
    if not isinstance(space, Array) or len(space) < 2 or space[0] != Name.ICCBased:
        return None
    stream: Any = space[1]
    if not isinstance(stream, Stream) or stream.get("/N") != bands:
        return None
    try:
        return bytes(stream.read_bytes())
    except PdfError:
        return None
