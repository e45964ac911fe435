"""Appearances of form fields: what viewers show for their values."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from pikepdf import Array, Dictionary, Name, NamePath, Object, Pdf, String

from plugins._pdf import fields
from plugins._pdf.fields import Field
from plugins._pdf.name_trees import as_list
from plugins._pdf.pages.marks import Mark, MarkWriter

_PADDING = 2.0  # points between the border and the text
_LARGEST = 12.0  # points of a font whose size is automatic
_SMALLEST = 4.0
_LINE = 1.15  # height of a line of a list, in font sizes
_SHARE = 0.7  # of the height of a field in one line, which is the size of an automatic font
_SELECTED = "0.6 0.75 0.85 rg"
_FONT_SIZE = re.compile(rb"([\d.]+)\s+Tf")
_COLOR = re.compile(rb"((?:[\d.]+\s+){1,4})(g|rg|k)\b")
_OPERATORS = {1: "g", 3: "rg", 4: "k"}


class AppearanceWriter:
    """Makes the appearances of the fields of a document."""

    def __init__(self, document: Pdf) -> None:
        self._document = document
        self._writer = MarkWriter(document)

    def show(self, field: Field, value: Any) -> None:
        """Shows a value in the widgets of a field that is no switch: a text or several, None for none."""
        given = value if isinstance(value, list) else [] if value is None else [str(value)]
        if field.kind == "list":
            self._show_list(field, given)
        elif field.kind in ("text", "choice"):
            text = "".join(given)
            self._show_text(field, dict(field.choices).get(text, text))

    def _show_text(self, field: Field, text: str) -> None:
        shown = "*" * len(text) if field.flags & fields.PASSWORD else text
        for widget in field.widgets:
            box = _Box(widget)
            size, color = _style(field, widget)
            align = field.attributes.get("/Q", 0)
            comb = field.max_length if field.flags & fields.COMB else None
            if field.kind == "text" and field.flags & fields.MULTILINE:
                self._show(widget, box, self._paragraph(shown, box, size, color, align))
            elif comb:
                cells = [(self._line(one, box, size, color), index) for index, one in enumerate(shown[:comb])]
                width = box.width / comb
                places = [(mark, width * (index + 0.5) - mark.width / 2) for mark, index in cells]
                self._show(widget, box, [(mark, x, (box.height - mark.height) / 2) for mark, x in places])
            else:
                mark = self._line(shown, box, size, color)
                room = box.width - 2 * box.inset - mark.width
                x = box.inset + {1: room / 2, 2: room}.get(align, 0)
                self._show(widget, box, [(mark, x, (box.height - mark.height) / 2)] if shown else [])

    def _show_list(self, field: Field, selected: Sequence[str]) -> None:
        """Shows the options of a list, from the first of the selected ones if not all have room."""
        texts = field.choices
        chosen = [index for index, (value, _) in enumerate(texts) if value in selected]
        for widget in field.widgets:
            box = _Box(widget)
            size, color = _style(field, widget)
            size = size or _LARGEST
            step = size * _LINE
            rows = int((box.height - 2 * box.inset) / step)
            first = min(chosen[0] if chosen else 0, max(0, len(texts) - rows))
            drawn = []
            under = ""
            for row, (value, text) in enumerate(texts[first : first + rows]):
                bottom = box.height - box.inset - (row + 1) * step
                if value in selected:
                    under += (
                        f"{_SELECTED} {box.inset:.2f} {bottom:.2f} {box.width - 2 * box.inset:.2f} {step:.2f} re f "
                    )
                drawn.append((self._writer.text(text, size, color), box.inset, bottom))
            self._show(widget, box, drawn, under)

    def add_state(self, widget: Object, state: str) -> None:
        """Adds the look of a switch that has none: a check mark if it is on, nothing if it is off."""
        box = _Box(widget)
        width, height = box.width, box.height
        points = [(0.2, 0.5), (0.42, 0.25), (0.8, 0.78)]
        places = [f"{x * width:.2f} {y * height:.2f}" for x, y in points]
        path = f"{max(min(width, height) / 10, 0.5):.2f} w {places[0]} m {places[1]} l {places[2]} l S"
        looks = {state: self._form(box, f"{box.frame}q 0 G {path} Q", {}), "/Off": self._form(box, box.frame, {})}
        widget.AP = Dictionary(N=Dictionary(looks))

    def _line(self, text: str, box: _Box, size: float, color: tuple[float, float, float]) -> Mark:
        """A text in one line; with a size of 0, as large as it fits."""
        mark = self._writer.text(text, size or min(_LARGEST, max(box.height * _SHARE, _SMALLEST)), color)
        room = box.width - 2 * box.inset
        return mark if size or mark.width <= room else mark.scaled(max(room, 1) / mark.width)

    def _paragraph(
        self, text: str, box: _Box, size: float, color: tuple[float, float, float], align: int
    ) -> list[tuple[Mark, float, float]]:
        """A text in several lines, from the top; with a size of 0, at the largest size at which it fits."""
        width, height = box.width - 2 * box.inset, box.height - 2 * box.inset
        sizes = [size] if size else [_LARGEST, 10.0, 8.0, 6.0, _SMALLEST]
        for one in sizes:
            mark = self._writer.paragraph(text, one, max(width, 1), color, align)
            if mark.height <= height:
                break
        return [(mark, box.inset, box.height - box.inset - mark.height)] if text else []

    def _show(self, widget: Object, box: _Box, marks: list[tuple[Mark, float, float]], under: str = "") -> None:
        forms = {f"/M{index}": mark.form for index, (mark, _, _) in enumerate(marks)}
        drawn = " ".join(
            f"q {mark.scale:.4f} 0 0 {mark.scale:.4f} {x:.2f} {y:.2f} cm /M{index} Do Q"
            for index, (mark, x, y) in enumerate(marks)
        )
        clip = f"1 1 {max(box.width - 2, 0):.2f} {max(box.height - 2, 0):.2f} re W n"
        content = f"{box.frame}/Tx BMC q {clip} {under}{drawn} Q EMC"
        widget.AP = Dictionary(N=self._form(box, content, forms))
        if "/AS" in widget:
            del widget["/AS"]

    def _form(self, box: _Box, content: str, forms: dict[str, Object]) -> Object:
        form = self._document.make_stream(content.encode(), Type=Name.XObject, Subtype=Name.Form)
        form.BBox = Array([0, 0, round(box.width, 2), round(box.height, 2)])
        form.Matrix = Array(box.matrix)
        form.Resources = Dictionary(XObject=Dictionary(forms))
        return form


class _Box:
    """The rectangle of a widget as its text is written: turned by its rotation, with its background and border."""

    def __init__(self, widget: Object) -> None:
        left, bottom, right, top = _numbers(widget.get("/Rect"), 4) or (0, 0, 0, 0)
        turn = widget.get(NamePath.MK.R, 0)
        turn = int(turn) % 360 if isinstance(turn, int) else 0
        width, height = abs(right - left), abs(top - bottom)
        self.width, self.height = (height, width) if turn in (90, 270) else (width, height)
        self.matrix = {90: [0, 1, -1, 0, 0, 0], 180: [-1, 0, 0, -1, 0, 0], 270: [0, -1, 1, 0, 0, 0]}.get(
            turn, [1, 0, 0, 1, 0, 0]
        )
        (line,) = _numbers(widget.get(NamePath.BS.W), 1) or [1.0]
        fill, stroke = (_paint(widget.get(path)) for path in (NamePath.MK.BG, NamePath.MK.BC))
        self.frame = f"q {fill} 0 0 {self.width:.2f} {self.height:.2f} re f Q " if fill else ""
        if stroke and line > 0:
            edges = f"{line / 2:.2f} {line / 2:.2f} {self.width - line:.2f} {self.height - line:.2f}"
            self.frame += f"q {stroke.upper()} {line:.2f} w {edges} re S Q "
        self.inset = _PADDING + (line if stroke else 0)


def _numbers(item: Any, count: int) -> list[float]:
    """The numbers of an array; none if it has others, or another count."""
    try:
        found = [float(one) for one in as_list(item)]
    except (TypeError, ValueError):
        return []
    return found if len(found) == count else []


def _paint(color: Any) -> str:
    """The operator that sets a color of 1, 3 or 4 components; empty for transparency."""
    found = _numbers(color, len(as_list(color)))
    return " ".join([*(f"{one:.4f}" for one in found), _OPERATORS[len(found)]]) if len(found) in _OPERATORS else ""


def _style(field: Field, widget: Object) -> tuple[float, tuple[float, float, float]]:
    """The size of the font in points, 0 if it is automatic, and the color."""
    given = widget.get("/DA", field.attributes.get("/DA", b""))
    style = bytes(given) if isinstance(given, String) else b""
    size = _FONT_SIZE.search(style)
    found = _COLOR.search(style)
    parts = [float(one) for one in found[1].split()] if found else [0.0]
    if len(parts) == 4:
        parts = [(1 - one) * (1 - parts[3]) for one in parts[:3]]
    red, green, blue = parts if len(parts) == 3 else parts[:1] * 3
    return (min(float(size[1]), 500.0) if size else 0.0), (red, green, blue)
