"""Text of PDF pages in reading order, and as HTML, and warnings of what text and pixels cannot hold."""

from __future__ import annotations

import html
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, groupby, pairwise
from typing import Any, TypeAlias

from engine import FidelityWarning
from engine.mupdf import pymupdf

Box: TypeAlias = tuple[float, float, float, float]
"""Left, top, right and bottom in points."""

_FLAGS = pymupdf.TEXTFLAGS_TEXT & ~pymupdf.TEXT_PRESERVE_LIGATURES
_GUTTER = 8.0  # points between columns
_WORDS = 3  # in a line of running text, on average; cells of tables have fewer
_SHAPES = 20  # in a drawing of letters
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
    """A paragraph: its lines as text, and the spans of each line unless only the text is asked for."""

    box: Box
    text: str
    lines: tuple[tuple[Span, ...], ...] = ()


def blocks_of(page: pymupdf.Page, read: Callable[[pymupdf.Page], list[Block]]) -> list[Block]:
    """The paragraphs that `read` finds on a page, in reading order. Issues a warning for images."""
    blocks = in_reading_order(read(page))
    warn_images(page, has_text=bool(blocks))
    return blocks


def plain_blocks(page: pymupdf.Page, text: pymupdf.TextPage | None = None) -> list[Block]:
    """As `stored_blocks`, but without spans. `text` is that of the page, if it is known."""
    text = text or page.get_textpage(flags=_FLAGS)
    stored = [*text.this]
    blocks: list[Block] = []
    for *box, content, number, kind in text.extractBLOCKS():
        lines = [line.rstrip() for line in _CONTROLS.sub("", content).removesuffix("\n").split("\n")]
        block = Block(tuple(box), "\n".join(lines))
        if kind == pymupdf.mupdf.FZ_STEXT_BLOCK_TEXT and block.text.strip():
            may_have_columns = len(lines) > 1 and _is_running(block)
            areas = (line.m_internal.bbox for line in (stored[number] if may_have_columns else ()))
            boxes = [(area.x0, area.y0, area.x1, area.y1) for area in areas]
            blocks += _columns(block, [*map(Block, boxes, lines)]) if len(boxes) == len(lines) else [block]
    return blocks


def stored_blocks(page: pymupdf.Page) -> list[Block]:
    """The paragraphs of a page with text, in the order of the file."""
    links = [(pymupdf.Rect(one["from"]), one["uri"]) for one in page.get_links() if one.get("uri")]
    found: list[dict[str, Any]] = page.get_text("dict", flags=_FLAGS)["blocks"]
    blocks: list[Block] = []
    for lines in ([_line(line, links) for line in one["lines"]] for one in found):
        blocks += _columns(_joined(lines), lines) if lines else []
    return [block for block in blocks if block.text.strip()]


def _columns(block: Block, lines: list[Block]) -> list[Block]:
    """The columns of running text that the lines of a block are, and what spans them; otherwise the block."""
    gaps = [(left.box[2], right.box[0]) for left, right in pairwise(lines) if _are_beside(left.box, right.box)]
    if len(lines) > _MAX_BLOCKS or not gaps:
        return [block]
    parts: list[list[Block]] = []
    was_wide = False
    for line in in_reading_order(lines, overlap=min(line.box[3] - line.box[1] for line in lines) / 2):
        is_wide = any(line.box[0] < start and line.box[2] > end for start, end in gaps)
        if not parts or is_wide != was_wide or line.box[1] < parts[-1][-1].box[1]:
            parts.append([])
        parts[-1].append(line)
        was_wide = is_wide
    joined = [_joined(part) for part in parts]
    return joined if all(map(_is_running, joined)) else [block]


def _are_beside(left: Box, right: Box) -> bool:
    return right[0] - left[2] > _GUTTER and right[1] < left[3]


def _joined(lines: Sequence[Block]) -> Block:
    lefts, tops, rights, bottoms = zip(*(line.box for line in lines), strict=True)
    box = min(lefts), min(tops), max(rights), max(bottoms)
    return Block(box, "\n".join(line.text for line in lines), tuple(chain.from_iterable(line.lines for line in lines)))


def _is_running(block: Block) -> bool:
    """Whether the lines have as many words as running text, and not as few as cells of a table."""
    return sum(word[0].isalpha() for word in block.text.split()) >= _WORDS * (block.text.count("\n") + 1)


def have_columns(blocks: Sequence[Block]) -> bool:
    """Whether some of the blocks, which are in reading order, are columns of running text."""
    beside = any(_are_beside(left.box, right.box) for left, right in pairwise(blocks))
    return beside and all(map(_is_running, blocks))


def _line(line: dict[str, Any], links: Sequence[tuple[pymupdf.Rect, str]]) -> Block:
    def link_at(box: Box) -> str | None:
        middle = pymupdf.Point((box[0] + box[2]) / 2, (box[1] + box[3]) / 2)
        return next((uri for area, uri in links if middle in area), None)

    spans = tuple(
        Span(_CONTROLS.sub("", one["text"]), one["size"], one["flags"], link_at(one["bbox"]) if links else None)
        for one in line["spans"]
    )
    return Block(line["bbox"], "".join(span.text for span in spans).rstrip(), (spans,))


def in_reading_order(blocks: list[Block], overlap: float = 0.0) -> list[Block]:
    """Columns from left to right, each from top to bottom; what spans columns separates those above and below it.

    Blocks below each other overlap by at most so many points.
    """
    if len(blocks) < 2:
        return blocks
    if len(blocks) > _MAX_BLOCKS:
        return sorted(blocks, key=lambda block: (block.box[1], block.box[0]))
    columns = _split(blocks, 0, _GUTTER)
    if len(columns) > 1:
        return [block for column in columns for block in in_reading_order(column, overlap)]
    rows = _split(blocks, 1, -overlap)
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
        ordered += in_reading_order(group, overlap)
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


def warn_images(page: pymupdf.Page, *, has_text: bool) -> None:
    """Issues a warning if a page has images, which can show text, or shows other things only."""
    if page.get_images() if page.parent.is_pdf else page.get_image_info():
        FidelityWarning.issue("pictures_dropped", "Pictures are not in the result, nor is text that they show.")
    if not has_text:
        drawn = [kind for kind, *_ in page.get_bboxlog()]
        if len(drawn) > _SHAPES or any("image" in kind for kind in drawn):
            message = "Pages show pictures or shapes, but have no text. The tool pdf-ocr recognizes what they show."
            FidelityWarning.issue("pictures_dropped", message)


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
