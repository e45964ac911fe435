"""Removes texts and areas from the content of pages, of annotations and of patterns, as MuPDF redacts pages.

MuPDF changes pages only, and what they show. So while it works, each other content stream is a page of its own, and all
pages are as their content is, without rotation, crop, annotations and layers that are off.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import groupby
from operator import attrgetter
from typing import Any, NamedTuple

from pikepdf import (
    Array,
    Dictionary,
    Name,
    Object,
    Pdf,
    Stream,
    String,
    parse_content_stream,
    unparse_content_stream,
)

from engine import FidelityWarning, StepFailed
from engine.mupdf import pymupdf
from plugins._pdf.objects import entries, open_pdf, saved
from plugins._pdf.pages.marks import Box
from plugins._pdf.passwords import authenticate
from plugins._pdf.redaction.matching import Matcher, views

_KEPT = "/ConvertdKept"  # entries of a page that MuPDF must not see; the stream that a page stands for
_HIDDEN = ("/Annots", "/Rotate", "/CropBox", "/MediaBox", "/UserUnit")
_LAYERS = "/OCProperties"
_SIDE = 16_384  # points from the origin of content to each edge of the pages while MuPDF works
_BOX = (-_SIDE, -_SIDE, _SIDE, _SIDE)
_FLAGS = pymupdf.TEXT_PRESERVE_LIGATURES | pymupdf.TEXT_PRESERVE_WHITESPACE
_ROW = 0.3  # sizes of the font between the base lines of glyphs of a row
_GAP = 0.2  # sizes of the font between words
_NEAR = 0.1  # points between edges that are the same
_TRIES = 3  # what a removal reveals, such as a word around another, is removed, too
_THIN = 0.05  # share of the height of glyphs: no glyph of other lines is as near to their middle


class Glyph(NamedTuple):
    """A character as it is drawn: the line that has it, its box and its origin, size in points, and direction.

    A `synthetic` one is a space that MuPDF takes a gap for.
    """

    text: str
    line: int
    box: Box
    origin: tuple[float, float]
    size: float
    level: bool
    synthetic: bool


Run = tuple[Glyph, ...]
"""Glyphs that follow each other in a line."""
Areas = Mapping[int, Sequence[Box]]
"""Left, bottom, right and top of areas in the units of the content, by the index of the page."""


def redact(document: Pdf, password: str, matcher: Matcher, areas: Areas) -> tuple[Pdf, dict[int, list[Box]]]:
    """The document without what the matcher finds in its content, and without what is in the areas of its pages.

    Also returns all areas, with those of the texts that were found. Raises StepFailed if something that is found cannot
    be removed. Issues a warning of pages that cannot be searched.
    """
    count = len(document.pages)
    _lay_open(document)
    with _opened(saved(document), password) as drawn:
        pages = [drawn[index] for index in range(count)]
        if not matcher.is_empty:
            _warn_pictures([page.number + 1 for page in pages if _is_picture(page)])
        runs = {page.number: _find(page, matcher, replaced=True) for page in pages}
        words = {number: [box for run in found for box in _boxes(run, 1)] for number, found in runs.items()}
        # What pages show by other streams is removed from these first.
        changed = {number for number in range(count, len(drawn)) if _redact_page(drawn[number], matcher, [], [])}
        document = open_pdf(drawn.tobytes(encryption=pymupdf.PDF_ENCRYPT_KEEP), password)
    _put_back(document, changed, count)
    for index in (index for index, boxes in words.items() if boxes or index in areas):
        page = document.pages[index]
        page.obj.Contents = document.make_stream(_with_single_glyphs(page, page.resources))
    removed = {}
    with _opened(saved(document), password) as drawn:
        for page in drawn:
            marked = [_on_page(box) for box in areas.get(page.number, ())]
            if marked or words[page.number]:
                _redact_page(page, matcher, words[page.number], marked)
                removed[page.number] = [_in_content(box) for box in (*words[page.number], *marked)]
        document = open_pdf(drawn.tobytes(encryption=pymupdf.PDF_ENCRYPT_KEEP), password)
    _restore(document)
    return document, removed


def _opened(data: bytes, password: str) -> pymupdf.Document:
    document = pymupdf.open(stream=data, filetype="pdf")
    authenticate(document, password)
    return document


def _lay_open(document: Pdf) -> None:
    """Leaves the content of pages as all that MuPDF sees, and adds pages for the other content streams."""
    pages = list(document.pages)
    for page in pages:
        kept = Dictionary({key: page.obj[key] for key in _HIDDEN if key in page.obj})
        if "/Annots" in page.obj:
            del page.obj["/Annots"]
        page.obj[_KEPT] = kept
        page.obj.MediaBox = page.obj.CropBox = Array(_BOX)
        page.obj.Rotate = 0
        page.obj.UserUnit = 1
    root = document.Root
    if _LAYERS in root:
        root[_KEPT] = root[_LAYERS]
        del root[_LAYERS]
    tree = root.Pages
    streams = [_as_page(document, *one) for one in _other_streams(document)]
    below = document.make_indirect(Dictionary(Type=Name.Pages, Kids=streams, Count=len(streams)))
    count = len(pages) + len(streams)
    root.Pages = document.make_indirect(Dictionary(Type=Name.Pages, Kids=[tree, below], Count=count))
    tree.Parent = below.Parent = root.Pages
    for one in streams:
        one.Parent = below


def _other_streams(document: Pdf) -> Iterator[tuple[Object, Object]]:
    """The content streams that are not of pages, each with the object that has its resources."""
    for item in document.objects:
        if isinstance(item, Stream):
            if item.get("/Subtype") == Name.Form or item.get("/PatternType") == 1:
                yield item, item
        elif isinstance(item, Dictionary) and item.get("/Subtype") == Name.Type3:
            for _, glyph in entries(item.get("/CharProcs")):
                if isinstance(glyph, Stream):
                    yield glyph, item


def _as_page(document: Pdf, stream: Object, holder: Object) -> Object:
    """A page that shows a content stream."""
    box = stream.get("/BBox", Array(_BOX))
    form = document.make_stream(
        _with_single_glyphs(stream, holder.get("/Resources")), Type=Name.XObject, Subtype=Name.Form, BBox=box
    )
    form.Resources = holder.get("/Resources", Dictionary())
    page = Dictionary(
        Type=Name.Page,
        MediaBox=Array(_BOX),
        Resources=Dictionary(XObject=Dictionary(X=form)),
        Contents=document.make_stream(b"/X Do"),
    )
    page[_KEPT] = Array([stream, holder])
    return document.make_indirect(page)


def _with_single_glyphs(content: Any, resources: Any) -> bytes:
    """A content stream in which strings with distances are of one glyph each.

    Of others, MuPDF loses the width of the first glyph that it removes after those that stay.
    """
    fonts = dict(entries(resources.get("/Font"))) if isinstance(resources, Dictionary) else {}
    length = 0
    outer: list[int] = []
    instructions: list[Any] = []
    for one in parse_content_stream(content):
        operator, operands = str(one.operator), one.operands
        if operator == "q":
            outer.append(length)
        elif operator == "Q" and outer:
            length = outer.pop()
        elif operator == "Tf" and operands:
            length = _code_length(fonts.get(str(operands[0])))
        is_split = operator == "TJ" and length and operands and isinstance(operands[0], Array)
        parts = [glyph for part in operands[0] for glyph in _glyphs_of(part, length)] if is_split else []
        instructions.append(([Array(parts)], one.operator) if is_split else one)
    return unparse_content_stream(instructions)


def _code_length(font: Any) -> int:
    """The bytes of the code of each glyph of a font; 0 if they differ or are unknown."""
    if not isinstance(font, Dictionary):
        return 0
    if font.get("/Subtype") != Name.Type0:
        return 1
    return 2 if font.get("/Encoding") in (Name("/Identity-H"), Name("/Identity-V")) else 0


def _glyphs_of(part: Any, length: int) -> list[Any]:
    if not isinstance(part, String):
        return [part]
    codes = bytes(part)
    return [String(codes[place : place + length]) for place in range(0, len(codes), length)]


def _put_back(document: Pdf, changed: Collection[int], count: int) -> None:
    """Puts changed content streams back in their places, and removes the pages after the first `count`."""
    tree, below = document.Root.Pages.Kids
    for index, page in enumerate(below.Kids, count):
        if index in changed:
            stream, holder = page[_KEPT]
            forms = [form for _, form in entries(page.Resources.get("/XObject"))]
            stream.write(forms[0].read_bytes() if forms else b"")
            if forms:
                holder.Resources = forms[0].get("/Resources", Dictionary())
    document.Root.Pages = tree
    del tree["/Parent"]


def _restore(document: Pdf) -> None:
    """Makes pages and layers as they were before `_lay_open`."""
    root = document.Root
    if _KEPT in root:
        root[_LAYERS] = root[_KEPT]
        del root[_KEPT]
    for page in document.pages:
        for key in (*_HIDDEN, _KEPT):
            value = page.obj[_KEPT].get(key)
            if value is not None:
                page.obj[key] = value
            elif key in page.obj:
                del page.obj[key]


def _is_picture(page: pymupdf.Page) -> bool:
    """Whether a page shows pictures and no text."""
    return bool(page.get_images() and not page.get_text("text", flags=_FLAGS).strip())


def _warn_pictures(numbers: list[int]) -> None:
    if numbers:
        pages = f"Page {numbers[0]} shows" if len(numbers) == 1 else f"{len(numbers)} pages show"
        message = f"{pages} images without text, in which nothing can be found; pdf-ocr recognizes their text."
        FidelityWarning.issue("no_text", message)


def _redact_page(page: pymupdf.Page, matcher: Matcher, words: Sequence[Box], areas: Sequence[Box]) -> bool:
    """Removes what is found on a page, what is in its areas, and images and shapes below words.

    Returns whether there was any.
    """
    found = _find(page, matcher, replaced=True)
    below = [*words, *areas, *(box for run in found for box in _boxes(run, 1))]
    if not below:
        return False
    strips = [box for run in found for box in _boxes(run, _THIN)]
    _apply(page, [*strips, *areas], text=pymupdf.PDF_REDACT_TEXT_REMOVE)
    for _ in range(_TRIES):
        left = _find(page, matcher, replaced=False)
        if not left:
            break
        _apply(page, [box for run in left for box in _boxes(run, 1)], text=pymupdf.PDF_REDACT_TEXT_REMOVE)
    else:
        raise StepFailed("Text was found that cannot be removed.")
    _apply(
        page,
        below,
        text=pymupdf.PDF_REDACT_TEXT_NONE,
        images=pymupdf.PDF_REDACT_IMAGE_PIXELS,
        graphics=pymupdf.PDF_REDACT_LINE_ART_REMOVE_IF_COVERED,
    )
    return True


def _apply(page: pymupdf.Page, boxes: Sequence[Box], *, text: int, images: int = 0, graphics: int = 0) -> None:
    if not boxes:  # MuPDF would take the annotation itself
        return
    annotation = page.add_redact_annot(page.rect, fill=False, cross_out=False)
    corners = [
        (x, y)
        for left, bottom, right, top in map(_in_content, boxes)
        for x, y in ((left, top), (right, top), (left, bottom), (right, bottom))
    ]
    points = " ".join(f"{x:.4f} {y:.4f}" for x, y in corners)
    page.parent.xref_set_key(annotation.xref, "QuadPoints", f"[{points}]")
    page.apply_redactions(images=images, graphics=graphics, text=text)


def _find(page: pymupdf.Page, matcher: Matcher, *, replaced: bool) -> list[Run]:
    """What is found on a page, as runs of glyphs that follow each other in a line.

    With `replaced`, also in texts that replace glyphs, which stay when these are removed.
    """
    runs: dict[Run, None] = {}
    drawn = _FLAGS | pymupdf.TEXT_IGNORE_ACTUALTEXT
    replaced = replaced and page.get_text(flags=_FLAGS) != page.get_text(flags=drawn)
    for flags in (drawn, _FLAGS) if replaced else (drawn,):
        glyphs = _glyphs(page, flags)
        for order in (_in_lines(glyphs), _in_rows(glyphs)):
            places: set[int] = set()
            for view in views("".join(one.text if one else "\n" for one in order)):
                for start, end in matcher.spans(view):
                    places.update(range(start, end))
            hit = [(place, one) for place in sorted(places) if (one := order[place])]
            numbered = groupby(enumerate(hit), lambda pair: (pair[1][0] - pair[0], pair[1][1].line))
            runs |= dict.fromkeys(tuple(one._replace(line=0) for _, (_, one) in run) for _, run in numbered)
    return list(runs)


def _glyphs(page: pymupdf.Page, flags: int) -> list[Glyph]:
    found = []
    lines = (line for block in page.get_text("rawdict", flags=flags)["blocks"] for line in block.get("lines", ()))
    for number, line in enumerate(lines):
        level = abs(line["dir"][1]) < 0.01
        shown: list[Glyph] = []
        for span in line["spans"]:
            size = span["size"]
            shown += [
                Glyph(one["c"], number, one["bbox"], one["origin"], size, level, one["synthetic"])
                for one in span["chars"]
            ]
        found += [_with_width(one, shown) if one.box[0] == one.box[2] else one for one in shown]
    return found


def _with_width(character: Glyph, line: list[Glyph]) -> Glyph:
    """A character without a width, such as the second one of a ligature, with the box of the glyph that ends there."""
    place = character.box[0]
    boxes = [one.box for one in line if one.box[0] < one.box[2] and abs(one.box[2] - place) < _NEAR]
    return character._replace(box=boxes[0]) if boxes else character


Order = list[Glyph | None]
"""Glyphs in the order of reading; None is the end of a line."""


def _in_lines(glyphs: list[Glyph]) -> Order:
    """The glyphs in the lines of MuPDF, which are in the order in which they are drawn."""
    ordered: Order = []
    for _, line in groupby(glyphs, attrgetter("line")):
        ordered += [*line, None]
    return ordered


def _in_rows(glyphs: list[Glyph]) -> Order:
    """The glyphs of level lines by where they are on the page, once if they are drawn several times."""
    ordered: Order = []
    row: list[Glyph] = []
    for one in sorted(
        (glyph for glyph in glyphs if glyph.level and not glyph.synthetic), key=lambda glyph: glyph.origin[1]
    ):
        if row and one.origin[1] - row[0].origin[1] > _ROW * max(one.size, row[0].size):
            ordered += _row(row)
            row = []
        row.append(one)
    return ordered + _row(row)


def _row(glyphs: list[Glyph]) -> Order:
    ordered: Order = []
    last: Glyph | None = None
    for one in sorted(glyphs, key=lambda glyph: glyph.origin[0]):
        if last is not None:
            if one.text == last.text and one.origin[0] - last.origin[0] < _GAP * one.size / 2:
                continue
            if one.box[0] - last.box[2] > _GAP * one.size:
                ordered.append(last._replace(text=" "))
        ordered.append(one)
        last = one
    return [*ordered, None]


def _boxes(run: Run, share: float) -> list[Box]:
    """The boxes of a run of glyphs, one for each glyph unless they are on a level line, with a `share` of their height.

    With a share below 1, they reach from the middle of the first glyph to that of the last one.
    """
    groups = [run] if run[0].level else [(glyph,) for glyph in run]
    boxes = []
    for group in groups:
        first = min(glyph.box[0] for glyph in group)
        last = max(glyph.box[2] for glyph in group)
        top = min(glyph.box[1] for glyph in group)
        bottom = max(glyph.box[3] for glyph in group)
        if share < 1:
            middles = [(glyph.box[0] + glyph.box[2]) / 2 for glyph in group]
            slack = [abs(glyph.box[2] - glyph.box[0]) * share for glyph in group]
            first, last = min(middles) - min(slack), max(middles) + min(slack)
        middle, half = (top + bottom) / 2, (bottom - top) / 2 * share
        boxes.append((first, middle - half, last, middle + half))
    return boxes


def _on_page(box: Box) -> Box:
    """A box of content on a page of MuPDF: left, top, right and bottom, from its upper left corner."""
    return box[0] + _SIDE, _SIDE - box[3], box[2] + _SIDE, _SIDE - box[1]


def _in_content(box: Box) -> Box:
    """A box on a page of MuPDF as one of content: left, bottom, right and top."""
    return box[0] - _SIDE, _SIDE - box[3], box[2] - _SIDE, _SIDE - box[1]
