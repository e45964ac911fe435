"""The structure of documents in memory: BLOCKS, a tree of headings, paragraphs, lists, tables and pictures.

Readers build the tree from a file's own structure, writers make a file of it; nothing is laid out on pages.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from itertools import chain, groupby
from operator import attrgetter
from typing import Literal, TypeAlias

from engine.conversions import FidelityWarning
from engine.formats import Format

_WORD = re.compile(r"[^\W_]+")
_SOFT_HYPHEN = "\xad"
_MAX_NAMED = 5  # words in a warning


@dataclass(frozen=True, slots=True)
class Picture:
    """A picture in a document: its file, what it shows in words, and its size in points, where the document has one.

    A picture that is elsewhere has its `url` instead of `data`.
    """

    data: bytes
    media_type: str
    alt: str = ""
    width: float | None = None
    height: float | None = None
    url: str = ""


@dataclass(frozen=True, slots=True)
class Run:
    """Text of a paragraph in one style, a picture, a formula or the mark of a note.

    A line feed in `text` is a line break. `link` is where it leads: a URL, or `#` and the `anchor` of a run or heading.
    `formula` is in TeX; with `display`, it stands on a line of its own. `note` is what a footnote, endnote or comment
    says. `change` is set for text that a tracked change inserts or deletes.
    """

    text: str = ""
    bold: bool = False
    italic: bool = False
    underline: bool = False
    strike: bool = False
    code: bool = False
    position: Literal["", "superscript", "subscript"] = ""
    link: str = ""
    anchor: str = ""
    picture: Picture | None = None
    formula: str = ""
    display: bool = False
    note: tuple[Block, ...] = ()
    comment: bool = False
    change: Literal["", "inserted", "deleted"] = ""


@dataclass(frozen=True, slots=True)
class Paragraph:
    """Text, with what stands in it."""

    runs: tuple[Run, ...]


@dataclass(frozen=True, slots=True)
class Heading:
    """A heading of level 1 to 6. `anchor` is the name by which links lead to it."""

    level: int
    runs: tuple[Run, ...]
    anchor: str = ""


@dataclass(frozen=True, slots=True)
class ListItem:
    """An entry of a list. `checked` is the state of its box, if it has one; `term` is what the entry defines."""

    blocks: tuple[Block, ...]
    checked: bool | None = None
    term: tuple[Run, ...] = ()


@dataclass(frozen=True, slots=True)
class ItemList:
    """A list: with bullets, numbers from `start` in the style of `1`, `a`, `A`, `i` or `I`, or of definitions."""

    items: tuple[ListItem, ...]
    kind: Literal["bullets", "numbers", "definitions"] = "bullets"
    start: int = 1
    style: Literal["1", "a", "A", "i", "I"] = "1"


Value: TypeAlias = str | int | float | bool | None
"""What a cell of a sheet holds: text, also a date in ISO 8601, a number, a truth value, or nothing."""


@dataclass(frozen=True, slots=True)
class Cell:
    """A cell of a table: blocks, or a plain text. It covers `colspan` columns and `rowspan` rows.

    `value` is what a cell of a sheet holds, if `content` shows something else, such as a number with its currency.
    `link` is where a cell with plain text leads. `align` is empty where the table does not say.
    """

    content: tuple[Block, ...] | str = ""
    colspan: int = 1
    rowspan: int = 1
    align: Literal["", "left", "center", "right"] = ""
    value: Value = None
    link: str = ""

    @property
    def blocks(self) -> tuple[Block, ...]:
        """What the cell holds, also where it is plain text."""
        if isinstance(self.content, str):
            return (Paragraph((Run(self.content, link=self.link),)),) if self.content else ()
        return self.content

    @property
    def text(self) -> str:
        """The text of the cell; a line feed ends each of its paragraphs but the last."""
        return self.content if isinstance(self.content, str) else "\n".join(plain_texts(self.content))


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of cells, of which the first `header_rows` are its head. A cell stands only in the row where it begins.

    `name` is that of the sheet, if the table is a whole one.
    """

    rows: Sequence[tuple[Cell, ...]]
    header_rows: int = 0
    caption: tuple[Run, ...] = ()
    name: str = ""

    def grid(self) -> Iterator[list[Cell | None]]:
        """Yields each row with an entry for each column: None where a cell from before or above covers it."""
        covered: dict[int, int] = {}  # how many rows of a column are still covered
        for row in self.rows:
            cells = iter(row)
            line: list[Cell | None] = []
            below: dict[int, int] = {}
            while True:
                if covered.get(len(line), 0):
                    line.append(None)
                    continue
                cell = next(cells, None)
                if cell is None:
                    break
                below |= dict.fromkeys(range(len(line), len(line) + cell.colspan), cell.rowspan)
                line += [cell, *[None] * (cell.colspan - 1)]
            covered = {column: left - 1 for column, left in {**covered, **below}.items() if left > 1}
            yield line


@dataclass(frozen=True, slots=True)
class Quote:
    """A quotation, or with `kind` an alert: `note`, `tip`, `important`, `warning` or `caution`."""

    blocks: tuple[Block, ...]
    kind: str = ""


@dataclass(frozen=True, slots=True)
class Code:
    """Lines of code, in a programming language if it is known."""

    text: str
    language: str = ""


@dataclass(frozen=True, slots=True)
class Break:
    """The end of a page, or a line across it."""

    kind: Literal["page", "rule"] = "page"


Block: TypeAlias = Paragraph | Heading | ItemList | Table | Quote | Code | Break


@dataclass(frozen=True)
class Blocks:
    """A document, and what it says of itself. `language` is a tag such as `de-AT`, `date` is in ISO 8601.

    One that is laid out has the `page_size` of most of its pages, their `margins` left, above, right and below, and the
    `font_size` of most of its text, in points.
    """

    content: tuple[Block, ...]
    title: str = ""
    authors: tuple[str, ...] = ()
    subject: str = ""
    keywords: tuple[str, ...] = ()
    language: str = ""
    date: str = ""
    page_size: tuple[float, float] | None = None
    margins: tuple[float, float, float, float] | None = None
    font_size: float | None = None


BLOCKS = Format("blocks", Blocks, partial=True)


def children(block: Block) -> tuple[Block, ...]:
    """The blocks that stand directly in a block, without those in notes."""
    if isinstance(block, ItemList):
        return tuple(chain.from_iterable(item.blocks for item in block.items))
    if isinstance(block, Table):
        return tuple(chain.from_iterable(cell.blocks for row in block.rows for cell in row))
    return block.blocks if isinstance(block, Quote) else ()


def own_runs(block: Block) -> tuple[Run, ...]:
    """The runs that stand directly in a block, also those of the terms of a list and of the caption of a table."""
    if isinstance(block, Paragraph | Heading):
        return block.runs
    if isinstance(block, ItemList):
        return tuple(chain.from_iterable(item.term for item in block.items))
    return block.caption if isinstance(block, Table) else ()


def walk(blocks: Iterable[Block]) -> Iterator[Block]:
    """Yields each block, and after it all that stand in it, in reading order; those in notes after the note's mark."""
    for block in blocks:
        yield block
        for run in own_runs(block):
            yield from walk(run.note)
        yield from walk(children(block))


def runs_of(blocks: Iterable[Block]) -> Iterator[Run]:
    """Yields all runs of the blocks and of what stands in them."""
    return chain.from_iterable(map(own_runs, walk(blocks)))


def plain_texts(blocks: Iterable[Block]) -> Iterator[str]:
    """Yields the text of each block and term that has some, without styles and pictures."""
    for block in walk(blocks):
        terms = [item.term for item in block.items] if isinstance(block, ItemList) else [own_runs(block)]
        texts = ["".join(run.text or (run.formula and f" {run.formula} ") for run in runs) for runs in terms]
        yield from filter(None, [block.text] if isinstance(block, Code) else texts)


def words(texts: Iterable[str]) -> Counter[str]:
    """How often each word stands in the texts, whose soft hyphens do not count."""
    return Counter(chain.from_iterable(_WORD.findall(text.replace(_SOFT_HYPHEN, "")) for text in texts))


def warn_dropped_text(source: Counter[str], result: Counter[str]) -> None:
    """Issues the warning `text_dropped` if the result lacks words of the source, with their number."""
    dropped = source - result
    if count := dropped.total():
        named = ", ".join([*dropped][:_MAX_NAMED])
        FidelityWarning.issue("text_dropped", f"{count} of {source.total()} words are not in the result: {named}.")


def merged(runs: Iterable[Run]) -> tuple[Run, ...]:
    """The runs, with neighbors of the same style as one, and without empty ones."""
    joined: list[Run] = []
    for _, group in groupby(filter(_is_filled, runs), key=_style):
        first, *others = group
        if not others:
            joined.append(first)
        elif first.text:
            joined.append(replace(first, text="".join([first.text, *(run.text for run in others)])))
        else:  # pictures, formulas and notes
            joined += (first, *others)
    return tuple(joined)


def _is_filled(run: Run) -> bool:
    return bool(run.text or run.anchor or run.picture or run.formula or run.note)


_style = attrgetter(*(one.name for one in fields(Run) if one.name != "text"))
