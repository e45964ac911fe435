"""Writes the structure of a document as the Markdown of GitHub, with notes, formulas and lists of definitions."""

from __future__ import annotations

import html
import json
import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from operator import attrgetter
from types import MappingProxyType

from engine import Blocks, blocks
from engine.blocks import Block, Cell, Code, Heading, ItemList, ListItem, Paragraph, Quote, Run, Table
from plugins._blocks.writing import Notes, Pictures, is_tight, safe_link, slug_of

_MARKERS = MappingProxyType({"bold": ("**", "strong"), "italic": ("_", "em"), "strike": ("~~", "del")})
_TAGS = MappingProxyType({"inserted": "ins", "deleted": "del", "superscript": "sup", "subscript": "sub"})
_STYLES = ("link", "change", "bold", "italic", "strike", "underline", "position")
"""Fields of runs, in the order in which their markup is nested, the outermost first."""
_SPECIAL = re.compile(r"[\\`*\[\]<$|]|(?<!/)~|_(?!(?<=[^\W_]_)[^\W_])|&(?=#?\w+;)")
_LINE_START = re.compile(
    r"^(?P<before>\d{1,9}(?=[.)](?:\s|$))|\[\^\d+\](?=:)|(?=#{1,6}(?:\s|$)|[-+:](?:\s|$)|[-=]+$|>))", re.MULTILINE
)
_LINE_END = re.compile(r"[ \t]*\n[ \t]*")
_BREAK = re.compile(r"(?<!\$\$)\n(?!\$\$)")  # but not beside a formula on a line of its own
_FENCE = re.compile(r"^ {0,3}(`{3,})", re.MULTILINE)
_TICKS = re.compile(r"`+")
_LAST_MARK = re.compile(r"#+$")
_IN_URL = re.compile(r"[\s<>()|\\]")
_ABSOLUTE = re.compile(r"[a-z][a-z0-9+.-]+:[^\s<>\"]+", re.IGNORECASE)
_ALIGNMENTS = MappingProxyType({"": "---", "left": ":--", "center": ":-:", "right": "--:"})
_RULE = "___"  # in a list, the others could be entries
_INDENT = "    "


@dataclass(frozen=True)
class _Marked:
    """Text between two marks, or in an element of HTML where the marks would not be read as such."""

    text: str
    mark: str
    tag: str


_Piece = str | _Marked


def write(document: Blocks, pictures: Pictures) -> str:
    """The document, after what it says of itself in front matter."""
    known = {
        "title": document.title,
        "author": document.authors[0] if len(document.authors) == 1 else document.authors,
        "subject": document.subject,
        "keywords": document.keywords,
        "date": document.date,
        "lang": document.language,
    }
    lines = [f"{name}: {json.dumps(value, ensure_ascii=False)}" for name, value in known.items() if value]
    parts = ["\n".join(("---", *lines, "---"))] if lines else []
    writer = _Writer(document.content, pictures)
    parts += writer.parts(document.content)
    parts += writer.notes()
    return "\n\n".join(parts) + "\n"


class _Writer:
    def __init__(self, content: Sequence[Block], pictures: Pictures) -> None:
        self._pictures = pictures
        self._notes = Notes()
        texts = [block for block in content if not (isinstance(block, Table) and block.name)]  # sheets have no anchors
        self._anchors = _slugs(texts)
        self._targets = {run.link[1:] for run in blocks.runs_of(texts) if run.link.startswith("#")}

    def parts(self, content: Iterable[Block]) -> Iterator[str]:
        """Each block that is not empty. A list that follows one of its kind has another mark, which separates them."""
        last: ItemList | None = None
        is_other = False
        for block in content:
            if isinstance(block, ItemList):
                is_other = last is not None and last.kind == block.kind and not is_other
            text = self._block(block, is_other=is_other)
            if text:
                last = block if isinstance(block, ItemList) else None
                yield text

    def notes(self) -> Iterator[str]:
        """The notes of what has been written."""
        for number, content in self._notes:
            yield _indented("\n\n".join(self.parts(content)), f"[^{number}]: ", _INDENT)

    def _block(self, block: Block, *, is_other: bool) -> str:
        match block:
            case Paragraph(runs):
                return self._lines(runs)
            case Heading(level, runs):
                text = _LAST_MARK.sub(r"\\\g<0>", self._one_line(runs))
                return f"{'#' * level} {text}" if text else ""
            case ItemList():
                return self._list(block, is_other=is_other)
            case Table():
                return self._table(block)
            case Quote(content, kind):
                text = "\n\n".join(self.parts(content))
                text = f"[!{kind.upper()}]\n{text}" if kind else text
                return _indented(text, "> ", "> ", blank=">") if text else ""
            case Code(text, language):
                fence = "`" * max(3, *(len(found) + 1 for found in _FENCE.findall(text)), 0)
                return f"{fence}{language}\n{text.rstrip(chr(10))}\n{fence}"
            case blocks.Break(kind):
                return _RULE if kind == "rule" else ""

    def _list(self, items: ItemList, *, is_other: bool) -> str:
        if items.kind == "definitions":
            if not all(len(item.blocks) == 1 and isinstance(item.blocks[0], Paragraph) for item in items.items):
                return self._definition_elements(items)
            return "\n\n".join(self._definition(item, index) for index, item in enumerate(items.items))
        separator = "\n" if is_tight(items) else "\n\n"
        texts = []
        for number, item in enumerate(items.items, max(items.start, 0)):
            bullet = "*" if is_other else "-"
            mark = f"{number}{')' if is_other else '.'} " if items.kind == "numbers" else f"{bullet} "
            box = "" if item.checked is None else f"[{'x' if item.checked else ' '}] "
            texts.append(_indented(box + separator.join(self.parts(item.blocks)), mark, " " * len(mark)))
        return separator.join(texts)

    def _definition(self, item: ListItem, index: int) -> str:
        """What an entry defines, unless it is the same as of the one before, and its text."""
        term = _LINE_START.sub(r"\g<before>\\", self._one_line(item.term))
        above = f"{term or '&nbsp;'}\n" if term or not index else ""
        return above + _indented("\n\n".join(self.parts(item.blocks)) or "&nbsp;", ":   ", _INDENT)

    def _definition_elements(self, items: ItemList) -> str:
        """As elements of HTML: GitHub would show the indented blocks of definitions as code."""
        lines = ["<dl>"]
        for item in items.items:
            lines += [f"<dt>\n\n{self._lines(item.term)}\n\n</dt>"] if item.term else []
            lines += ["\n\n".join(("<dd>", *self.parts(item.blocks), "</dd>"))] if item.blocks else []
        return "\n".join((*lines, "</dl>"))

    def _table(self, table: Table) -> str:
        caption = self._lines(table.caption) or (f"## {_escaped(table.name)}" if table.name else "")
        is_plain = table.header_rows <= 1 and all(_is_line(cell) for row in table.rows for cell in row)
        text = self._pipes(table) if is_plain else self._elements(table)
        return f"{caption}\n\n{text}".strip("\n")

    def _pipes(self, table: Table) -> str:
        width = max(map(len, table.rows), default=0)
        if not width:
            return ""
        head, body = (table.rows[0], table.rows[1:]) if table.header_rows else ((), table.rows)
        first = table.rows[0]
        marks = [_ALIGNMENTS[first[column].align] if column < len(first) else "---" for column in range(width)]
        lines = [_row(self._line(head), width), f"| {' | '.join(marks)} |"]
        lines += (_row(self._line(row), width) for row in body)
        return "\n".join(lines)

    def _line(self, row: Iterable[Cell]) -> list[str]:
        return [
            _escaped(cell.content).replace("\n", "<br>")
            if isinstance(cell.content, str) and not cell.link
            else "<br>".join(
                self._inline(block.runs, in_cell=True) for block in cell.blocks if isinstance(block, Paragraph)
            )
            for cell in row
        ]

    def _elements(self, table: Table) -> str:
        """A table as HTML, in which lines that are blank surround Markdown."""
        lines = ["<table>"]
        for number, row in enumerate(table.rows):
            name = "th" if number < table.header_rows else "td"
            lines.append("<tr>")
            for cell in row:
                spans = "".join(
                    f' {span}="{getattr(cell, span)}"' for span in ("colspan", "rowspan") if getattr(cell, span) > 1
                )
                align = f' align="{cell.align}"' if cell.align else ""
                plain = _plain_text(cell)
                if plain is None:
                    content = "\n\n".join(("", *self.parts(cell.blocks), ""))
                else:
                    content = html.escape(plain, quote=False).replace("\n", "<br>")
                lines.append(f"<{name}{spans}{align}>{content}</{name}>")
            lines.append("</tr>")
        return "\n".join((*lines, "</table>"))

    def _lines(self, runs: tuple[Run, ...]) -> str:
        """The runs of a paragraph; a backslash ends a line that another one follows."""
        text = _LINE_END.sub("\n", self._inline(runs).strip())
        return _BREAK.sub(r"\\\n", _LINE_START.sub(r"\g<before>\\", text))

    def _one_line(self, runs: tuple[Run, ...]) -> str:
        return _LINE_END.sub(" ", self._inline(runs).strip())

    def _inline(self, runs: Iterable[Run], *, in_cell: bool = False) -> str:
        return _joined(self._styled(blocks.merged(runs), _STYLES, in_cell=in_cell))

    def _styled(self, runs: Sequence[Run], styles: Sequence[str], *, in_cell: bool) -> list[_Piece]:
        if not styles:
            return [self._run(run, in_cell=in_cell) for run in runs]
        style, *inner = styles
        pieces: list[_Piece] = []
        for value, group in groupby(runs, key=attrgetter(style)):
            found = self._styled([*group], inner, in_cell=in_cell)
            pieces += self._wrapped(style, value, found) if value else found
        return pieces

    def _wrapped(self, style: str, value: str | bool, pieces: Sequence[_Piece]) -> list[_Piece]:
        """What a style makes of its text, with the spaces around it outside."""
        whole = _joined(pieces)
        text = whole.strip()
        if not text:
            return [whole]
        start = whole.index(text[0])
        before, after = whole[:start], whole[start + len(text) :]
        if style == "link":
            return [before, self._link(str(value), text), after]
        if style in _MARKERS:
            return [before, _Marked(text, *_MARKERS[style]), after]
        tag = _TAGS[str(value)] if value in _TAGS else "u"
        return [before, f"<{tag}>{text}</{tag}>", after]

    def _link(self, link: str, text: str) -> str:
        link = safe_link(f"#{self._anchors.get(link[1:], link[1:])}" if link.startswith("#") else link)
        if not link:
            return text
        if _ABSOLUTE.fullmatch(link) and text in (_escaped(link), _escaped(link.removeprefix("mailto:"))):
            return f"<{link.removeprefix('mailto:')}>"
        return f"[{text}]({_url(link)})"

    def _run(self, run: Run, *, in_cell: bool) -> str:
        if run.anchor:
            mark = f'<a id="{html.escape(run.anchor)}"></a>' if run.anchor in self._targets else ""
            return mark + self._run(replace(run, anchor=""), in_cell=in_cell)
        if run.note:
            return f"[^{self._notes.number(run)}]"
        if run.picture:
            source = self._pictures.source(run.picture)
            alt = _escaped(" ".join(run.picture.alt.split()))
            return f"![{alt}]({_url(source)})" if source else alt
        if run.formula:
            return _formula(run, in_cell=in_cell)
        if run.code and run.text.strip():
            text = " ".join(run.text.splitlines())
            return _code(text.replace("|", "\\|") if in_cell else text)
        return _escaped(run.text).replace("\n", "<br>" if in_cell else "\n")


def _slugs(content: Sequence[Block]) -> dict[str, str]:
    """The names that GitHub gives headings, by their anchors."""
    found: dict[str, str] = {}
    counts: Counter[str] = Counter()
    for block in blocks.walk(content):
        if isinstance(block, Heading):
            slug = slug_of(block)
            number = counts[slug]
            counts[slug] += 1
            if block.anchor:
                found[block.anchor] = f"{slug}-{number}" if number else slug
    return found


def _indented(text: str, first: str, rest: str, blank: str = "") -> str:
    lines = text.split("\n")
    others = (rest + line if line else blank for line in lines[1:])
    return "\n".join(((first + lines[0]).rstrip(), *others))


def _escaped(text: str) -> str:
    return _SPECIAL.sub(r"\\\g<0>", text)


def _url(link: str) -> str:
    return _IN_URL.sub(lambda found: "".join(f"%{byte:02X}" for byte in found[0].encode()), link)


def _code(text: str) -> str:
    longest = max(map(len, _TICKS.findall(text)), default=0)
    ticks = "`" * (longest + 1 if longest else 1)
    space = " " if text[0] == "`" or text[-1] == "`" else ""
    return f"{ticks}{space}{text}{space}{ticks}"


def _formula(run: Run, *, in_cell: bool) -> str:
    tex = " ".join(run.formula.split())
    if in_cell:
        tex = tex.replace(r"\|", r"\Vert ").replace("|", r"\vert ")
    return f"\n$${tex}$$\n" if run.display and not in_cell else f"${tex}$"


def _is_line(cell: Cell) -> bool:
    """Whether a cell fits into a line: it covers no other, and has only paragraphs."""
    return cell.colspan == cell.rowspan == 1 and (
        isinstance(cell.content, str) or all(isinstance(block, Paragraph) for block in cell.content)
    )


def _plain_text(cell: Cell) -> str | None:
    """The text of a cell that has nothing else; otherwise None."""
    match cell.blocks:
        case ():
            return ""
        case (Paragraph((Run(text) as run,)),) if run == Run(text):
            return text
    return None


def _row(cells: Sequence[str], width: int) -> str:
    return f"| {' | '.join((*cells, *[''] * (width - len(cells))))} |"


def _joined(pieces: Iterable[_Piece]) -> str:
    """The text of the pieces, with marks where they are read as such between what is before and after them."""
    known = [piece for piece in pieces if piece != ""]
    text = ""
    for index, piece in enumerate(known):
        if isinstance(piece, str):
            is_picture = piece[0] == "[" and text[-1:] == "!"  # would be
            text = text[:-1] + "\\!" + piece if is_picture else text + piece
            continue
        following = known[index + 1] if index + 1 < len(known) else " "
        after = following[0] if isinstance(following, str) else following.mark[0]
        text += _marked(piece, text[-1:] or " ", after)
    return text


def _marked(piece: _Marked, before: str, after: str) -> str:
    inner = piece.text.strip(piece.mark[0])
    opens = inner and (not _is_punctuation(inner[0]) or not _is_letter(before))
    closes = inner and (not _is_punctuation(inner[-1]) or not _is_letter(after))
    is_apart = not (piece.mark == "_" and (_is_letter(before) or _is_letter(after)))  # in a word, it is no mark
    if opens and closes and is_apart and piece.mark[0] not in (before, after):
        return f"{piece.mark}{piece.text}{piece.mark}"
    return f"<{piece.tag}>{piece.text}</{piece.tag}>"


def _is_punctuation(char: str) -> bool:
    return unicodedata.category(char)[0] in "PS"


def _is_letter(char: str) -> bool:
    return not char.isspace() and not _is_punctuation(char)
