"""What stands on a page of a document: text in its styles, pictures with their files, links and drawn rules."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import chain, islice
from typing import Any

from engine import FidelityWarning, TooLarge, check_size
from engine.blocks import Paragraph, Picture, Run
from engine.mupdf import pymupdf
from plugins._pdf.text import texts
from plugins._pdf.text.tables import Item
from plugins._pdf.text.texts import Block, Box, Line

_MAX_OBJECTS = 20_000  # on a page
_FIGURE = 40  # drawn shapes that are no rules
_MIN_SIDE = 4.0  # points of a picture
_BACKGROUND = 0.8  # of a page with text that a picture covers
_MAX_PICTURES = 256 << 20  # bytes of all pictures
_COLORS = (1, 3)  # components of JPEG files that all programs show


@dataclass
class PageParts:
    """What stands on a page. `drawn` are the boxes of lines and rectangles."""

    box: Box
    blocks: list[Block]
    pictures: list[Item]
    drawn: list[Box]


def links_of(page: pymupdf.Page) -> list[tuple[pymupdf.Rect, str]]:
    """The areas of links, and where they lead: a URL, or `#` with the page from 0 and points from its top."""
    found = []
    for link in page.get_links():
        if link.get("uri"):
            found.append((pymupdf.Rect(link["from"]), link["uri"]))
        elif (target := link.get("page", -1)) >= 0:
            to = link.get("to")
            found.append((pymupdf.Rect(link["from"]), f"#{target}:{max(0, round(to.y)) if to else 0}"))
    return found


@dataclass
class Pictures:
    """Reads the pictures of pages; the file of one that is shown several times is made once.

    Those behind the text of a page, such as that of a scan, are left out unless `keeps_backgrounds` is set.
    """

    keeps_backgrounds: bool = False
    _known: dict[int, tuple[Any, Picture]] = field(default_factory=dict)  # the image is kept, and so its address
    _size: int = 0

    def read(self, page: pymupdf.Page, parts: PageParts) -> None:
        """Adds the pictures of a page to its parts. Issues a warning for pictures behind text."""
        has_text = bool(parts.blocks) and not self.keeps_backgrounds
        area = page.rect.get_area()
        for box, image in _images(page):
            width, height = box[2] - box[0], box[3] - box[1]
            if has_text and width * height > _BACKGROUND * area:
                FidelityWarning.issue("pictures_dropped", "Images behind the text of a page are not in the result.")
            elif min(width, height) >= _MIN_SIDE and (picture := self._picture(image, box)) is not None:
                parts.pictures.append(Item(box, Paragraph((Run(picture=picture),))))

    def _picture(self, image: Any, box: Box) -> Picture | None:
        address = int(image.m_internal.this)
        if address not in self._known:
            check_size(image.w(), image.h())
            try:
                data, media_type = _file(image)
            except (RuntimeError, pymupdf.mupdf.FzErrorBase):
                FidelityWarning.issue("pictures_dropped", "Damaged images are not in the result.")
                return None
            self._size += len(data)
            if self._size > _MAX_PICTURES:
                raise TooLarge("The images of the document are too large.", reason="bytes")
            self._known[address] = image, Picture(data, media_type)
        known = self._known[address][1]
        width, height = round(box[2] - box[0], 1), round(box[3] - box[1], 1)
        return Picture(known.data, known.media_type, width=width, height=height)


def _images(page: pymupdf.Page) -> Iterator[tuple[Box, Any]]:
    """The images of a page, with their boxes."""
    found = page.get_textpage(flags=pymupdf.TEXT_PRESERVE_IMAGES | pymupdf.TEXT_MEDIABOX_CLIP)
    for block in islice(found.this, _MAX_OBJECTS):
        if block.m_internal.type == pymupdf.mupdf.FZ_STEXT_BLOCK_IMAGE:
            area = block.m_internal.bbox
            yield (area.x0, area.y0, area.x1, area.y1), block.i_image()


def _drawn(page: pymupdf.Page) -> list[Box]:
    """The boxes of lines across and down, and of rectangles, that are drawn. Issues a warning for figures."""
    boxes: list[Box] = []
    shapes = 0
    for kind, *points in chain.from_iterable(path["items"] for path in page.get_cdrawings()):
        if kind == "l":
            (left, top), (right, bottom) = points
            boxes.append((min(left, right), min(top, bottom), max(left, right), max(top, bottom)))
            shapes += min(abs(left - right), abs(top - bottom)) > 1
        elif kind == "re":
            boxes.append(tuple(points[0]))
        else:
            shapes += 1
    if shapes > _FIGURE:
        FidelityWarning.issue("pictures_dropped", "Figures that are drawn of lines are not in the result.")
    return boxes


def _file(image: Any) -> tuple[bytes, str]:
    """The file of an image: its own, if it is a JPEG without mask; otherwise a PNG, transparent where it is masked."""
    mask = image.mask()
    stored = image.fz_compressed_image_buffer()
    is_jpeg = stored.m_internal and stored.m_internal.params.type == pymupdf.mupdf.FZ_IMAGE_JPEG
    if is_jpeg and not mask.m_internal and image.n() in _COLORS:
        return bytes(stored.get_buffer().fz_buffer_extract_copy()), "image/jpeg"
    pixels = pymupdf.Pixmap("raw", image.fz_get_unscaled_pixmap_from_image())
    if pixels.colorspace is None or pixels.colorspace.n not in _COLORS:
        pixels = pymupdf.Pixmap(pymupdf.csRGB, pixels)
    if mask.m_internal:
        shape = pymupdf.Pixmap("raw", mask.fz_get_unscaled_pixmap_from_image())
        if (shape.width, shape.height) != (pixels.width, pixels.height):
            shape = pymupdf.Pixmap(shape, pixels.width, pixels.height)
        pixels = pymupdf.Pixmap(pymupdf.Pixmap(pixels, 0) if pixels.alpha else pixels, shape)
    return bytes(pixels.tobytes("png")), "image/png"


def lines_of(blocks: list[Block]) -> list[Line]:
    return [line for block in blocks for line in block.lines]


def read_page(page: pymupdf.Page, pictures: Pictures) -> PageParts:
    """The parts of a page."""
    parts = PageParts(tuple(page.rect), texts.styled_blocks(page, links_of(page)), [], _drawn(page))
    pictures.read(page, parts)
    return parts
