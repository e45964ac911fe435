"""Marks that are drawn on or under the content of PDF pages: lines of text, and pages of other files."""

from __future__ import annotations

import html
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from math import ceil, cos, radians, sin, sqrt
from typing import Any, TypeAlias

from pikepdf import (
    Array,
    Dictionary,
    Matrix,
    Name,
    Object,
    Page,
    Pdf,
    PdfError,
    Rectangle,
    String,
    parse_content_stream,
)

from engine import lazy_imports
from engine.mupdf import pymupdf
from plugins._pdf.objects import inherited, open_pdf

with lazy_imports():
    from plugins._fonts import builtin, characters

Box: TypeAlias = tuple[float, float, float, float]
Color: TypeAlias = tuple[float, float, float]
"""Red, green and blue, from 0 to 1."""

# Helvetica, in font sizes.
_ASCENT = 0.75
_DESCENT = 0.22
_HIGHEST = 1.25  # above the descent: the accents of capitals
_WIDE = 14_000  # points; no text is wider
_MARGIN = 20  # points between a mark and the edges of a page
_MAX_MARGIN = 0.1  # share of the width or height of the page
_TILE_GAP = 0.5  # share of the height of a tile
_MAX_TILES = 2000
_ALIGNMENTS = {1: "center", 2: "right"}


@dataclass(frozen=True)
class Mark:
    """A form XObject whose lower left corner is at 0, 0, and its width and height in points when it is drawn."""

    form: Object
    width: float
    height: float
    scale: float = 1.0

    def scaled(self, factor: float) -> Mark:
        """The mark at another size."""
        return Mark(self.form, self.width * factor, self.height * factor, self.scale * factor)

    def extent(self, angle: float) -> tuple[float, float]:
        """Width and height of the box around the mark, turned by `angle` degrees."""
        across, along = abs(cos(radians(angle))), abs(sin(radians(angle)))
        return self.width * across + self.height * along, self.width * along + self.height * across


def operands(matrix: Matrix) -> str:
    """The numbers of a matrix as in a content stream, which has no exponents."""
    return " ".join(f"{value:.6f}" for value in matrix.shorthand)


def visible_box(page: Page) -> Box:
    """Left, bottom, right and top of the part of a page that is shown: the crop box as far as it is on the page."""
    media, crop = (sorted_edges(box) for box in (page.mediabox, page.cropbox))
    left, bottom = max(media[0], crop[0]), max(media[1], crop[1])
    right, top = min(media[2], crop[2]), min(media[3], crop[3])
    return (left, bottom, right, top) if left < right and bottom < top else media


def sorted_edges(box: Any) -> Box:
    """Left, bottom, right and top of a box, whose corners can be in any order. Raises TypeError for another object."""
    return _edges(Rectangle(box))


def _edges(box: Rectangle) -> Box:
    return box.llx, box.lly, box.urx, box.ury


@dataclass(frozen=True)
class Geometry:
    """A page as it is shown: its width and height in points, and the matrix from there to the units of its content."""

    width: float
    height: float
    to_content: Matrix

    @classmethod
    def of(cls, page: Page) -> Geometry:
        """The geometry of a page by its visible box, rotation and unit."""
        left, bottom, right, top = visible_box(page)
        unit = float(page.obj.get("/UserUnit", 1)) or 1.0
        scale = 1 / unit
        width, height = (right - left) * unit, (top - bottom) * unit
        match page.rotation:
            case 90:
                return cls(height, width, Matrix(0, scale, -scale, 0, right, bottom))
            case 180:
                return cls(width, height, Matrix(-scale, 0, 0, -scale, right, top))
            case 270:
                return cls(height, width, Matrix(0, -scale, scale, 0, left, top))
        return cls(width, height, Matrix(scale, 0, 0, scale, left, bottom))

    @property
    def to_shown(self) -> Matrix:
        """The matrix from the units of the content to points of the page as it is shown, from its lower left corner."""
        return self.to_content.inverse()

    def area_in_content(self, x: float, y: float, width: float, height: float) -> Box:
        """An area, in points from the upper left corner of the page as shown, as a box in the units of the content."""
        bottom = self.height - y - height
        return _edges(self.to_content.transform(Rectangle(x, bottom, x + width, bottom + height)))

    def area_as_shown(self, box: Box) -> tuple[float, float, float, float]:
        """A box in the units of the content as x, y, width and height of an area of the page as shown, in points."""
        shown = self.to_shown.transform(Rectangle(*box))
        return shown.llx, self.height - shown.ury, shown.width, shown.height

    def place(self, mark: Mark, position: str, angle: float = 0) -> Matrix:
        """The matrix of a mark at a position such as `northeast`, turned counterclockwise by `angle` degrees."""
        extent = mark.extent(angle)
        centers = []
        for size, length, low, high in zip(
            extent, (self.width, self.height), ("west", "south"), ("east", "north"), strict=True
        ):
            distance = min(_MARGIN, _MAX_MARGIN * length) + size / 2
            centers.append(distance if low in position else length - distance if high in position else length / 2)
        return _turned(mark, centers[0], centers[1], angle)

    def tile(self, mark: Mark, angle: float) -> list[Matrix]:
        """The matrices of a pattern of marks that covers the page."""
        gap = mark.height * _TILE_GAP
        across, down = (size + gap for size in mark.extent(angle))
        too_many = (self.width / across + 2) * (self.height / down + 2) / _MAX_TILES
        if too_many > 1:
            across, down = across * sqrt(too_many), down * sqrt(too_many)
        columns, rows = ceil(self.width / across) + 1, ceil(self.height / down)
        return [
            # Every other row is shifted by half a tile.
            _turned(mark, (column + row % 2 / 2) * across, (row + 0.5) * down, angle)
            for row in range(rows)
            for column in range(columns)
        ]


def _turned(mark: Mark, x: float, y: float, angle: float) -> Matrix:
    """The matrix of a mark with its center at x, y."""
    across, along = cos(radians(angle)), sin(radians(angle))
    half_width, half_height = mark.width / 2, mark.height / 2
    left, bottom = x - across * half_width + along * half_height, y - along * half_width - across * half_height
    scale = mark.scale
    return Matrix(across * scale, along * scale, -along * scale, across * scale, left, bottom)


class MarkWriter:
    """Makes marks in a document and draws them on its pages."""

    def __init__(self, document: Pdf) -> None:
        self._document = document
        self._fonts: dict[str, Object] = {}
        self._contents: dict[tuple[Any, ...], Object] = {}

    def text(self, text: str, size: float, color: Color = (0, 0, 0), opacity: float = 1.0) -> Mark:
        """A line of text of this font size in points: in Helvetica, or in embedded fonts if it lacks characters."""
        try:
            shown = String(text.encode("cp1252")).unparse().decode("latin-1")
        except UnicodeEncodeError:
            return self._shaped_text(text, size, color, opacity)
        width = max(pymupdf.Font("helv").text_length(text, size), 1.0)
        rgb = " ".join(f"{part:.4f}" for part in color)
        content = f"BT {rgb} rg /F {size:.4f} Tf 0 {size * _DESCENT:.4f} Td {shown} Tj ET"
        mark = self._mark(content, width, size * (_ASCENT + _DESCENT), opacity, Font=Dictionary(F=self._font()))
        mark.form.BBox = Array([round(edge, 4) for edge in (-size, 0, width + size, size * _HIGHEST)])
        return mark

    def _font(self) -> Object:
        if not self._fonts:
            font = Dictionary(Type=Name.Font, Subtype=Name.Type1, BaseFont=Name.Helvetica)
            font.Encoding = Name.WinAnsiEncoding
            self._fonts[""] = self._document.make_indirect(font)
        return self._fonts[""]

    def paragraph(self, text: str, size: float, width: float, color: Color, align: int) -> Mark:
        """A text with lines of this width in points, aligned at the left (0), in the middle (1) or at the right (2)."""
        made, page = _html_page(
            text, size, color, width, f"white-space:pre-wrap;text-align:{_ALIGNMENTS.get(align, 'left')}"
        )
        bottoms = [line["bbox"][3] for block in page.get_text("dict")["blocks"] for line in block["lines"]]
        # The page has rounded sides, beyond which no box may reach.
        page.set_cropbox(pymupdf.Rect(0, 0, width, max(bottoms, default=size)) & page.rect)
        made.subset_fonts()
        return self.page(made.tobytes(garbage=3, deflate=True))

    def _shaped_text(self, text: str, size: float, color: Color, opacity: float) -> Mark:
        made, page = _html_page(text, size, color, _WIDE, f"white-space:nowrap;margin:{size}px")
        boxes = [line["bbox"] for block in page.get_text("dict")["blocks"] for line in block["lines"]]
        edges = list(zip(*boxes, strict=True)) or [(0,), (0,), (size,), (size,)]
        box = pymupdf.Rect(min(edges[0]), min(edges[1]), max(edges[2]), max(edges[3])) & page.rect
        page.set_cropbox(box)
        made.subset_fonts()
        return self.page(made.tobytes(garbage=3, deflate=True), opacity)

    def page(self, data: bytes, opacity: float = 1.0) -> Mark:
        """The first page of a PDF file, as it is shown, at its size."""
        with open_pdf(data) as source:
            return self.page_of(source.pages[0], opacity)

    def page_of(self, page: Page, opacity: float = 1.0) -> Mark:
        """A page of another document, as `page`."""
        geometry = Geometry.of(page)
        page.obj.TrimBox = Array(visible_box(page))  # the form shows this box
        form = self._document.copy_foreign(page.as_form_xobject(handle_transformations=False))
        form.Group = Dictionary(S=Name.Transparency)  # opacity then applies to the form as a whole
        content = f"{operands(geometry.to_shown)} cm /X Do"
        return self._mark(content, geometry.width, geometry.height, opacity, XObject=Dictionary(X=form))

    def _mark(self, content: str, width: float, height: float, opacity: float, **resources: Object) -> Mark:
        if opacity < 1:
            alpha = round(opacity, 4)
            resources["ExtGState"] = Dictionary(G=Dictionary(Type=Name.ExtGState, ca=alpha, CA=alpha))
            content = f"/G gs {content}"
        form = self._document.make_stream(content.encode("latin-1"), Type=Name.XObject, Subtype=Name.Form)
        form.BBox = Array([0, 0, round(width, 4), round(height, 4)])
        form.Resources = Dictionary({f"/{name}": value for name, value in resources.items()})
        return Mark(form, width, height)

    def draw(
        self, page: Page, mark: Mark, matrices: Iterable[Matrix], *, under: bool = False, tag: str = "/Artifact"
    ) -> None:
        """Draws a mark on a page, or under its content, at each of these places on the page as it is shown."""
        name = _add_resource(self._document, page, mark.form)
        places = " ".join(f"q {operands(one)} cm {name} Do Q" for one in matrices)
        drawn = f"{tag} BMC q {operands(Geometry.of(page).to_content)} cm {places} Q EMC"
        if under:
            page.contents_add(self._stream(f"{drawn}\n"), prepend=True)
            return
        before, after = _unbalanced(page)
        page.contents_add(self._stream("q " * (before + 1) + "\n"), prepend=True)
        page.contents_add(self._stream("\n" + "Q " * (after + 1) + drawn))

    def turn(self, page: Page, angle: float) -> None:
        """Turns the content of a page around its middle, counterclockwise by `angle` degrees."""
        left, bottom, right, top = visible_box(page)
        x, y = (left + right) / 2, (bottom + top) / 2
        matrix = operands(_turned(Mark(page.obj, 2 * x, 2 * y), x, y, angle))
        before, after = _unbalanced(page)
        page.contents_add(self._stream(f"q {matrix} cm " + "q " * before + "\n"), prepend=True)
        page.contents_add(self._stream("\n" + "Q " * (after + 1)))

    def _stream(self, content: str) -> Any:
        """The stream with this content, which pages share."""
        key = (content,)
        if key not in self._contents:
            self._contents[key] = self._document.make_stream(content.encode())
        return self._contents[key]


def _html_page(text: str, size: float, color: Color, width: float, style: str) -> tuple[pymupdf.Document, pymupdf.Page]:
    """A new document and its page, with a text in fonts that have its characters. Issues a warning if none has."""
    text = text.replace(characters.EMOJI_STYLE, "")  # for which MuPDF would draw a box
    characters.warn_lacking([*filter(characters.is_drawn, builtin.lacking(text))], lacks_color=False)
    made = pymupdf.open()
    page = made.new_page(width=width, height=size * 4 if width == _WIDE else _WIDE)
    rgb = ",".join(str(round(part * 255)) for part in color)
    style = f"font-family:sans-serif;font-size:{size}px;color:rgb({rgb});{style}"
    page.insert_htmlbox(page.rect, f'<div style="{style}">{html.escape(text)}</div>')
    return made, page


def _unbalanced(page: Page) -> tuple[int, int]:
    """How many graphics states the content of a page restores without saving, and saves without restoring."""
    depth = lowest = 0
    with suppress(PdfError):
        for instruction in parse_content_stream(page, "q Q"):
            depth += 1 if str(instruction.operator) == "q" else -1
            lowest = min(lowest, depth)
    return -lowest, depth - lowest


def _add_resource(document: Pdf, page: Page, form: Object) -> str:
    """Adds a form to the resources of a page, which other pages may share. Returns its name."""
    resources = inherited(page.obj, "/Resources")
    if not isinstance(resources, Dictionary):
        resources = document.make_indirect(Dictionary())
    if "/Resources" not in page.obj:
        page.obj.Resources = resources
    if not isinstance(resources.get("/XObject"), Dictionary):
        resources.XObject = document.make_indirect(Dictionary())
    forms = resources.XObject
    number = form.objgen[0]
    name = f"/Mark{number}"
    while name in forms and forms[name].objgen != form.objgen:
        name += "x"
    forms[name] = form
    return name
