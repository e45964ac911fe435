"""Reads the structure of HTML: what a page shows, without its layout."""

from __future__ import annotations

import re
from base64 import b64decode
from binascii import Error
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import takewhile
from types import MappingProxyType
from typing import Any, Literal, TypeAlias, cast
from urllib.parse import unquote_to_bytes, urljoin

from lxml import etree

from engine import Blocks, blocks
from engine.blocks import Block, Break, Cell, Code, Heading, ItemList, ListItem, Paragraph, Picture, Quote, Run, Table
from plugins._blocks import html_source, style_sheets
from plugins._blocks.html_source import HEADINGS, classes, css

FindPicture: TypeAlias = Callable[[str], "tuple[bytes, str] | None"]
"""Returns the file and the media type of a picture by its URL; None for one that is elsewhere."""

_Alignment: TypeAlias = Literal["", "left", "center", "right"]
_PLAIN = Run()
_STYLES: Mapping[str, tuple[str, Any]] = MappingProxyType(
    {
        name: (style, value)
        for style, value, names in (
            ("bold", True, ("b", "strong", "font-weight:bold", "font-weight:700")),
            ("bold", False, ("font-weight:normal", "font-weight:400")),
            ("italic", True, ("i", "em", "cite", "dfn", "var", "font-style:italic")),
            ("underline", True, ("u", "text-decoration:underline")),
            ("strike", True, ("s", "strike", "text-decoration:line-through")),
            ("code", True, ("code", "kbd", "samp", "tt")),
            ("position", "superscript", ("sup", "vertical-align:super")),
            ("position", "subscript", ("sub", "vertical-align:sub")),
            ("change", "inserted", ("ins",)),
            ("change", "deleted", ("del",)),
        )
        for name in names
    }
)
"""The style of text by the name of its element, or by a declaration of its style."""
_PAGE_ENDS = ("always", "page", "left", "right")
_LISTS = frozenset({"ul", "ol", "menu", "dir", "dl"})
_PREFORMATTED = frozenset({"pre", "listing", "xmp"})
_NOT_IN_CODE = (*_LISTS, *HEADINGS, "li", "p", "table", "blockquote")
_OWN_FLOWS = frozenset({*_LISTS, *HEADINGS, "li", "dt", "dd", "td", "th", "caption", "blockquote"})
_OF_LISTS = frozenset({"li", "dt", "dd"})
_OF_TABLES = frozenset({"td", "th", "caption", "tr"})
_MAX_DEPTH = 40  # lists, tables and quotes in each other; what is deeper stands in the one above
_MAX_SPAN = 1000
_MAX_ICON = 24.0  # points
_LINE_END = re.compile(r" *\n *")
_BLANKS = re.compile(r"[ \t\n\r\f]+")
_DATA_URL = re.compile(r"data:([^;,]*)([^,]*),(.*)", re.DOTALL | re.IGNORECASE)
_LENGTH = re.compile(r"\s*(\d+(?:\.\d+)?)\s*(?:px)?\s*")
_POINTS = 72 / 96  # in a pixel


class _Flow:
    """Where blocks go. Text and pictures are collected until a block begins."""

    def __init__(self) -> None:
        self.runs: list[Run] = []
        self._blocks: list[Block] = []

    def add(self, *content: Block) -> None:
        """Adds blocks, after a paragraph of what is collected."""
        runs = _without_blanks(self.runs)
        self.runs = []
        self._blocks += [Paragraph(runs), *content] if runs else content

    def take(self) -> tuple[Block, ...]:
        """All blocks, which leave the flow."""
        self.add()
        taken = tuple(self._blocks)
        self._blocks = []
        return taken


@dataclass
class _Row:
    section: str
    cells: list[Cell] = field(default_factory=list)
    is_head: bool = True


@dataclass
class _Frame:
    """An element that is open, the style of its text, and where its content goes.

    `kind` is its tag if it has a part in the structure. `items` and `term` are of a list, `rows` and `caption` of a
    table. `checked` is of an entry.
    """

    element: Any
    style: Run
    flow: _Flow
    kind: str = ""
    items: list[ListItem] = field(default_factory=list)
    term: tuple[Run, ...] = ()
    rows: list[_Row] = field(default_factory=list)
    caption: tuple[Run, ...] = ()
    checked: bool | None = None
    depth: int = 0


class Reader:
    """Reads pages. `not_loaded` are the URLs of pictures that `find_picture` does not have."""

    def __init__(self, find_picture: FindPicture) -> None:
        self.not_loaded: dict[str, None] = {}
        self._find_picture = cache(find_picture)  # a page can show one many times
        self._base = ""
        self._notes: dict[str, tuple[Block, ...]] = {}
        self._targets: frozenset[str] = frozenset()
        self._anchors: list[str] = []
        self._frames: list[_Frame] = []

    def read(self, root: Any) -> Blocks:
        """The document. Changes the tree. Issues a warning if the result lacks words of the page."""
        described = html_source.describe(root)
        self._base = next((one.get("href") or "" for one in root.iter("base")), "")
        style_sheets.apply(root, lambda url: (self._find_picture(url) or (None,))[0])
        notes = html_source.prepare(root)
        trees = [root, *notes.values()]
        source = blocks.words(html_source.texts(trees))
        self._targets = frozenset(
            href[1:] for tree in trees for one in tree.iter("a") if (href := self._href(one))[:1] == "#"
        )
        self._notes = {name: self._blocks(note) for name, note in notes.items()}
        content = self._blocks(root)
        blocks.warn_dropped_text(source, blocks.words(blocks.plain_texts(content)))
        return replace(described, content=content)

    def _href(self, link: Any) -> str:
        href: str = (link.get("href") or "").strip()
        if not href.startswith("#") and self._base:
            try:
                return urljoin(self._base, href)
            except ValueError:
                pass
        return href

    def _blocks(self, root: Any) -> tuple[Block, ...]:
        """The content of an element. Nothing is recursive, because elements can be nested deeply."""
        self._frames = [_Frame(None, _PLAIN, _Flow())]
        walk = etree.iterwalk(root, events=("start", "end"))
        for event, element in walk:
            if event == "end":
                if element is not self._frames[-1].element:
                    continue  # it had no content to skip
                self._close(self._frames.pop())
            elif self._leaf(element):
                walk.skip_subtree()
            else:
                self._open(element)
                self._text(element.text)
                continue
            if element is not root:
                self._text(element.tail)
        return self._frames[0].flow.take()

    def _text(self, text: str | None) -> None:
        frame = self._frames[-1]
        if not text or (not frame.flow.runs and text.isspace()):
            return
        if self._anchors and not text.isspace():
            frame.flow.runs += (Run(anchor=anchor) for anchor in self._anchors)
            self._anchors = []
        frame.flow.runs.append(replace(frame.style, text=_BLANKS.sub(" ", text)))

    def _leaf(self, element: Any) -> bool:
        """Adds an element that is read as a whole. False for others."""
        flow = self._frames[-1].flow
        style = self._frames[-1].style
        match element.tag:
            case "br":
                flow.runs.append(replace(style, text="\n"))
            case "img" | "image":
                flow.runs += self._picture(element, style)
            case "svg":
                flow.runs += self._drawing(element, style)
            case html_source.NOTE:
                flow.runs.append(Run(note=self._notes[element.get("href")]))
            case html_source.FORMULA if element.get("tex"):
                flow.runs.append(replace(style, formula=element.get("tex"), display=element.get("display") == "block"))
            case "hr":
                flow.add(Break("rule"))
            case "input":
                self._box(element)
            case tag if tag in _PREFORMATTED and next(element.iter(*_NOT_IN_CODE), None) is None:
                flow.add(html_source.code(element))
                flow.runs += (run for one in element.iter("img") for run in self._picture(one, style))
            case _:
                return False
        return True

    def _box(self, element: Any) -> None:
        entry = self._nearest(frozenset({"li"}))
        if element.get("type") == "checkbox" and entry:
            entry.checked = element.get("checked") is not None

    def _open(self, element: Any) -> None:
        parent = self._frames[-1]
        tag = element.tag
        style = parent.style
        declared = css(element) if element.get("style") else set()
        for name in (tag, *declared):
            if name in _STYLES:
                style = replace(style, **dict([_STYLES[name]]))
        if tag == "a" and element.get("href"):
            style = replace(style, link=self._href(element))
        names = [name for name in (element.get("id"), element.get("name") if tag == "a" else None) if name]
        if tag not in HEADINGS:
            self._anchors += (name for name in names if name in self._targets)
        frame = _Frame(element, style, parent.flow, depth=parent.depth)
        if parent.depth <= _MAX_DEPTH and self._has_part(tag, element):
            frame.depth += 1
            frame.kind = "alert" if tag == "div" else tag
            parent.flow.add()
            if tag in _OF_LISTS:
                self._end_entry()
            frame.flow = _Flow() if tag in _OWN_FLOWS or tag == "div" else parent.flow
        elif tag in html_source.BLOCKS or "display:block" in declared:
            parent.flow.add(*_page_breaks(declared, "before"))
        if tag == "tr" and (table := self._nearest(frozenset({"table"}))):
            table.rows.append(_Row(getattr(element.getparent(), "tag", "")))
        self._frames.append(frame)

    def _has_part(self, tag: str, element: Any) -> bool:
        """Whether an element becomes a block other than a paragraph, or a part of one."""
        if tag in _OF_LISTS:
            return self._nearest(_LISTS) is not None
        if tag in _OF_TABLES:
            table = self._nearest(frozenset({"table"}))
            return table is not None and (tag == "caption" or tag == "tr" or bool(table.rows))
        return tag in _OWN_FLOWS or tag == "table" or (tag == "div" and bool(classes(element) & html_source.ALERTS))

    def _nearest(self, kinds: frozenset[str]) -> _Frame | None:
        return next((frame for frame in reversed(self._frames) if frame.kind in kinds), None)

    def _end_entry(self) -> None:
        """Ends what stands before an entry of a list: an entry without an end tag, or what is in no entry."""
        last = self._nearest(_OF_LISTS | _LISTS)
        owner = self._nearest(_LISTS)
        if last and last is not owner:
            self._close_entry(last)
            last.kind = "ended"
        elif owner:
            _add_strays(owner, owner.flow.take())

    def _close(self, frame: _Frame) -> None:
        """Makes a block of an element, or a part of the one that it belongs to."""
        flow = self._frames[-1].flow
        element = frame.element
        match frame.kind:
            case "ul" | "ol" | "menu" | "dir" | "dl":
                _add_strays(frame, frame.flow.take())
                frame.items += [ListItem((), term=frame.term)] if frame.term else []
                flow.add(*([_list(frame)] if frame.items else []))
            case "li" | "dt" | "dd":
                self._close_entry(frame)
            case "ended" if owner := self._nearest(_LISTS):
                _add_strays(owner, frame.flow.take())
            case "table":
                flow.add(*_table(frame))
            case "td" | "th" | "caption":
                self._close_cell(frame)
            case "blockquote" | "alert":
                content = frame.flow.take()
                flow.add(*([_quote(element, content)] if content else []))
            case kind if kind in HEADINGS:
                flow.add(*_heading(frame))
            case "" if element.tag in html_source.BLOCKS or "display:block" in css(element):
                flow.add(*_page_breaks(css(element), "after"))

    def _close_entry(self, frame: _Frame) -> None:
        owner = self._nearest(_LISTS)
        content = frame.flow.take()
        if owner is None:
            return
        if frame.kind == "dt":
            runs = _runs_of(content)
            owner.term = blocks.merged((*owner.term, Run("\n"), *runs)) if owner.term else runs
        elif content or frame.kind == "li" or owner.term:
            owner.items.append(ListItem(content, frame.checked, owner.term))
            owner.term = ()

    def _close_cell(self, frame: _Frame) -> None:
        table = self._nearest(frozenset({"table"}))
        content = frame.flow.take()
        if table is None:
            return
        if frame.kind == "caption":
            table.caption = _runs_of((Paragraph(table.caption), *content))
            return
        row = table.rows[-1]
        row.is_head &= frame.kind == "th"
        element = frame.element
        align = _alignment(element) or _alignment(element.getparent())
        row.cells.append(Cell(_simplified(content), _span(element, "colspan"), _span(element, "rowspan"), align))

    def _picture(self, element: Any, style: Run) -> Iterable[Run]:
        alt = " ".join((element.get("alt") or element.get("title") or "").split())
        sources = (element.get(name) for name in ("src", "data-src", "href", "{http://www.w3.org/1999/xlink}href"))
        url = next((source.strip() for source in sources if source and source.strip()), "")
        if not url:
            return [replace(style, text=alt)] if alt else []
        width, height = _sides(element)
        if url[:5].lower() == "data:":
            found = _of_data(url)
            return (
                [replace(style, picture=Picture(*found, alt, width, height))] if found else [replace(style, text=alt)]
            )
        url = urljoin(self._base, url) if self._base else url
        found = self._find_picture(url)
        if found is None:
            self.not_loaded[url] = None
            return [replace(style, picture=Picture(b"", "", alt, width, height, url))]
        return [replace(style, picture=Picture(*found, alt, width, height))]

    def _drawing(self, element: Any, style: Run) -> Iterable[Run]:
        """The pictures in a drawing, or else the drawing, unless it is an icon."""
        held = [run for one in element.iter("image", "{*}image") for run in self._picture(one, style)]
        width, height = _sides(element)
        if held or element.get("aria-hidden") == "true" or max(width or 99, height or 99) <= _MAX_ICON:
            return held
        titles = [one.text for one in element.iter("title", "{*}title") if one.text]
        alt = element.get("aria-label") or next(iter(titles), "")
        return [replace(style, picture=Picture(html_source.svg_file(element), "image/svg+xml", alt, width, height))]


def _add_strays(frame: _Frame, content: tuple[Block, ...]) -> None:
    """Adds what stands in a list, but in no entry, to the entry before."""
    if content and frame.items:
        frame.items[-1] = replace(frame.items[-1], blocks=(*frame.items[-1].blocks, *content))
    elif content:
        frame.items.append(ListItem(content))


def _without_blanks(runs: Iterable[Run]) -> tuple[Run, ...]:
    """The runs of a paragraph, with one space where there are several, and none at the ends of lines."""
    kept: list[Run] = []
    last = "\n"
    for run in blocks.merged(runs):
        text = _LINE_END.sub("\n", run.text)
        if text and last[-1:] in (" ", "\n"):
            text = text.lstrip(" ")
        if text.startswith("\n") and kept and kept[-1].text:
            kept[-1] = replace(kept[-1], text=kept[-1].text.rstrip(" "))
        kept.append(run if text == run.text else replace(run, text=text))
        last = text or ("" if run.text or run.anchor else "x") or last
    while kept and kept[-1].text and not kept[-1].text.rstrip(" \n"):
        kept.pop()
    if kept and kept[-1].text:
        kept[-1] = replace(kept[-1], text=kept[-1].text.rstrip(" \n"))
    if kept and kept[0].text:
        kept[0] = replace(kept[0], text=kept[0].text.lstrip(" \n"))
    return blocks.merged(kept)


def _page_breaks(declared: set[str], side: str) -> list[Block]:
    is_break = any(f"{name}-{side}:{end}" in declared for name in ("break", "page-break") for end in _PAGE_ENDS)
    return [Break()] if is_break else []


def _list(frame: _Frame) -> ItemList:
    element = frame.element
    items = tuple(frame.items)
    if element.tag == "dl":
        return ItemList(items, "definitions")
    if element.tag != "ol":
        return ItemList(items)
    start = (element.get("start") or "").strip()
    style = element.get("type")
    number = int(start) if re.fullmatch(r"-?\d{1,9}", start) else 1
    return ItemList(items, "numbers", number, style if style in ("1", "a", "A", "i", "I") else "1")


def _table(frame: _Frame) -> tuple[Block, ...]:
    """The table, or what its cells hold if it only serves the layout."""
    order = {"thead": 0, "tfoot": 2}
    rows = sorted((row for row in frame.rows if row.cells), key=lambda row: order.get(row.section, 1))
    if rows and rows[0].section == "thead" and not any(cell.content for cell in rows[0].cells):
        del rows[0]  # Markdown must have one
    cells = [cell for row in rows for cell in row.cells]
    in_head = [*takewhile(lambda row: row.section == "thead", rows)]
    heads = in_head or [*takewhile(lambda row: row.is_head, rows)]
    if not cells or _is_layout(frame, cells, has_heads=any(row.is_head for row in rows)):
        caption = [Paragraph(frame.caption)] if frame.caption else []
        return (*caption, *(block for cell in cells for block in cell.blocks))
    header_rows = len(heads) if in_head or len(heads) < len(rows) else 0
    made = (
        tuple(replace(cell, rowspan=min(cell.rowspan, len(rows) - index)) for cell in row.cells)
        for index, row in enumerate(rows)
    )
    return (Table(tuple(made), header_rows, frame.caption),)


def _is_layout(frame: _Frame, cells: Sequence[Cell], *, has_heads: bool) -> bool:
    if frame.element.get("role") in ("presentation", "none"):
        return True
    if has_heads or frame.caption or (frame.element.get("border") or "0") != "0":
        return False
    return len(cells) == 1 or any(isinstance(block, Table | Heading) for cell in cells for block in cell.blocks)


def _quote(element: Any, content: tuple[Block, ...]) -> Quote:
    """A quotation, or an alert."""
    names = classes(element) if element.tag == "div" else set()
    return Quote(content, next((kind for kind in html_source.KINDS if {kind, f"markdown-alert-{kind}"} & names), ""))


def _heading(frame: _Frame) -> tuple[Block, ...]:
    """The heading, without blocks in it, which follow it."""
    content = frame.flow.take()
    runs = _runs_of(block for block in content if isinstance(block, Paragraph))
    anchor = frame.element.get("id") or ""
    if not anchor and runs and runs[0] == Run(anchor=runs[0].anchor):
        anchor = runs[0].anchor
        runs = runs[1:]
    others = tuple(block for block in content if not isinstance(block, Paragraph))
    return (Heading(HEADINGS[frame.kind], runs, anchor), *others) if runs else others


def _runs_of(content: Iterable[Block]) -> tuple[Run, ...]:
    """The text of blocks in one line, with spaces between them."""
    lines = [(Run(one.text),) if isinstance(one, Code) else blocks.own_runs(one) for one in blocks.walk(content)]
    found = blocks.merged(run for runs in lines if runs for run in (Run(" "), *runs))
    return _without_blanks(found)


def _simplified(content: tuple[Block, ...]) -> tuple[Block, ...] | str:
    """The text of a cell that has nothing else."""
    match content:
        case ():
            return ""
        case (Paragraph((Run(text) as run,)),) if run == Run(text):
            return text
    return content


def _alignment(element: Any) -> _Alignment:
    declared = css(element) if element.get("style") else ()
    values = (element.get("align"), *(one.removeprefix("text-align:") for one in declared))
    return cast(_Alignment, next((value for value in values if value in ("left", "center", "right")), ""))


def _span(element: Any, name: str) -> int:
    value = (element.get(name) or "").strip()
    return min(max(int(value), 1), _MAX_SPAN) if re.fullmatch(r"\d{1,9}", value) else 1


def _sides(element: Any) -> tuple[float | None, ...]:
    """The width and the height of an element in points, as far as they are known."""
    found = (_LENGTH.fullmatch(element.get(side) or "") for side in ("width", "height"))
    return tuple(float(length[1]) * _POINTS or None if length else None for length in found)


def _of_data(url: str) -> tuple[bytes, str] | None:
    """The content and the media type of a URL that holds data; None if it is damaged."""
    found = _DATA_URL.fullmatch(url)
    if not found:
        return None
    kind, parameters, text = found.groups()
    data = unquote_to_bytes(text)
    try:
        return b64decode(data) if ";base64" in parameters.lower() else data, kind.lower().strip()
    except Error:
        return None
