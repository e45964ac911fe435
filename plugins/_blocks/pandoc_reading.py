"""Blocks from the tree of Pandoc: https://hackage.haskell.org/package/pandoc-types/docs/Text-Pandoc-Definition.html."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain, groupby
from types import MappingProxyType
from typing import Any, Literal, TypeAlias

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
    merged,
)

Node: TypeAlias = Mapping[str, Any]
"""A node of Pandoc's tree: its type as `t`, its content as `c`."""

Markup: TypeAlias = Literal["final", "original", "all"]
"""Which text of tracked changes stays: what they lead to, what was before, or both, marked."""

_PLAIN = Run()
_STYLES: Mapping[str, Mapping[str, Any]] = MappingProxyType(
    {
        "Emph": {"italic": True},
        "Strong": {"bold": True},
        "Underline": {"underline": True},
        "Strikeout": {"strike": True},
        "Superscript": {"position": "superscript"},
        "Subscript": {"position": "subscript"},
        "SmallCaps": {},
    }
)
_TEXTS = MappingProxyType({"Str": "", "Space": " ", "SoftBreak": " ", "LineBreak": "\n"})
_QUOTES = MappingProxyType({"SingleQuote": "\u2018\u2019", "DoubleQuote": "\u201c\u201d"})
_NUMBERS: Mapping[str, Literal["1", "a", "A", "i", "I"]] = MappingProxyType(
    {"LowerAlpha": "a", "UpperAlpha": "A", "LowerRoman": "i", "UpperRoman": "I"}
)
_ALIGNMENTS: Mapping[str, Literal["left", "center", "right"]] = MappingProxyType(
    {"AlignLeft": "left", "AlignCenter": "center", "AlignRight": "right"}
)
_CHANGES: Mapping[str, Literal["inserted", "deleted"]] = MappingProxyType(
    {"insertion": "inserted", "deletion": "deleted"}
)
_LEFT_OUT = MappingProxyType({"final": "deleted", "original": "inserted", "all": ""})
_LENGTH = re.compile(r"([\d.]+)(in|cm|mm|pt|px)")
_POINTS = MappingProxyType({"in": 72.0, "cm": 72 / 2.54, "mm": 72 / 25.4, "pt": 1.0, "px": 0.75})
_METADATA = ("title", "subtitle", "author", "date", "abstract")  # what styles of paragraphs make of text


@dataclass
class Reader:
    """Makes blocks of a tree. `find_picture` returns the file and the media type of a picture by its path."""

    find_picture: Callable[[str], tuple[bytes, str] | None]
    markup: Markup = "final"
    comments: bool = False

    def read(self, tree: Node) -> Blocks:
        """The document. A title, and what else stands above the text, also is its first blocks."""
        meta = {name: [*self._of_meta(tree["meta"][name])] for name in _METADATA if name in tree["meta"]}
        texts = {name: ["".join(run.text for run in runs) for runs in values] for name, values in meta.items()}
        above: list[Block] = [Heading(1, runs) for runs in meta.pop("title", [])]
        above += [Paragraph(runs) for runs in chain.from_iterable(meta.values())]
        return Blocks(
            (*above, *self.blocks(tree["blocks"])),
            title=" ".join(texts.get("title", [])),
            authors=tuple(texts.get("author", [])),
        )

    def _of_meta(self, value: Node) -> Iterator[tuple[Run, ...]]:
        if value["t"] == "MetaList":
            yield from chain.from_iterable(map(self._of_meta, value["c"]))
        elif value["t"] == "MetaInlines":
            yield self.runs(value["c"])
        elif value["t"] == "MetaBlocks":
            yield from (block.runs for block in self.blocks(value["c"]) if isinstance(block, Paragraph))
        elif value["t"] == "MetaString":
            yield (Run(value["c"]),)

    def blocks(self, nodes: Iterable[Node]) -> tuple[Block, ...]:
        """The blocks that the nodes become."""
        return tuple(chain.from_iterable(map(self._block, nodes)))

    def _block(self, node: Node) -> Sequence[Block]:
        kind = node["t"]
        content: Any = node.get("c")
        match kind:
            case "Plain" | "Para":
                runs = self.runs(content)
                return [Paragraph(runs)] if runs else []
            case "LineBlock":
                return [Paragraph(merged(chain.from_iterable((*self.runs(line), Run("\n")) for line in content)))]
            case "Header":
                level, (anchor, *_), inlines = content
                runs = self.runs(inlines)
                return [Heading(min(level, 6), runs, anchor)] if runs else []
            case "CodeBlock":
                (_, classes, _), text = content
                return [Code(text, next(iter(classes), ""))]
            case "BlockQuote":
                return [Quote(self.blocks(content))]
            case "BulletList" | "OrderedList":
                return [self._list(content) if kind == "BulletList" else self._numbered(*content)]
            case "DefinitionList":
                items = (ListItem(self.blocks(chain(*texts)), term=self.runs(term)) for term, texts in content)
                return [ItemList(tuple(items), kind="definitions")]
            case "HorizontalRule":
                return [Break("rule")]
            case "Table":
                return [self._table(*content)]
            case "Div":
                return self.blocks(content[1])
            case "Figure":
                _, (_, caption), inner = content
                return self.blocks((*inner, *caption))
            case _:  # raw markup of another format
                return []

    def _list(self, items: Iterable[Iterable[Node]]) -> ItemList:
        return ItemList(tuple(_with_box(ListItem(self.blocks(item))) for item in items))

    def _numbered(self, attributes: tuple[int, Node, Node], items: Iterable[Iterable[Node]]) -> ItemList:
        start, style, _ = attributes
        return replace(self._list(items), kind="numbers", start=start, style=_NUMBERS.get(style["t"], "1"))

    def _table(
        self,
        _: Any,
        caption: tuple[Any, list[Node]],
        columns: list[tuple[Node, Any]],
        head: Any,
        bodies: Any,
        foot: Any,
    ) -> Table:
        aligned = [_ALIGNMENTS.get(alignment["t"], "") for alignment, _ in columns]
        above = [*head[1], *chain.from_iterable(body[2] for body in bodies[:1])]
        rows = [*above, *bodies[0][3]] if bodies else above
        rows += chain.from_iterable((*body[2], *body[3]) for body in bodies[1:])
        texts = (block.runs for block in self.blocks(caption[1]) if isinstance(block, Paragraph))
        return Table(
            tuple(tuple(map(partial(self._cell, aligned), range(len(cells)), cells)) for _, cells in (*rows, *foot[1])),
            header_rows=len(above),
            caption=tuple(chain.from_iterable(texts)),
        )

    def _cell(self, aligned: Sequence[Any], index: int, cell: Any) -> Cell:
        _, alignment, rowspan, colspan, content = cell
        found = self.blocks(content)
        plain = (
            len(found) == 1 and isinstance(found[0], Paragraph) and all(one == Run(one.text) for one in found[0].runs)
        )
        return Cell(
            "".join(run.text for run in found[0].runs) if plain and isinstance(found[0], Paragraph) else found,
            colspan=colspan,
            rowspan=rowspan,
            align=_ALIGNMENTS.get(alignment["t"]) or (aligned[index] if index < len(aligned) else ""),
        )

    def runs(self, nodes: Iterable[Node], style: Run = _PLAIN) -> tuple[Run, ...]:
        """The runs that inline nodes become, in the style of what they stand in."""
        found: list[Run] = []
        for is_text, group in groupby(nodes, key=lambda node: node["t"] in _TEXTS):
            if is_text:
                found.append(replace(style, text="".join(_TEXTS[node["t"]] or node["c"] for node in group)))
            else:
                found += chain.from_iterable(self._inline(node, style) for node in group)
        return merged(found)

    def _inline(self, node: Node, style: Run) -> Iterable[Run]:
        kind = node["t"]
        content: Any = node.get("c")
        if kind in _STYLES:
            return self.runs(content, replace(style, **_STYLES[kind]))
        match kind:
            case "Code":
                return [replace(style, text=content[1], code=True)]
            case "Math":
                return [replace(style, formula=content[1], display=content[0]["t"] == "DisplayMath")]
            case "Quoted":
                marks = _QUOTES[content[0]["t"]]
                inner = self.runs(content[1], style)
                return [replace(style, text=marks[0]), *inner, replace(style, text=marks[1])]
            case "Cite":
                return self.runs(content[1], style)
            case "Link":
                return self.runs(content[1], replace(style, link=content[2][0]))
            case "Image":
                return self._picture(content, style)
            case "Note":
                return [Run(note=self.blocks(content))]
            case "Span":
                return self._span(*content, style=style)
            case _:  # raw markup of another format
                return []

    def _span(self, attributes: Any, inner: Sequence[Node], *, style: Run) -> Iterable[Run]:
        anchor, classes, _ = attributes
        if "comment-start" in classes:
            said = self.runs(inner)
            return [Run(note=(Paragraph(said),), comment=True)] if self.comments and said else []
        change = next((_CHANGES[name] for name in classes if name in _CHANGES), None)
        if change is not None and change == _LEFT_OUT[self.markup]:
            return []
        if change is not None and self.markup == "all":
            style = replace(style, change=change)
        runs = self.runs(inner, style)
        return [Run(anchor=anchor), *runs] if anchor else runs

    def _picture(self, content: Any, style: Run) -> Iterable[Run]:
        (_, _, pairs), alt, (path, title) = content
        text = "".join(run.text for run in self.runs(alt)) or title
        found = self.find_picture(path)
        if found is None:
            return [replace(style, text=text)]
        sizes = dict(pairs)
        picture = Picture(*found, text, _points(sizes.get("width", "")), _points(sizes.get("height", "")))
        return [replace(style, picture=picture)]


def _points(length: str) -> float | None:
    found = _LENGTH.fullmatch(length)
    return float(found[1]) * _POINTS[found[2]] if found else None


_BOXES = MappingProxyType({"☐ ": False, "☒ ": True})


def _with_box(item: ListItem) -> ListItem:
    """The item, with the box at its beginning as its state."""
    first = item.blocks[0] if item.blocks else None
    if not isinstance(first, Paragraph) or first.runs[0].text[:2] not in _BOXES:
        return item
    run = first.runs[0]
    runs = merged((replace(run, text=run.text[2:]), *first.runs[1:]))
    return ListItem((Paragraph(runs), *item.blocks[1:]), checked=_BOXES[run.text[:2]])
