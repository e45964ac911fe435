"""Text of PDF pages in reading order, and as HTML, and warnings of what text and pixels cannot hold."""

from __future__ import annotations

import html
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, TypeAlias

from engine import FidelityWarning
from engine.mupdf import pymupdf

Box: TypeAlias = tuple[float, float, float, float]
"""Left, top, right and bottom in points."""

_GUTTER = 8.0  # points between columns
_MAX_BLOCKS = 400  # on a page; columns are not searched among more
_BOLD = pymupdf.TEXT_FONT_BOLD
_ITALIC = pymupdf.TEXT_FONT_ITALIC
_HEADINGS = ((1.8, "h1"), (1.4, "h2"), (1.15, "h3"))  # by the size of the font relative to most of the text
_MAX_HEADING = 200  # characters
_SAFE_LINK = re.compile(r"(https?|mailto):", re.IGNORECASE)
_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")
_STYLE = "body{font-family:sans-serif;max-width:45em;margin:auto}section{border-bottom:1px solid #ccc;padding:1em}"


@dataclass(frozen=True)
class Span:
    """Text in one font, and where it leads."""

    text: str
    size: float
    flags: int
    link: str | None


@dataclass(frozen=True)
class Block:
    """A paragraph: its lines, which consist of spans."""

    box: Box
    lines: tuple[tuple[Span, ...], ...]

    @property
    def text(self) -> str:
        """The lines."""
        return "\n".join("".join(span.text for span in line).rstrip() for line in self.lines)


def blocks_of(page: pymupdf.Page) -> list[Block]:
    """The paragraphs of a page with text, in reading order."""
    return _in_reading_order(stored_blocks(page))


def stored_blocks(page: pymupdf.Page) -> list[Block]:
    """The paragraphs of a page with text, in the order of the file."""
    links = [(pymupdf.Rect(one["from"]), one["uri"]) for one in page.get_links() if one.get("uri")]
    found: list[dict[str, Any]] = page.get_text("dict", flags=pymupdf.TEXTFLAGS_TEXT)["blocks"]
    blocks = [Block(tuple(one["bbox"]), tuple(_line(line, links) for line in one["lines"])) for one in found]
    return [block for block in blocks if block.text.strip()]


def _line(line: dict[str, Any], links: Sequence[tuple[pymupdf.Rect, str]]) -> tuple[Span, ...]:
    def link_at(box: Box) -> str | None:
        middle = pymupdf.Point((box[0] + box[2]) / 2, (box[1] + box[3]) / 2)
        return next((uri for area, uri in links if middle in area), None)

    spans = line["spans"]
    return tuple(
        Span(_CONTROLS.sub("", one["text"]), one["size"], one["flags"], link_at(one["bbox"]) if links else None)
        for one in spans
    )


def _in_reading_order(blocks: list[Block]) -> list[Block]:
    """Columns from left to right, each from top to bottom; what spans columns separates those above and below it."""
    if len(blocks) < 2:
        return blocks
    if len(blocks) > _MAX_BLOCKS:
        return sorted(blocks, key=lambda block: (block.box[1], block.box[0]))
    columns = _split(blocks, 0, _GUTTER)
    if len(columns) > 1:
        return [block for column in columns for block in _in_reading_order(column)]
    rows = _split(blocks, 1, 0)
    if len(rows) == 1:
        return sorted(blocks, key=lambda block: (block.box[1], block.box[0]))
    # Neighboring rows that together have columns are read column by column.
    ordered: list[Block] = []
    start = 0
    while start < len(rows):
        group = rows[start]
        end = start + 1
        while end < len(rows) and len(_split(group + rows[end], 0, _GUTTER)) > 1:
            group = group + rows[end]
            end += 1
        ordered += _in_reading_order(group)
        start = end
    return ordered


def _split(blocks: Sequence[Block], axis: int, gap: float) -> list[list[Block]]:
    """Groups of blocks between which there is a gap of so many points, across (axis 0) or down (axis 1)."""
    groups: list[list[Block]] = []
    end = 0.0
    for block in sorted(blocks, key=lambda one: one.box[axis]):
        if not groups or block.box[axis] - end > gap:
            groups.append([])
            end = block.box[axis + 2]
        groups[-1].append(block)
        end = max(end, block.box[axis + 2])
    return groups


def text_document(pages: Sequence[Sequence[Block]]) -> str:
    """The pages as text: form feeds separate them, empty lines paragraphs."""
    texts = ("\n\n".join(block.text for block in page) for page in pages)
    return "\n\f".join(f"{text}\n" if text else "" for text in texts) or "\n"


def html_document(title: str, pages: Sequence[Sequence[Block]]) -> str:
    """The pages as an HTML document without scripts or external resources."""
    sizes: Counter[float] = Counter()
    for span in (span for page in pages for block in page for line in block.lines for span in line):
        sizes[round(span.size, 1)] += len(span.text)
    usual = sizes.most_common(1)[0][0] if sizes else 1.0
    sections = (
        f'<section id="page-{number}">\n{"".join(_html_block(block, usual) for block in page)}</section>\n'
        for number, page in enumerate(pages, 1)
    )
    head = f'<meta charset="utf-8"><title>{html.escape(_CONTROLS.sub("", title))}</title><style>{_STYLE}</style>'
    return f"<!DOCTYPE html>\n<html><head>{head}</head><body>\n{''.join(sections)}</body></html>\n"


def _html_block(block: Block, usual: float) -> str:
    largest = max(span.size for line in block.lines for span in line) / usual
    headings = (name for factor, name in _HEADINGS if largest >= factor and len(block.text) <= _MAX_HEADING)
    name = next(headings, "p")
    lines = ("".join(_html_spans(line, bold=name == "p")).strip() for line in block.lines)
    return f"<{name}>{'<br>'.join(lines)}</{name}>\n"


def _html_spans(line: Sequence[Span], *, bold: bool) -> Iterator[str]:
    for (flags, link), spans in groupby(line, key=lambda span: (span.flags & (_BOLD | _ITALIC), span.link)):
        text = html.escape("".join(span.text for span in spans), quote=False)
        if flags & _BOLD and bold:
            text = f"<b>{text}</b>"
        if flags & _ITALIC:
            text = f"<i>{text}</i>"
        yield f'<a href="{html.escape(link)}">{text}</a>' if link and _SAFE_LINK.match(link) else text


def warn_images(page: pymupdf.Page) -> None:
    """Issues a warning if a page has images, which can show text."""
    if page.get_images() if page.parent.is_pdf else page.get_image_info():
        FidelityWarning.issue("pictures_dropped", "Pictures are not in the result, nor is text that they show.")


def warn_losses(page: pymupdf.Page) -> None:
    """Issues a warning for each kind of content of the page or its document that the result cannot hold."""
    document = page.parent
    if document.embfile_count() or next(page.annots(types=[pymupdf.PDF_ANNOT_FILE_ATTACHMENT]), None):
        FidelityWarning.issue("attachments_dropped", "Files that are attached to the PDF are not in the result.")
    if page.first_link:
        FidelityWarning.issue("links_dropped", "Links of the PDF are not in the result.")
    if page.first_widget:
        FidelityWarning.issue("forms_dropped", "Form fields are drawn as they are, and cannot be filled in.")
    if document.metadata["encryption"]:  # needs_pass would lock it again
        FidelityWarning.issue("encryption_dropped", "The PDF is encrypted; the result is not.")
