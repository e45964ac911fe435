"""PDF, read, rendered and written by MuPDF. Images become pages."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice

from PIL import Image

from engine import (
    DOCUMENT,
    MAX_FRAMES,
    RASTER,
    Contains,
    Content,
    CorruptInput,
    EncodedFile,
    FidelityWarning,
    FileFormat,
    Frame,
    ImageMetadata,
    ImageSource,
    Loss,
    Raster,
    Signature,
    Size,
    TargetCapabilities,
    any_of,
    check_size,
    conversion,
    lazy_imports,
)
from engine.option_types import (
    Dpi,
    Flip,
    InputPassword,
    Metadata,
    Pages,
    Password,
    Quality,
    ResultStandard,
    Rotate,
    Sanitize,
)
from plugins._jpeg import embedding
from plugins._jpeg.segments import filter_segments
from plugins._metadata.writing import filter_xmp
from plugins._pdf.pages import reading
from plugins._pdf.pages.reading import read_pages
from plugins._pixels import pillow
from plugins._pixels.sizes import Drawing
from plugins.formats import jpeg
from plugins.formats.jpeg import JPEG

with lazy_imports():
    from engine.mupdf import pymupdf
    from plugins._pdf import active_content, archive_claims, compression
    from plugins._pdf.images import image_pages
    from plugins._pdf.text import texts

_HEADER = b"%PDF-"
_TAIL = 4096  # bytes at the end


def _is_complete(content: Content) -> bool:
    """Whether the end of an index is near the end of the file, and after it no object of another revision.

    For the missing part of a file, MuPDF adds blank pages, or it shows the revision before.
    """
    _, end, rest = content[-_TAIL:].rpartition(b"startxref")
    return bool(end) and b" obj" not in rest


PDF = FileFormat(
    "pdf",
    media_type="application/pdf",
    extensions=("pdf", "ai"),
    sniff=any_of(Signature((0, _HEADER)), Contains(_HEADER, 1024)),  # where readers accept it, but so may other formats
    paged=True,
    is_complete=_is_complete,
    must_be_complete=True,
)

MODULES = ("plugins._pdf.active_content", "plugins._pdf.images.image_pages", *reading.MODULES, *jpeg.MODULES)
TEMPLATE = "documents"
_INFORMATION = ("title", "author", "subject", "keywords")
_EMPTY_XMP = b'<x:xmpmeta xmlns:x="adobe:ns:meta/"/>'
# What MuPDF reports about JBIG2 data of which it draws nothing.
_JBIG2_PROBLEMS = ("jbig2dec error", "refers to no symbol dictionaries", "out of range symbol ID")
DPI = 150
"""The default resolution of rendered pages, and of images in a document that is compressed."""
OPTIONS_OF_DOCUMENTS = ("password", "quality", "max_bytes", "dpi", "sanitize")
"""The options of `write` that concern PDF files only."""
COMPRESSED_QUALITY = 75
"""The default quality of images in a document that is compressed."""


@conversion(PDF, DOCUMENT, isolated=True)
def read(data: bytes, *, password: Password | None = None, pages: Pages | None = None) -> pymupdf.Document:
    return read_pages(data, password, pages)


def warn_first_page(document: pymupdf.Document) -> None:
    """Issues the warnings for targets that hold the look of one page."""
    texts.warn_losses(document[0])
    if document.page_count > 1:
        FidelityWarning.issue("pages_dropped", f"Only the first of {document.page_count} pages was converted.")


@conversion(DOCUMENT, PDF)
def write(
    document: pymupdf.Document,
    *,
    metadata: Metadata = "safe",
    quality: Quality | None = None,
    dpi: Dpi | None = None,
    password: InputPassword | None = None,
    sanitize: Sanitize = False,
    pdf_standard: ResultStandard = "none",
) -> bytes:
    """The document. With `quality` or `dpi`, it is compressed as by the tool; otherwise its images stay."""
    has_standard = pdf_standard.startswith("pdfa")
    if metadata == "none" and not has_standard and archive_claims.claim(document.get_xml_metadata().encode()):
        archive_claims.warn_removed()
    filter_document(document, metadata)
    data = to_bytes(document)
    if not has_standard:  # which removes active content, with a warning
        data = active_content.check_file(data, password or "", sanitize=sanitize)
    if quality is None and dpi is None:
        return data
    compressed = compression.compress(data, password or "", quality or COMPRESSED_QUALITY, dpi or DPI)
    return min(compressed, data, key=len)


def filter_document(document: pymupdf.Document, metadata: Metadata) -> None:
    """Filters the metadata of a document and of the JPEG images in it."""
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
            image = document.xref_stream_raw(xref)
            filtered = filter_segments(image, metadata)
            if filtered != image:
                parameters = document.xref_get_key(xref, "DecodeParms")
                document.update_stream(xref, filtered, compress=False)
                # Updating a stream removes the keys of its compression.
                document.xref_set_key(xref, "Filter", "/DCTDecode")
                if parameters[0] != "null":
                    document.xref_set_key(xref, "DecodeParms", parameters[1])


def to_bytes(document: pymupdf.Document) -> bytes:
    """The document as a compressed file without unused objects. Its encryption is kept."""
    claim = archive_claims.claim(document.get_xml_metadata().encode())
    streams = int(claim.get(b"part") != b"1")  # PDF/A-1 has no object streams
    data: bytes = document.tobytes(garbage=3, deflate=True, use_objstms=streams, encryption=pymupdf.PDF_ENCRYPT_KEEP)
    return data


@conversion(DOCUMENT, RASTER, loss=Loss.STRUCTURE, cost=8, without=("enlarge",))
def render(
    document: pymupdf.Document,
    *,
    drawing: Drawing,
    dpi: Dpi = DPI,
) -> Raster:
    """Draws pages at `dpi`, or at the requested size. A crop is in pixels at `dpi`."""

    def sizes(page: pymupdf.Page) -> tuple[Size, Size, tuple[int, int, int, int] | None]:
        """The size at `dpi`, the size of the whole page when drawn, and the box of it to draw, None for all."""
        full = _size_at(page, dpi)
        whole = drawing.needed_size(full, enlarge=True)
        return full, whole, drawing.needed_box(full, whole)

    def draw(page: pymupdf.Page) -> Frame:
        texts.warn_losses(page)
        full, whole, box = sizes(page)
        check_size(*_box_size(box or (0, 0, *whole)))
        scale = (dpi / 72, dpi / 72) if full == whole else (whole[0] / page.rect.width, whole[1] / page.rect.height)
        image = draw_page(page, pymupdf.Matrix(*scale), box)
        return Frame(image, full_size=full if box or full != image.size else None, cropped=box is not None)

    found = [sizes(page) for page in islice(document, MAX_FRAMES + 1)]  # one more than the limit is enough to refuse
    texts.warn_losses(document[0])  # A dry run draws no page.
    order = [*range(document.page_count)]
    return Raster(
        (draw(document[order.pop(0)]) for _ in range(document.page_count)),
        count=document.page_count,
        metadata=ImageMetadata(text=_texts(document)),
        dpi=_resolution(dpi, *found[0][:2]),
        source=ImageSource(scalable=True),
        sample=pillow.sample("RGB"),
        order=order,
        sizes=[full for full, _, _ in found],
        drawn_sizes=[_box_size(box or (0, 0, *whole)) for _, whole, box in found],
    )


def _texts(document: pymupdf.Document) -> tuple[tuple[str, str], ...]:
    """Title, author, subject and keywords, by name."""
    found = document.metadata or {}
    return tuple((name.capitalize(), found[name]) for name in _INFORMATION if found.get(name))


def _resolution(dpi: int, full: Size, whole: Size) -> tuple[float, float]:
    """The dots per inch of a page that has the size `full` at `dpi`, and is drawn at `whole`."""
    return dpi * whole[0] / full[0], dpi * whole[1] / full[1]


def _size_at(page: pymupdf.Page, dpi: int) -> Size:
    """The size of a page in pixels."""
    area = (page.rect * (dpi / 72)).irect
    return max(1, area.width), max(1, area.height)


def _box_size(box: tuple[int, int, int, int]) -> Size:
    return box[2] - box[0], box[3] - box[1]


def draw_page(page: pymupdf.Page, matrix: pymupdf.Matrix, box: tuple[int, int, int, int] | None = None) -> Image.Image:
    """Draws a page, or a box of it in pixels: left, top, right and bottom.

    Raises CorruptInput if an image by JBIG2 is damaged. Issues a warning for other damaged images.
    """
    # MuPDF takes all pixels that the rectangle touches.
    clip = None if box is None else pymupdf.Rect(box[0] + 0.5, box[1] + 0.5, box[2] - 0.5, box[3] - 0.5) * ~matrix
    with checked_images():
        pixels = page.get_pixmap(matrix=matrix, clip=clip, alpha=False)
    return Image.frombytes("RGB", (pixels.width, pixels.height), pixels.samples_mv)


@contextmanager
def checked_images() -> Iterator[None]:
    """Raises CorruptInput if MuPDF cannot decode an image by JBIG2, and issues a warning for other damaged images.

    MuPDF draws in black what it cannot decode.
    """
    pymupdf.TOOLS.mupdf_warnings()  # also that the last one is repeated
    yield
    messages = pymupdf.TOOLS.mupdf_warnings()
    if any(problem in messages for problem in _JBIG2_PROBLEMS):
        raise CorruptInput("An image in the PDF is damaged: its JBIG2 data cannot be decoded.")
    if "padding truncated image" in messages:
        FidelityWarning.issue("repaired", "An image in the PDF is damaged; its missing part is black.")


@conversion(JPEG, PDF, terminal=True, cost=0.5)
def embed_jpeg(
    data: bytes,
    *,
    metadata: Metadata = "safe",
    rotate: Rotate = 0,
    flip: Flip | None = None,
    dpi: Dpi | None = None,
) -> EncodedFile:
    """A PDF of one page that contains the JPEG with unchanged pixels, and shows it turned."""
    image = embedding.prepare(data, metadata, rotate=rotate, flip=flip)
    writer = image_pages.ImageWriter()
    stream = image_pages.jpeg_stream(image.data, image.size, image.mode, image.icc_profile)
    writer.add_page(stream, image.size, (dpi, dpi) if dpi else image.dpi, image.orientation)
    return EncodedFile(to_bytes(writer.document), pages=1)


CAPABILITIES = TargetCapabilities(
    ("1", "L", "RGB", "RGBA", "CMYK"), icc=True, pages=True, metadata=frozenset({"xmp", "resolution"})
)
"""What pages of images hold."""
