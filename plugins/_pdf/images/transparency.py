"""Flattens transparency on a page of a PDF: images cover what is drawn differently without it."""

from __future__ import annotations

from collections.abc import Iterator
from io import BytesIO
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from pikepdf import Array, Dictionary, Name, Object, Stream
from PIL import Image

from engine.mupdf import pymupdf
from plugins._pdf.objects import open_pdf
from plugins._pixels import pillow

if TYPE_CHECKING:
    from numpy.typing import NDArray

Cell: TypeAlias = tuple[int, int]

_DPI = 300
_MAX_PIXELS = 30_000_000  # The resolution is reduced if all images together have more.
_MAX_IMAGES = 32
_CELL = 6  # points; what lies closer together shares an image
_MARGIN = 2  # points around what is transparent, because viewers round the borders of images
_MAX_COMPARED = 2000  # pixels per side of the compared drawings, which have a pixel per point otherwise
_TOLERANCE = 2  # levels of 255, by which groups round differently
_MAX_NESTING = 50


def flatten(document: pymupdf.Document) -> tuple[pymupdf.Document, bool]:
    """The document, whose only page is not rotated, without transparency; and whether images were put on the page."""
    data = BytesIO()
    with open_pdf(document.tobytes(garbage=1)) as objects:
        if not sum(_remove_transparency(item, _MAX_NESTING) for item in objects.objects):
            return document, False
        objects.save(data)
    opaque = pymupdf.open(stream=data.getvalue(), filetype="pdf")
    areas = _different_areas(document[0], opaque[0])
    if areas:
        _cover(opaque[0], document[0], areas)
    return opaque, bool(areas)


def _remove_transparency(item: Any, nesting: int) -> int:
    """Removes alpha, blend modes, soft masks and groups from an object and those in it. Returns how many there were."""
    if isinstance(item, Array):
        return sum(_remove_transparency(part, nesting - 1) for part in item if _is_direct(part)) if nesting else 0
    if not isinstance(item, Dictionary | Stream) or not nesting:
        return 0
    transparent = [key for key in ("/ca", "/CA", "/BM", "/SMask", "/Group") if _is_transparent(key, item.get(key))]
    for key in transparent:
        del item[key]
    return len(transparent) + sum(
        _remove_transparency(value, nesting - 1) for _, value in item.items() if _is_direct(value)
    )


def _is_direct(item: Any) -> bool:
    return isinstance(item, Dictionary | Array) and not item.is_indirect


def _is_transparent(key: str, value: Any) -> bool:
    if key in ("/ca", "/CA"):
        return isinstance(value, int | float) or (value is not None and not isinstance(value, Object))
    if key == "/BM":
        return isinstance(value, Array) or (isinstance(value, Name) and value not in (Name.Normal, Name.Compatible))
    if key == "/SMask":
        return isinstance(value, Dictionary | Stream)
    return isinstance(value, Dictionary) and value.get("/S") == Name.Transparency


def _different_areas(page: pymupdf.Page, opaque: pymupdf.Page) -> list[pymupdf.Rect]:
    """The parts of a page in which it differs from the other one."""
    scale = min(1.0, _MAX_COMPARED / max(page.rect.width, page.rect.height))
    drawn, other = (_pixels(one.get_pixmap(matrix=pymupdf.Matrix(scale, scale), alpha=False)) for one in (page, opaque))
    different = (np.abs(drawn - other) > _TOLERANCE).any(axis=-1)
    size = _CELL
    while len(areas := [*_areas(different, size)]) > _MAX_IMAGES:
        size *= 2
    return [pymupdf.Rect(area) / scale + (-_MARGIN, -_MARGIN, _MARGIN, _MARGIN) & page.rect for area in areas]


def _pixels(pixmap: pymupdf.Pixmap) -> NDArray[np.int16]:
    samples = np.frombuffer(pixmap.samples_mv, np.uint8)
    return samples.reshape(pixmap.height, pixmap.width, pixmap.n).astype(np.int16)


def _areas(mask: NDArray[np.bool_], size: int) -> Iterator[tuple[int, int, int, int]]:
    """The boxes, in pixels, of the connected parts of a mask that is divided into cells of `size` pixels."""
    height, width = mask.shape
    padded = np.pad(mask, ((0, -height % size), (0, -width % size)))
    cells = padded.reshape(-(-height // size), size, -(-width // size), size).any(axis=(1, 3))
    left = {(int(row), int(column)) for row, column in np.argwhere(cells)}
    while left:
        rows, columns = zip(*_connected(left), strict=True)
        yield min(columns) * size, min(rows) * size, (max(columns) + 1) * size, (max(rows) + 1) * size


def _connected(cells: set[Cell]) -> list[Cell]:
    """Takes a cell, and those that touch it or each other, out of `cells`."""
    found = [cells.pop()]
    for row, column in found:
        near = {(row + down, column + across) for down in (-1, 0, 1) for across in (-1, 0, 1)} & cells
        cells -= near
        found += near
    return found


def _cover(page: pymupdf.Page, source: pymupdf.Page, areas: list[pymupdf.Rect]) -> None:
    """Puts images of the areas of `source` on `page`."""
    points = sum(area.width * area.height for area in areas)
    scale = min(_DPI / 72, (_MAX_PIXELS / points) ** 0.5)
    to_pixels = pymupdf.Matrix(scale, scale)
    blended = source.parent.xref_get_key(source.xref, "Group/CS")[1]
    space, mode = (pymupdf.csCMYK, "CMYK") if blended == "/DeviceCMYK" else (pymupdf.csRGB, "RGB")
    for area in areas:
        box = (area * to_pixels).irect
        pixels = source.get_pixmap(matrix=to_pixels, clip=pymupdf.Rect(box) / scale, colorspace=space)
        image = Image.frombytes(mode, (pixels.width, pixels.height), pixels.samples_mv)
        stream = pillow.encode(image, "TIFF", compression="tiff_lzw")  # PyMuPDF would convert a pixmap to RGB
        xref = page.insert_image(pymupdf.Rect(pixels.irect) / scale, stream=stream, keep_proportion=False)
        page.parent.xref_set_key(xref, "ColorSpace", f"/Device{mode}")
