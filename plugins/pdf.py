"""PDF, read, rendered and written by MuPDF. Pictures become pages."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING

from PIL import Image

from engine import (
    DOCUMENT,
    MAX_FRAMES,
    RASTER,
    Content,
    CorruptInput,
    FidelityWarning,
    FileFormat,
    Frame,
    Loss,
    PageRanges,
    Raster,
    Size,
    TargetCapabilities,
    UnknownFormat,
    check_size,
    conversion,
    ends_with,
)
from engine.option_types import Crop, Dpi, Fit, Flip, Height, Metadata, Pages, Password, Quality, Rotate, Width
from plugins import _jpeg_embedding, _pillow, jpeg
from plugins._jpeg_embedding import PLACEMENTS
from plugins.geometry import needed_size
from plugins.jpeg import JPEG, filter_segments
from plugins.metadata import filter_xmp

if TYPE_CHECKING:
    import pymupdf

_HEADER = b"%PDF-"


def _sniff(content: Content) -> int:
    """5 for the header at the start, 1 within the first KiB, where readers accept it but other formats may have it."""
    if content[:5] == _HEADER:
        return 5
    return 1 if _HEADER in content[:1024] else 0


PDF = FileFormat(
    "pdf", media_type="application/pdf", extensions=("pdf",), sniff=_sniff, paged=True, is_complete=ends_with(b"%%EOF")
)

MODULES = ("engine.mupdf", "encodings.raw_unicode_escape", *jpeg.MODULES)
_EMPTY_XMP = b'<x:xmpmeta xmlns:x="adobe:ns:meta/"/>'
_TAIL = 4096  # bytes at the end that contain "startxref" in a complete file
DPI = 150
"""The default resolution of rendered pages."""
_DEFAULT_DPI = 96  # for pictures without a resolution
JPEG_QUALITY = 92
"""The default quality of pictures from a lossy codec."""


@conversion(PDF, DOCUMENT, isolated=True)
def read(data: bytes, *, password: Password | None = None, pages: Pages | None = None) -> pymupdf.Document:
    from engine.mupdf import pymupdf

    document = pymupdf.open(stream=data, filetype="pdf")
    if document.needs_pass and not document.authenticate(password or ""):
        raise encrypted_error(password)
    if document.page_count == 0:
        raise CorruptInput("The PDF has no readable page.")
    if document.is_repaired:
        warn_repaired(data)
    if pages is not None:
        document.select(PageRanges.parse(pages).indexes(document.page_count))
    return document


def warn_repaired(data: bytes) -> None:
    """Issues a warning for a PDF that had to be repaired. Raises CorruptInput for a truncated one."""
    # MuPDF adds blank pages for the missing part of a truncated file; a file with only a broken index is complete.
    if b"startxref" not in data[-_TAIL:]:
        raise CorruptInput("The PDF is truncated.")
    FidelityWarning.issue("repaired", "The PDF is damaged; only its recoverable parts were converted.")


def warn_pages_dropped(document: pymupdf.Document) -> None:
    """Issues a warning if a document has several pages, for targets of one page."""
    if document.page_count > 1:
        FidelityWarning.issue("pages_dropped", f"Only the first of {document.page_count} pages was converted.")


def warn_quality_ignored(raster: Raster, quality: int) -> None:
    """Issues a warning if a quality is requested for pixels that are stored without loss."""
    if quality != JPEG_QUALITY and not raster.lossy:
        message = "Pictures from lossless formats are stored without loss: quality has no effect."
        FidelityWarning.issue("quality_ignored", message)


def encrypted_error(password: str | None) -> UnknownFormat:
    """The error for an encrypted PDF without the right password."""
    problem = "a password is required" if password is None else "the password is incorrect"
    return UnknownFormat(f"The PDF is encrypted; {problem}.", reason="pdf_encrypted")


@conversion(DOCUMENT, PDF)
def write(document: pymupdf.Document, *, metadata: Metadata = "safe") -> bytes:
    filter_document(document, metadata)
    return to_bytes(document)


def filter_document(document: pymupdf.Document, metadata: Metadata) -> None:
    """Filters the metadata of a document and of the JPEG pictures in it."""
    if metadata == "all":
        return
    if metadata == "none":
        document.set_metadata({})
        document.del_xml_metadata()
    for xref in range(1, document.xref_length()):
        if not document.xref_is_stream(xref):
            continue
        if document.xref_get_key(xref, "Type")[1] == "/Metadata":
            packet = filter_xmp(document.xref_stream(xref), metadata)
            document.update_stream(xref, packet or _EMPTY_XMP, compress=False)
        elif document.xref_get_key(xref, "Filter")[1] == "/DCTDecode":
            picture = document.xref_stream_raw(xref)
            filtered = filter_segments(picture, metadata)
            if filtered != picture:
                parameters = document.xref_get_key(xref, "DecodeParms")
                document.update_stream(xref, filtered, compress=False)
                # Updating a stream removes the keys of its compression.
                document.xref_set_key(xref, "Filter", "/DCTDecode")
                if parameters[0] != "null":
                    document.xref_set_key(xref, "DecodeParms", parameters[1])


def to_bytes(document: pymupdf.Document) -> bytes:
    """The document as a compressed file without unused objects. Its encryption is kept."""
    from engine.mupdf import pymupdf

    data: bytes = document.tobytes(garbage=3, deflate=True, use_objstms=1, encryption=pymupdf.PDF_ENCRYPT_KEEP)
    return data


@conversion(DOCUMENT, RASTER, loss=Loss.STRUCTURE, cost=8, without=("enlarge",))
def render(
    document: pymupdf.Document,
    *,
    dpi: Dpi = DPI,
    width: Width | None = None,
    height: Height | None = None,
    fit: Fit = "inside",
    crop: Crop | None = None,
    rotate: Rotate = 0,
) -> Raster:
    """Draws pages at `dpi`, or at the requested size. A crop is in pixels at `dpi`."""
    from engine.mupdf import pymupdf

    def sizes(page: pymupdf.Page) -> tuple[Size, Size]:
        """The size at `dpi`, and the size to draw."""
        area = (page.rect * pymupdf.Matrix(dpi / 72, dpi / 72)).irect
        full = max(1, area.width), max(1, area.height)
        return full, needed_size(full, width, height, fit=fit, crop=crop, rotate=rotate, enlarge=True)

    def draw(page: pymupdf.Page) -> Frame:
        full, (across, down) = sizes(page)
        check_size(across, down)
        matrix = pymupdf.Matrix(dpi / 72, dpi / 72)
        if full != (across, down):
            matrix = pymupdf.Matrix(across / page.rect.width, down / page.rect.height)
        pixels = page.get_pixmap(matrix=matrix, alpha=False)
        image = Image.frombytes("RGB", (pixels.width, pixels.height), pixels.samples_mv)
        return Frame(image, full_size=full if full != image.size else None)

    # One page more than the limit is enough to be refused.
    drawn = [sizes(page) for page in islice(document, MAX_FRAMES + 1)]
    full, first = drawn[0]
    return Raster(
        (draw(page) for page in document),
        count=document.page_count,
        dpi=(dpi * first[0] / full[0], dpi * first[1] / full[1]),
        scalable=True,
        sample=_pillow.sample("RGB"),
        sizes=[size for size, _ in drawn],
        drawn_sizes=[size for _, size in drawn],
    )


@conversion(JPEG, PDF, terminal=True, cost=0.5)
def embed_jpeg(data: bytes, *, metadata: Metadata = "safe", rotate: Rotate = 0, flip: Flip | None = None) -> bytes:
    """A PDF of one page that contains the JPEG with unchanged pixels, and shows it turned."""
    from engine.mupdf import pymupdf

    picture = _jpeg_embedding.prepare(data, metadata, rotate=rotate, flip=flip)
    document = pymupdf.open()
    _add_page(document, picture.data, picture.size, picture.dpi, picture.orientation)
    return to_bytes(document)


_HOLDS = TargetCapabilities(("1", "L", "RGB", "RGBA", "CMYK"), icc=True, pages=True, metadata=frozenset({"xmp"}))


@conversion(RASTER, PDF, terminal=True, cost=12, holds=_HOLDS)
def from_raster(raster: Raster, *, quality: Quality = JPEG_QUALITY) -> bytes:
    """A PDF with a page per frame: as JPEG if the pixels come from a lossy codec, otherwise lossless."""
    from engine.mupdf import pymupdf

    warn_quality_ignored(raster, quality)
    document = pymupdf.open()
    for frame in raster.frames:
        _add_page(document, _encode_frame(frame, quality if raster.lossy else None), frame.size, raster.dpi)
    if raster.xmp:
        document.set_xml_metadata(raster.xmp.decode("utf-8", "replace"))
    return to_bytes(document)


def _encode_frame(frame: Frame, quality: int | None) -> bytes:
    """The picture as JPEG of this quality; without loss if it is None, or for transparency, CMYK and 1 bit."""
    image = frame.image
    if image.mode == "CMYK":
        return _pillow.encode(image, "TIFF", compression="tiff_lzw", icc_profile=frame.icc_profile)
    if quality is not None and image.mode in ("L", "RGB"):
        return _pillow.encode(image, "JPEG", quality=quality, icc_profile=frame.icc_profile)
    return _pillow.encode(image, "PNG", icc_profile=frame.icc_profile)


def _add_page(
    document: pymupdf.Document,
    stream: bytes,
    size: tuple[int, int],
    dpi: tuple[float, float] | None,
    orientation: int = 1,
) -> None:
    """Adds a page of the printed size of the picture, which shows the picture upright."""
    across, down = dpi or (_DEFAULT_DPI, _DEFAULT_DPI)
    width, height = size[0] * 72 / across, size[1] * 72 / down
    if orientation >= 5:
        width, height = height, width
    page = document.new_page(width=width, height=height)
    page.insert_image(page.rect, stream=stream, keep_proportion=False)
    name = page.get_images()[0][7]
    matrix = " ".join(f"{value:.4f}" for value in PLACEMENTS[orientation](width, height))
    document.update_stream(page.get_contents()[0], f"q {matrix} cm /{name} Do Q".encode())
