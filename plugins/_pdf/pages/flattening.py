"""Form fields and annotations of a PDF as content of its pages, drawn by MuPDF."""

from collections.abc import Iterable, Set
from io import BytesIO
from typing import Any

import pikepdf
from pikepdf import Array, Dictionary, Name, Object, Pdf

from engine import FidelityWarning
from engine.mupdf import pymupdf
from plugins._pdf.form_fields import walk_fields
from plugins._pdf.name_trees import Ids, as_list

_FLAT = "/ConvertdFlat"  # the key that marks annotations that are drawn
_KEPT = "/ConvertdKept"  # the annotations of other pages, and the form, while MuPDF draws


def flatten_pages(document: Pdf, indexes: Set[int], password: str) -> Pdf:
    """The document without form fields and annotations, except links, on these pages, which count from 0.

    Issues a warning for files that are attached to annotations.
    """
    for index, page in enumerate(document.pages):
        if index not in indexes and "/Annots" in page.obj:
            page.obj[_KEPT] = page.obj.Annots
            del page.obj["/Annots"]
        for annotation in _annotations(page.obj):
            annotation[_FLAT] = True
            if annotation.get("/Subtype") == Name.FileAttachment:
                message = "Files that are attached to annotations are not in the result."
                FidelityWarning.issue("attachments_dropped", message)
    form = document.Root.get("/AcroForm")
    if isinstance(form, Dictionary):
        document.Root[_KEPT] = form
    flat = pikepdf.open(BytesIO(_draw(document, password)), password=password)
    for page in flat.pages:
        _restore(page.obj, "/Annots")
        for link in _annotations(page.obj):
            if _FLAT in link:
                del link[_FLAT]
    _restore(flat.Root, "/AcroForm")
    form = flat.Root.get("/AcroForm")
    if isinstance(form, Dictionary):
        flattened = {field.objgen for field, _ in walk_fields(form) if _FLAT in field}
        left: Ids = set()
        form.Fields = Array(_without(as_list(form.get("/Fields")), flattened, left))
        if "/CO" in form:
            form.CO = Array([field for field in form.CO if field.objgen in left])
        if not len(form.Fields):
            del flat.Root["/AcroForm"]
    return flat


def _without(fields: Iterable[Any], flattened: Ids, left: Ids) -> list[Object]:
    """The fields without flattened ones and those above no others. Adds the ids of the remaining ones to `left`."""
    kept: list[Object] = []
    for field in fields:
        if not isinstance(field, Dictionary) or field.objgen in flattened | left:
            continue
        left.add(field.objgen)
        if "/Kids" in field:
            field.Kids = Array(_without(field.Kids, flattened, left))
        if "/Kids" in field and not len(field.Kids):
            left.discard(field.objgen)
        else:
            kept.append(field)
    return kept


def _draw(document: Pdf, password: str) -> bytes:
    file = BytesIO()
    document.save(file, encryption=document.is_encrypted)
    with pymupdf.open(stream=file.getvalue(), filetype="pdf") as drawn:
        drawn.authenticate(password)
        drawn.bake()
        data: bytes = drawn.tobytes(encryption=pymupdf.PDF_ENCRYPT_KEEP)
    return data


def _annotations(page: Object) -> list[Any]:
    return [item for item in as_list(page.get("/Annots")) if isinstance(item, Dictionary)]


def _restore(holder: Object, key: str) -> None:
    if _KEPT in holder:
        holder[key] = holder[_KEPT]
        del holder[_KEPT]
