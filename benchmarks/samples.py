"""Generated inputs: an image with the frequencies and noise of a photo, in every input format that can be written."""

from io import BytesIO

import numpy as np
import tifffile
from PIL import Image
from psd_tools import PSDImage

from engine import pipeline
from engine.mupdf import pymupdf
from engine.registry import Registry

TINY, PHOTO, LARGE_PHOTO, HUGE_PHOTO = (64, 64), (1740, 1156), (4288, 2848), (6000, 4000)  # 2, 12 and 24 megapixels
DRAWING = (1000, 700)
PAGE = (600, 840)  # points
_SHAPES = 400  # circles in the vector image
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


def photo(size: tuple[int, int]) -> Image.Image:
    """Returns the same image at each call: smooth shapes of all sizes, and noise as of a sensor."""
    random = np.random.default_rng(seed=7)
    width, height = size
    pixels = np.full((height, width, 3), 118, np.float32)
    cells, amplitude = 4, 70.0
    while cells < max(size):
        coarse = random.standard_normal((4, max(2, cells * height // max(size)), cells)).astype(np.float32)
        gray, *colors = (Image.fromarray(layer).resize(size, Image.Resampling.BICUBIC) for layer in coarse)
        for channel, color in enumerate(colors):
            pixels[..., channel] += amplitude * (0.8 * np.asarray(gray) + 0.2 * np.asarray(color))
        cells, amplitude = cells * 2, amplitude * 0.62
    pixels += 4 * random.standard_normal((height, width, 1)).astype(np.float32)
    return Image.fromarray(np.clip(pixels, 0, 255).astype(np.uint8))


def encoded(size: tuple[int, int], encoder: str) -> bytes:
    """Returns the image as a file, written by a Pillow encoder. JPEG has quality 88."""
    file = BytesIO()
    photo(size).save(file, encoder, **({"quality": 88} if encoder == "JPEG" else {}))
    return file.getvalue()


def inputs(registry: Registry, size: tuple[int, int] = PHOTO) -> dict[str, bytes]:
    """Returns a file per input format by name: images of that size, and vector images of 400 shapes.

    Of the camera formats, only DNG can be written.
    """
    image, vector = encoded(size, "PNG"), drawing()
    made = {"png": image, "svg": vector, "psd": _psd(size), "dng": _dng(size)}
    for name in {plan.source.name for plan in registry.catalogue()} - made.keys():
        for source, content in (("svg", vector), ("png", image)):
            origin = registry.formats[source]
            is_vector = name in ("pdf", "eps")
            if is_vector == (source == "svg") and registry.formats[name] in registry.targets(origin):
                made[name] = pipeline.run(registry.plan([origin], name), [content]).data
    return made


def drawing() -> bytes:
    """Returns an SVG of 400 circles."""
    random = np.random.default_rng(seed=7)
    shapes = "".join(
        f'<circle cx="{x}" cy="{y}" r="{radius}" fill="#{color:06x}"/>'
        for x, y, radius, color in random.integers(0, (*DRAWING, 60, 1 << 24), (_SHAPES, 4))
    )
    width, height = DRAWING
    return f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}">{shapes}</svg>'.encode()


def document(pages: int) -> bytes:
    """Returns a PDF with pages of text."""
    width, height = PAGE
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
