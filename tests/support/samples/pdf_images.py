"""PDF pages with one image, of all kinds in which PDF stores images, and a look at the images in a file."""

import struct
import warnings
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from io import BytesIO
from typing import Any

import numpy as np
import pikepdf
import pypdfium2
import tifffile
from pikepdf import Array, Dictionary, Name, Pdf, Stream
from PIL import Image

from tests.support.samples.generated import saved as encoded
from tests.support.samples.pdf_documents import saved
from tests.support.samples.rasters import photo

SIDE = 200  # pixels of an image, at 600 dpi
POINTS = 24
PHOTO = photo((SIDE, SIDE))
GRAY = PHOTO.convert("L")
BILEVEL = GRAY.point(lambda level: 255 * (level > 128)).convert("1")
_UNREADABLE = (
    pikepdf.DependencyError,
    pikepdf.models.image.DecompressionBombError,
    pikepdf.UnsupportedImageTypeError,
    pikepdf.HifiPrintImageNotTranscodableError,
)
_BACKGROUND = b"0.7 0.9 1 rg 0 0 100 100 re f "


def image_stream(made: Pdf, data: bytes, space: Any, bits: int = 8, **entries: Any) -> Stream:
    keys = {"ColorSpace": space, "BitsPerComponent": bits, **entries}
    given = {f"/{key}": value for key, value in keys.items() if value is not None}
    stream = Stream(made, data, {"/Type": Name.XObject, "/Subtype": Name.Image, "/Width": SIDE, "/Height": SIDE})
    for key, value in given.items():
        stream[key] = value
    return made.make_indirect(stream)


def flate(made: Pdf, pixels: Image.Image, space: Any, bits: int = 8, **entries: Any) -> Stream:
    return image_stream(made, zlib.compress(pixels.tobytes()), space, bits, Filter=Name.FlateDecode, **entries)


def add_page(made: Pdf, drawn: Any, content: bytes = b"q 24 0 0 24 10 10 cm /P Do Q") -> None:
    page = made.add_blank_page(page_size=(100, 100))
    page.obj.Resources = Dictionary(XObject=Dictionary(P=drawn))
    page.obj.Contents = made.make_stream(_BACKGROUND + content)


def image_document(make: Callable[[Pdf], Stream], **saving: Any) -> bytes:
    made = Pdf.new()
    add_page(made, make(made))
    return saved(made, **saving)


def drawn(data: bytes) -> Any:
    (page,) = pypdfium2.PdfDocument(data)
    return np.asarray(page.render(scale=1).to_pil().convert("RGB"), float)


@dataclass(frozen=True)
class StoredImage:
    """An image in a document: its size, its entries, and its compressed and its decompressed data."""

    size: tuple[int, int]
    entries: dict[str, str]
    raw: bytes
    image: Image.Image | None

    @property
    def width(self) -> int:
        return self.size[0]


def images(data: bytes) -> list[StoredImage]:
    with pikepdf.open(BytesIO(data)) as found:
        objects = [item for item in found.objects if isinstance(item, Stream)]
        return [_found(item) for item in objects if item.get("/Subtype") == Name.Image]


def _found(item: Any) -> StoredImage:
    entries = {key: str(value[0] if isinstance(value, Array) and len(value) else value) for key, value in item.items()}
    try:
        with warnings.catch_warnings(action="ignore"):
            image = pikepdf.PdfImage(item).as_pil_image().convert("RGB")
    except (ValueError, TypeError, OSError, NotImplementedError, pikepdf.PdfError, *_UNREADABLE):
        image = None
    return StoredImage((int(item.Width), int(item.Height)), entries, item.read_raw_bytes(), image)


def plain(raw: bytes) -> bytes:
    """Data without the compression by Flate, which all tools may improve."""
    try:
        return zlib.decompress(raw)
    except zlib.error:
        return raw


def group4(image: Image.Image) -> bytes:
    """The data of an image of mode 1 by Group 4, of which 0 is white."""
    file = BytesIO(encoded(image, "TIFF", compression="group4", strip_size=1 << 30))
    with tifffile.TiffFile(file) as tiff:
        (offset,), (size,) = tiff.pages.first.dataoffsets, tiff.pages.first.databytecounts
    return file.getvalue()[offset : offset + size]


def jbig2(image: Image.Image) -> bytes:
    """An image of mode 1 as the segments of JBIG2 in PDF: the page, and a region by Group 4."""
    region = struct.pack(">IIIIBB", *image.size, 0, 0, 0, 1) + group4(image.point(lambda value: 255 - value))
    page = struct.pack(">IIIIBH", *image.size, 0, 0, 0, 0)
    segments = ((0, 48, page), (1, 38, region))
    return b"".join(struct.pack(">IBBBI", number, kind, 0, 1, len(body)) + body for number, kind, body in segments)
