"""Sets the title, author, subject and keywords of a PDF."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from engine import tool
from plugins.formats import pdf_objects
from plugins.formats.pdf import PDF
from plugins.formats.pdf_objects import OBJECTS, page_count

if TYPE_CHECKING:
    import pikepdf

MODULES = (*pdf_objects.MODULES, "lxml.etree", "plugins._pdf.form_fields", "plugins._pdf.information")
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
    from plugins._pdf.documents import missing_option
    from plugins._pdf.form_fields import remove_signatures
    from plugins._pdf.information import set_information

    given = {"title": title, "author": author, "subject": subject, "keywords": keywords}
    values = {name: value for name, value in given.items() if value is not None}
    if not values:
        raise missing_option(tuple(given))
    remove_signatures(document)
    set_information(document, values)
    return document
