"""Lists of the entries that a layout has."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from engine import blocks
from engine.blocks import ItemList, ListItem, Paragraph, Run
from plugins._pdf.text.joining import stripped
from plugins._pdf.text.paragraphs import Text, is_elsewhere

_INDENT = 0.8  # of the size of the font: the indent of a list in a list
_MAX_DEPTH = 20  # lists in each other
_ROMAN = {"i": 1, "v": 5, "x": 10}


@dataclass
class TextParagraph:
    """The runs of a paragraph, and the text that is the last part of it."""

    runs: list[Run]
    last: Text


@dataclass
class Entry(TextParagraph):
    """An entry of a list, and the paragraphs that follow in it."""

    mark: str
    is_numbered: bool
    indent: float
    more: list[Paragraph] = field(default_factory=list)

    def has_below(self, text: Text) -> bool:
        """Whether a text is a further paragraph of the entry: below it, and indented."""
        return not is_elsewhere(self.last, text) and text.indent > self.indent + _INDENT * text.size


def without_start(runs: Sequence[Run], count: int) -> list[Run]:
    """The runs without so many characters at their start."""
    rest = []
    for run in runs:
        rest.append(replace(run, text=run.text[count:]))
        count = max(0, count - len(run.text))
    return rest


def lists(entries: Sequence[Entry], left_out: Counter[str]) -> Iterator[blocks.Block]:
    """The lists of entries that follow each other. `left_out` counts the numbers that are in their marks."""
    position = 0
    while position < len(entries):
        block, position = _list(entries, position, left_out)
        yield block


def _list(entries: Sequence[Entry], start: int, left_out: Counter[str], depth: int = 0) -> tuple[blocks.Block, int]:
    """The list that begins with an entry, and the index of the entry after it.

    A single number makes no list, but in another one.
    """
    first = entries[start]
    style = _style(first.mark) if first.is_numbered else "1"
    number = _value(first.mark, style) if first.is_numbered else 1
    items: list[list[blocks.Block]] = []
    marks: list[str] = []
    position = start
    while position < len(entries):
        entry = entries[position]
        offset = entry.indent - first.indent
        has_moved = position > start and is_elsewhere(entries[position - 1].last, entry.last)
        if items and offset > _INDENT * entry.last.size and not has_moved and depth < _MAX_DEPTH:
            inner, position = _list(entries, position, left_out, depth + 1)
            items[-1].append(inner)
            continue
        is_outside = offset < -_INDENT * entry.last.size and not has_moved
        is_next = not entry.is_numbered or _value(entry.mark, style) == number + len(items)
        if entry.is_numbered != first.is_numbered or is_outside or not is_next:
            break
        items.append([Paragraph(stripped(entry.runs)), *entry.more])
        marks.append(entry.mark)
        position += 1
    if first.is_numbered and len(items) == 1 and len(items[0]) == 1 and not (depth and number == 1):
        return Paragraph((Run(f"{first.mark} "), *stripped(first.runs))), position
    left_out.update(blocks.words(marks))
    kind: Literal["bullets", "numbers"] = "numbers" if first.is_numbered else "bullets"
    made = tuple(ListItem(tuple(item)) for item in items)
    return ItemList(made, kind, number, style), position


def _style(mark: str) -> Literal["1", "a", "A", "i", "I"]:
    text = mark.strip("().")
    if text.isdigit():
        return "1"
    if text in ("i", "I") or len(text) > 1:
        return "i" if text.islower() else "I"
    return "a" if text.islower() else "A"


def _value(mark: str, style: str) -> int:
    """The number of a mark in a style; -1 for one in another style."""
    text = mark.strip("().")
    if style == "1":
        return int(text) if text.isdigit() else -1
    if not text.isalpha() or text.islower() != style.islower():
        return -1
    if style in "aA":
        return ord(text.lower()) - ord("a") + 1 if len(text) == 1 else -1
    digits = [_ROMAN.get(char, 0) for char in text.lower()]
    pairs = zip(digits, [*digits[1:], 0], strict=True)
    return sum(-digit if digit < following else digit for digit, following in pairs)
