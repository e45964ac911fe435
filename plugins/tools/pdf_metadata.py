"""Sets the title, author, subject and keywords of a PDF."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from engine import lazy_imports, tool
from plugins.formats import pdf_objects
from plugins.formats.pdf import PDF
from plugins.formats.pdf_objects import OBJECTS, page_count

with lazy_imports():
    import pikepdf

    from plugins._pdf import documents, form_fields

MODULES = (*pdf_objects.MODULES, "lxml.etree", "plugins._pdf.form_fields", "plugins._pdf.documents")
TEMPLATE = "documents"

Title = Annotated[str, Field(max_length=1000, description="The title; an empty value removes it.")]
Author = Annotated[str, Field(max_length=1000, description="The author; an empty value removes it.")]
Subject = Annotated[str, Field(max_length=1000, description="The subject; an empty value removes it.")]
Keywords = Annotated[str, Field(max_length=1000, description="The keywords; an empty value removes them.")]


@tool("pdf-metadata", OBJECTS, title="Set PDF metadata", sources=(PDF,), count=page_count)
def metadata(
    document: pikepdf.Pdf,
    *,
    title: Title | None = None,
    author: Author | None = None,
    subject: Subject | None = None,
    keywords: Keywords | None = None,
) -> pikepdf.Pdf:
    """Sets or removes the title, author, subject and keywords of a PDF."""
    given = {"title": title, "author": author, "subject": subject, "keywords": keywords}
    values = {name: value for name, value in given.items() if value is not None}
    if not values:
        raise documents.missing_option(tuple(given))
    form_fields.remove_signatures(document)
    documents.set_information(document, values)
    return document
