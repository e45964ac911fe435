"""The tree of Pandoc from blocks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeAlias

from engine import Blocks
from engine.blocks import (
    Block,
    Break,
    Cell,
    Code,
    Heading,
    ItemList,
    ListItem,
    Paragraph,
    Picture,
    Quote,
    Run,
    Table,
)
from plugins._blocks import pictures
from plugins._blocks.writing import slug_of

Node: TypeAlias = dict[str, Any]

_NO_ATTRIBUTES: tuple[str, list[Any], list[Any]] = ("", [], [])
_STYLES = MappingProxyType({"italic": "Emph", "bold": "Strong", "underline": "Underline", "strike": "Strikeout"})
_POSITIONS = MappingProxyType({"superscript": "Superscript", "subscript": "Subscript"})
_NUMBERS = MappingProxyType(
    {"1": "Decimal", "a": "LowerAlpha", "A": "UpperAlpha", "i": "LowerRoman", "I": "UpperRoman"}
)
_ALIGNMENTS = MappingProxyType(
    {"": "AlignDefault", "left": "AlignLeft", "center": "AlignCenter", "right": "AlignRight"}
)
_BOXES: Mapping[bool | None, str] = MappingProxyType({None: "", False: "☐ ", True: "☒ "})
_CHANGES = MappingProxyType({"inserted": "insertion", "deleted": "deletion"})
_CHANGED_BY = (("author", ""), ("date", "1970-01-01T00:00:00Z"))  # attributes that Word requires


def starts_with_title(document: Blocks) -> bool:
    """Whether the first block is a heading that says the title."""
    first = document.content[0] if document.content else None
    return isinstance(first, Heading) and "".join(run.text for run in first.runs) == document.title


@dataclass
class Writer:
    """Makes Pandoc's tree. `page_break` is a node that ends a page. Pictures become files in the folder.

    `held` are the media types of pictures that the target holds.
    """

    folder: Path
    held: frozenset[str]
    page_break: Node | None = None
    _pictures: dict[bytes, str] = field(default_factory=dict)

    def write(self, document: Blocks) -> Node:
        """The tree with `meta` and `blocks`. A heading at the beginning that says the title is the title."""
        content = document.content[1:] if starts_with_title(document) else document.content
        known = {"title": document.title, "lang": document.language, "date": document.date, "subject": document.subject}
        meta: Node = {name: {"t": "MetaString", "c": value} for name, value in known.items() if value}
        for name, values in (("author", document.authors), ("keywords", document.keywords)):
            if values:
                meta[name] = {"t": "MetaList", "c": [{"t": "MetaString", "c": value} for value in values]}
        return {"meta": meta, "blocks": self._blocks(content)}

    def _blocks(self, blocks: Iterable[Block]) -> list[Node]:
        return [node for block in blocks for node in self._block(block)]

    def _block(self, block: Block) -> list[Node]:
        match block:
            case Paragraph():
                return [{"t": "Para", "c": self._inlines(block.runs)}]
            case Heading():
                anchor = block.anchor or slug_of(block)  # links in Markdown lead there
                return [{"t": "Header", "c": [block.level, [anchor, [], []], self._inlines(block.runs)]}]
            case ItemList():
                return [self._list(block)]
            case Table():
                return [self._table(block)]
            case Quote():
                return [{"t": "BlockQuote", "c": [*self._title(block), *self._blocks(block.blocks)]}]
            case Code():
                classes = [block.language] if block.language else []
                return [{"t": "CodeBlock", "c": [["", classes, []], block.text]}]
            case Break(kind="rule"):
                return [{"t": "HorizontalRule"}]
            case Break():
                return [self.page_break] if self.page_break else []

    def _title(self, quote: Quote) -> list[Node]:
        """A paragraph with the kind of an alert."""
        return self._block(Paragraph((Run(quote.kind.capitalize(), bold=True),))) if quote.kind else []

    def _list(self, block: ItemList) -> Node:
        if block.kind == "definitions":
            items = [[self._inlines(item.term), [self._blocks(item.blocks)]] for item in block.items]
            return {"t": "DefinitionList", "c": items}
        content = [self._item(item) for item in block.items]
        if block.kind == "bullets":
            return {"t": "BulletList", "c": content}
        attributes = [block.start, {"t": _NUMBERS[block.style]}, {"t": "Period"}]
        return {"t": "OrderedList", "c": [attributes, content]}

    def _item(self, item: ListItem) -> list[Node]:
        """The blocks of an entry: without distance to the next one, if it is a paragraph."""
        nodes = self._blocks(item.blocks) or [{"t": "Plain", "c": []}]
        if nodes[0]["t"] == "Para":
            box = _words(_BOXES[item.checked])
            nodes[0] = {"t": "Plain", "c": [*box, *nodes[0]["c"]]}
        return nodes

    def _table(self, table: Table) -> Node:
        filled = [len(row) for row in table.grid()]
        width = max(filled, default=1)  # Pandoc writes no DOCX of shorter rows
        rows = [self._row([*row, *[Cell()] * (width - own)]) for row, own in zip(table.rows, filled, strict=True)]
        column = [{"t": "AlignDefault"}, {"t": "ColWidthDefault"}]
        caption = [{"t": "Plain", "c": self._inlines(table.caption)}] if table.caption else []
        return {
            "t": "Table",
            "c": [
                _NO_ATTRIBUTES,
                [None, caption],
                [column] * width,
                [_NO_ATTRIBUTES, rows[: table.header_rows]],
                [[_NO_ATTRIBUTES, 0, [], rows[table.header_rows :]]],
                [_NO_ATTRIBUTES, []],
            ],
        }

    def _row(self, cells: Sequence[Cell]) -> list[Any]:
        return [_NO_ATTRIBUTES, [self._cell(cell) for cell in cells]]

    def _cell(self, cell: Cell) -> list[Any]:
        nodes = self._blocks(cell.blocks)
        if len(nodes) == 1 and nodes[0]["t"] == "Para":
            nodes[0]["t"] = "Plain"
        return [_NO_ATTRIBUTES, {"t": _ALIGNMENTS[cell.align]}, cell.rowspan, cell.colspan, nodes]

    def _inlines(self, runs: Iterable[Run]) -> list[Node]:
        """The nodes of runs: those with one link become one link."""
        nodes: list[Node] = []
        for link, group in groupby(runs, key=lambda run: run.link):
            inner = [node for run in group for node in self._inline(run)]
            nodes += [{"t": "Link", "c": [_NO_ATTRIBUTES, inner, [link, ""]]}] if link else inner
        return nodes

    def _inline(self, run: Run) -> Iterator[Node]:
        nodes = self._plain(run)
        for name, kind in _STYLES.items():
            if getattr(run, name) and nodes:
                nodes = [{"t": kind, "c": nodes}]
        if run.position and nodes:
            nodes = [{"t": _POSITIONS[run.position], "c": nodes}]
        if run.change:
            nodes = [{"t": "Span", "c": [["", [_CHANGES[run.change]], _CHANGED_BY], nodes]}]
        if run.anchor:
            nodes = [{"t": "Span", "c": [[run.anchor, [], []], nodes]}]
        yield from nodes

    def _plain(self, run: Run) -> list[Node]:
        """The content of a run without its style. A comment is a note."""
        if run.note:
            return [{"t": "Note", "c": self._blocks(run.note)}]
        if run.formula:
            return [{"t": "Math", "c": [{"t": "DisplayMath" if run.display else "InlineMath"}, run.formula]}]
        if run.picture:
            picture = pictures.adapt(run.picture, self.held)
            return [self._picture(picture)] if picture else _words(run.picture.alt)
        if run.code:
            return [{"t": "Code", "c": [_NO_ATTRIBUTES, run.text]}]
        return _words(run.text)

    def _picture(self, picture: Picture) -> Node:
        name = self._pictures.get(picture.data)
        if name is None:
            name = f"picture-{len(self._pictures) + 1}.{pictures.extension(picture.media_type)}"
            self._pictures[picture.data] = name
            (self.folder / name).write_bytes(picture.data)
        sizes = (("width", picture.width), ("height", picture.height))
        attributes = ["", [], [[side, f"{length / 72:.4f}in"] for side, length in sizes if length]]
        return {"t": "Image", "c": [attributes, _words(picture.alt), [name, ""]]}


def _words(text: str) -> list[Node]:
    """Text with its line breaks; blanks stay as many as they are."""
    nodes: list[Node] = []
    for number, line in enumerate(text.split("\n")):
        nodes += [{"t": "LineBreak"}] if number else []
        nodes += [{"t": "Str", "c": line}] if line else []
    return nodes
