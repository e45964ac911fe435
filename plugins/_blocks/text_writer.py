"""Writes the structure of a document as plain text."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from engine import Blocks, FidelityWarning
from engine.blocks import Block, Break, Cell, Code, Heading, ItemList, ListItem, Paragraph, Quote, Run, Table, merged
from plugins._blocks.writing import Notes, is_tight, number

_INDENT = "    "
_RULE = "-" * 20
_PAGE = "\f"
_CHANGES = {"": ("", ""), "inserted": ("{+", "+}"), "deleted": ("[-", "-]")}  # as wdiff shows them


def write(document: Blocks) -> str:
    """Empty lines separate the blocks, and form feeds pages. The notes follow at the end."""
    writer = _Writer()
    parts = [*writer.parts(document.content), *writer.notes()]
    return "\n\n".join(parts).replace(f"\n\n{_PAGE}\n\n", f"\n\n{_PAGE}") + "\n"


class _Writer:
    def __init__(self) -> None:
        self._notes = Notes()

    def parts(self, content: Iterable[Block]) -> Iterator[str]:
        """Each block that is not empty."""
        return filter(None, map(self._block, content))

    def notes(self) -> Iterator[str]:
        """The notes of what has been written."""
        for count, content in self._notes:
            yield _indented("\n\n".join(self.parts(content)), f"[{count}] ", _INDENT)

    def _block(self, block: Block) -> str:
        match block:
            case Paragraph(runs) | Heading(_, runs):
                return self._inline(runs)
            case ItemList():
                separator = "\n" if is_tight(block) else "\n\n"
                items = (self._item(block, index, item, separator) for index, item in enumerate(block.items))
                return separator.join(items)
            case Table():
                caption = self._inline(block.caption) or block.name
                rows = ["\t".join(map(self._cell, row)) for row in block.grid()]
                return "\n".join(filter(None, [caption, *rows]))
            case Quote(content, kind):
                title = [f"{kind.capitalize()}:"] if kind else []
                return _indented("\n\n".join((*title, *self.parts(content))), _INDENT, _INDENT)
            case Code(text):
                return text.rstrip("\n")
            case Break(kind):
                return _PAGE if kind == "page" else _RULE

    def _item(self, items: ItemList, index: int, item: ListItem, separator: str) -> str:
        text = separator.join(self.parts(item.blocks))
        if items.kind == "definitions":
            return "\n".join(filter(None, (self._inline(item.term), _indented(text, _INDENT, _INDENT))))
        mark = f"{number(items, index)}. " if items.kind == "numbers" else "- "
        box = "" if item.checked is None else f"[{'x' if item.checked else ' '}] "
        return _indented(box + text, mark, " " * len(mark))

    def _cell(self, cell: Cell | None) -> str:
        if cell is None:
            return ""
        text = cell.content if isinstance(cell.content, str) else " ".join(self.parts(cell.content))
        return " ".join(text.split())

    def _inline(self, runs: tuple[Run, ...]) -> str:
        return "".join(map(self._run, merged(runs))).strip()

    def _run(self, run: Run) -> str:
        if run.note:
            return f"[{self._notes.number(run)}]"
        if run.picture:
            FidelityWarning.issue("pictures_dropped", "Images are not in the result, nor is text that they show.")
            return f"[{run.picture.alt}]" if run.picture.alt else ""
        if run.link and run.link.removeprefix("mailto:") not in run.text:
            FidelityWarning.issue("links_dropped", "Addresses to which links lead are not in the result.")
        before, after = _CHANGES[run.change]
        return f"{before}{run.formula or run.text}{after}"


def _indented(text: str, first: str, rest: str) -> str:
    lines = text.split("\n")
    return "\n".join(((first + lines[0]).rstrip(), *(rest + line if line else "" for line in lines[1:])))
