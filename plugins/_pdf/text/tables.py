"""Tables of a page, found by their rules, or by cells that are aligned."""

from __future__ import annotations

import re
from bisect import bisect
from collections.abc import Callable, Iterable, Sequence, Set
from dataclasses import dataclass, replace
from itertools import pairwise
from statistics import median
from typing import TypeAlias

from engine.blocks import Block, Cell, Paragraph, Run, Table
from plugins._pdf.text.joining import Joiner
from plugins._pdf.text.texts import Box, Line

Split: TypeAlias = Callable[[Line], list[Line]]
"""Divides a line into its words."""

Interval: TypeAlias = tuple[float, float]
"""The left and the right edge of a column."""

_THICKNESS = 3.0  # points of a rule at most
_LENGTH = 8.0  # points of a rule at least
_NEAR = 3.0  # points between rules that touch
_MAX_RULES = 3000
_MAX_CELLS = 20_000
_MIN_ROWS = 3  # of a table without rules
_MIN_COLUMNS = 3  # of a head that only its columns show
_BLANK = 0.15  # of the size of the font, between words
_CLOSING = ".,;:!?)]"
_SMALL = 0.85  # of the size of the text before: smaller text is raised or lowered
_GAP = 0.6  # of the size of the font, between columns
_PITCH = 2.5  # of the height of a line, between rows
_HEAD_WORDS = 2  # in the name of a column, on average
_WORDS = 3.0  # in a line of running text, on average
_NUMBER = re.compile(r"[^\w]*\d[\d.,:/%\s-]*[^\w]*$")
_CLOSE = 0.2  # of the size of the font, between lines of a cell
_DENSE = 0.3  # of the cells of a table without rules have text
MARK = re.compile(
    r"(?P<bullet>[\u2022\u25e6\u25aa\u25ab\u2023\u25cf\u25cb\u25a0\u25a1\u2756\u27a2\u27a4\u2713\u2714\u00b7\u2219"
    r"\u2043\uf0b7\uf0a7\uf0d8]|[-\u2013\u2014*o](?=\s|$))\s*"
    r"|\(?(?P<number>\d{1,3}|[ivx]{1,5}|[IVX]{1,5}|[a-zA-Z])[.)](?=\s|$)\s*"
)
"""What stands before an entry of a list."""


@dataclass(frozen=True)
class Item:
    """A table or a picture, and where it stands."""

    box: Box
    block: Block


@dataclass(frozen=True)
class _Rule:
    """A rule across or down: its position, and where it starts and ends."""

    at: float
    start: float
    end: float


def ruled(drawn: Iterable[Box], lines: list[Line], split: Split, joiner: Joiner) -> list[Item]:
    """The tables whose cells have rules between them. Their lines are removed from `lines`.

    `drawn` are the boxes of lines and rectangles.
    """
    across, down = _rules(drawn)
    if len(across) + len(down) > _MAX_RULES:
        return []
    found = []
    for rows, columns in _connected(across, down):
        grid = _Grid.of(rows, columns)
        if grid is not None and (table := grid.table(lines, split, joiner)) is not None:
            found.append(Item(grid.box, table))
    return found


def _rules(drawn: Iterable[Box]) -> tuple[list[_Rule], list[_Rule]]:
    across: list[_Rule] = []
    down: list[_Rule] = []
    for left, top, right, bottom in drawn:
        width, height = right - left, bottom - top
        if height <= _THICKNESS and width >= _LENGTH:
            across.append(_Rule((top + bottom) / 2, left, right))
        elif width <= _THICKNESS and height >= _LENGTH:
            down.append(_Rule((left + right) / 2, top, bottom))
        elif min(width, height) >= _LENGTH:
            across += [_Rule(top, left, right), _Rule(bottom, left, right)]
            down += [_Rule(left, top, bottom), _Rule(right, top, bottom)]
    return _joined(across), _joined(down)


def _joined(rules: Iterable[_Rule]) -> list[_Rule]:
    """The rules, with those that continue each other as one."""
    joined: list[_Rule] = []
    for group in _clusters(rules):
        at = median(rule.at for rule in group)
        start = end = None
        for rule in sorted(group, key=lambda one: one.start):
            if end is None or rule.start > end + _NEAR:
                if end is not None and start is not None:
                    joined.append(_Rule(at, start, end))
                start, end = rule.start, rule.end
            else:
                end = max(end, rule.end)
        if end is not None and start is not None:
            joined.append(_Rule(at, start, end))
    return joined


def _clusters(rules: Iterable[_Rule]) -> list[list[_Rule]]:
    """Groups of rules whose positions are near each other."""
    groups: list[list[_Rule]] = []
    for rule in sorted(rules, key=lambda one: one.at):
        if groups and rule.at - groups[-1][0].at <= _NEAR:
            groups[-1].append(rule)
        else:
            groups.append([rule])
    return groups


def _connected(across: Sequence[_Rule], down: Sequence[_Rule]) -> list[tuple[list[_Rule], list[_Rule]]]:
    """Groups of rules that touch each other, as those across and those down."""
    left = set(range(len(across)))
    unseen = set(range(len(down)))
    groups = []
    while left:
        rows = [left.pop()]
        columns: list[int] = []
        for row in rows:  # the loops add to what they go through
            new = [column for column in unseen if _touch(across[row], down[column])]
            unseen.difference_update(new)
            columns += new
            for column in new:
                reached = [one for one in left if _touch(across[one], down[column])]
                left.difference_update(reached)
                rows += reached
        groups.append(([across[row] for row in rows], [down[column] for column in columns]))
    return groups


def _touch(row: _Rule, column: _Rule) -> bool:
    return row.start - _NEAR <= column.at <= row.end + _NEAR and column.start - _NEAR <= row.at <= column.end + _NEAR


@dataclass(frozen=True)
class _Grid:
    """The positions of rules, and the rules."""

    xs: list[float]
    ys: list[float]
    across: list[_Rule]
    down: list[_Rule]

    @classmethod
    def of(cls, across: list[_Rule], down: list[_Rule]) -> _Grid | None:
        """The grid of rules that touch each other. None if it has no columns."""
        if not down:
            return None
        xs = [group[0].at for group in _clusters(down)]
        ys = [group[0].at for group in _clusters(across)]
        left, right = min(rule.start for rule in across), max(rule.end for rule in across)
        xs = [*([left] if left < xs[0] - _LENGTH else []), *xs, *([right] if right > xs[-1] + _LENGTH else [])]
        is_table = len(xs) > 2 and len(ys) > 1 and len(xs) * len(ys) <= _MAX_CELLS
        return cls(xs, ys, across, down) if is_table else None

    @property
    def box(self) -> Box:
        return self.xs[0], self.ys[0], self.xs[-1], self.ys[-1]

    def table(self, lines: list[Line], split: Split, joiner: Joiner) -> Table | None:
        """The cells with the lines in them, which are removed from `lines`. None if too few have text."""
        inside = [line for line in lines if _within(_center(line.box), self.box)]
        areas = self._areas()
        held: dict[int, list[Line]] = {}
        for line in inside:
            for part in self._parts(line, areas, split):
                x, y = _center(part.box)
                held.setdefault(areas[self._index(x, y)], []).append(part)
        if len(held) < (1 if len(self.ys) > 2 else 2):
            return None
        removed = {id(line) for line in inside}
        lines[:] = [line for line in lines if id(line) not in removed]
        cells = {area: self._cell(area, areas, held.get(area, []), joiner) for area in dict.fromkeys(areas)}
        width = len(self.xs) - 1
        rows = []
        for row in range(len(self.ys) - 1):
            starts = (index for index in range(row * width, (row + 1) * width) if areas[index] == index)
            rows.append(tuple(cells[index] for index in starts))
        return _with_head(rows)

    def _areas(self) -> list[int]:
        """The index of the first square of the cell to which each square of the grid belongs."""
        width, height = len(self.xs) - 1, len(self.ys) - 1
        areas = [*range(width * height)]
        down = self._borders(self.down, self.xs, self.ys)
        across = self._borders(self.across, self.ys, self.xs)
        for index in range(width * height):
            row, column = divmod(index, width)
            if areas[index] != index:
                continue
            right = column + 1
            while right < width and (right, row) not in down and areas[row * width + right] == row * width + right:
                right += 1
            below = row + 1
            while below < height and all(
                (below, one) not in across
                and (one == column or (one, below) not in down)
                and areas[below * width + one] == below * width + one
                for one in range(column, right)
            ):
                below += 1
            for one in range(row, below):
                areas[one * width + column : one * width + right] = [index] * (right - column)
        return areas

    @staticmethod
    def _borders(rules: Iterable[_Rule], positions: list[float], others: list[float]) -> set[tuple[int, int]]:
        """The positions of rules, each with the squares beside which they are, by their indexes."""
        found = set()
        middles = [(start + end) / 2 for start, end in pairwise(others)]
        for rule in rules:
            at = min(range(len(positions)), key=lambda index: abs(positions[index] - rule.at))
            found |= {(at, square) for square in range(bisect(middles, rule.start), bisect(middles, rule.end))}
        return found

    def _index(self, x: float, y: float) -> int:
        width = len(self.xs) - 1
        column = min(max(bisect(self.xs, x) - 1, 0), width - 1)
        row = min(max(bisect(self.ys, y) - 1, 0), len(self.ys) - 2)
        return row * width + column

    def _parts(self, line: Line, areas: Sequence[int], split: Split) -> list[Line]:
        """The line, or its words if it is in several cells."""
        left, _, right, _ = line.box
        y = _center(line.box)[1]
        edge = min(line.size / 2, (right - left) / 2)
        return [line] if areas[self._index(left + edge, y)] == areas[self._index(right - edge, y)] else split(line)

    def _cell(self, area: int, areas: Sequence[int], lines: list[Line], joiner: Joiner) -> Cell:
        width = len(self.xs) - 1
        covered = [index for index, one in enumerate(areas) if one == area] if area in areas else [area]
        columns = covered[-1] % width - area % width + 1
        right = self.xs[area % width + columns]
        rows = covered[-1] // width - area // width + 1
        return Cell(_content(in_rows(lines), joiner, right), columns, rows)


def _content(lines: Sequence[Line], joiner: Joiner, right: float | None = None) -> tuple[Block, ...]:
    return (Paragraph(joiner.join(lines, right)),) if lines else ()


def _center(box: Box) -> tuple[float, float]:
    return (box[0] + box[2]) / 2, (box[1] + box[3]) / 2


def _within(point: tuple[float, float], box: Box) -> bool:
    return box[0] <= point[0] <= box[2] and box[1] <= point[1] <= box[3]


def _with_head(rows: Sequence[tuple[Cell, ...]]) -> Table:
    """A table of rows. The first is its head if it looks like names of columns: in bold, or texts above numbers."""
    first = [cell for cell in rows[0] if cell.text]
    rest = [cell for row in rows[1:] for cell in row if cell.text]
    if not first or not rest:
        return Table(rows)
    if all(map(_is_bold, first)) and not all(map(_is_bold, rest)):
        return Table([tuple(map(_without_bold, rows[0])), *rows[1:]], header_rows=1)
    has_numbers = any(_NUMBER.match(cell.text) for cell in first)
    return Table(rows, header_rows=int(not has_numbers and any(_NUMBER.match(cell.text) for cell in rest)))


def _without_bold(cell: Cell) -> Cell:
    return replace(
        cell, content=tuple(Paragraph(tuple(replace(run, bold=False) for run in one)) for one in _runs(cell))
    )


def _runs(cell: Cell) -> list[tuple[Run, ...]]:
    return [block.runs for block in cell.blocks if isinstance(block, Paragraph)]


def _is_bold(cell: Cell) -> bool:
    return all(run.bold for runs in _runs(cell) for run in runs if run.text.strip())


def in_rows(lines: Iterable[Line]) -> list[Line]:
    """The lines from top to bottom; those beside each other become one."""
    return [_beside(sorted(row, key=lambda one: one.box[0])) for row in _rows(lines)]


def _rows(lines: Iterable[Line]) -> list[list[Line]]:
    rows: list[list[Line]] = []
    for line in sorted(lines, key=lambda one: _center(one.box)[1]):
        if rows and _same_row(rows[-1][0], line):
            rows[-1].append(line)
        else:
            rows.append([line])
    return rows


def heads(lines: Iterable[Line], repeated: Set[int]) -> set[int]:
    """The ids of those of the repeated lines that are a row above other rows of a table."""
    return {
        id(line)
        for above, row in pairwise(_rows(lines))
        if min(len(above), len(row)) >= _MIN_COLUMNS and _is_near(above, row)
        for line in above
        if not all(id(one) in repeated for one in row)
    }


def _same_row(first: Line, second: Line) -> bool:
    overlap = min(first.box[3], second.box[3]) - max(first.box[1], second.box[1])
    return overlap > 0.5 * min(first.box[3] - first.box[1], second.box[3] - second.box[1])


def _beside(row: Sequence[Line]) -> Line:
    if len(row) == 1:
        return row[0]
    runs = [*row[0].runs]
    for before, line in pairwise(row):
        is_joined = line.text[:1] in _CLOSING or line.size < _SMALL * before.size
        is_apart = line.box[0] - before.box[2] > _BLANK * line.size or not is_joined
        blank = " " if is_apart else ""
        runs += [replace(line.runs[0], text=blank + line.runs[0].text), *line.runs[1:]]
    return Line(surrounding(line.box for line in row), tuple(runs), max(line.size for line in row))


def surrounding(boxes: Iterable[Box]) -> Box:
    """The box around boxes."""
    lefts, tops, rights, bottoms = zip(*boxes, strict=True)
    return min(lefts), min(tops), max(rights), max(bottoms)


def aligned(candidates: Sequence[Line], split: Split, joiner: Joiner) -> list[tuple[Item, list[Line]]]:
    """The tables without rules, each with its lines: rows whose cells stand below each other."""
    found = []
    for group in _runs_of_rows(_rows(candidates), split):
        lines = [line for row in group.rows for line in row]
        table = _aligned_table(group.cells, group.columns, joiner)
        if table is not None:
            found.append((Item(surrounding(line.box for line in lines), table), lines))
    return found


@dataclass
class _Group:
    """Neighboring rows that have common gaps: their lines, these or their words as cells, and the columns."""

    rows: list[list[Line]]
    cells: list[list[Line]]
    columns: list[Interval]
    has_head: bool = False

    def add(self, row: list[Line], split: Split) -> bool:
        """Adds the row above. False if it has not the columns. Only in a head, gaps may be narrower."""
        width = max(map(len, self.rows))
        if width < 2 or self.has_head or not _is_near(row, self.rows[0]):
            return False
        cells = row
        columns = _column_boxes(row, self.columns)
        if len(columns) < len(self.columns) and self._is_head(words := [word for line in row for word in split(line)]):
            self.has_head = True
            cells = words
            columns = self.columns
        if len(columns) < max(2, width):
            return False
        self.rows.insert(0, row)
        self.cells.insert(0, cells)
        self.columns = columns
        return True

    def _is_head(self, words: Sequence[Line]) -> bool:
        """Whether words name the columns, but perhaps the first, in few words each."""
        named = {_nearest(self.columns, word) for word in words} | {0}
        is_short = len(words) <= _HEAD_WORDS * len(self.columns)
        return is_short and len(named) == len(self.columns) >= _MIN_COLUMNS and len(self.rows) >= _MIN_ROWS - 1


def _nearest(columns: Sequence[Interval], line: Line) -> int:
    """The index of the column in which a line is, or to which it is nearest."""
    start, _, end, _ = line.box
    return min(range(len(columns)), key=lambda one: max(columns[one][0], start) - min(columns[one][1], end))


def _runs_of_rows(rows: Sequence[list[Line]], split: Split) -> list[_Group]:
    """Groups of rows of which the first and the last have several cells."""
    groups: list[_Group] = []
    for row in reversed(rows):  # the rows below a head show its columns
        if not groups or not groups[-1].add(row, split):
            groups.append(_Group([row], [row], _column_boxes(row)))
    trimmed = []
    for group in reversed(groups):
        while group.rows and len(group.cells[0]) < 2:
            del group.rows[0], group.cells[0]
        if sum(len(row) > 1 for row in group.cells) >= _MIN_ROWS:
            trimmed.append(group)
    return trimmed


def _is_near(above: Sequence[Line], row: Sequence[Line]) -> bool:
    height = above[0].box[3] - above[0].box[1]
    return min(line.box[1] for line in row) - max(line.box[3] for line in above) < _PITCH * height


def _column_boxes(lines: Iterable[Line], known: Sequence[Interval] = ()) -> list[Interval]:
    """Where columns start and end, with those that are known: gaps that no line crosses separate them."""
    columns: list[Interval] = []
    found = [(line.box[0], line.box[2], _GAP * line.size) for line in lines]
    least = min((gap for *_, gap in found), default=0.0)
    for start, end, gap in sorted([*found, *((start, end, least) for start, end in known)]):
        if columns and start - columns[-1][1] < gap:
            columns[-1] = columns[-1][0], max(columns[-1][1], end)
        else:
            columns.append((start, end))
    return columns


def _aligned_table(group: Sequence[list[Line]], columns: Sequence[Interval], joiner: Joiner) -> Table | None:
    placed: list[list[list[Line]]] = []
    for row in group:
        placed.append([[] for _ in columns])
        for line in row:
            placed[-1][_nearest(columns, line)].append(line)
    cells = _with_continuations(placed)
    by_column = [[line for row in cells for line in row[column]] for column in range(len(columns))]
    if len(cells) < _MIN_ROWS or all(map(_is_running, by_column)):
        return None
    if all(MARK.fullmatch(line.text.strip()) for line in by_column[0]):
        return None
    filled = sum(bool(cell) for row in cells for cell in row)
    if filled < _DENSE * len(cells) * len(columns):
        return None
    rows = [tuple(Cell(_content(in_rows(cell), joiner)) for cell in row) for row in cells]
    return _with_head(rows)


def _with_continuations(rows: Sequence[list[list[Line]]]) -> list[list[list[Line]]]:
    """The rows, with lines of cells that stand alone in the row above or below, to which they are closer."""
    joined: list[list[list[Line]]] = []
    is_open = False  # the last row is the beginning of a cell of the next one
    for index, row in enumerate(rows):
        above = _distance(joined[-1], row) if joined else _PITCH
        below = _distance(row, rows[index + 1]) if index + 1 < len(rows) else _PITCH
        is_alone = not row[0] and sum(map(len, row)) == 1
        if joined and (is_open or (is_alone and above <= min(below, _CLOSE) and _has_cells(joined[-1], row, above))):
            is_open = is_open and is_alone
            for cell, more in zip(joined[-1], row, strict=True):
                cell += more
            continue
        joined.append([[*cell] for cell in row])
        is_open = is_alone and below < min(above, _CLOSE) and _has_cells(rows[index + 1], row, below)
    return joined


def _distance(above: Sequence[list[Line]], below: Sequence[list[Line]]) -> float:
    """The space between two rows in heights of a line, negative where they overlap."""
    bottom = max(line.box[3] for cell in above for line in cell)
    top, size = min((line.box[1], line.size) for cell in below for line in cell)
    return (top - bottom) / size


def _has_cells(row: Sequence[list[Line]], more: Sequence[list[Line]], distance: float) -> bool:
    """Whether a row has the cells of another, or stands beside it, as the middle of a cell with two lines does."""
    return distance < 0 or all(cell for cell, line in zip(row, more, strict=True) if line)


def _is_running(lines: Sequence[Line]) -> bool:
    return sum(word[0].isalpha() for line in lines for word in line.text.split()) >= _WORDS * len(lines)
