"""Text of PDF pages in reading order, and warnings of what text and pixels cannot hold."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import chain, groupby, pairwise
from typing import Any, Literal, Protocol, TypeAlias, TypeVar

from engine import FidelityWarning
from engine.blocks import Run, merged
from engine.mupdf import pymupdf

Box: TypeAlias = tuple[float, float, float, float]
"""Left, top, right and bottom in points."""

FLAGS = pymupdf.TEXTFLAGS_TEXT & ~pymupdf.TEXT_PRESERVE_LIGATURES
_GUTTER = 8.0  # points between columns
_WORDS = 3  # in a line of running text, on average; cells of tables have fewer
_SHAPES = 20  # in a drawing of letters
_MAX_BLOCKS = 400  # on a page; columns are not searched among more
_SMALL = 0.85  # of the size of most text in a line: that of superscripts
_RAISED = 0.2  # of that size, above its base line
_LOWERED = 0.05
CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")


class Placed(Protocol):
    """Something at a place of a page."""

    @property
    def box(self) -> Box: ...


PlacedT = TypeVar("PlacedT", bound=Placed)


@dataclass(frozen=True)
class Line:
    """Text of one line without a wide gap, in its styles, and the size in points of most of it."""

    box: Box
    runs: tuple[Run, ...]
    size: float

    @property
    def text(self) -> str:
        return "".join(run.text for run in self.runs)


@dataclass(frozen=True)
class Block:
    """A paragraph: its lines as text, and in their styles unless only the text is asked for."""

    box: Box
    text: str
    lines: tuple[Line, ...] = ()


def blocks_of(page: pymupdf.Page) -> list[Block]:
    """The paragraphs of a page in reading order. Issues a warning for images."""
    blocks = in_reading_order(plain_blocks(page))
    warn_images(page, has_text=bool(blocks))
    return blocks


def plain_blocks(page: pymupdf.Page) -> list[Block]:
    """The paragraphs of a page with text, in the order of the file."""
    text = page.get_textpage(flags=FLAGS)
    stored = [*text.this]
    blocks: list[Block] = []
    for *box, content, number, kind in text.extractBLOCKS():
        lines = [line.rstrip() for line in CONTROLS.sub("", content).removesuffix("\n").split("\n")]
        block = Block(tuple(box), "\n".join(lines))
        if kind == pymupdf.mupdf.FZ_STEXT_BLOCK_TEXT and block.text.strip():
            may_have_columns = len(lines) > 1 and _is_running(block)
            areas = (line.m_internal.bbox for line in (stored[number] if may_have_columns else ()))
            boxes = [(area.x0, area.y0, area.x1, area.y1) for area in areas]
            blocks += _columns(block, [*map(Block, boxes, lines)]) if len(boxes) == len(lines) else [block]
    return blocks


def styled_blocks(page: pymupdf.Page, links: Sequence[tuple[pymupdf.Rect, str]] = ()) -> list[Block]:
    """As `plain_blocks`, but with lines in their styles. `links` are areas of the page, and where they lead."""
    kind = "rawdict" if links else "dict"
    found: list[dict[str, Any]] = page.get_text(kind, flags=FLAGS)["blocks"]
    blocks: list[Block] = []
    for one in found:
        lines = [_line(line, links) for line in one["lines"]]
        lines = [line for line in lines if line.text.strip()]
        blocks += _columns(_joined(lines), lines) if lines else []
    return blocks


def _columns(block: Block, lines: list[Block]) -> list[Block]:
    """The columns of running text that the lines of a block are, and what spans them; otherwise the block."""
    gaps = [(left.box[2], right.box[0]) for left, right in pairwise(lines) if _are_beside(left.box, right.box)]
    if len(lines) > _MAX_BLOCKS or not gaps:
        return [block]
    parts: list[list[Block]] = []
    was_wide = False
    for line in in_reading_order(lines, overlap=min(line.box[3] - line.box[1] for line in lines) / 2):
        is_wide = any(line.box[0] < start and line.box[2] > end for start, end in gaps)
        if not parts or is_wide != was_wide or line.box[1] < parts[-1][-1].box[1]:
            parts.append([])
        parts[-1].append(line)
        was_wide = is_wide
    joined = [_joined(part) for part in parts]
    return joined if all(map(_is_running, joined)) else [block]


def _are_beside(left: Box, right: Box) -> bool:
    return right[0] - left[2] > _GUTTER and right[1] < left[3]


def _joined(lines: Sequence[Block]) -> Block:
    lefts, tops, rights, bottoms = zip(*(line.box for line in lines), strict=True)
    box = min(lefts), min(tops), max(rights), max(bottoms)
    return Block(box, "\n".join(line.text for line in lines), tuple(chain.from_iterable(line.lines for line in lines)))


def _is_running(block: Block) -> bool:
    """Whether the lines have as many words as running text, and not as few as cells of a table."""
    return sum(word[0].isalpha() for word in block.text.split()) >= _WORDS * (block.text.count("\n") + 1)


def _line(line: dict[str, Any], links: Sequence[tuple[pymupdf.Rect, str]]) -> Block:
    def link_at(char: dict[str, Any]) -> str:
        left, top, right, bottom = char["bbox"]
        middle = (left + right) / 2, (top + bottom) / 2
        return next((target for area, target in links if middle in area), "")

    left, top, right, bottom = line["bbox"]
    has_chars = bool(links)
    links = [one for one in links if one[0].x0 < right and one[0].x1 > left and one[0].y0 < bottom and one[0].y1 > top]
    for span in line["spans"] if has_chars else ():
        span["text"] = "".join(char["c"] for char in span["chars"])
    main = max(line["spans"], key=lambda span: len(span["text"].strip()) * span["size"])
    runs = []
    for span in line["spans"]:
        flags = span["flags"]
        style = Run(
            bold=bool(flags & pymupdf.TEXT_FONT_BOLD),
            italic=bool(flags & pymupdf.TEXT_FONT_ITALIC),
            code=bool(flags & pymupdf.TEXT_FONT_MONOSPACED),
            position=_position(span, main),
        )
        parts = groupby(span["chars"], key=link_at) if links else [("", span["text"])]
        for link, part in parts:
            text = part if isinstance(part, str) else "".join(char["c"] for char in part)
            runs.append(replace(style, text=CONTROLS.sub("", text), link=link))
    found = Line(line["bbox"], merged(runs), round(main["size"], 1))
    return Block(found.box, found.text.rstrip(), (found,))


def _position(span: dict[str, Any], main: dict[str, Any]) -> Literal["", "superscript", "subscript"]:
    """Where smaller text stands beside most of the text of its line."""
    if span["size"] > _SMALL * main["size"]:
        return ""
    raised = (main["origin"][1] - span["origin"][1]) / main["size"]
    return "superscript" if raised > _RAISED else "subscript" if raised < -_LOWERED else ""


def in_reading_order(blocks: list[PlacedT], overlap: float = 0.0) -> list[PlacedT]:
    """Columns from left to right, each from top to bottom; what spans columns separates those above and below it.

    Blocks below each other overlap by at most so many points.
    """
    if len(blocks) < 2:
        return blocks
    if len(blocks) > _MAX_BLOCKS:
        return sorted(blocks, key=lambda block: (block.box[1], block.box[0]))
    columns = split(blocks, 0, _GUTTER)
    if len(columns) > 1:
        return [block for column in columns for block in in_reading_order(column, overlap)]
    rows = split(blocks, 1, -overlap)
    if len(rows) == 1:
        return sorted(blocks, key=lambda block: (block.box[1], block.box[0]))
    # Neighboring rows that together have columns are read column by column.
    ordered: list[PlacedT] = []
    start = 0
    while start < len(rows):
        group = rows[start]
        end = start + 1
        while end < len(rows) and len(split(group + rows[end], 0, _GUTTER)) > 1:
            group = group + rows[end]
            end += 1
        ordered += in_reading_order(group, overlap)
        start = end
    return ordered


def split(blocks: Sequence[PlacedT], axis: int, gap: float) -> list[list[PlacedT]]:
    """Groups of blocks between which there is a gap of so many points, across (axis 0) or down (axis 1)."""
    groups: list[list[PlacedT]] = []
    end = 0.0
    for block in sorted(blocks, key=lambda one: one.box[axis]):
        if not groups or block.box[axis] - end > gap:
            groups.append([])
            end = block.box[axis + 2]
        groups[-1].append(block)
        end = max(end, block.box[axis + 2])
    return groups


def text_document(pages: Sequence[Sequence[Block]]) -> str:
    """The pages as text: form feeds separate them, empty lines paragraphs."""
    texts = ("\n\n".join(block.text for block in page) for page in pages)
    return "\n\f".join(f"{text}\n" if text else "" for text in texts) or "\n"


def warn_images(page: pymupdf.Page, *, has_text: bool) -> None:
    """Issues a warning if a page has images, which can show text, or shows other things only."""
    if page.get_images() if page.parent.is_pdf else page.get_image_info():
        FidelityWarning.issue("pictures_dropped", "Images are not in the result, nor is text that they show.")
    if not has_text:
        drawn = [kind for kind, *_ in page.get_bboxlog()]
        if len(drawn) > _SHAPES or any("image" in kind for kind in drawn):
            message = "Pages show images or shapes, but have no text. The tool pdf-ocr recognizes what they show."
            FidelityWarning.issue("pictures_dropped", message)


def warn_losses(page: pymupdf.Page, *, keeps_links: bool = False) -> None:
    """Issues a warning for each kind of content of the page or its document that the result cannot hold."""
    document = page.parent
    if not document.is_pdf:
        return
    if document.embfile_count() or next(page.annots(types=[pymupdf.PDF_ANNOT_FILE_ATTACHMENT]), None):
        FidelityWarning.issue("attachments_dropped", "Files that are attached to the PDF are not in the result.")
    if page.first_link and not keeps_links:
        FidelityWarning.issue("links_dropped", "Links of the PDF are not in the result.")
    if page.first_widget:
        FidelityWarning.issue("forms_dropped", "Form fields are drawn as they are, and cannot be filled in.")
    if document.metadata["encryption"]:  # needs_pass would lock it again
        FidelityWarning.issue("encryption_dropped", "The PDF is encrypted; the result is not.")
