"""PDF: opened, rendered and written by MuPDF; pictures become its pages."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice
from typing import TYPE_CHECKING
from warnings import warn

from PIL import Image

from engine import (
    DOCUMENT,
    RASTER,
    Content,
    CorruptInput,
    FidelityWarning,
    FileFormat,
    Frame,
    Loss,
    Options,
    Raster,
    TargetCapabilities,
    UnknownFormat,
    conversion,
    hookimpl,
)
from engine.conversions import AnyConversion
from engine.decode_limits import MAX_FRAMES, Size
from engine.formats import ends_with
from engine.lazy_import import lazy_import
from plugins import _exif, _pillow
from plugins.jpeg import JPEG, check_scans

if TYPE_CHECKING:
    from pymupdf import Document, Page

    from engine import mupdf as _mupdf
else:
    _mupdf = lazy_import("engine.mupdf")

_MARK = b"%PDF-"


def _sniff(content: Content) -> int:
    """The mark; readers look for it in the first KiB, where other formats' files may hold it by chance."""
    if content[:5] == _MARK:
        return 5
    return 1 if _MARK in content[:1024] else 0


PDF = FileFormat(
    "pdf", media_type="application/pdf", extensions=("pdf",), sniff=_sniff, paged=True, is_complete=ends_with(b"%%EOF")
)

_TAIL = 4096  # bytes at the end in which a whole file points at its index
DPI = 150  # at which pages become pictures
_PICTURE_DPI = 96  # of pictures that tell none
_PICTURE_QUALITY = 92  # of pictures that come from a lossy codec


@conversion(PDF, DOCUMENT, lazy=True)
def read(data: bytes, options: Options) -> Document:
    document = _mupdf.pymupdf.open(stream=data, filetype="pdf")
    if document.needs_pass and not document.authenticate(options.password or ""):
        raise encrypted_error(options)
    if document.page_count == 0:
        raise CorruptInput("The PDF has no readable page.")
    if document.is_repaired:
        warn_repaired(data)
    return document


def warn_repaired(data: bytes) -> None:
    """Warns of a PDF that had to be repaired. Raises CorruptInput for one that is cut off."""
    # Blank pages are made of what a cut file lacks; one that only lost its index still tells where that was.
    if b"startxref" not in data[-_TAIL:]:
        raise CorruptInput("The PDF is cut off.")
    warn(FidelityWarning("repaired", "The PDF is damaged; what could be recovered was converted."), stacklevel=2)


def encrypted_error(options: Options) -> UnknownFormat:
    """The error for a PDF that does not open."""
    said = "its password is needed" if options.password is None else "the password is not its own"
    return UnknownFormat(f"The PDF is encrypted; {said}.", reason="pdf_encrypted")


@conversion(DOCUMENT, PDF, lazy=True)
def write(document: Document, _options: Options) -> bytes:
    return saved(document)


def saved(document: Document) -> bytes:
    """The document's bytes, tidied and compressed; encryption by an owner's password stays."""
    data: bytes = document.tobytes(garbage=3, deflate=True, use_objstms=1, encryption=_mupdf.pymupdf.PDF_ENCRYPT_KEEP)
    return data


@conversion(DOCUMENT, RASTER, loss=Loss.STRUCTURE, cost=8, lazy=True)
def render(document: Document, _options: Options) -> Raster:
    # Of more pages than are allowed, those and one more tell it.
    sizes = [_pixels(page) for page in islice(document, MAX_FRAMES + 1)]
    return Raster(_rendered(document), count=document.page_count, dpi=(DPI, DPI), sizes=sizes)


def _pixels(page: Page) -> Size:
    return round(page.rect.width * DPI / 72), round(page.rect.height * DPI / 72)


def _rendered(document: Document) -> Iterator[Frame]:
    for page in document:
        pixels = page.get_pixmap(dpi=DPI, alpha=False)
        yield Frame(Image.frombytes("RGB", (pixels.width, pixels.height), pixels.samples))


@conversion(JPEG, PDF, terminal=True, cost=0.5, lazy=True)
def embed(data: bytes, _options: Options) -> bytes:
    """A page that shows the file's own bytes: nothing is encoded again."""
    check_scans(data)
    header = _pillow.opened(data, "JPEG")
    orientation = header.getexif().get(_exif.ORIENTATION, 1)
    size, dpi = header.size, _pillow.dpi(header)
    # A page around a cut file would look like success: an eighth of the picture tells whether all can be read.
    header.draft("L", (max(1, size[0] // 8), max(1, size[1] // 8)))
    header.load()
    document = _mupdf.pymupdf.open()
    _add_page(document, data, size, dpi, orientation if orientation in _PLACEMENTS else 1)
    return saved(document)


@conversion(RASTER, PDF, terminal=True, cost=12, lazy=True)
def bind(raster: Raster, _options: Options) -> bytes:
    """A page for every frame: as JPEG where the pixels come from a lossy codec, else without loss."""
    document = _mupdf.pymupdf.open()
    fitted = raster.converted_for(TargetCapabilities(("1", "L", "RGB", "RGBA", "CMYK"), icc=True, pages=True))
    for frame in fitted.frames:
        _add_page(document, _stream(frame, lossy=raster.lossy), frame.size, raster.dpi)
    if raster.xmp:
        document.set_xml_metadata(raster.xmp.decode("utf-8", "replace"))
    return saved(document)


def _stream(frame: Frame, *, lossy: bool) -> bytes:
    image = frame.image
    if image.mode == "CMYK":
        return _pillow.saved(image, "TIFF", compression="tiff_lzw", icc_profile=frame.icc_profile)
    if lossy and image.mode in ("L", "RGB"):
        return _pillow.saved(image, "JPEG", quality=_PICTURE_QUALITY, icc_profile=frame.icc_profile)
    return _pillow.saved(image, "PNG", icc_profile=frame.icc_profile)


# How the unit square that holds a picture is laid on a page of width w and height h, by EXIF orientation.
_PLACEMENTS: dict[int, Callable[[float, float], tuple[float, ...]]] = {
    1: lambda w, h: (w, 0, 0, h, 0, 0),
    2: lambda w, h: (-w, 0, 0, h, w, 0),
    3: lambda w, h: (-w, 0, 0, -h, w, h),
    4: lambda w, h: (w, 0, 0, -h, 0, h),
    5: lambda w, h: (0, -h, -w, 0, w, h),
    6: lambda w, h: (0, -h, w, 0, 0, h),
    7: lambda w, h: (0, h, w, 0, 0, 0),
    8: lambda w, h: (0, h, -w, 0, w, 0),
}


def _add_page(
    document: Document,
    stream: bytes,
    size: tuple[int, int],
    dpi: tuple[float, float] | None,
    orientation: int = 1,
) -> None:
    """A page of the picture's printed size that shows it upright."""
    across, down = dpi or (_PICTURE_DPI, _PICTURE_DPI)
    width, height = size[0] * 72 / across, size[1] * 72 / down
    if orientation >= 5:
        width, height = height, width
    page = document.new_page(width=width, height=height)
    page.insert_image(page.rect, stream=stream, keep_proportion=False)
    name = page.get_images()[0][7]
    matrix = " ".join(f"{value:.4f}" for value in _PLACEMENTS[orientation](width, height))
    document.update_stream(page.get_contents()[0], f"q {matrix} cm /{name} Do Q".encode())


@hookimpl
def conversions() -> list[AnyConversion]:
    return [read, write, render, embed, bind]
