"""Scans as they are stored: PDF pages that are one image, and pages of TIFF that PDF can hold: Group 4 and JPEG."""

from __future__ import annotations

import re
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from typing import Any, TypeAlias

import imagecodecs
import numpy as np
from PIL import Image, ImageChops, ImageOps
from tifffile import COMPRESSION, PHOTOMETRIC, TiffPage

from engine import MAX_PIXELS, DeepPixels, Frame, Size, color
from engine.mupdf import pymupdf
from plugins._jpeg.segments import END, check_scans, inspect_coding, read_segments
from plugins._metadata import exif_data
from plugins._pdf.images.image_pages import Stream, Tiles, group4_stream
from plugins._pixels import pillow
from plugins._tiff import codec

Pixels: TypeAlias = Image.Image | DeepPixels

_DRAWN = frozenset({"fill-image", "fill-imgmask", "ignore-text"})  # images, and text that is only searched
_MODES = {1: "L", 3: "RGB", 4: "CMYK"}
# Color spaces of which TIFF has an equal, and masks.
_STORED = re.compile(r"(Indexed\(\d+,)?(Device(Gray|RGB|CMYK)|ICCBased\((Gray|RGB|CMYK),)|None$")
_STENCIL = "None"  # the color space of a mask through which the page is painted
_PROFILE = re.compile(r"/ICCBased (\d+) 0 R")
_MAX_PARTS = 1000
_TOLERANCE = 1  # pixels by which an image can miss the edges of the page
# Pixels per side of a page that is compared with the image, and averages of them.
_DRAWN_SIDE = 256
_SAMPLES = 16
_MAX_DIFFERENCE = 40  # levels; color management makes differences, too
# The EXIF orientation with the same effect, by which of the two factors of a matrix are positive.
_UPRIGHT = {(True, True): 1, (False, True): 2, (False, False): 3, (True, False): 4}
_TURNED = {(True, True): 5, (True, False): 6, (False, False): 7, (False, True): 8}


@dataclass(frozen=True)
class _Part:
    """An image on the page: its object number, EXIF orientation, upright size, and its place in points."""

    xref: int
    bits: int
    space: str
    orientation: int
    size: Size
    area: pymupdf.Rect


@dataclass(frozen=True)
class Scan:
    """A page that images of the same kind cover, strips or tiles of one image of `size` pixels and `dpi`."""

    page: pymupdf.Page
    parts: tuple[_Part, ...]

    @property
    def bits(self) -> int:
        """Bits per sample."""
        return self.parts[0].bits

    @cached_property
    def scale(self) -> tuple[float, float]:
        """Pixels per point."""
        part = self.parts[0]
        return part.size[0] / part.area.width, part.size[1] / part.area.height

    @property
    def dpi(self) -> tuple[float, float]:
        return self.scale[0] * 72, self.scale[1] * 72

    @cached_property
    def corners(self) -> list[tuple[int, int]]:
        """The position of each part in pixels of the page."""
        return [(round(part.area.x0 * self.scale[0]), round(part.area.y0 * self.scale[1])) for part in self.parts]

    @cached_property
    def box(self) -> tuple[int, int, int, int]:
        """Left, top, right and bottom of the result: the page, or what the parts cover if the edges are near."""
        page = round(self.page.rect.width * self.scale[0]), round(self.page.rect.height * self.scale[1])
        ends = [(x + part.size[0], y + part.size[1]) for (x, y), part in zip(self.corners, self.parts, strict=True)]
        covered = *map(min, zip(*self.corners, strict=True)), *map(max, zip(*ends, strict=True))
        left, top, right, bottom = (
            near if abs(near - edge) <= _TOLERANCE else edge for near, edge in zip(covered, (0, 0, *page), strict=True)
        )
        return left, top, right, bottom

    @property
    def size(self) -> Size:
        left, top, right, bottom = self.box
        return right - left, bottom - top

    def covers_page(self) -> bool:
        """Whether the parts have one scale, fill the page, and do not overlap."""
        left, top, right, bottom = self.box
        area = 0
        for part, (x, y) in zip(self.parts, self.corners, strict=True):
            scale = part.size[0] / part.area.width, part.size[1] / part.area.height
            errors = (
                abs(own / whole - 1) * side for own, whole, side in zip(scale, self.scale, part.size, strict=True)
            )
            if max(errors) > _TOLERANCE:
                return False
            width, height = min(x + part.size[0], right) - max(x, left), min(y + part.size[1], bottom) - max(y, top)
            area += max(width, 0) * max(height, 0)
        return area == (right - left) * (bottom - top) <= MAX_PIXELS

    def read(self) -> Frame | None:
        """The image. None if the page shows something else, such as a part of it."""
        document = self.page.parent
        pixels = [_read(document, part) for part in self.parts]
        modes = {one.mode if isinstance(one, Image.Image) else None for one in pixels}
        image = pixels[0] if len(pixels) == 1 else None
        if image is None or (isinstance(image, Image.Image) and image.size != self.size):
            if None in modes or len(modes) > 1:
                return None
            image = Image.new(modes.pop() or "L", self.size)
            for (x, y), part in zip(self.corners, pixels, strict=True):
                assert isinstance(part, Image.Image)
                image.paste(part, (x - self.box[0], y - self.box[1]))
        frame = Frame(image, color.matching_profile(image.mode, _profile(document, self.parts[0])), dpi=self.dpi)
        return frame if self._is_shown(frame.image) else None

    def _is_shown(self, image: Image.Image) -> bool:
        """Whether the page looks like the image: not clipped, transparent or hidden."""
        scale = pymupdf.Matrix(_DRAWN_SIDE / self.page.rect.width, _DRAWN_SIDE / self.page.rect.height)
        drawn = self.page.get_pixmap(matrix=scale, alpha=False)
        page = Image.frombytes("RGB", (drawn.width, drawn.height), drawn.samples)
        shown, expected = (
            np.asarray(one.convert("RGB").resize((_SAMPLES, _SAMPLES), Image.Resampling.BOX), int)
            for one in (page, color.to_srgb(image, None))
        )
        return int(np.abs(shown - expected).max()) <= _MAX_DIFFERENCE


def find(page: pymupdf.Page) -> Scan | None:
    """The images of a page that shows nothing else. None for other pages."""
    listed = page.get_images()
    if (
        not 0 < len(listed) <= _MAX_PARTS
        or page.first_annot
        or page.first_widget
        or {kind for kind, _ in page.get_bboxlog()} - _DRAWN
    ):
        return None
    found = page.get_image_info(xrefs=len(listed) != 1)  # `xrefs` decodes images to compare them
    if len(listed) == len(found) == 1:
        found[0]["xref"] = listed[0][0]
    if not 0 < len(found) <= _MAX_PARTS or not page.rect.width * page.rect.height:
        return None
    parts = [_part(page, info) for info in found]
    kinds = {(part.bits, part.orientation, part.space) for part in parts if part is not None}
    scan = Scan(page, tuple(part for part in parts if part is not None))
    return scan if None not in parts and len(kinds) == 1 and scan.covers_page() else None


def _part(page: pymupdf.Page, info: dict[str, Any]) -> _Part | None:
    """An image without mask that is neither skewed nor has another color space than TIFF."""
    matrix = pymupdf.Matrix(info["transform"]) * page.rotation_matrix
    size = info["width"], info["height"]
    if info["has-mask"] or not info.get("xref") or not _STORED.match(info["cs-name"]):
        return None
    area = pymupdf.Rect(0, 0, 1, 1) * matrix
    slack = _TOLERANCE / max(size) * max(area.width, area.height)
    if abs(matrix.b) < slack and abs(matrix.c) < slack:
        orientation = _UPRIGHT[matrix.a > 0, matrix.d > 0]
    elif abs(matrix.a) < slack and abs(matrix.d) < slack:
        orientation = _TURNED[matrix.b > 0, matrix.c > 0]
        size = size[::-1]
    else:
        return None
    return _Part(info["xref"], info["bpc"], info["cs-name"], orientation, size, area) if not area.is_empty else None


def _read(document: pymupdf.Document, part: _Part) -> Pixels | None:
    """The upright samples with the depth and color in which they are stored."""
    if part.bits == 16 and (deep := _read_deep(document, part)):
        return deep
    pixmap = pymupdf.Pixmap(document, part.xref)
    mode = _MODES.get(pixmap.n)
    is_stencil = part.space == _STENCIL
    if mode is None or bool(pixmap.alpha) != is_stencil:
        return None
    image = Image.frombytes(mode, (pixmap.width, pixmap.height), pixmap.samples)
    image = ImageChops.invert(image) if is_stencil else image
    if part.bits == 1 and mode == "L":
        image = image.convert("1", dither=Image.Dither.NONE)
    image.getexif()[exif_data.ORIENTATION] = part.orientation
    return ImageOps.exif_transpose(image)


def _read_deep(document: pymupdf.Document, part: _Part) -> DeepPixels | None:
    """Samples of 16 bits, which MuPDF would reduce. None if they are not stored in order."""
    size = part.size[::-1] if part.orientation >= 5 else part.size
    kinds = [document.xref_get_key(part.xref, key) for key in ("Filter", "Decode")]
    if kinds[0][1] in ("/JPXDecode",) or kinds[1][0] != "null" or part.space.startswith("Indexed"):
        return None
    samples = np.frombuffer(document.xref_stream(part.xref), ">u2").astype(np.uint16)
    bands = samples.size // (size[0] * size[1])
    if samples.size != size[0] * size[1] * bands or bands not in _MODES:
        return None
    array = samples.reshape(size[1], size[0], bands)
    upright = pillow.apply_orientation(array[..., 0] if bands == 1 else array, part.orientation)
    return DeepPixels(upright, _MODES[bands])


def _profile(document: pymupdf.Document, part: _Part) -> bytes | None:
    """The ICC profile of an image."""
    kind, value = document.xref_get_key(part.xref, "ColorSpace")
    if kind == "xref":
        value = document.xref_object(int(value.split()[0]), compressed=True)
    match = _PROFILE.search(value)
    return document.xref_stream(int(match[1])) if match else None


_START = b"\xff\xd8"
_STOP = b"\xff\xd9"
# Markers of JPEG.
_SCAN = 0xDA
_RESTART_INTERVAL = 0xDD
_RESTART = 0xD0
_COMMENT = 0xFE
_SEQUENTIAL = (0xC0, 0xC1)
_FRAMES = (*_SEQUENTIAL, 0xC2)
_REVERSED = 2  # the order of bits in a byte
_CONTIGUOUS = 1
_MAX_UINT16 = 65_535
_UNCOMPRESSED_MODE = 2  # an extension of Group 4 that few readers know
_JPEG_MODES: Mapping[int, str] = {
    PHOTOMETRIC.MINISWHITE: "L",
    PHOTOMETRIC.MINISBLACK: "L",
    PHOTOMETRIC.RGB: "RGB",
    PHOTOMETRIC.YCBCR: "RGB",
}


def embeddable(data: bytes, page: TiffPage) -> Tiles | None:
    """The compressed parts of a page of the file `data`. None if it has to be decoded, or may be damaged."""
    if page.compression == COMPRESSION.CCITT_T6:
        return _group4(data, page)
    return _jpeg(data, page) if page.compression == COMPRESSION.JPEG else None


def _group4(data: bytes, page: TiffPage) -> Tiles | None:
    """A page of one strip: strips of Group 4 cannot be joined."""
    size = page.imagewidth, page.imagelength
    is_bilevel = page.photometric in (PHOTOMETRIC.MINISWHITE, PHOTOMETRIC.MINISBLACK) and page.samplesperpixel == 1
    strips = _strips(data, page)
    if page.is_tiled or len(strips) != 1 or not is_bilevel or codec.bits(page) != 1:
        return None
    if page.tags.valueof("T6Options", 0) & _UNCOMPRESSED_MODE:
        return None
    strip = bytes(imagecodecs.bitorder_decode(strips[0])) if page.fillorder == _REVERSED else strips[0]
    return [(group4_stream(strip, size, black=int(page.photometric == PHOTOMETRIC.MINISWHITE)), (0, 0))]


def _jpeg(data: bytes, page: TiffPage) -> Tiles | None:
    """A page of gray or colored JPEG strips, which are joined if they can be, or tiles."""
    mode = _JPEG_MODES.get(page.photometric)
    bands = len(mode or "")
    tables = page.jpegtables or _START + _STOP
    if mode is None or page.samplesperpixel != bands or codec.bits(page) != 8:
        return None
    if bands > 1 and page.planarconfig != _CONTIGUOUS:
        return None
    transform = int(page.photometric == PHOTOMETRIC.YCBCR)
    boxes = _boxes(page)
    strips = _strips(data, page)
    if len(boxes) != len(strips):
        return None
    parts = [_complete(tables, strip, transform) for strip in strips]
    if any(_header(part) != (size, bands) for part, (size, _) in zip(parts, boxes, strict=True)):
        return None
    if len(parts) > 1 and not page.is_tiled and (joined := _join(parts, page.rowsperstrip, page.imagelength)):
        parts = [joined]
        boxes = [((page.imagewidth, page.imagelength), (0, 0))]
    inverted = page.photometric == PHOTOMETRIC.MINISWHITE
    profile = codec.profile(page)
    return [
        (Stream(part, size, mode, "DCTDecode", inverted=inverted, icc_profile=profile), position)
        for part, (size, position) in zip(parts, boxes, strict=True)
    ]


def _strips(data: bytes, page: TiffPage) -> list[bytes]:
    """The compressed strips or tiles; none if one is beyond the end of the file."""
    places = list(zip(page.dataoffsets, page.databytecounts, strict=True))
    is_truncated = any(offset + size > len(data) for offset, size in places)
    return [] if is_truncated else [data[offset : offset + size] for offset, size in places]


def _boxes(page: TiffPage) -> list[tuple[Size, tuple[int, int]]]:
    """The size and position of each strip or tile. Tiles at the edges exceed the page."""
    width, height = page.imagewidth, page.imagelength
    if page.is_tiled:
        across, down = page.tilewidth, page.tilelength
        return [((across, down), (x, y)) for y in range(0, height, down) for x in range(0, width, across)]
    rows = min(page.rowsperstrip, height)
    return [((width, min(rows, height - y)), (0, y)) for y in range(0, height, rows)]


def _complete(tables: bytes, strip: bytes, transform: int) -> bytes:
    """A JPEG file of the tables and a strip. `transform`: 1 if the colors are YCbCr, which TIFF states in a tag."""
    adobe = b"\xff\xee" + struct.pack(">H5sHHHB", 14, b"Adobe", 100, 0, 0, transform)
    parts = [_START, adobe]
    for stream in (tables, strip):
        position = len(_START)
        for code, start, end in read_segments(stream):
            parts.append(stream[position:start])  # entropy-coded data
            position = end
            if not (0xE0 <= code <= 0xEF or code in (_COMMENT, END)):
                parts.append(stream[start:end])
    return b"".join((*parts, _STOP))


def _header(jpeg: bytes) -> tuple[Size, int] | None:
    """The size and number of bands of a complete JPEG of 8 bits that all readers decode. None for others.

    Raises TooLarge for too many scans.
    """
    check_scans(jpeg)
    if inspect_coding(jpeg) != (True, True):
        return None
    start = next(start for code, start, _ in read_segments(jpeg) if code in _FRAMES)
    bits, height, width, bands = struct.unpack_from(">BHHB", jpeg, start + 4)
    return ((width, height), bands) if bits == 8 else None


def _join(parts: Sequence[bytes], rows: int, height: int) -> bytes | None:
    """JPEGs of `rows` rows as one, with a restart marker at each border. None if they differ in more than height."""
    first = {code: start for code, start, _ in read_segments(parts[0])}
    frame = next((first[code] for code in _SEQUENTIAL if code in first), None)
    if frame is None or _RESTART_INTERVAL in first or height > _MAX_UINT16:
        return None
    units, rest = _units(parts[0][frame : first[_SCAN]], rows)
    heads: set[bytes] = set()
    bodies = []
    for part in parts:
        ends = [end for code, _, end in read_segments(part) if code == _SCAN]
        # A strip with another header has other bytes at this position, or more of them.
        heads.add(part[: frame + 5] + struct.pack(">H", height) + part[frame + 7 : ends[0]] if len(ends) == 1 else b"")
        bodies.append(part[ends[0] : -len(_STOP)])
    if len(heads) > 1 or b"" in heads or rest or units > _MAX_UINT16:
        return None
    (head,) = heads
    interval = struct.pack(">BBHH", 0xFF, _RESTART_INTERVAL, 4, units)
    markers = (bytes((0xFF, _RESTART + number % 8)) for number in range(len(bodies) - 1))
    data = chain.from_iterable(zip(bodies, chain(markers, [_STOP]), strict=True))
    return b"".join((head[: first[_SCAN]], interval, head[first[_SCAN] :], *data))


def _units(frame: bytes, rows: int) -> tuple[int, int]:
    """The number of coding units in rows of an image, by its frame header; and the rows beyond whole units."""
    width, bands = struct.unpack_from(">HB", frame, 7)
    factors = frame[11 : 11 + 3 * bands : 3] if bands > 1 else b"\x11"
    across, down = (8 * max(factor >> shift & 15 for factor in factors) for shift in (4, 0))
    return -(-width // across) * (rows // down), rows % down
