"""How large the pictures of a PDF are on its pages."""

from contextlib import suppress
from typing import Any

import pikepdf
from pikepdf import Dictionary, Matrix, Name, Object, Pdf, PdfError, Stream

_MAX_NESTING = 20  # of forms in each other
_MAX_FORMS = 20_000  # that are drawn in a document


def drawn_sizes(document: Pdf) -> dict[tuple[int, int], tuple[float, float]]:
    """The largest width and height in points at which each picture is drawn on a page, by its object number."""
    reader = _Reader()
    for page in document.pages:
        unit = float(page.obj.get("/UserUnit", 1)) or 1.0
        reader.read(page.obj, page.obj.get("/Resources"), Matrix(unit, 0, 0, unit, 0, 0), 0)
    return reader.sizes


class _Reader:
    def __init__(self) -> None:
        self.sizes: dict[tuple[int, int], tuple[float, float]] = {}
        self._forms = 0

    def read(self, holder: Object, inherited: Any, matrix: Matrix, nesting: int) -> None:
        """Reads the content of a page or form that is drawn with this matrix."""
        resources = holder.get("/Resources") or inherited
        drawn = resources.get("/XObject") if isinstance(resources, Dictionary) else None
        if not isinstance(drawn, Dictionary):
            return
        saved: list[Matrix] = []
        with suppress(PdfError, ValueError, TypeError):
            for instruction in pikepdf.parse_content_stream(holder, "q Q cm Do"):
                match str(instruction.operator):
                    case "q":
                        saved.append(matrix)
                    case "Q":
                        matrix = saved.pop() if saved else matrix
                    case "cm":
                        matrix = Matrix(*(float(value) for value in instruction.operands)) @ matrix
                    case "Do":
                        self._draw(drawn.get(str(instruction.operands[0])), resources, matrix, nesting)

    def _draw(self, item: Any, resources: Any, matrix: Matrix, nesting: int) -> None:
        if not isinstance(item, Stream):
            return
        if item.get("/Subtype") == Name.Image:
            width, height = (matrix.a**2 + matrix.b**2) ** 0.5, (matrix.c**2 + matrix.d**2) ** 0.5
            known = self.sizes.get(item.objgen, (0.0, 0.0))
            self.sizes[item.objgen] = max(known[0], width), max(known[1], height)
        elif nesting < _MAX_NESTING and self._forms < _MAX_FORMS:
            self._forms += 1
            inner = item.get("/Matrix")
            own = Matrix(*(float(value) for value in inner)) if inner is not None else Matrix()
            self.read(item, resources, own @ matrix, nesting + 1)
