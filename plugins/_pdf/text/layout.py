"""The structure of documents that are laid out on pages, found by the places and the fonts of their text."""

from __future__ import annotations

import re
from bisect import bisect
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence, Set
from dataclasses import fields, is_dataclass, replace
from functools import partial
from itertools import chain, pairwise
from typing import Any

from engine import Blocks, FidelityWarning, blocks
from engine.blocks import Cell, Code, Heading, Paragraph, Picture, Run, Table
from engine.mupdf import pymupdf
from plugins._pdf.text import tables, texts
from plugins._pdf.text.joining import Joiner, stripped
from plugins._pdf.text.lists import Entry, TextParagraph, lists, without_start
from plugins._pdf.text.page_parts import PageParts, Pictures, lines_of, read_page
from plugins._pdf.text.paragraphs import (
    Text,
    as_code,
    block_of,
    by_column,
    goes_on,
    is_code,
    is_running,
    starts,
    with_marks,
)
from plugins._pdf.text.tables import MARK, Item, in_rows
from plugins._pdf.text.text_layer import Layer, Scan, draw
from plugins._pdf.text.texts import Block, Line

_HEAD = 0.12  # of the height of a page, in which headers and footers stand
_REPEATED = 3  # pages with the same line at the same place
_DIGITS = re.compile(r"\d+")
_ROMAN = re.compile(r"\b[ivxlc]+\b")
_LARGER = 1.12  # than most of the text: the size of a heading
_MAX_HEADING = 200  # characters
_MAX_HEADING_LINES = 3
_LEVELS = 6
_LETTER = re.compile(r"[^\W\d_]{2}")
_NOT_IN_TITLE = re.compile(r"[\W_]+")
_COMPOUND = re.compile(r"[^\W\d_]+-[^\W\d_]+")
_COLUMN = 0.6  # of the width of the text on a page, which a column has at most
_MIN_MARGIN = 18.0  # points
_MAX_MARGIN = 0.25  # of the width or height of a page
_NEAR = 10.0  # points between the target of a link and a heading


def read(
    document: pymupdf.Document, recognize: Callable[[Iterable[Scan]], Iterable[Layer | None]] = lambda _images: ()
) -> Blocks:
    """The structure of a document. `recognize` finds the text that pages without text show.

    Issues warnings for what is not in it.
    """
    pictures = Pictures()
    source: Counter[str] = Counter()
    pages = []
    layers = []  # a page is valid as long as its document
    for page in document:
        texts.warn_losses(page, keeps_links=True)
        pages.append((page, read_page(page, pictures)))
    scans = [index for index, (_, parts) in enumerate(pages) if not parts.blocks]
    for index, layer in zip(scans, recognize(draw(pages[one][0]) for one in scans), strict=False):
        if layer is not None:
            layers.append(pymupdf.open(stream=layer.data, filetype="pdf"))
            if found := texts.styled_blocks(layers[-1][0]):
                pages[index] = layers[-1][0], PageParts(pages[index][1].box, found, [], [])
    for page, _ in pages:
        source += blocks.words([page.get_text("text", flags=texts.FLAGS)])
    if any(not parts.blocks and (parts.pictures or (not source and parts.drawn)) for _, parts in pages):
        FidelityWarning.issue(
            "no_text", "Pages show images or shapes, but have no text. OCR recognizes what they show."
        )
    return _Reader(document, pages).read(source)


class _Reader:
    """Makes blocks of the parts of pages."""

    def __init__(self, document: pymupdf.Document, pages: list[tuple[pymupdf.Page, PageParts]]) -> None:
        self._document = document
        self._pages = pages
        lines = [line for _, parts in pages for line in lines_of(parts.blocks)]
        sizes: Counter[float] = Counter()
        code = 0
        for line in lines:
            sizes[line.size] += len(line.text)
            code += len(line.text) if is_code(line) else 0
        self._usual = sizes.most_common(1)[0][0] if sizes else 1.0
        self._is_all_code = code > sizes.total() / 2
        compounds = frozenset(found.lower() for line in lines for found in _COMPOUND.findall(line.text))
        self._joiner = Joiner(compounds)
        self._left_out: Counter[str] = Counter()
        self._titles: dict[int, dict[str, int]] = {}
        for level, title, number, *_ in document.get_toc():
            self._titles.setdefault(number - 1, {}).setdefault(_normal(title), min(level, _LEVELS))
        self._headings: list[tuple[int, float, str]] = []

    def read(self, source: Counter[str]) -> Blocks:
        """The document. `source` are the words that it must have."""
        self._leave_out_repeated()
        parts: list[Text | Item] = []
        for number in range(len(self._pages)):
            placed = [*self._page_parts(number)]
            if parts and placed and (joined := _joined(parts[-1], placed[0])) is not None:
                parts[-1], repeated = joined
                self._left_out += blocks.words(cell.text for cell in repeated)
                del placed[0]
            parts += placed
        self._set_levels([one for one in parts if isinstance(one, Text)])
        content = _resolved(tuple(self._assembled(parts)), self._headings)
        found = blocks.words(blocks.plain_texts(content)) + self._left_out + self._joiner.divided
        if _letters(source - found) - _letters(found - source):  # otherwise words are only divided in another way
            blocks.warn_dropped_text(source, found)
        page_size, margins = self._paper()
        known = self._document.metadata or {}
        author, subject, keywords = (known.get(name) or "" for name in ("author", "subject", "keywords"))
        return Blocks(
            content,
            title=known.get("title") or "",
            authors=(author,) if author else (),
            subject=subject,
            keywords=tuple(filter(None, map(str.strip, keywords.split(",")))),
            language=self._language(),
            page_size=page_size,
            margins=margins,
            font_size=self._usual if self._pages and source else None,
        )

    def _paper(self) -> tuple[tuple[float, float] | None, tuple[float, float, float, float] | None]:
        """The size of most pages, and their margins: no wider below and on the right than on the other sides."""
        sizes = Counter((round(page.rect.width, 1), round(page.rect.height, 1)) for page, _ in self._pages)
        if not sizes or self._document.is_reflowable:
            return None, None
        width, height = size = sizes.most_common(1)[0][0]
        placed = [
            (box[0] - parts.box[0], box[1] - parts.box[1], box[2] - parts.box[0], box[3] - parts.box[1])
            for page, parts in self._pages
            if (round(page.rect.width, 1), round(page.rect.height, 1)) == size
            for box in (*(block.box for block in parts.blocks), *(picture.box for picture in parts.pictures))
        ]
        if not placed:
            return size, None
        left, top, right, bottom = tables.surrounding(placed)
        left = min(max(left, _MIN_MARGIN), width * _MAX_MARGIN)
        top = min(max(top, _MIN_MARGIN), height * _MAX_MARGIN)
        return size, (
            left,
            top,
            min(left, max(width - right, _MIN_MARGIN)),
            min(top, max(height - bottom, _MIN_MARGIN)),
        )

    def _language(self) -> str:
        catalog = self._document.pdf_catalog()
        if not catalog:  # no PDF, or a damaged one
            return ""
        kind, value = self._document.xref_get_key(catalog, "Lang")
        return value if kind == "string" else ""

    def _leave_out_repeated(self) -> None:
        """Removes headers, footers and page numbers: lines that several pages have at the same place."""
        places: dict[tuple[object, ...], list[tuple[int, Line]]] = {}
        for number, (_, parts) in enumerate(self._pages):
            _, top, _, bottom = parts.box
            edge = (bottom - top) * _HEAD
            for line in lines_of(parts.blocks):
                is_outside = line.box[3] < top + edge or line.box[1] > bottom - edge
                if is_outside and line.size <= self._usual * _LARGER:
                    for key in _repeatable(line.text.strip(), number):
                        places.setdefault((*key, round(line.box[1] / 4)), []).append((number, line))
        repeated = [found for found in places.values() if len({number for number, _ in found}) >= _REPEATED]
        removed = {id(line) for found in repeated for _, line in found}
        for _, parts in self._pages:
            removed -= tables.heads(lines_of(parts.blocks), removed)
        if not removed:
            return
        for _, parts in self._pages:
            for index, block in enumerate(parts.blocks):
                kept = tuple(line for line in block.lines if id(line) not in removed)
                if len(kept) < len(block.lines):
                    self._left_out += blocks.words(line.text for line in block.lines if id(line) in removed)
                    parts.blocks[index] = block_of(kept)
            parts.blocks = [block for block in parts.blocks if block.lines]

    def _page_parts(self, number: int) -> Iterator[Text | Item]:
        """The paragraphs, tables and pictures of a page in reading order."""
        page, parts = self._pages[number]
        lines = lines_of(parts.blocks)
        split = partial(_words, page)
        found = tables.ruled(parts.drawn, lines, split, self._joiner)
        kept = {id(line) for line in lines}
        for candidates in self._zones(parts.blocks, kept):
            for item, used in tables.aligned(candidates, split, self._joiner):
                found.append(item)
                kept.difference_update(map(id, used))
        rest = [block_of(tuple(line for line in block.lines if id(line) in kept)) for block in parts.blocks]
        placed: list[Block | Item] = [block for block in with_marks(rest) if block.lines]
        placed += found
        placed += parts.pictures
        if not self._document.is_reflowable:
            placed = texts.in_reading_order(placed)
        for column in by_column(placed):
            left = min(one.box[0] for one in column)
            for one in column:
                yield from [one] if isinstance(one, Item) else self._paragraphs(one, number, left)

    def _zones(self, found: Sequence[Block], kept: Set[int]) -> list[list[Line]]:
        """The lines in which tables are searched, for each column of running text on their own."""
        running = [block for block in found if is_running(block)]
        others = [line for block in found if not is_running(block) for line in block.lines if id(line) in kept]
        others = [line for line in others if self._is_all_code or not is_code(line)]
        width = max((block.box[2] for block in found), default=0) - min((block.box[0] for block in found), default=0)
        narrow = [block for block in running if block.box[2] - block.box[0] < _COLUMN * width]
        middles = [
            (max(block.box[2] for block in left) + min(block.box[0] for block in right)) / 2
            for left, right in pairwise(texts.split(narrow, 0, 0))
        ]
        zones: dict[tuple[int, int], list[Line]] = {}
        for line in others:
            zones.setdefault((bisect(middles, line.box[0]), bisect(middles, line.box[2])), []).append(line)
        return [*zones.values()]

    def _paragraphs(self, block: Block, page: int, column: float) -> Iterator[Text | Item]:
        """The paragraphs of a block of lines."""
        lines = in_rows(block.lines)
        if not self._is_all_code and all(map(is_code, lines)):
            yield Item(block.box, Code(as_code(lines)))
            return
        left, _, right, _ = block.box
        current: Text | None = None
        for index, line in enumerate(lines):
            mark = MARK.match(line.text.lstrip())
            following = lines[index + 1] if index + 1 < len(lines) else None
            if current is None or starts(current, line, following, left, mark):
                if current is not None:
                    yield current
                current = Text([line], page, right, column, mark)
            else:
                current.lines.append(line)
        if current is not None:
            yield current

    def _set_levels(self, found: Sequence[Text]) -> None:
        """Sets the levels of headings: those of the outline, or by the order of their sizes."""
        styles: dict[tuple[float, bool], Counter[int]] = {}
        candidates = []
        for text in found:
            style = text.size, text.is_bold
            level = self._titles.get(text.page, {}).get(_normal(text.text), 0)
            if level:
                text.level = level
                styles.setdefault(style, Counter())[level] += 1
            elif self._looks_like_heading(text):
                candidates.append(text)
        known = {style: levels.most_common(1)[0][0] for style, levels in styles.items()}
        sizes = sorted({(text.size, text.is_bold) for text in candidates} - known.keys(), reverse=True)
        for style in sizes:
            larger = [level for other, level in known.items() if other > style]
            known[style] = min(max(larger, default=0) + 1, _LEVELS)
        for text in candidates:
            text.level = known[text.size, text.is_bold]

    def _looks_like_heading(self, text: Text) -> bool:
        content = text.text
        if len(text.lines) > _MAX_HEADING_LINES or len(content) > _MAX_HEADING or not _LETTER.search(content):
            return False
        if text.mark and text.mark["bullet"]:
            return False
        if text.size >= self._usual * _LARGER:
            return True
        is_apart = text.is_bold and text.size >= self._usual * 0.98 and not content.endswith((".", ",", ";", ":"))
        return is_apart and len(text.lines) == 1

    def _assembled(self, parts: Sequence[Text | Item]) -> Iterator[blocks.Block]:
        """The blocks, with paragraphs that go on over columns and pages as one."""
        done: list[TextParagraph | Entry | blocks.Block] = []
        for part in parts:
            if isinstance(part, Item):
                done.append(part.block)
            elif part.level:
                done.append(self._heading(part))
            elif self._is_note(part, done):
                continue
            else:
                self._add(done, part)
        entries: list[Entry] = []
        for one in done:
            if isinstance(one, Entry):
                entries.append(one)
                continue
            yield from lists(entries, self._left_out)
            entries = []
            yield Paragraph(stripped(one.runs)) if isinstance(one, TextParagraph) else one
        yield from lists(entries, self._left_out)

    def _is_note(self, text: Text, done: Sequence[TextParagraph | Entry | blocks.Block]) -> bool:
        """Whether a text is a note at the end of its page, which then replaces its mark in a paragraph."""
        number = text.lines[0].runs[0]
        mark = number.text.strip()
        if not (number.position and mark) or text.size >= self._usual:
            return False
        for one in reversed(done):
            if isinstance(one, TextParagraph):
                if one.last.page < text.page:
                    return False
                for index, run in enumerate(one.runs):
                    if run.position and run.text.strip() == mark:
                        rest = without_start([*self._joiner.join(text.lines, text.right)], len(mark))
                        self._left_out += blocks.words([mark, mark])
                        one.runs[index] = Run(note=(Paragraph(stripped([*self._plain(rest)])),))
                        return True
        return False

    def _heading(self, text: Text) -> Heading:
        runs = self._joiner.join(text.lines)
        is_bold = text.is_bold
        runs = blocks.merged(replace(run, bold=run.bold and not is_bold) for run in self._plain(runs))
        anchor = f"heading-{len(self._headings) + 1}"
        self._headings.append((text.page, text.box[1], anchor))
        return Heading(text.level, runs, anchor)

    def _add(self, done: list[TextParagraph | Entry | blocks.Block], text: Text) -> None:
        """Adds a paragraph, the entry of a list, or the rest of one of them."""
        before = next((one for one in reversed(done) if not _is_float(one)), None)
        if isinstance(before, TextParagraph | Entry) and text.mark is None and goes_on(before.last, text):
            self._joiner.append(before.runs, self._joiner.join(text.lines, text.right), " ")
            before.last = text
            return
        runs = [*self._plain(self._joiner.join(text.lines, text.right))]
        last = done[-1] if done else None
        if text.mark is not None:
            mark = text.mark[0].strip()
            rest = without_start(runs, len(text.mark[0]))
            done.append(Entry(rest, text, mark, text.mark["number"] is not None, text.indent))
        elif isinstance(last, Entry) and last.has_below(text):
            last.more.append(Paragraph(tuple(runs)))
        else:
            done.append(TextParagraph(runs, text))

    def _plain(self, runs: Iterable[Run]) -> Iterator[Run]:
        """The runs, without the style of code where most of the document has it."""
        return (replace(run, code=False) if self._is_all_code else run for run in runs)


def _repeatable(text: str, page: int) -> Iterator[tuple[object, ...]]:
    """What headers and footers have in common: their text, but for a number that grows as that of the page does."""
    numbers = [*map(int, _DIGITS.findall(text))]
    yield text if numbers else _ROMAN.sub("#", text), ""
    for index, number in enumerate(numbers):
        yield _DIGITS.sub("#", text), index, number - page


def _letters(words: Counter[str]) -> Counter[str]:
    """How often each character stands in words."""
    return Counter(chain.from_iterable(words.elements()))


def _normal(text: str) -> str:
    return _NOT_IN_TITLE.sub("", text.lower())


def _words(page: pymupdf.Page, line: Line) -> list[Line]:
    """The words of a line, each in the style in which the line begins. The line itself if it is not level."""
    left, top, right, bottom = line.box
    found = page.get_text("words", clip=(left - 1, top - 1, right + 1, bottom + 1))
    inside = [one for one in found if top < (one[1] + one[3]) / 2 < bottom]
    if "".join(one[4] for one in inside) != "".join(line.text.split()):
        return [line]
    return [Line(one[:4], (replace(line.runs[0], text=one[4]),), line.size) for one in inside]


def _joined(above: Text | Item, below: Text | Item) -> tuple[Item, tuple[Cell, ...]] | None:
    """A table that goes on on the next page, where its head is repeated, and that head. None for anything else."""
    first, rest = (one.block if isinstance(one, Item) else None for one in (above, below))
    if not isinstance(first, Table) or not isinstance(rest, Table) or first.rows[0] != rest.rows[0]:
        return None
    head = first.rows[0]
    return Item(below.box, replace(first, rows=[*first.rows, *rest.rows[1:]])), head


def _is_float(one: object) -> bool:
    """Whether it is a table or a picture, which can stand in the middle of a paragraph."""
    return isinstance(one, Table | Paragraph)


def _resolved(content: tuple[blocks.Block, ...], headings: Sequence[tuple[int, float, str]]) -> Any:
    """The blocks, with links to places on pages as links to the heading there. Other headings lose their anchor."""
    anchors: dict[str, str] = {"": ""}
    for run in blocks.runs_of(content):
        if run.link.startswith("#"):
            page, _, height = run.link[1:].partition(":")
            place = int(page), float(height) - _NEAR
            below = (anchor for *at, anchor in headings if tuple(at) >= place and at[0] == place[0])
            above = [anchor for *at, anchor in headings if tuple(at) < place]
            found = next(below, above[-1] if above else "")
            anchors[run.link] = f"#{found}" if found else ""
    linked = {link[1:] for link in anchors.values()}

    def resolve(value: Any) -> Any:
        if isinstance(value, tuple | list):
            return type(value)(map(resolve, value))
        if isinstance(value, Run):
            return replace(value, link=anchors.get(value.link, value.link))
        if not is_dataclass(value) or isinstance(value, Picture | type):
            return value
        if isinstance(value, Heading):
            value = replace(value, anchor=value.anchor if value.anchor in linked else "")
        return replace(value, **{one.name: resolve(getattr(value, one.name)) for one in fields(value)})

    return resolve(content)
