"""Slides of the pages of a document: text boxes, pictures and filled rectangles at their places."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from io import BytesIO
from itertools import islice
from math import atan2, degrees
from types import MappingProxyType
from typing import Any

import pptx
from pptx.dml.color import RGBColor
from pptx.enum.shapes import MSO_SHAPE
from pptx.enum.text import MSO_AUTO_SIZE
from pptx.util import Pt

from engine.blocks import Paragraph
from engine.mupdf import pymupdf
from plugins._pdf.text import texts
from plugins._pdf.text.page_parts import Pictures, read_page
from plugins._pdf.text.tables import Item, surrounding
from plugins._pdf.text.texts import Box

_SIDES = (72.0, 4032.0)  # points of a slide
_BLANK = 6  # the layout without placeholders
_MAX_RECTANGLES = 2000  # on a page
_MAX_SPACING = 0.2  # of the size of the font, by which characters move to fill the width of their line
_FONTS = MappingProxyType(  # by kind: the font that takes the place of an embedded one, and what has its widths
    {
        pymupdf.TEXT_FONT_MONOSPACED: ("Courier New", "cour", "cobo"),
        pymupdf.TEXT_FONT_SERIFED: ("Times New Roman", "tiro", "tibo"),
        0: ("Arial", "helv", "hebo"),
    }
)
_ROOM = 1.02  # of the width of a text, because fonts differ


def write(document: pymupdf.Document) -> bytes:
    """A presentation with a slide for each page. All have the size of the first page."""
    presentation = pptx.Presentation()
    width, height = (min(max(side, _SIDES[0]), _SIDES[1]) for side in document[0].rect.br)
    presentation.slide_width, presentation.slide_height = Pt(width), Pt(height)
    pictures = Pictures(keeps_backgrounds=True)
    for page in document:
        texts.warn_losses(page)
        slide = _Slide(presentation.slides.add_slide(presentation.slide_layouts[_BLANK]).shapes)
        slide.scale = min(width / page.rect.width, height / page.rect.height)
        for box, color in islice(_rectangles(page), _MAX_RECTANGLES):
            slide.add_rectangle(box, color)
        for picture in read_page(page, pictures).pictures:
            slide.add_picture(picture)
        for block in page.get_text("dict", flags=texts.FLAGS)["blocks"]:
            for lines in _boxes(block["lines"]):
                slide.add_text(lines)
    file = BytesIO()
    presentation.save(file)
    return file.getvalue()


def _rectangles(page: pymupdf.Page) -> Iterator[tuple[Box, Sequence[float]]]:
    """The filled rectangles of a page, with their colors."""
    for path in page.get_cdrawings():
        if path.get("fill") and path.get("fill_opacity", 1.0) == 1.0:
            yield from ((item[1], path["fill"]) for item in path["items"] if item[0] == "re")


def _boxes(lines: Sequence[dict[str, Any]]) -> Iterator[list[dict[str, Any]]]:
    """The lines by text box: those that stand below each other, without those that are not seen."""
    box: list[dict[str, Any]] = []
    for line in lines:
        line["spans"] = [span for span in line["spans"] if span["alpha"] and span["text"]]
        if not any(span["text"].strip() for span in line["spans"]):
            continue
        if box and (line["bbox"][1] < box[-1]["bbox"][3] - line["spans"][0]["size"] / 2 or line["dir"] != (1.0, 0.0)):
            yield box
            box = []
        box.append(line)
    if box:
        yield box


class _Slide:
    """Adds shapes to a slide. `scale` is its size relative to the page."""

    def __init__(self, shapes: Any) -> None:
        self._shapes = shapes
        self.scale = 1.0

    def _place(self, box: Box) -> tuple[Pt, Pt, Pt, Pt]:
        left, top, right, bottom = (side * self.scale for side in box)
        return Pt(left), Pt(top), Pt(max(right - left, 0.0)), Pt(max(bottom - top, 0.0))

    def add_rectangle(self, box: Box, color: Sequence[float]) -> None:
        shape = self._shapes.add_shape(MSO_SHAPE.RECTANGLE, *self._place(box))
        shape.fill.solid()
        shape.fill.fore_color.rgb = _color(*(round(255 * part) for part in color))
        shape.line.fill.background()
        shape.shadow.inherit = False

    def add_picture(self, item: Item) -> None:
        assert isinstance(item.block, Paragraph)
        (run,) = item.block.runs
        assert run.picture is not None
        self._shapes.add_picture(BytesIO(run.picture.data), *self._place(item.box))

    def add_text(self, lines: Sequence[dict[str, Any]]) -> None:
        """A text box of lines, each a paragraph of exact height, turned as the first line is."""
        left, top, right, bottom = surrounding(line["bbox"] for line in lines)
        across, down = lines[0]["dir"]
        width, height = (right - left) * _ROOM, bottom - top
        if abs(down) > abs(across):
            middle_x, middle_y = (left + right) / 2, (top + bottom) / 2
            left, top = middle_x - height / 2, middle_y - width / 2
            width, height = height, width
        shape = self._shapes.add_textbox(*self._place((left, top, left + width, top + height)))
        shape.rotation = degrees(atan2(down, across))
        frame = shape.text_frame
        frame.auto_size, frame.word_wrap = MSO_AUTO_SIZE.NONE, False
        frame.margin_left = frame.margin_right = frame.margin_top = frame.margin_bottom = 0
        for index, line in enumerate(lines):
            paragraph = frame.add_paragraph() if index else frame.paragraphs[0]
            following = lines[index + 1]["bbox"][1] if index + 1 < len(lines) else None
            pitch = following - line["bbox"][1] if following is not None else line["bbox"][3] - line["bbox"][1]
            paragraph.line_spacing = Pt(max(pitch * self.scale, 1.0)) if across > abs(down) else None
            indent = (line["bbox"][0] - left) * self.scale if across > abs(down) else 0.0
            paragraph._p.get_or_add_pPr().set("marL", str(int(Pt(max(indent, 0.0)))))
            for span in line["spans"]:
                self._add_run(paragraph, span)

    def _add_run(self, paragraph: Any, span: dict[str, Any]) -> None:
        """Text in a font that all machines have, as wide as on the page."""
        text = texts.CONTROLS.sub("", span["text"]).replace("\u00ad", "-")  # at the end of a line, it is seen
        run = paragraph.add_run()
        run.text = text
        font = run.font
        font.size = Pt(max(round(span["size"] * self.scale, 1), 1.0))
        font.bold = is_bold = bool(span["flags"] & pymupdf.TEXT_FONT_BOLD)
        font.italic = bool(span["flags"] & pymupdf.TEXT_FONT_ITALIC)
        font.color.rgb = _color(*pymupdf.sRGB_to_rgb(span["color"] & 0xFFFFFF))
        kind = next((flag for flag in _FONTS if span["flags"] & flag), 0)
        font.name, *builtin = _FONTS[kind]
        width = pymupdf.get_text_length(text, builtin[is_bold], span["size"])
        spacing = (span["bbox"][2] - span["bbox"][0] - width) / max(len(text), 1)
        if abs(spacing) < _MAX_SPACING * span["size"] and max(text) <= "\xff":
            run._r.get_or_add_rPr().set("spc", str(round(100 * spacing * self.scale)))


def _color(red: int, green: int, blue: int) -> Any:
    color: Any = RGBColor
    return color(red, green, blue)
