"""Scans: pages of TIFF files in PDF without decoding, and pages of PDF files in TIFF without drawing."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import islice

from engine import (
    DOCUMENT,
    MAX_FRAMES,
    MAX_TOTAL_PIXELS,
    Frame,
    Loss,
    OptionValue,
    Raster,
    check_count,
    conversion,
    lazy_imports,
)
from engine.option_types import Dpi, Effort, Flip, Metadata, Pages, Quality, Rotate
from plugins._pixels import pillow
from plugins.formats import tiff
from plugins.formats.pdf import CAPABILITIES, DPI, PDF, checked_images, draw_page, to_bytes
from plugins.formats.tiff import EFFORT, JPEG_QUALITY, TIFF, Compression
from plugins.operations import geometry
from plugins.operations import metadata as metadata_filter

with lazy_imports():
    from engine.mupdf import pymupdf
    from plugins._pdf.images import image_pages, scans
    from plugins._pdf.text import texts
    from plugins._tiff import codec

MODULES = ("plugins._pdf.images.image_pages", "plugins._pdf.images.scans", *tiff.MODULES)
TEMPLATE = "documents"
_INCH = 2


@conversion(TIFF, PDF, terminal=True, cost=11)
def embed_tiff(
    data: bytes, *, pages: Pages | None = None, metadata: Metadata = "safe", dpi: Dpi | None = None
) -> bytes:
    """A PDF with the pages of a TIFF: those by Group 4 and JPEG as they are, others without loss."""
    writer = image_pages.ImageWriter()
    with codec.open_file(data) as file:
        found = codec.images(file)
        order = pillow.select(list(range(len(found))), pages)
        check_count(len(order), [codec.upright_size(found[index]) for index in order], "pages")
        embedded = {index: scans.embeddable(data, found[index]) for index in order}
        rest = [index for index in order if embedded[index] is None]
        raster = _decode(data, rest or order[:1], metadata)
        frames = iter(raster.converted_for(CAPABILITIES).frames if rest else ())
        for index in order:
            page = found[index]
            image = embedded[index]
            dots = (dpi, dpi) if dpi else pillow.plausible_dpi(page.get_resolution(unit=_INCH))
            orientation = codec.orientation(page)
            if image is not None:
                writer.add_page(image, (page.imagewidth, page.imagelength), dots, orientation)
            else:
                frame = next(frames)
                dots = dots[::-1] if dots and orientation >= 5 else dots
                writer.add_page(image_pages.encode_frame(frame, None), frame.size, dots)
                del frame  # frees its memory before the next one is decoded
    if raster.metadata.xmp:
        writer.document.set_xml_metadata(raster.metadata.xmp.decode("utf-8", "replace"))
    return to_bytes(writer.document)


def _decode(data: bytes, pages: list[int], metadata: Metadata) -> Raster:
    """The pages at these indexes, which are decoded when they are read, with the metadata of the file."""
    raster = tiff.decode(data, {"pages": ",".join(str(index + 1) for index in pages)})
    return metadata_filter.metadata(raster, {"metadata": metadata})


@conversion(DOCUMENT, TIFF, loss=Loss.STRUCTURE, cost=8, terminal=True, memory=16)
def extract(
    document: pymupdf.Document,
    *,
    rotate: Rotate = 0,
    flip: Flip | None = None,
    metadata: Metadata = "safe",
    compression: Compression | None = None,
    quality: Quality = JPEG_QUALITY,
    effort: Effort = EFFORT,
) -> bytes:
    """A TIFF with the images of pages that are one image, as they are stored, and other pages drawn."""
    with checked_images():
        found = [scans.find(page) for page in islice(document, MAX_FRAMES + 1)]
    if sum(scan.size[0] * scan.size[1] for scan in found if scan) > MAX_TOTAL_PIXELS:
        found = [None] * len(found)
    is_deep = any(scan is not None and scan.bits > 8 for scan in found)
    options: dict[str, OptionValue] = {"rotate": rotate, "metadata": metadata}
    if flip is not None:
        options["flip"] = flip

    def frames() -> Iterator[Frame]:
        for page, scan in zip(document, found, strict=False):
            texts.warn_losses(page)
            with checked_images():
                frame = scan.read() if scan else None
            scale = pymupdf.Matrix(DPI / 72, DPI / 72)
            yield frame or Frame(draw_page(page, scale), dpi=(DPI, DPI))

    reduced = (replace(frame, pixels=frame.image) for frame in frames())
    raster = Raster(reduced, count=document.page_count, deep_frames=frames() if is_deep else None)
    for change in (geometry.rotate, geometry.flip, metadata_filter.metadata):
        raster = change(raster, options)
    encoding: dict[str, OptionValue] = {"quality": quality, "effort": effort}
    if compression is not None:
        encoding["compression"] = compression
    return tiff.encode(raster, encoding)
