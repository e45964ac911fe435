"""Files that are attached to a PDF: to the document, or to a place on a page."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from pikepdf import Dictionary, NamePath, Object, Pdf, Stream

from plugins._pdf.fields import text_of
from plugins._pdf.name_trees import Ids, as_list, read_name_tree
from plugins._pdf.objects import annotations_of, entries


@dataclass(frozen=True)
class Attachment:
    """An attached file. `page` counts from 1; None if it is attached to the document."""

    name: str
    description: str | None
    media_type: str | None
    page: int | None
    stream: Object


def embedded_files(value: Any) -> list[tuple[str, Any]]:
    """The embedded files of a file specification, or of an annotation that has one, by their keys."""
    # Looking up a key that is missing takes several times as long.
    named = value["/FS"] if isinstance(value, Dictionary) and "/FS" in value else value
    files = named["/EF"] if isinstance(named, Dictionary) and "/EF" in named else None
    return [(key, stream) for key, stream in entries(files) if isinstance(stream, Stream)]


def read_attachments(document: Pdf) -> Iterator[Attachment]:
    """The attached files, each once: those of the document, then those of pages."""
    tree = read_name_tree(document.Root.get(NamePath.Names.EmbeddedFiles))
    found: list[tuple[Any, int | None]] = [(value, None) for _, value in tree]
    found += [(one, None) for one in as_list(document.Root.get("/AF"))]
    for index, page in enumerate(document.pages, 1):
        found += [(one.get("/FS"), index) for one in annotations_of(page.obj)]
    seen: Ids = set()
    for specification, number in found:
        files = dict(embedded_files(specification))
        stream = files.get("/UF") or files.get("/F")
        if not isinstance(stream, Stream) or stream.objgen in seen:
            continue
        seen.add(stream.objgen)
        name = specification.get("/UF") or specification.get("/F") or "attachment"
        texts = (specification.get("/Desc"), stream.get("/Subtype"))
        description, kind = (None if text is None else text_of(text) for text in texts)
        yield Attachment(text_of(name), description, kind, number, stream)
