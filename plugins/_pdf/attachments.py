"""Files that are attached to a PDF: to the document, or to a place on a page."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from pikepdf import Dictionary, Object, Pdf, Stream

from plugins._pdf.fields import text_of
from plugins._pdf.name_trees import Ids, as_list, read_name_tree


@dataclass(frozen=True)
class Attachment:
    """An attached file. `page` counts from 1; None if it is attached to the document."""

    name: str
    description: str | None
    media_type: str | None
    page: int | None
    stream: Object


def read_attachments(document: Pdf) -> Iterator[Attachment]:
    """The attached files, each once: those of the document, then those of pages."""
    names = document.Root.get("/Names")
    tree = names.get("/EmbeddedFiles") if isinstance(names, Dictionary) else None
    found: list[tuple[Any, int | None]] = [(value, None) for _, value in read_name_tree(tree)]
    found += [(one, None) for one in as_list(document.Root.get("/AF"))]
    for index, page in enumerate(document.pages, 1):
        annotations = [one for one in as_list(page.obj.get("/Annots")) if isinstance(one, Dictionary)]
        found += [(one.get("/FS"), index) for one in annotations]
    seen: Ids = set()
    for specification, number in found:
        files = specification.get("/EF") if isinstance(specification, Dictionary) else None
        stream = (files.get("/UF") or files.get("/F")) if isinstance(files, Dictionary) else None
        if not isinstance(stream, Stream) or stream.objgen in seen:
            continue
        seen.add(stream.objgen)
        name = specification.get("/UF") or specification.get("/F") or "attachment"
        texts = (specification.get("/Desc"), stream.get("/Subtype"))
        description, kind = (None if text is None else text_of(text) for text in texts)
        yield Attachment(text_of(name), description, kind, number, stream)
