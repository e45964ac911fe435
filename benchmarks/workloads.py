"""Generated files, and the requests with them that the benchmarks send, with what their results have to be."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache, partial
from io import BytesIO
from pathlib import Path

import av
import numpy as np
import tifffile
from PIL import Image
from psd_tools import PSDImage

from engine import pipeline
from engine.mupdf import pymupdf
from engine.registry import Registry

TINY_SIZE = (64, 64)
_MEGAPIXELS_2 = (1740, 1156)
_MEGAPIXELS_12 = (4288, 2848)
_MEGAPIXELS_24 = (6000, 4000)
_DRAWING_SIZE = (1000, 700)
_PAGE_SIZE = (600, 840)  # points
_PAGES = 100  # of long documents
_PARAGRAPHS = 5  # in files of one text
_SHAPES = 400  # circles in the vector image
_CLIP_SIZE = (640, 360)
_FRAMES, _FRAME_RATE = 75, 25  # of the clip; per second
_SCAN_RESOLUTION = 200  # dpi
_SENTENCE, _SENTENCES = "Files are converted from one format into another. ", 60  # a page repeats the sentence so often
_DNG_TAGS = (  # code, TIFF type, count, value
    (33421, 3, 2, (2, 2)),  # CFARepeatPatternDim
    (33422, 1, 4, bytes((0, 1, 1, 2))),  # CFAPattern: red, green, green, blue
    (50706, 1, 4, bytes((1, 4, 0, 0))),  # DNGVersion
    (50708, 2, 0, "convertd benchmark"),  # UniqueCameraModel
    (50717, 4, 1, 0xFFFF),  # WhiteLevel
    (50721, 10, 9, (1, 1, 0, 1, 0, 1, 0, 1, 1, 1, 0, 1, 0, 1, 0, 1, 1, 1)),  # ColorMatrix1: fractions
    (50728, 5, 3, (1, 2, 1, 1, 2, 3)),  # AsShotNeutral
)


@lru_cache(maxsize=1)
def photo(size: tuple[int, int]) -> Image.Image:
    """Returns the same image at each call: smooth shapes of all sizes, and noise as of a sensor."""
    random = np.random.default_rng(seed=7)
    width, height = size
    pixels = np.full((height, width, 3), 118, np.float32)
    cells = 4
    amplitude = 70.0
    while cells < max(size):
        coarse = random.standard_normal((4, max(2, cells * height // max(size)), cells)).astype(np.float32)
        gray, *colors = (Image.fromarray(layer).resize(size, Image.Resampling.BICUBIC) for layer in coarse)
        for channel, color in enumerate(colors):
            pixels[..., channel] += amplitude * (0.8 * np.asarray(gray) + 0.2 * np.asarray(color))
        cells *= 2
        amplitude *= 0.62
    pixels += 4 * random.standard_normal((height, width, 1)).astype(np.float32)
    return Image.fromarray(np.clip(pixels, 0, 255).astype(np.uint8))


def encoded(size: tuple[int, int], encoder: str) -> bytes:
    """Returns the image as a file, written by a Pillow encoder. JPEG has quality 88."""
    file = BytesIO()
    photo(size).save(file, encoder, **({"quality": 88} if encoder == "JPEG" else {}))
    return file.getvalue()


def inputs(registry: Registry, size: tuple[int, int] = _MEGAPIXELS_2) -> dict[str, bytes]:
    """Returns a file per input format by name: images of that size, and vector images of 400 shapes.

    Of the camera formats, only DNG can be written.
    """
    image = encoded(size, "PNG")
    vector = drawing()
    made = {"png": image, "svg": vector, "psd": _psd(size), "dng": _dng(size)}
    sources = {plan.source for plan in registry.catalogue()}
    for name in {source.name for source in sources if not source.text_extensions} - made.keys():
        for source, content in (("svg", vector), ("png", image)):
            origin = registry.formats[source]
            is_vector = name in ("pdf", "eps")
            if is_vector == (source == "svg") and registry.formats[name] in registry.targets(origin):
                made[name] = _converted(registry, source, content, name)
    return made


def files(registry: Registry, size: tuple[int, int] = _MEGAPIXELS_12) -> dict[str, bytes]:
    """Returns files as people have them by name: two photos, a drawing, documents, a clip and a scan."""
    text = f"{_SENTENCE * _SENTENCES}\n" * _PARAGRAPHS
    with pymupdf.open("pdf", document(1)) as made:
        scan = bytes(made[0].get_pixmap(dpi=_SCAN_RESOLUTION).tobytes("png"))
    return {
        "photo.jpg": encoded(size, "JPEG"),
        "photo.heic": _converted(registry, "png", encoded(size, "PNG"), "heic"),
        "photo.dng": _dng(size),
        "photo.psd": _psd(size),
        "huge.jpg": encoded((size[0] * 3 // 2, size[1] * 3 // 2), "JPEG"),
        "drawing.svg": drawing(),
        "pages.pdf": document(_PAGES),
        "text.rtf": f"{{\\rtf1 {text}}}".replace("\n", "\\par ").encode(),
        "text.html": f"<!DOCTYPE html><title>Text</title>{''.join(f'<p>{one}' for one in text.splitlines())}".encode(),
        "clip.mp4": _clip(),
        "scan.png": scan,
        "scan.pdf": _converted(registry, "png", scan, "pdf"),
    }


def _converted(registry: Registry, source: str, content: bytes, target: str) -> bytes:
    return pipeline.run(registry.plan([registry.formats[source]], target), [content]).data


def _clip() -> bytes:
    """Frames that move over a photo."""
    width, height = _CLIP_SIZE
    whole = np.asarray(photo((width + _FRAMES, height + _FRAMES)))
    file = BytesIO()
    with av.open(file, "w", format="mp4") as made:
        stream = made.add_stream("libx264", rate=_FRAME_RATE)
        stream.width, stream.height = _CLIP_SIZE
        for step in range(_FRAMES):
            pixels = np.ascontiguousarray(whole[step : step + height, step : step + width])
            made.mux(stream.encode(av.VideoFrame.from_ndarray(pixels)))
        made.mux(stream.encode())
    return file.getvalue()


def drawing() -> bytes:
    """Returns an SVG of 400 circles."""
    random = np.random.default_rng(seed=7)
    shapes = "".join(
        f'<circle cx="{x}" cy="{y}" r="{radius}" fill="#{color:06x}"/>'
        for x, y, radius, color in random.integers(0, (*_DRAWING_SIZE, 60, 1 << 24), (_SHAPES, 4))
    )
    width, height = _DRAWING_SIZE
    return f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}">{shapes}</svg>'.encode()


def document(pages: int) -> bytes:
    """Returns a PDF with pages of text."""
    width, height = _PAGE_SIZE
    with pymupdf.open() as made:
        for number in range(1, pages + 1):
            page = made.new_page(width=width, height=height)
            page.insert_textbox((50, 50, width - 50, height - 50), f"Page {number}. {_SENTENCE}" * _SENTENCES)
        return bytes(made.tobytes())


def _psd(size: tuple[int, int]) -> bytes:
    file = BytesIO()
    PSDImage.frompil(photo(size)).save(file)
    return file.getvalue()


def _dng(size: tuple[int, int]) -> bytes:
    """An uncompressed DNG: each sample has one color of the image."""
    pixels = np.asarray(photo(size)).astype(np.uint16) << 8
    samples = pixels[..., 1].copy()
    samples[::2, ::2], samples[1::2, 1::2] = pixels[::2, ::2, 0], pixels[1::2, 1::2, 2]
    file = BytesIO()
    tifffile.imwrite(file, samples, photometric="CFA", metadata=None, extratags=[(*tag, True) for tag in _DNG_TAGS])
    return file.getvalue()


@dataclass(frozen=True, eq=False)
class Workload:
    """A request to an endpoint of convertd with the file that `make` returns, which is posted `copies` times.

    `check` returns whether a result is what it has to be.
    """

    title: str
    file: str
    make: Callable[[], bytes]
    fields: Mapping[str, str]
    check: Callable[[bytes], bool]
    endpoint: str = "convert"
    file_field: str = "file"
    copies: int = 1

    def write(self, folder: Path) -> None:
        """Writes the input file into a folder."""
        (folder / self.file).write_bytes(self.make())


def image(title: str, file: str, size: tuple[int, int], encoder: str, fields: Mapping[str, str]) -> Workload:
    """Returns a conversion of an image that a Pillow encoder writes, with the width of the result among `fields`."""
    width = int(fields.get("width", size[0]))
    check = partial(_is_image, fields["output_format"].upper(), (width, size[1] * width // size[0]))
    return Workload(title, file, partial(encoded, size, encoder), fields, check)


def _is_image(encoder: str, size: tuple[int, int], result: bytes) -> bool:
    found = Image.open(BytesIO(result))
    return (found.format, found.size) == (encoder, size)


def _has_pages(count: int, result: bytes) -> bool:
    with pymupdf.open("pdf", result) as document:
        return bool(document.page_count == count)


_PNG = {"output_format": "png"}
_WEBP = {"output_format": "webp", "quality": "80"}
_JPEG = {"output_format": "jpeg", "quality": "85"}
_PAGE_AT_150_DPI = (1250, 1750)

TINY = image("64x64 PNG to JPEG", "tiny.png", TINY_SIZE, "PNG", _JPEG)
PHOTO = image("2 megapixel JPEG to WebP", "photo.jpg", _MEGAPIXELS_2, "JPEG", _WEBP)
LARGE = image("12 megapixel JPEG to WebP", "large.jpg", _MEGAPIXELS_12, "JPEG", _WEBP)
LONG = image("12 megapixel JPEG to AVIF", "large.jpg", _MEGAPIXELS_12, "JPEG", {"output_format": "avif"})
THUMBNAIL = image("24 megapixel JPEG to 800 pixels", "huge.jpg", _MEGAPIXELS_24, "JPEG", {**_JPEG, "width": "800"})
DRAWING = Workload("SVG to PNG", "drawing.svg", drawing, _PNG, partial(_is_image, "PNG", _DRAWING_SIZE))
PAGE = Workload(
    title="PDF page to PNG",
    file="page.pdf",
    make=partial(document, 1),
    fields={**_PNG, "dpi": "150"},
    check=partial(_is_image, "PNG", _PAGE_AT_150_DPI),
)
WEB_PAGE = Workload(
    title="HTML to PDF",
    file="page.html",
    make=lambda: f"<!DOCTYPE html><title>Page</title><p>{_SENTENCE * _SENTENCES}</p>".encode(),
    fields={"output_format": "pdf"},
    check=partial(_has_pages, 1),
)
LAYERS = Workload(
    title="64x64 PSD to PNG",
    file="layers.psd",
    make=partial(_psd, TINY_SIZE),
    fields=_PNG,
    check=partial(_is_image, "PNG", TINY_SIZE),
)
EMBEDDING = Workload(
    title="64x64 PNG to PDF",
    file="embedded.png",
    make=partial(encoded, TINY_SIZE, "PNG"),
    fields={"output_format": "pdf"},
    check=partial(_has_pages, 1),
)
DELETION = Workload(
    title="deletion of a page of four",
    file="pages.pdf",
    make=partial(document, 4),
    fields={"pages": "2"},
    check=partial(_has_pages, 3),
    endpoint="pdf/delete-pages",
)
MERGE = Workload(
    title=f"merge of two PDFs of {_PAGES} pages",
    file="merged.pdf",
    make=partial(document, _PAGES),
    fields={},
    check=partial(_has_pages, 2 * _PAGES),
    endpoint="pdf/merge",
    file_field="files[]",
    copies=2,
)
