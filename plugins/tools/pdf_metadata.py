"""Sets the title, author, subject, keywords and outline of a PDF."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field

from engine import lazy_imports, tool
from plugins.formats import pdf_objects
from plugins.formats.pdf import PDF
from plugins.formats.pdf_objects import OBJECTS, page_count

with lazy_imports():
    import pikepdf

    from plugins._pdf import documents, outlines

MODULES = (*pdf_objects.MODULES, "lxml.etree", "plugins._pdf.outlines")
TEMPLATE = "documents"

Title = Annotated[
    str, Field(max_length=1000, examples=["Annual report"], description="The title; an empty value removes it.")
]
Author = Annotated[str, Field(max_length=1000, description="The author; an empty value removes it.")]
Subject = Annotated[str, Field(max_length=1000, description="The subject; an empty value removes it.")]
Keywords = Annotated[str, Field(max_length=1000, description="The keywords; an empty value removes them.")]
Outline = Annotated[
    list[dict[str, Any]],
    Field(
        max_length=2000,
        examples=[[{"title": "Chapter 1", "page": 1, "children": [{"title": "Section 1.1", "page": 2}]}]],
        description="The outline that replaces that of the file: items with a title, a page from 1 and children, which "
        "are such items; an empty list removes it.",
    ),
]


@tool(
    "pdf-metadata",
    OBJECTS,
    title="Set PDF metadata",
    words="title author properties",
    sources=(PDF,),
    count=page_count,
    example=("title",),
)
def metadata(
    document: pikepdf.Pdf,
    *,
    title: Title | None = None,
    author: Author | None = None,
    subject: Subject | None = None,
    keywords: Keywords | None = None,
    outline: Outline | None = None,
) -> pikepdf.Pdf:
    """Sets or removes the title, author, subject, keywords and outline of a PDF."""
    given = {"title": title, "author": author, "subject": subject, "keywords": keywords}
    values = {name: value for name, value in given.items() if value is not None}
    if not values and outline is None:
        raise documents.missing_option((*given, "outline"))
    if outline is not None:
        outlines.set_outline(document, outline)
    if values:
        documents.set_information(document, values)
    return document
