"""Slides of PPTX: a heading, the text, lists, tables and pictures of each, and what the speaker says about it."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from io import BytesIO
from itertools import chain
from types import MappingProxyType
from typing import Any, Literal, TypeAlias

from lxml import etree
from pptx.opc.constants import RELATIONSHIP_TYPE
from pptx.oxml.ns import qn
from pptx.package import Package

from engine import Blocks, CorruptInput, FidelityWarning, blocks
from engine.blocks import Block, Break, Cell, Heading, ItemList, ListItem, Paragraph, Picture, Quote, Run, Table, merged

_COMPATIBILITY = "{http://schemas.openxmlformats.org/markup-compatibility/2006}"
_MATH = "{http://schemas.openxmlformats.org/officeDocument/2006/math}"
_DIAGRAM = "{http://schemas.openxmlformats.org/drawingml/2006/diagram}"
_EMU = 12_700  # in a point
_TITLES = ("title", "ctrTitle")
_REPEATED = ("dt", "ftr", "hdr", "sldNum")  # placeholders that are the same on all slides
_BODY = ("body", "obj", "subTitle", "")
_TEXTS = (qn("a:t"), f"{_MATH}t")
_BREAK = qn("a:br")
_LEVELS = 9
_NAMED = 10  # slides in a warning
_NUMBERS: Mapping[str, Literal["1", "a", "A", "i", "I"]] = MappingProxyType(
    {"alphaLc": "a", "alphaUc": "A", "romanLc": "i", "romanUc": "I"}
)
_BULLETS = ("buNone", "buChar", "buAutoNum", "buBlip")

_Mark: TypeAlias = tuple[Literal["bullets", "numbers"], Literal["1", "a", "A", "i", "I"], int]
"""Kind, style and first number of a list."""


def read(data: bytes, *, notes: bool) -> Blocks:
    """A heading and the content of each slide that is not hidden, with page breaks between them.

    Headers and footers are left out. Raises CorruptInput.
    """
    main = Package.open(BytesIO(data)).main_document_part
    presentation = getattr(main, "presentation", None)
    if presentation is None:
        raise CorruptInput("The file has no slides.")
    slides = [*presentation.slides]
    numbers = {slide.part.partname: number for number, slide in enumerate(slides, 1)}
    shown = [slide for slide in slides if slide.element.get("show") not in ("0", "false")]
    if shown and len(shown) < len(slides):
        hidden = [str(number) for number, slide in enumerate(slides, 1) if slide not in shown]
        message = f"Hidden slides are not in the result: {', '.join(hidden[:_NAMED])}."
        FidelityWarning.issue("pages_dropped", message)
    content: list[Block] = []
    words: Counter[str] = Counter()
    for slide in shown or slides:
        reader = _SlideReader(slide, numbers)
        content += [*([Break()] if content else []), *reader.blocks(notes=notes)]
        words += reader.words(notes=notes)
    blocks.warn_dropped_text(words, blocks.words(blocks.plain_texts(content)))
    known = presentation.core_properties
    return Blocks(
        tuple(content),
        title=known.title,
        authors=(known.author,) if known.author else (),
        subject=known.subject,
        keywords=tuple(filter(None, re.split(r"\s*[,;]\s*", known.keywords))),
        language=known.language,
    )


@dataclass(frozen=True)
class _Line:
    """A paragraph of a box, its level from 0, and the mark before it."""

    runs: tuple[Run, ...]
    level: int
    mark: _Mark | None


class _SlideReader:
    """Reads a slide. `numbers` are those of all slides by the names of their parts, for links to them."""

    def __init__(self, slide: Any, numbers: Mapping[str, int]) -> None:
        self._slide = slide
        self._part = slide.part
        self._numbers = numbers
        self._layouts = [slide.slide_layout.element, slide.slide_layout.slide_master.element]
        _write_number(slide, str(numbers[self._part.partname]))

    def words(self, *, notes: bool) -> Counter[str]:
        """The words of the slide, with those of diagrams and charts, and of the notes."""
        parts = [self._part, *(self._part.notes_slide.part for _ in range(notes and self._slide.has_notes_slide))]
        parts += (
            relation.target_part
            for relation in self._part.rels.values()
            if relation.reltype in (RELATIONSHIP_TYPE.DIAGRAM_DATA, RELATIONSHIP_TYPE.CHART)
        )
        texts: list[str] = []
        for part in parts:
            root = etree.fromstring(part.blob, etree.XMLParser(resolve_entities=False, no_network=True))
            etree.strip_elements(root, f"{_COMPATIBILITY}Fallback", with_tail=False)
            for shape in [*root.iter(qn("p:sp"))]:
                if _placeholder(shape) in (*_REPEATED, "sldImg"):
                    shape.clear()
            texts += map(_text, root.iter(qn("a:p")))
            texts += (one.text or "" for cache in root.iter(qn("c:strCache")) for one in cache.iter(qn("c:v")))
        return blocks.words(texts)

    def blocks(self, *, notes: bool) -> Iterator[Block]:
        """Yields the title, what is on the slide in the order in which it is read aloud, and the notes."""
        shapes = [*self._shapes(self._slide.element.cSld.spTree)]
        titles = [shape for shape in shapes if _placeholder(shape) in _TITLES]
        anchor = f"slide-{self._numbers[self._part.partname]}"
        for title in titles:
            lines = enumerate(self._lines(title))
            runs = merged(run for number, line in lines for run in (Run("\n" * (number > 0)), *line.runs))
            if runs:
                yield Heading(1, runs, anchor)
                anchor = ""
        for shape in shapes:
            if shape not in titles:
                yield from self._shape(shape)
        if notes and self._slide.has_notes_slide:
            said = [*_SlideNotes(self._slide, self._numbers).blocks(notes=False)]
            if said:
                yield Quote(tuple(said), "note")

    def _shapes(self, tree: Any) -> Iterator[Any]:
        """Yields the shapes of a tree and of the groups in it, of alternatives the one that has text."""
        for shape in tree:
            if shape.tag == f"{_COMPATIBILITY}AlternateContent":
                with_text = (one for one in shape if next(one.iter(*_TEXTS), None) is not None)
                yield from self._shapes(next(chain(with_text, reversed(shape)), ()))
            elif shape.tag == qn("p:grpSp"):
                yield from self._shapes(shape)
            elif shape.tag in (qn("p:sp"), qn("p:cxnSp"), qn("p:pic"), qn("p:graphicFrame")):
                yield shape

    def _shape(self, shape: Any) -> Iterator[Block]:
        for picture in shape.iter(qn("p:pic")):
            yield from self._picture(picture)
        table = next(shape.iter(qn("a:tbl")), None)
        diagram = next(shape.iter(f"{_DIAGRAM}relIds"), None)
        if table is not None:
            yield self._table(table)
        elif diagram is not None and (name := diagram.get(qn("r:dm"))) in self._part.rels:
            data = etree.fromstring(self._part.related_part(name).blob, etree.XMLParser(resolve_entities=False))
            lines = (merged([Run(_text(paragraph))]) for paragraph in data.iter(qn("a:p")))
            if items := tuple(ListItem((Paragraph(runs),)) for runs in lines if runs):
                yield ItemList(items)
        elif shape.tag != qn("p:pic") and _placeholder(shape) not in _REPEATED:
            yield from _listed([*self._lines(shape)])

    def _picture(self, element: Any) -> Iterator[Block]:
        """The picture, with a link if it has one. Of one in vectors, the picture in pixels that stands for it."""
        blip = next(element.iter(qn("a:blip")), None)
        name = None if blip is None else blip.get(qn("r:embed"))
        if name is None or name not in self._part.rels:
            return
        part = self._part.related_part(name)
        known = next(element.iter(qn("p:cNvPr")))
        size = element.find(f"{qn('p:spPr')}/{qn('a:xfrm')}/{qn('a:ext')}")
        width, height = (None, None) if size is None else (int(size.get(side)) / _EMU for side in ("cx", "cy"))
        kind = part.content_type.replace("image/jpg", "image/jpeg")
        picture = Picture(part.blob, kind, known.get("descr") or "", width, height)
        yield Paragraph((Run(picture=picture, link=self._link(known)),))

    def _table(self, table: Any) -> Table:
        rows = [
            tuple(
                Cell(
                    _plain(_listed([*self._lines(cell)])),
                    colspan=int(cell.get("gridSpan", "1")),
                    rowspan=int(cell.get("rowSpan", "1")),
                )
                for cell in row.iterchildren(qn("a:tc"))
                if not {cell.get("hMerge"), cell.get("vMerge")} & {"1", "true"}
            )
            for row in table.iterchildren(qn("a:tr"))
        ]
        properties = table.find(qn("a:tblPr"))
        has_head = properties is not None and properties.get("firstRow") in ("1", "true")
        return Table(rows, header_rows=int(has_head and bool(rows)))

    def _lines(self, shape: Any) -> Iterator[_Line]:
        """Yields the paragraphs of a shape or cell that have text."""
        body = next(shape.iterchildren(qn("p:txBody"), qn("a:txBody")), None)
        if body is None:
            return
        styles = [body.find(qn("a:lstStyle")), *self._styles(shape)]
        for paragraph in body.iterchildren(qn("a:p")):
            runs = _stripped(merged(self._runs(paragraph)))
            if runs:
                properties = paragraph.find(qn("a:pPr"))
                level = 0 if properties is None else min(int(properties.get("lvl", "0")), _LEVELS - 1)
                named = (one.find(qn(f"a:lvl{level + 1}pPr")) for one in styles if one is not None)
                yield _Line(runs, level, _mark([properties, *named]))

    def _styles(self, shape: Any) -> list[Any]:
        """The styles of lists that a placeholder inherits from its layout and the master."""
        kind = _placeholder(shape)
        if kind is None:
            return []
        index = next(shape.iter(qn("p:ph"))).get("idx", "0")
        same = (
            next((one for one in layout.iter(qn("p:sp")) if _matches(one, kind, index)), None)
            for layout in self._layouts
        )
        styles = [next(one.iter(qn("a:lstStyle")), None) for one in same if one is not None]
        general = "bodyStyle" if kind in _BODY else "otherStyle"
        return [*styles, next(self._layouts[-1].iter(qn(f"p:{general}")), None)] if self._layouts else styles

    def _runs(self, paragraph: Any) -> Iterator[Run]:
        for child in paragraph:
            properties = child.find(qn("a:rPr"))
            if child.tag == _BREAK:
                yield Run("\n")
            elif properties is None:
                yield Run(_text(child))
            else:
                raised = int(properties.get("baseline", "0").removesuffix("%") or 0)
                yield Run(
                    _text(child),
                    bold=properties.get("b") in ("1", "true"),
                    italic=properties.get("i") in ("1", "true"),
                    underline=properties.get("u", "none") != "none" and properties.find(qn("a:hlinkClick")) is None,
                    strike=properties.get("strike", "noStrike") != "noStrike",
                    position="superscript" if raised > 0 else "subscript" if raised < 0 else "",
                    link=self._link(properties),
                )

    def _link(self, element: Any) -> str:
        """Where a click on text or a shape leads: a URL or another slide."""
        click = element.find(qn("a:hlinkClick"))
        name = None if click is None else click.get(qn("r:id"))
        if not name or name not in self._part.rels:
            return ""
        relation = self._part.rels[name]
        if relation.is_external:
            return str(relation.target_ref)
        number = self._numbers.get(relation.target_part.partname)
        return f"#slide-{number}" if number else ""


class _SlideNotes(_SlideReader):
    """Reads the notes of a slide."""

    def __init__(self, slide: Any, numbers: Mapping[str, int]) -> None:
        self._slide = slide.notes_slide
        self._part = self._slide.part
        self._numbers = numbers
        self._layouts = []
        _write_number(self._slide, "")

    def blocks(self, *, notes: bool) -> Iterator[Block]:
        """Yields the text, without the picture of the slide."""
        for shape in self._shapes(self._slide.element.cSld.spTree):
            if _placeholder(shape) != "sldImg":
                yield from self._shape(shape)


def _write_number(slide: Any, number: str) -> None:
    """Writes the number of a slide into its fields, for which LibreOffice writes a word."""
    for one in slide.element.iter(qn("a:fld")):
        if one.get("type") == "slidenum":
            for text in one.iter(qn("a:t")):
                text.text = number


def _placeholder(shape: Any) -> str | None:
    """The type of a placeholder, empty if it can have any content; None for another shape."""
    found = shape.find(f"*/{qn('p:nvPr')}/{qn('p:ph')}")
    return None if found is None else str(found.get("type", ""))


def _matches(shape: Any, kind: str, index: str) -> bool:
    """Whether a placeholder of a layout, by its number, or of a master, by its type, is that of a slide."""
    own = _placeholder(shape)
    if own is None:
        return False
    return shape.find(f"*/{qn('p:nvPr')}/{qn('p:ph')}").get("idx", "0") == index or (kind in _BODY and own == "body")


def _mark(properties: Iterable[Any]) -> _Mark | None:
    """The bullet or number before a paragraph, by the first of the properties that say something about it."""
    for one in properties:
        bullet = None if one is None else next(one.iterchildren(*(qn(f"a:{name}") for name in _BULLETS)), None)
        if bullet is None:
            continue
        if bullet.tag == qn("a:buNone"):
            return None
        if bullet.tag != qn("a:buAutoNum"):
            return "bullets", "1", 1
        kind = re.split(r"Paren|Period|Plain", bullet.get("type", ""))[0]
        return "numbers", _NUMBERS.get(kind, "1"), int(bullet.get("startAt", "1"))
    return None


def _listed(lines: Sequence[_Line]) -> tuple[Block, ...]:
    """Paragraphs and lists. Lines of a deeper level, also those without a mark, belong to the entry before them."""
    made: list[Block] = []
    position = 0
    while position < len(lines):
        first = lines[position]
        position += 1
        if first.mark is None:
            made.append(Paragraph(first.runs))
            continue
        items: list[ListItem] = []
        line: _Line | None = first
        while line is not None:
            start = position
            while position < len(lines) and lines[position].level > line.level:
                position += 1
            items.append(ListItem((Paragraph(line.runs), *_listed(lines[start:position]))))
            following = lines[position] if position < len(lines) else None
            line = following if following and (following.level, following.mark) == (first.level, first.mark) else None
            position += line is not None
        kind, style, number = first.mark
        made.append(ItemList(tuple(items), kind=kind, style=style, start=number))
    return tuple(made)


def _plain(content: tuple[Block, ...]) -> tuple[Block, ...] | str:
    """The content of a cell, as a text where it is no more than that."""
    if not content:
        return ""
    first = content[0]
    if len(content) > 1 or not isinstance(first, Paragraph) or any(run != Run(run.text) for run in first.runs):
        return content
    return "".join(run.text for run in first.runs)


def _stripped(runs: tuple[Run, ...]) -> tuple[Run, ...]:
    """The runs, or none if they are blank."""
    return runs if any(run.text.strip() for run in runs) else ()


def _text(element: Any) -> str:
    """The text of a paragraph or of a part of it. PowerPoint writes a line break in a title as a vertical tab."""
    if element.tag in _TEXTS:
        return element.text or ""
    texts = ((one.text or "") if one.tag in _TEXTS else "\n" for one in element.iter(*_TEXTS, _BREAK))
    return "".join(texts).replace("\v", "\n")
