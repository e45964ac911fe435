"""Writes the structure of a document as a page of HTML that stands alone, without scripts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from html import escape
from itertools import groupby
from operator import attrgetter
from types import MappingProxyType

from engine import Blocks
from engine.blocks import Block, Break, Cell, Code, Heading, ItemList, ListItem, Paragraph, Quote, Run, Table, merged
from plugins._blocks.writing import Notes, Pictures, is_tight, safe_link
from plugins._text import formulas, highlighting

_PIXELS = 96 / 72  # in a point
_TAGS = MappingProxyType(
    {
        "bold": "strong",
        "italic": "em",
        "underline": "u",
        "strike": "s",
        "code": "code",
        "superscript": "sup",
        "subscript": "sub",
        "inserted": "ins",
        "deleted": "del",
    }
)
_STYLES = ("link", "change", "bold", "italic", "underline", "strike", "position", "code")
"""Fields of runs, in the order in which their markup is nested, the outermost first."""
_STYLE = """
body { font-family: sans-serif; line-height: 1.4; max-width: 50em; margin: 1em auto; padding: 0 1em }
pre, code { font-family: monospace; background: #f4f4f4; font-size: 0.9em }
pre { padding: 0.6em; overflow-x: auto }
table { border-collapse: collapse } th, td { border: 1px solid #bbb; padding: 0.2em 0.5em; vertical-align: top }
blockquote { border-left: 3px solid #bbb; margin-left: 0; padding-left: 1em }
img { max-width: 100% } .task { list-style: none }
.page-break { break-after: page }
.markdown-alert { border-left: 3px solid #06c; padding-left: 1em } .markdown-alert-title { font-weight: bold }
.footnotes { border-top: 1px solid #bbb; font-size: 0.9em }
"""


def write(document: Blocks, pictures: Pictures) -> str:
    """The document, after what it says of itself in the head of the page."""
    writer = _Writer(pictures)
    body = "\n".join((*writer.parts(document.content), *writer.notes()))
    language = f' lang="{escape(document.language)}"' if document.language else ""
    known = {
        "author": ", ".join(document.authors),
        "description": document.subject,
        "keywords": ", ".join(document.keywords),
        "date": document.date,
    }
    style = _STYLE + highlighting.STYLE if "<pre>" in body else _STYLE
    head = [f'<meta name="{name}" content="{escape(value)}">' for name, value in known.items() if value]
    title = document.title or _first_heading(document.content)
    return "\n".join(
        (
            "<!DOCTYPE html>",
            f"<html{language}>",
            "<head>",
            '<meta charset="utf-8">',
            f"<title>{escape(title, quote=False)}</title>",
            *head,
            f"<style>{style}</style>",
            "</head>",
            "<body>",
            body,
            "</body>",
            "</html>",
            "",
        )
    )


def _first_heading(content: Iterable[Block]) -> str:
    headings = (block for block in content if isinstance(block, Heading))
    return " ".join("".join(run.text for run in block.runs) for block in [*headings][:1])


class _Writer:
    def __init__(self, pictures: Pictures) -> None:
        self._pictures = pictures
        self._notes = Notes()

    def parts(self, content: Iterable[Block]) -> Iterator[str]:
        """Each block."""
        return map(self._block, content)

    def notes(self) -> Iterator[str]:
        """A section with the notes of what has been written, if there are any."""
        items = [
            f'<li id="fn{number}">{self._content(content)} '
            f'<a href="#fnref{number}" class="footnote-backref" role="doc-backlink">\u21a9</a></li>'
            for number, content in self._notes
        ]
        if items:
            yield "\n".join(('<section class="footnotes" role="doc-endnotes">', "<ol>", *items, "</ol>", "</section>"))

    def _content(self, content: Sequence[Block]) -> str:
        """What an entry, a cell or a note holds: the runs of a paragraph without its element, if it is the only one."""
        match content:
            case (Paragraph(runs),):
                return self._inline(runs)
        return "\n".join(("", *self.parts(content), "")) if content else ""

    def _block(self, block: Block) -> str:
        match block:
            case Paragraph(runs):
                return f"<p>{self._inline(runs)}</p>"
            case Heading(level, runs, anchor):
                name = f' id="{escape(anchor)}"' if anchor else ""
                return f"<h{level}{name}>{self._inline(runs)}</h{level}>"
            case ItemList():
                return self._list(block)
            case Table():
                return self._table(block)
            case Quote(content, kind):
                return self._quote(content, kind)
            case Code(text, language):
                name = f' class="language-{escape(language)}"' if language else ""
                return f"<pre><code{name}>{highlighting.highlighted(text, language)}</code></pre>"
            case Break(kind):
                return "<hr>" if kind == "rule" else '<div class="page-break"></div>'

    def _quote(self, content: Sequence[Block], kind: str) -> str:
        inner = self.parts(content)
        if not kind:
            return "\n".join(("<blockquote>", *inner, "</blockquote>"))
        name = escape(kind)
        title = f'<p class="markdown-alert-title">{name.capitalize()}</p>'
        return "\n".join((f'<div class="markdown-alert markdown-alert-{name}">', title, *inner, "</div>"))

    def _list(self, items: ItemList) -> str:
        if items.kind == "definitions":
            return "\n".join(("<dl>", *map(self._definition, items.items), "</dl>"))
        tight = is_tight(items)
        lines = [self._item(item, tight=tight) for item in items.items]
        if items.kind == "bullets":
            return "\n".join(("<ul>", *lines, "</ul>"))
        start = f' start="{items.start}"' if items.start != 1 else ""
        style = f' type="{items.style}"' if items.style != "1" else ""
        return "\n".join((f"<ol{start}{style}>", *lines, "</ol>"))

    def _item(self, item: ListItem, *, tight: bool) -> str:
        content = item.blocks
        text = ""
        if tight and content and isinstance(content[0], Paragraph):
            text = self._inline(content[0].runs)
            content = content[1:]
        inner = "\n".join((text, *self.parts(content))) + ("\n" if content else "")
        if item.checked is None:
            return f"<li>{inner}</li>"
        box = f'<input type="checkbox" disabled{" checked" if item.checked else ""}>'
        return f'<li class="task">{box} {inner}</li>'

    def _definition(self, item: ListItem) -> str:
        term = f"<dt>{self._inline(item.term)}</dt>\n" if item.term else ""
        return f"{term}<dd>{self._content(item.blocks)}</dd>"

    def _table(self, table: Table) -> str:
        caption = self._inline(table.caption) or escape(table.name, quote=False)
        lines = ["<table>", f"<caption>{caption}</caption>"] if caption else ["<table>"]
        for is_body, rows in groupby(enumerate(table.rows), key=lambda row: row[0] >= table.header_rows):
            part, name = ("tbody", "td") if is_body else ("thead", "th")
            lines.append(f"<{part}>")
            lines += (f"<tr>{''.join(self._cell(cell, name) for cell in row)}</tr>" for _, row in rows)
            lines.append(f"</{part}>")
        return "\n".join((*lines, "</table>"))

    def _cell(self, cell: Cell, name: str) -> str:
        spans = [f' {span}="{count}"' for span in ("colspan", "rowspan") if (count := getattr(cell, span)) > 1]
        align = f' style="text-align: {cell.align}"' if cell.align else ""
        return f"<{name}{''.join(spans)}{align}>{self._cell_content(cell)}</{name}>"

    def _cell_content(self, cell: Cell) -> str:
        if isinstance(cell.content, str) and not cell.link:
            return escape(cell.content, quote=False).replace("\n", "<br>")
        return self._content(cell.blocks)

    def _inline(self, runs: tuple[Run, ...]) -> str:
        return self._styled(merged(runs), _STYLES)

    def _styled(self, runs: Sequence[Run], styles: Sequence[str]) -> str:
        if not styles:
            return "".join(map(self._run, runs))
        style, *inner = styles
        text = ""
        for value, group in groupby(runs, key=attrgetter(style)):
            found = self._styled([*group], inner)
            text += self._wrapped(style, value, found) if value else found
        return text

    def _wrapped(self, style: str, value: str | bool, text: str) -> str:
        if style == "link":
            link = safe_link(str(value))
            return f'<a href="{escape(link)}">{text}</a>' if link else text
        tag = _TAGS[style if value is True else str(value)]
        return f"<{tag}>{text}</{tag}>"

    def _run(self, run: Run) -> str:
        if run.note:
            number = self._notes.number(run)
            return f'<sup><a href="#fn{number}" id="fnref{number}" role="doc-noteref">{number}</a></sup>'
        if run.anchor:
            return f'<span id="{escape(run.anchor)}">{self._run(replace(run, anchor=""))}</span>'
        if run.picture:
            source = self._pictures.source(run.picture)
            sides = (("width", run.picture.width), ("height", run.picture.height))
            size = "".join(f' {name}="{round(side * _PIXELS)}"' for name, side in sides if side)
            alt = escape(run.picture.alt)
            return f'<img src="{escape(source)}" alt="{alt}"{size}>' if source else alt
        if run.formula:
            return formulas.to_mathml(run.formula, display=run.display)
        return escape(run.text, quote=False).replace("\n", "<br>\n")
