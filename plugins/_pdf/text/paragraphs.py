"""Paragraphs in the making: where they start among the lines of a page, and where they go on."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from plugins._pdf.text.joining import ends_sentence, has_room
from plugins._pdf.text.tables import MARK, Item, in_rows, surrounding
from plugins._pdf.text.texts import Block, Box, Line

_INDENT = 0.8  # of the size of the font: the indent of a first line
_MANY_LINES = 4
_MANY_WORDS = 5  # in a line of running text that is no cell
_FIRST_MARKS = frozenset(
    "\u2022\u25e6\u25aa\u25ab\u2023\u25cf\u25cb\u25a0\u25a1\u2013\u2014-1aiAI"
)  # of a list in a list


@dataclass
class Text:
    """A paragraph in the making. `mark` is what stands before an entry of a list.

    `right` is the edge to which its lines go, and `column` where the text beside it starts.
    """

    lines: list[Line]
    page: int
    right: float
    column: float
    mark: re.Match[str] | None = None
    level: int = 0

    @property
    def text(self) -> str:
        return " ".join(line.text.strip() for line in self.lines)

    @property
    def box(self) -> Box:
        return surrounding(line.box for line in self.lines)

    @property
    def indent(self) -> float:
        return self.box[0] - self.column

    @property
    def size(self) -> float:
        return max(self.lines, key=lambda line: len(line.text)).size

    @property
    def is_bold(self) -> bool:
        return all(is_bold(line) for line in self.lines)


def is_bold(line: Line) -> bool:
    return all(run.bold for run in line.runs if run.text.strip())


def is_code(line: Line) -> bool:
    return all(run.code for run in line.runs if run.text.strip())


def block_of(lines: tuple[Line, ...]) -> Block:
    box = surrounding(line.box for line in lines) if lines else (0.0, 0.0, 0.0, 0.0)
    return Block(box, "\n".join(line.text for line in lines), lines)


def is_running(block: Block) -> bool:
    """Whether the lines of a block are running text, and not cells of a table."""
    rows = in_rows(block.lines)
    is_single = len(rows) > len(block.lines) - len(block.lines) // _MANY_LINES
    return is_single and len(rows) >= _MANY_LINES and len(block.text.split()) >= _MANY_WORDS * len(rows)


def by_column(placed: Sequence[Block | Item]) -> list[list[Block | Item]]:
    """What is in reading order, by column: a new one begins above the one before, or right of it."""
    columns: list[list[Block | Item]] = []
    for one in placed:
        if not columns or one.box[1] < columns[-1][-1].box[1] or one.box[0] > columns[-1][-1].box[2]:
            columns.append([])
        columns[-1].append(one)
    return columns


def with_marks(found: Sequence[Block]) -> list[Block]:
    """The blocks, with marks of lists that are blocks of their own in the block beside them."""
    joined = [*found]
    for mark in found:
        if len(mark.lines) != 1 or not MARK.fullmatch(mark.text.strip()):
            continue
        beside = [
            (block.lines[0].box[0], index)
            for index, block in enumerate(joined)
            if block.lines
            and block.lines[0].box[0] >= mark.box[2]
            and abs(block.lines[0].box[3] - mark.box[3]) < mark.lines[0].size / 2
        ]
        if beside:
            _, index = min(beside)
            joined[index] = block_of((*mark.lines, *joined[index].lines))
            joined.remove(mark)
    return joined


def as_code(lines: Sequence[Line]) -> str:
    left = min(line.box[0] for line in lines)
    width = max(max((line.box[2] - line.box[0]) / max(len(line.text), 1) for line in lines), 1.0)
    return "\n".join(" " * round((line.box[0] - left) / width) + line.text.rstrip() for line in lines)


def starts(text: Text, line: Line, following: Line | None, left: float, mark: re.Match[str] | None) -> bool:
    """Whether a line begins another paragraph than the text of the lines above it."""
    above = text.lines[-1]
    has_ended = has_room(above, line, text.right)
    if abs(line.size - above.size) > 0.1 * line.size or line.box[1] - above.box[3] > _INDENT * line.size:
        return True
    if mark and (has_ended or _is_next(text, line, mark)):
        return True
    if has_ended and (is_bold(line) != is_bold(above) or ends_sentence(above.text)):
        return True
    is_indented = line.box[0] - left > _INDENT * line.size > above.box[0] - left
    is_first = following is None or following.box[0] < line.box[0] - line.size / 2
    return text.mark is None and is_indented and is_first and (has_ended or ends_sentence(above.text))


def _is_next(text: Text, line: Line, mark: re.Match[str]) -> bool:
    """Whether a mark begins the next entry of a list, and is no word of the entry before."""
    if text.mark is None:
        return False
    is_beside = line.box[0] < text.lines[0].box[0] + line.size / 2
    return is_beside or (mark["bullet"] or mark["number"]) in _FIRST_MARKS


def is_elsewhere(before: Text, text: Text) -> bool:
    return text.page != before.page or text.box[1] < before.lines[-1].box[1] - text.size


def goes_on(before: Text, text: Text) -> bool:
    """Whether a text is the rest of the one before it, in the next column or on the next page, or just below."""
    content = before.text
    first = text.lines[0]
    if abs(before.size - text.size) > 0.5 or before.is_bold != text.is_bold or ends_sentence(content):
        return False
    is_lower = first.text.lstrip()[:1].islower()
    if not is_elsewhere(before, text):
        is_near = first.box[1] - before.box[3] < text.size / 2 and abs(text.box[0] - before.box[0]) < text.size
        return is_lower and is_near
    is_full = len(before.lines) > 1 and before.lines[-1].box[2] > before.right - text.size
    return text.page - before.page < 2 and (is_lower or is_full)
