"""Places pages of a PDF at another size, or on other pages: their content as a form, and what lies at their points.

Content becomes a form because patterns follow the matrix of a form, but not one that content sets.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from pikepdf import Array, Dictionary, Matrix, Name, Object, Page, Pdf, Rectangle, Stream, String

from plugins._pdf.destinations import (
    change_destinations,
    destination_array,
    named_destinations,
    resolve_page_numbers,
    set_named_destinations,
)
from plugins._pdf.name_trees import Id, Ids, as_list, read_number_tree
from plugins._pdf.objects import walk
from plugins._pdf.pages.marks import Box, Geometry, operands, visible_box

# Entries of annotations, beads of articles and viewports that are points or rectangles of the page.
_RECTANGLES = ("/Rect", "/R", "/BBox")
_POINTS = ("/QuadPoints", "/Vertices", "/L", "/CL")
_LISTS_OF_POINTS = ("/InkList", "/Path")
_PLACED = ("/Annots", "/B", "/VP")
_FORM_KEYS = ("/Type", "/Subtype", "/BBox", "/Resources", "/Group")
_OTHER_BOXES = ("/BleedBox", "/TrimBox", "/ArtBox")
_FONT_SIZE = re.compile(rb"(?<![0-9.])([0-9]++(?:\.[0-9]*+)?|\.[0-9]++)(\s++Tf)")


def set_box(page: Page, box: Box) -> None:
    """Makes a box, in the units of the page, the only one of the page, so that all viewers show the same."""
    for key in ("/MediaBox", "/CropBox"):
        page.obj[key] = Array([round(edge, 4) for edge in box])
    for key in (*_OTHER_BOXES, "/Thumb"):
        if key in page.obj:
            del page.obj[key]


def page_form(document: Pdf, page: Page) -> Object:
    """The content of a page, within its visible box and in its units, as a form."""
    page.obj.TrimBox = Array(visible_box(page))  # the form shows this box
    lazy = page.as_form_xobject(handle_transformations=False)
    # That one reads the content of the page when the document is saved.
    return Stream(document, lazy.read_bytes(), {key: lazy[key] for key in _FORM_KEYS if key in lazy})


def draw(document: Pdf, page: Page, forms: Sequence[tuple[Object, Matrix]]) -> None:
    """Draws forms as the only content of a page, each by its matrix."""
    names = {f"/Page{number}": form for number, (form, _) in enumerate(forms)}
    page.obj.Resources = Dictionary(XObject=Dictionary(names))
    parts = (f"q {operands(matrix)} cm {name} Do Q" for name, (_, matrix) in zip(names, forms, strict=True))
    page.obj.Contents = document.make_stream("\n".join(parts).encode())


@dataclass(frozen=True)
class Placement:
    """A page that became a form on a page, which can be itself, by this matrix.

    `corner` is the upper left corner of the page as it is shown, in the units of the other page.
    """

    page: Object
    target: Object
    form: Object
    matrix: Matrix
    corner: tuple[float, float]

    @classmethod
    def of(cls, page: Object, target: Object, form: Object, geometry: Geometry, matrix: Matrix) -> Placement:
        """The placement of a page that had this geometry."""
        corner = (geometry.to_content @ matrix).transform((0, geometry.height))
        return cls(page, target, form, matrix, corner)

    def destination(self, value: Array) -> Array:
        """A destination on the page, changed to the same point or area on the other page."""
        kind, numbers = value[1], [_number(item) for item in list(value)[2:]]
        stays = self.page.objgen == self.target.objgen
        moved: list[Any]
        if kind == Name.FitR and len(edges := [number for number in numbers if number is not None]) == 4:
            moved = self._rectangle(edges)
        elif kind == Name.XYZ and (stays or len([one for one in numbers[:2] if one is not None]) == 2):
            x, y = self._points([number or 0 for number in (*numbers, 0, 0)[:2]])
            ends = zip((x, y), numbers, strict=False)
            moved = [*(None if old is None else new for new, old in ends), *numbers[2:]]
        elif stays:
            x, y = self._points([numbers[0] or 0, numbers[0] or 0]) if numbers else (0, 0)
            moved = [None if old is None else x if kind in (Name.FitV, Name.FitBV) else y for old in numbers[:1]]
        else:
            kind, moved = Name.XYZ, [*self.corner, None]
        return Array([self.target, kind, *moved])

    def move(self, item: Object) -> None:
        """Moves an annotation, a bead or a viewport."""
        for key in _RECTANGLES:
            if len(edges := _numbers(item.get(key))) == 4:
                item[key] = Array(self._rectangle(edges))
        for key in _POINTS:
            if points := _numbers(item.get(key)):
                item[key] = Array(self._points(points))
        for key in _LISTS_OF_POINTS:
            if isinstance(item.get(key), Array):
                item[key] = Array([Array(self._points(_numbers(points))) for points in item[key]])
        if len(edges := _numbers(item.get("/RD"))) == 4:
            item.RD = Array([edge * self._scale for edge in edges])
        if isinstance(item.get("/DA"), String):
            item.DA = String(_FONT_SIZE.sub(self._font_size, bytes(item.DA)))

    def _font_size(self, match: re.Match[bytes]) -> bytes:
        return b"%.4f%b" % (float(match[1]) * self._scale, match[2])

    @property
    def _scale(self) -> float:
        matrix = self.matrix
        return float(abs(matrix.a * matrix.d - matrix.b * matrix.c) ** 0.5)

    def _points(self, numbers: Sequence[float]) -> list[float]:
        pairs = zip(numbers[::2], numbers[1::2], strict=False)
        return [round(value, 4) for pair in pairs for value in self.matrix.transform(pair)]

    def _rectangle(self, edges: Sequence[float]) -> list[float]:
        moved = self.matrix.transform(Rectangle(*edges))
        return [round(edge, 4) for edge in (moved.llx, moved.lly, moved.urx, moved.ury)]


def _number(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float | Decimal) else None


def _numbers(value: Any) -> list[float]:
    """The numbers of an array; none if it has other items."""
    numbers = [_number(item) for item in value] if isinstance(value, Array) else []
    return [] if None in numbers else [number for number in numbers if number is not None]


def follow(document: Pdf, placements: Iterable[Placement]) -> None:
    """Lets what refers to the pages follow them: annotations, articles, links, outline and structure.

    The pages are still in the document. Each is placed once.
    """
    placed = {placement.page.objgen: placement for placement in placements}
    resolve_page_numbers(document)

    def change(value: Any) -> Any:
        target = destination_array(value)
        if not isinstance(target, Array) or len(target) < 2 or not isinstance(target[0], Dictionary):
            return value
        placement = placed.get(target[0].objgen)
        if placement is None:
            return value
        moved = placement.destination(target)
        return Dictionary(D=moved) if isinstance(value, Dictionary) else moved

    change_destinations(document, change)
    if named := named_destinations(document.Root):
        set_named_destinations(document, {name: change(value) for name, value in named.items()})
    moved: Ids = set()
    for placement in placed.values():
        _move_items(placement, moved)
    _move_structure(document, placed)


def _move_items(placement: Placement, moved: Ids) -> None:
    """Moves what lies on a page. `moved` are the objects that are moved, which hostile files have on several pages."""
    page, target = placement.page, placement.target
    stays = page.objgen == target.objgen
    for key in _PLACED:
        items = [item for item in as_list(page.get(key)) if isinstance(item, Dictionary)]
        for item in items:
            if not item.is_indirect or item.objgen not in moved:
                placement.move(item)
                moved.add(item.objgen)
        if items and not stays:
            target[key] = Array([*as_list(target.get(key)), *items])


def _move_structure(document: Pdf, placed: dict[Id, Placement]) -> None:
    """Lets elements of the structure refer to content in the forms, and everything to the pages they are on."""
    root = document.Root.get("/StructTreeRoot")
    parents = dict(read_number_tree(root.get("/ParentTree"))) if isinstance(root, Dictionary) else {}
    for placement in placed.values():
        number = placement.page.get("/StructParents")
        if not isinstance(number, int):
            continue
        placement.form.StructParents = number
        del placement.page["/StructParents"]
        elements = [item for item in as_list(parents.get(number)) if isinstance(item, Dictionary)]
        for element in {item.objgen: item for item in elements}.values():
            if "/K" in element:
                kids = [_in_form(kid, element, placement) for kid in as_list(element.K)]
                element.K = kids[0] if len(kids) == 1 else Array(kids)
    if all(placement.page.objgen == placement.target.objgen for placement in placed.values()):
        return
    for holder, key, value in walk(document):
        if key in ("/Pg", "/P") and isinstance(value, Dictionary) and value.objgen in placed:
            holder[key] = placed[value.objgen].target


def _in_form(kid: Any, element: Object, placement: Placement) -> Any:
    """A kid of an element; content of the page as content of the form."""
    is_reference = isinstance(kid, Dictionary) and "/MCID" in kid and "/Stm" not in kid
    if not isinstance(kid, int) and not is_reference:
        return kid
    page = kid.get("/Pg", element.get("/Pg")) if is_reference else element.get("/Pg")
    if not isinstance(page, Dictionary) or page.objgen != placement.page.objgen:
        return kid
    number = kid.MCID if is_reference else kid
    return Dictionary(Type=Name.MCR, Pg=placement.target, Stm=placement.form, MCID=number)
