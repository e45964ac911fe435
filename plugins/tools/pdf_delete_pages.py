"""Deletes pages from a PDF."""

from __future__ import annotations

from engine import InvalidOption, PageRanges, ToolResult, lazy_imports, tool
from engine.option_types import Pages
from plugins.formats import pdf_objects
from plugins.formats.pdf import PDF
from plugins.formats.pdf_objects import OBJECTS, page_count

with lazy_imports():
    import pikepdf

    from plugins._pdf import form_fields
    from plugins._pdf.pages import parts

MODULES = (*pdf_objects.MODULES, "plugins._pdf.form_fields", "plugins._pdf.pages.parts")
TEMPLATE = "documents"


@tool("pdf-delete-pages", OBJECTS, title="Delete PDF pages", words="remove pages", sources=(PDF,), count=page_count)
def delete_pages(document: pikepdf.Pdf, *, pages: Pages) -> ToolResult[pikepdf.Pdf]:
    """Deletes pages from a PDF, with everything that only they use or that refers to them."""
    count = page_count(document)
    indices = sorted(PageRanges.parse(pages).indexes(count))
    if len(indices) == count:
        message = "At least one page must remain."
        raise InvalidOption(message, reason="out_of_range", param="pages", details={"page_count": count})
    form_fields.remove_signatures(document)
    parts.keep_pages(document, sorted({*range(count)}.difference(indices)))
    return ToolResult(document, facts={"deleted_pages": tuple(index + 1 for index in indices)})
