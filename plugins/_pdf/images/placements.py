"""Sizes at which the pages of a PDF draw its images, in points."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from math import hypot
from typing import Any, TypeAlias

import pikepdf
from pikepdf import Dictionary, Name, NamePath, Object, Page, Pdf, Stream

from plugins._pdf.name_trees import as_list
from plugins._pdf.objects import annotations_of, inherited
from plugins._pdf.resources import streams_in

Id: TypeAlias = tuple[int, int]
"""Object and generation number of an indirect object."""
Matrix: TypeAlias = tuple[float, float, float, float]
"""How a content stream scales and turns what it draws. Positions are not needed."""
Sizes: TypeAlias = dict[Id, tuple[float, float]]
"""Width and height in points, by the id of an image."""

_IDENTITY: Matrix = (1, 0, 0, 1)
_OPERATORS = "q Q cm Do gs"
_MAX_MATRICES = 8  # places of an object that are distinguished, in a content stream and in the document


def largest_sizes(document: Pdf) -> Sizes:
    """The largest width and height at which each image is drawn, through forms, patterns, masks and annotations.

    What several matrices draw can be taken for larger, but not for smaller. Images that are not drawn have no entry.
    Raises pikepdf.PdfError for content that cannot be parsed. The time is linear in the size of the document.
    """
    contents = _Contents()
    pages = [contents.add_page(page) for page in document.pages]
    sizes: Sizes = {}
    for content in reversed(contents.in_order(pages)):  # whatever draws a content comes before it
        for drawn, matrices in content.draws:
            products = [_product(inner, outer) for inner in matrices for outer in content.matrices]
            if isinstance(drawn, _Content):
                drawn.matrices = _limited([*drawn.matrices, *products])
            else:
                found = [(hypot(a, b), hypot(c, d)) for a, b, c, d in products]
                largest = *found, sizes.get(drawn, (0.0, 0.0))
                sizes[drawn] = max(width for width, _ in largest), max(height for _, height in largest)
    return sizes


@dataclass(eq=False)
class _Content:
    """A content stream: the streams and images that it draws, by matrices, and the matrices that it is drawn by."""

    draws: list[tuple[_Content | Id, list[Matrix]]] = field(default_factory=list)
    matrices: list[Matrix] = field(default_factory=list)


class _Contents:
    """The content streams of a document. Each is parsed once."""

    def __init__(self) -> None:
        self._forms: dict[Id, _Content] = {}
        self._parsed: dict[tuple[Id, ...], dict[tuple[str, str], list[Matrix]]] = {}
        self._pending: list[tuple[_Content, Object, Any]] = []

    def add_page(self, page: Page) -> _Content:
        unit = float(page.obj.get("/UserUnit", 1))
        content = _Content(matrices=[(unit, 0, 0, unit)])
        resources = inherited(page.obj, "/Resources")
        self._read(content, page.obj, as_list(page.obj.get("/Contents")), resources)
        for annotation in annotations_of(page.obj):
            for appearance in streams_in(annotation.get("/AP")):
                content.draws.append((self._form(appearance, resources), [_appearance_matrix(annotation, appearance)]))
        while self._pending:
            form, stream, outer = self._pending.pop()
            own = stream.get("/Resources")
            self._read(form, stream, [stream], own if isinstance(own, Dictionary) else outer)
        return content

    @staticmethod
    def in_order(pages: Iterable[_Content]) -> list[_Content]:
        """All contents, each before the contents that draw it. Cycles are cut."""
        order: list[_Content] = []
        seen: set[int] = set()
        for page in pages:
            stack: list[tuple[_Content, Iterator[Any]]] = [(page, iter(page.draws))]
            while stack:
                content, draws = stack[-1]
                for drawn, _ in draws:
                    if isinstance(drawn, _Content) and id(drawn) not in seen:
                        seen.add(id(drawn))
                        stack.append((drawn, iter(drawn.draws)))
                        break
                else:
                    order.append(content)
                    stack.pop()
        return order

    def _form(self, stream: Object, resources: Any) -> _Content:
        """The content of a form or pattern, which is read later."""
        content = self._forms.get(stream.objgen)
        if content is None:
            content = self._forms[stream.objgen] = _Content()
            self._pending.append((content, stream, resources))
        return content

    def _read(self, content: _Content, holder: Object, parts: list[Any], resources: Any) -> None:
        """Adds what a content draws."""
        objects, states, patterns = (_category(resources, key) for key in ("/XObject", "/ExtGState", "/Pattern"))
        masks = {name: group for name, state in states.items() if (group := _mask_group(state)) is not None}
        for pattern in patterns.values():
            if isinstance(pattern, Stream):
                content.draws.append((self._form(pattern, resources), [_matrix(pattern.get("/Matrix"))]))
        if not any(isinstance(item, Stream) for item in objects.values()) and not masks:
            return
        for (operator, name), matrices in self._parse(holder, parts).items():
            drawn = objects.get(name) if operator == "Do" else masks.get(name)
            if not isinstance(drawn, Stream):
                continue
            if drawn.get("/Subtype") == Name.Image:
                content.draws.append((drawn.objgen, matrices))
            else:
                own = _matrix(drawn.get("/Matrix"))
                content.draws.append((self._form(drawn, resources), [_product(own, matrix) for matrix in matrices]))

    def _parse(self, holder: Object, parts: list[Any]) -> dict[tuple[str, str], list[Matrix]]:
        """The matrices with which a content draws, by operator and name."""
        key = tuple(part.objgen for part in parts if isinstance(part, Stream))
        if not key or key not in self._parsed:
            self._parsed[key] = _parse(holder) if key else {}
        return self._parsed[key]


def _parse(holder: Object) -> dict[tuple[str, str], list[Matrix]]:
    drawn: dict[tuple[str, str], list[Matrix]] = {}
    matrix = _IDENTITY
    saved = [_IDENTITY]
    for instruction in pikepdf.parse_content_stream(holder, _OPERATORS):
        operands = instruction.operands
        match str(instruction.operator):
            case "q":
                saved.append(matrix)
            case "Q":
                matrix = saved.pop() if saved else _IDENTITY
            case "cm":
                matrix = _product(_matrix(operands), matrix)
            case name if operands and isinstance(operands[0], Name):
                found = drawn.setdefault((name, str(operands[0])), [])
                found.append(matrix)
                if len(found) > _MAX_MATRICES:
                    found[:] = _limited(found)
    return drawn


def _category(resources: Any, key: str) -> dict[str, Any]:
    found = resources.get(key) if isinstance(resources, Dictionary) else None
    return dict(found.items()) if isinstance(found, Dictionary) else {}


def _mask_group(state: Any) -> Stream | None:
    """The form of the soft mask in a graphics state."""
    group = state.get(NamePath.SMask.G) if isinstance(state, Dictionary) else None
    return group if isinstance(group, Stream) else None


def _appearance_matrix(annotation: Object, form: Object) -> Matrix:
    """The matrix of a form whose box, as its own matrix turns it, fills the rectangle of the annotation."""
    own = _matrix(form.get("/Matrix"))
    left, bottom, right, top = _numbers(form.get("/BBox"), 4, (0, 0, 1, 1))
    corners = [(x * own[0] + y * own[2], x * own[1] + y * own[3]) for x in (left, right) for y in (bottom, top)]
    x0, y0, x1, y1 = _numbers(annotation.get("/Rect"), 4, (0, 0, 0, 0))
    across, down = (max(values) - min(values) for values in zip(*corners, strict=True))
    return _product(own, (abs(x1 - x0) / (across or 1), 0, 0, abs(y1 - y0) / (down or 1)))


def _matrix(value: Any) -> Matrix:
    a, b, c, d, *_ = _numbers(value, 6, (*_IDENTITY, 0, 0))
    return a, b, c, d


def _numbers(value: Any, count: int, default: tuple[float, ...]) -> tuple[float, ...]:
    """The numbers of an array; the default for anything else."""
    try:
        numbers = tuple(map(float, value))
    except (TypeError, ValueError):
        return default
    return numbers if len(numbers) == count else default


def _product(inner: Matrix, outer: Matrix) -> Matrix:
    """The matrix that applies `inner` and then `outer`."""
    a, b, c, d = inner
    e, f, g, h = outer
    return a * e + b * g, a * f + b * h, c * e + d * g, c * f + d * h


def _limited(matrices: list[Matrix]) -> list[Matrix]:
    """Different matrices; or if there are many, one that makes everything at least as large as any of them."""
    different = list({tuple(float(f"{value:.3g}") for value in matrix): matrix for matrix in matrices}.values())
    if len(different) <= _MAX_MATRICES:
        return different
    scale = max(_largest_scale(matrix) for matrix in different)
    return [(scale, 0, 0, scale)]


def _largest_scale(matrix: Matrix) -> float:
    """The factor by which a matrix makes vectors longer at most."""
    a, b, c, d = matrix
    return (hypot(a + d, b - c) + hypot(a - d, b + c)) / 2
