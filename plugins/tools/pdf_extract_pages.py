"""Makes a PDF with some pages of another one."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, Field

from engine import EncodedFile, PageRanges, ToolResult, lazy_imports, tool
from engine.option_types import Password, Sanitize
from plugins.formats.pdf import PDF

with lazy_imports():
    from plugins._pdf import documents, form_fields
    from plugins._pdf.pages import parts

MODULES = ("plugins._pdf.documents", "plugins._pdf.pages.parts")
TEMPLATE = "documents"


def _check_order(text: str) -> str:
    PageRanges.parse(text)
    return text


PageOrder = Annotated[
    str,
    Field(
        max_length=1000,
        examples=["3,1,1,5-"],
        description="Pages from 1 in the order of the result, such as 3,1,1,5-; a page can be there several times.",
    ),
    AfterValidator(_check_order),
]


@tool(
    "pdf-extract-pages",
    PDF,
    title="Extract PDF pages",
    words="select pick pages save some",
    sources=(PDF,),
    isolated=True,
    encodes=True,
)
def extract_pages(
    data: bytes, *, pages: PageOrder, password: Password | None = None, sanitize: Sanitize = False
) -> ToolResult[bytes]:
    """Makes a PDF with these pages of a PDF, in this order, with what belongs to them."""
    document = documents.open_document(data, password)
    count = len(document.pages)
    numbers = PageRanges.parse(pages).order(count)
    form_fields.remove_signatures(document)
    parts.keep_pages(document, numbers)
    file = EncodedFile(documents.save_document(document, sanitize=sanitize), pages=len(numbers))
    return ToolResult(file, facts={"original_page_count": count})
