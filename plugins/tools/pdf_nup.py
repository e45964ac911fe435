"""Places several pages of a PDF on each sheet."""

from __future__ import annotations

from itertools import product
from typing import Annotated, Literal

from pydantic import Field

from engine import EncodedFile, FidelityWarning, InvalidOption, PageRanges, ToolResult, lazy_imports, tool
from engine.option_types import Pages, Password, Sanitize
from plugins._text.paper import fitted
from plugins.formats.pdf import PDF

with lazy_imports():
    import pikepdf

    from plugins._pdf import documents, form_fields, name_trees
    from plugins._pdf.pages import marks, parts, placement

MODULES = ("plugins._pdf.documents", "plugins._pdf.pages.parts", "plugins._pdf.pages.placement")
TEMPLATE = "documents"

_GRIDS = {2: (2, 1), 4: (2, 2), 6: (3, 2), 8: (4, 2), 9: (3, 3), 16: (4, 4)}
_LEAST, _MOST = 3.0, 14_400.0  # points, as of any page
PerSheet = Annotated[Literal[2, 4, 6, 8, 9, 16], Field(description="Pages on each sheet, in rows from the top.")]
Booklet = Annotated[
    bool,
    Field(description="Orders the pages so that the sheets, printed on both sides and folded, are a booklet."),
]
Frame = tuple[float, float, float, float]
Grid = tuple[int, int]


@tool(
    "pdf-nup",
    PDF,
    title="Several PDF pages on a sheet",
    words="n-up booklet two pages per sheet print",
    sources=(PDF,),
    isolated=True,
    encodes=True,
)
def nup(
    data: bytes,
    *,
    per_sheet: PerSheet = 2,
    booklet: Booklet = False,
    pages: Pages = "all",
    password: Password | None = None,
    sanitize: Sanitize = False,
) -> ToolResult[bytes]:
    """Places several pages on each sheet, which has the size of the first one. Annotations and fields are drawn."""
    if booklet and per_sheet != 2:
        raise InvalidOption("A booklet has 2 pages on each sheet.", reason="exclusive", param="per_sheet")
    document = documents.open_document(data, password)
    count = len(document.pages)
    numbers = PageRanges.parse(pages).order(count)
    form_fields.remove_signatures(document)
    form_fields.remove_xfa(document)
    document = form_fields.with_drawn_annotations(document, {*numbers}, password or "")
    if numbers != [*range(count)]:
        parts.keep_pages(document, numbers)
    order = _booklet(len(numbers)) if booklet else [*range(len(numbers))]
    grid = _GRIDS[per_sheet]
    _place(document, order, [grid] if booklet else [grid, grid[::-1]])
    file = EncodedFile(documents.save_document(document, sanitize=sanitize), pages=len(document.pages))
    return ToolResult(file, facts={"original_page_count": count})


def _booklet(count: int) -> list[int]:
    """The numbers of pages in the order of a booklet, from 0; those from `count` on are blank."""
    filled = -count % 4 + count
    sides = ((filled - 1 - side, side) for side in range(filled // 2))
    return [number for side, pair in enumerate(sides) for number in (pair if side % 2 == 0 else pair[::-1])]


def _place(document: pikepdf.Pdf, order: list[int], grids: list[Grid]) -> None:
    """Replaces the pages by sheets on which they are in this order. Numbers of no page leave a blank."""
    pages = list(document.pages)
    geometries = [marks.Geometry.of(page) for page in pages]
    size, frames = _frames(geometries[0], grids)
    per_sheet = len(frames)
    placements = []
    for start in range(0, len(order), per_sheet):
        sheet = document.add_blank_page(page_size=size)
        forms = []
        for number, frame in zip(order[start : start + per_sheet], frames, strict=False):
            if number < len(pages):
                geometry = geometries[number]
                scaled = pikepdf.Matrix(fitted((geometry.width, geometry.height), frame, "inside"))
                matrix = geometry.to_shown @ scaled
                form = placement.page_form(document, pages[number])
                forms.append((form, matrix))
                placements.append(placement.Placement.of(pages[number].obj, sheet.obj, form, geometry, matrix))
        placement.draw(document, sheet, forms)
    placement.follow(document, placements)
    del document.pages[: len(pages)]
    if "/PageLabels" in document.Root:
        labels, plain = (name_trees.page_labels(root, len(pages)) for root in (document.Root, pikepdf.Dictionary()))
        if labels != plain:
            message = "Page labels, such as iv or A-1, are not in the result: a sheet has several pages."
            FidelityWarning.issue("metadata_dropped", message)
        del document.Root["/PageLabels"]


def _frames(page: marks.Geometry, grids: list[Grid]) -> tuple[tuple[float, float], list[Frame]]:
    """The size of the sheets, and the frames of their pages: those with the largest pages in one of the grids.

    Sheets have the size of a page, upright or turned, in points.
    """
    sizes = [(page.width, page.height), (page.height, page.width)]

    def scale(choice: tuple[tuple[float, float], Grid]) -> float:
        (width, height), (columns, rows) = choice
        return round(min(width / columns / page.width, height / rows / page.height), 6)

    (width, height), (columns, rows) = max(product(sizes, grids), key=scale)
    width, height = min(max(width, _LEAST), _MOST), min(max(height, _LEAST), _MOST)
    across, down = width / columns, height / rows
    return (width, height), [
        (column * across, height - (row + 1) * down, (column + 1) * across, height - row * down)
        for row in range(rows)
        for column in range(columns)
    ]
