"""Requests with a generated file that the benchmarks send, and what their results have to be."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from io import BytesIO
from pathlib import Path

from PIL import Image

from benchmarks import samples
from engine.mupdf import pymupdf


@dataclass(frozen=True)
class Workload:
    """A request to an endpoint of convertd with the file that `make` returns, which is posted `copies` times.

    `check` returns whether a result is what it has to be.
    """

    title: str
    file: str
    make: Callable[[], bytes]
    fields: tuple[tuple[str, str], ...]
    check: Callable[[bytes], bool]
    endpoint: str = "convert"
    file_field: str = "file"
    copies: int = 1

    def write(self, folder: Path) -> None:
        """Writes the input file into a folder."""
        (folder / self.file).write_bytes(self.make())

    @property
    def options(self) -> dict[str, str]:
        """The form fields of the request by name."""
        return dict(self.fields)


def image(title: str, file: str, size: tuple[int, int], encoder: str, fields: dict[str, str]) -> Workload:
    """Returns a conversion of an image that a Pillow encoder writes, with the width of the result among `fields`."""
    width = int(fields.get("width", size[0]))
    check = partial(_is_image, fields["output_format"].upper(), (width, size[1] * width // size[0]))
    return Workload(title, file, partial(samples.encoded, size, encoder), tuple(fields.items()), check)


def _is_image(encoder: str, size: tuple[int, int], result: bytes) -> bool:
    found = Image.open(BytesIO(result))
    return (found.format, found.size) == (encoder, size)


def _has_pages(count: int, result: bytes) -> bool:
    with pymupdf.open("pdf", result) as document:
        return bool(document.page_count == count)


_PNG = (("output_format", "png"),)
_PAGE_AT_150_DPI = (1250, 1750)
_MERGED_PAGES = 100  # pages in each of the two files

TINY = image("64x64 PNG to JPEG", "tiny.png", samples.TINY, "PNG", {"output_format": "jpeg", "quality": "85"})
PHOTO = image(
    "2 megapixel JPEG to WebP", "photo.jpg", samples.PHOTO, "JPEG", {"output_format": "webp", "quality": "80"}
)
LARGE = image(
    "12 megapixel JPEG to WebP", "large.jpg", samples.LARGE_PHOTO, "JPEG", {"output_format": "webp", "quality": "80"}
)
THUMBNAIL = image(
    *("24 megapixel JPEG to 800 pixels", "huge.jpg", samples.HUGE_PHOTO, "JPEG"),
    {"output_format": "jpeg", "quality": "85", "width": "800"},
)
DRAWING = Workload("SVG to PNG", "drawing.svg", samples.drawing, _PNG, partial(_is_image, "PNG", samples.DRAWING))
PAGE = Workload(
    *("PDF page to PNG", "page.pdf", partial(samples.document, 1)),
    (*_PNG, ("dpi", "150")),
    partial(_is_image, "PNG", _PAGE_AT_150_DPI),
)
EMBEDDING = Workload(
    *("64x64 PNG to PDF", "embedded.png", partial(samples.encoded, samples.TINY, "PNG")),
    (("output_format", "pdf"),),
    partial(_has_pages, 1),
)
DELETION = Workload(
    *("deletion of a page of four", "pages.pdf", partial(samples.document, 4)),
    (("pages", "2"),),
    partial(_has_pages, 3),
    "pdf/delete-pages",
)
MERGE = Workload(
    *(f"merge of two PDFs of {_MERGED_PAGES} pages", "merged.pdf", partial(samples.document, _MERGED_PAGES), ()),
    partial(_has_pages, 2 * _MERGED_PAGES),
    "pdf/merge",
    "files[]",
    copies=2,
)
