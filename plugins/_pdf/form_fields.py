"""Form fields of a PDF: merging forms, removing signatures and XFA, and the fields with a widget in a part of it.

They become content of pages with the annotations, as MuPDF draws them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Set
from copy import copy as shallow_copy
from itertools import chain, count
from typing import Any

from pikepdf import Array, Dictionary, Name, Object, Pdf, String

from engine import FidelityWarning, lazy_imports
from plugins._pdf.name_trees import Id, Ids, as_list, unique_name
from plugins._pdf.objects import annotations_of, in_part, is_apart, keep_apart, open_pdf, saved, take
from plugins._pdf.passwords import authenticate
from plugins._pdf.resources import categories, names_in, with_entries

with lazy_imports():
    from engine.mupdf import pymupdf


def remove_signatures(document: Pdf) -> bool:
    """Removes signatures, which are invalid for a changed document. Issues a warning and returns True if it has any."""
    root, form = document.Root, form_of(document)
    signed = is_signed(document)
    fields = _signed_fields(form)
    for field in fields:
        del field["/V"]
    _keep_looks(form, fields)
    for holder, key in ((root, "/Perms"), (root, "/DSS"), (form, "/SigFlags")):
        if key in holder:
            del holder[key]
    if signed:
        FidelityWarning.issue("signature_invalidated", "Signatures were removed: a changed document invalidates them.")
    return signed


def form_of(document: Pdf) -> Object:
    """The form of a document; an empty dictionary without one."""
    form = document.Root.get("/AcroForm")
    return form if isinstance(form, Dictionary) else Dictionary()


_OF_FIELDS = ("/FT", "/T", "/TU", "/Parent", "/Ff", "/Lock", "/SV", "/MK")


def _keep_looks(form: Object, fields: list[Object]) -> None:
    """Makes what shows signatures stamps: viewers draw fields that are not signed in their own way."""
    widgets = (widget for field in fields for widget in (field, *as_list(field.get("/Kids"))))
    shown = [one for one in widgets if isinstance(one, Dictionary) and one.is_indirect and "/AP" in one]
    if not shown:
        return
    stamps = {widget.objgen for widget in shown}
    parents = {one.Parent.objgen: one.Parent for one in shown if isinstance(one.get("/Parent"), Dictionary)}
    for holder, key in ((form, "/Fields"), *((parent, "/Kids") for parent in parents.values())):
        listed = [one for one in as_list(holder.get(key)) if isinstance(one, Dictionary)]
        holder[key] = Array([one for one in listed if one.objgen not in stamps])
    for widget in shown:
        widget.Subtype = Name.Stamp
        for key in _OF_FIELDS:
            if key in widget:
                del widget[key]


def is_signed(document: Pdf) -> bool:
    """Whether a document has signatures, or permissions that depend on one."""
    return "/Perms" in document.Root or bool(_signed_fields(form_of(document)))


def _signed_fields(form: Object) -> list[Object]:
    return [field for field, inherited in walk_fields(form) if inherited.get("/FT") == Name.Sig and "/V" in field]


def remove_xfa(document: Pdf) -> None:
    """Removes the XFA form, which repeats the fields of all pages. Issues a warning if there is one."""
    form = form_of(document)
    if "/XFA" in form:
        del form["/XFA"]
        FidelityWarning.issue("xfa_dropped", "The XFA form was removed; its form fields are kept.")


def merge_forms(ours: Object, theirs: Object) -> None:
    """Adds the fields of another form. Fields with a name in use are renamed, so that each keeps its value."""
    renamed = _merge_resources(ours, theirs)
    roots = [field for field in theirs.get("/Fields") or () if isinstance(field, Dictionary)]
    for field, inherited in walk_fields(theirs):
        if "/DA" in field and renamed:
            field.DA = _rename_fonts(bytes(field.DA), renamed)
        if "/T" in field and "/Parent" not in field and "/DA" not in field and "/DA" in theirs:
            field.DA = _rename_fonts(bytes(theirs.DA), renamed)
        if "/Q" in theirs and "/Parent" not in field and "/Q" not in inherited:
            field.Q = theirs.Q
    used = {bytes(field.T) for field in ours.get("/Fields") or () if isinstance(field.get("/T"), String)}
    for field in roots:
        if isinstance(field.get("/T"), String):
            name = unique_name(bytes(field.T), used)
            used.add(name)
            field.T = String(name)
    ours.Fields = Array([*(ours.get("/Fields") or ()), *roots])
    if "/CO" in theirs:
        ours.CO = Array([*(ours.get("/CO") or ()), *theirs.CO])
    if theirs.get("/NeedAppearances"):
        ours.NeedAppearances = True


def _merge_resources(ours: Object, theirs: Object) -> dict[bytes, bytes]:
    """Adds the resources of another form. Returns the new names of fonts whose names were in use."""
    renamed: dict[bytes, bytes] = {}
    if "/DR" not in theirs:
        return renamed
    ours.DR = ours.get("/DR") or Dictionary()
    for category in list(theirs.DR.keys()):
        entries = theirs.DR[category]
        if not isinstance(entries, Dictionary):
            continue
        ours.DR[category] = mine = Dictionary(ours.DR.get(category) or {})
        for name in list(entries.keys()):
            if name in mine and mine[name] == entries[name]:
                continue
            new_name = _unused_name(name, mine)
            mine[new_name] = entries[name]
            if new_name != name and category == "/Font":
                renamed[name.encode()] = new_name.encode()
    return renamed


def _unused_name(name: str, used: Object) -> str:
    numbered = (f"{name}_{number}" for number in count(2))
    return next(candidate for candidate in chain([name], numbered) if candidate not in used)


def _rename_fonts(appearance: bytes, renamed: dict[bytes, bytes]) -> String:
    return String(re.sub(rb"/[^\s/<>()\[\]{}%]+", lambda match: renamed.get(match[0], match[0]), appearance))


def walk_fields(form: Object) -> Iterator[tuple[Object, dict[str, Any]]]:
    """Every field and widget with its inherited attributes, parents first."""
    seen: Ids = set()
    pending: list[tuple[Any, dict[str, Any]]] = [(field, {}) for field in as_list(form.get("/Fields"))]
    while pending:
        field, parent_attributes = pending.pop()
        if not isinstance(field, Dictionary) or (field.is_indirect and field.objgen in seen):
            continue
        seen.add(field.objgen)
        inherited = parent_attributes | {key: field[key] for key in ("/FT", "/Q") if key in field}
        yield field, inherited
        pending += [(kid, inherited) for kid in as_list(field.get("/Kids"))]


class PartFields:
    """The form of a document, whose fields do not lead to those below them."""

    def __init__(self, document: Pdf, apart: list[Object]) -> None:
        self._document = document
        self._form = form_of(document)
        calculated = [field.objgen for field in as_list(self._form.get("/CO")) if isinstance(field, Dictionary)]
        self._order = {field: number for number, field in enumerate(calculated)}
        fields = [field for field, _ in walk_fields(self._form)]
        self._ids = {field.objgen for field in fields if field.is_indirect}
        for field in fields:
            keep_apart(field, apart)
            if is_apart(field) and "/Kids" in field:
                del field["/Kids"]

    def add_to(self, part: Pdf, groups: Iterable[Iterable[tuple[Object, Object]]], names: set[str]) -> None:
        """Adds the fields of widgets, each with its copy: those of the pages, and those of each repeated page.

        The fields of a repeated page get names of their own. `names` are those of resources that the pages name, but
        do not have.
        """
        roots: list[Object] = []
        calculated: dict[int, Object] = {}
        taken: set[bytes] = set()
        for place, group in enumerate(groups):
            first = len(roots)
            copies: dict[Id, Object] = {}
            for widget, copy in group:
                if widget.objgen in self._ids and widget.objgen not in copies:
                    roots += self._join(part, widget, copy, copies, is_repeated=place > 0)
            if place == 0:
                calculated = {self._order[field]: copies[field] for field in self._order.keys() & copies.keys()}
            names |= {name for copy in copies.values() for name in names_in(copy.get("/DA"))}
            for root in roots[first:]:
                if isinstance(root.get("/T"), String):
                    root.T = String(unique_name(bytes(root.T), taken))
                    taken.add(bytes(root.T))
        if not roots:
            return
        form = part.Root.AcroForm = in_part(part, self._entries(names))
        form.Fields = Array(roots)
        if calculated:
            form.CO = Array([field for _, field in sorted(calculated.items())])

    def _join(
        self, part: Pdf, widget: Object, copy: Object, copies: dict[Id, Object], *, is_repeated: bool
    ) -> list[Object]:
        """Joins the copy of a widget with copies of the fields above it. Returns the highest if it is new."""
        field: Any = widget
        copies[widget.objgen] = copy
        while isinstance(field := field.get("/Parent"), Dictionary) and field.objgen in self._ids:
            is_new = field.objgen not in copies
            if is_new:
                above = take(part, field)
                copies[field.objgen] = part.make_indirect(shallow_copy(above)) if is_repeated else above
                copies[field.objgen].Kids = Array()
            copy.Parent = copies[field.objgen]
            copy.Parent.Kids.append(copy)
            if not is_new:
                return []
            copy = copies[field.objgen]
        return [copy]

    def _entries(self, names: set[str]) -> Object:
        """The entries of the form that do not list fields, with the resources that have these names."""
        names |= names_in(self._form.get("/DA"))
        entries = {key: value for key, value in self._form.items() if key not in ("/Fields", "/CO", "/XFA")}
        if isinstance(self._form.get("/DR"), Dictionary):
            found = categories(self._form.DR).items()
            used = {key: {name: one[name] for name in names & one.keys()} for key, one in found}
            entries["/DR"] = with_entries(self._form.DR, used)
        return self._document.make_indirect(Dictionary(entries))


_FLAT = "/ConvertdFlat"  # the key that marks annotations that are drawn
_KEPT = "/ConvertdKept"  # the annotations of other pages, and the form, while MuPDF draws


def flatten_pages(document: Pdf, indexes: Set[int], password: str, *, annotations: bool = True) -> Pdf:
    """The document without form fields and `annotations`, except links, on these pages, which count from 0.

    Issues a warning for files that are attached to annotations.
    """
    for index, page in enumerate(document.pages):
        if index not in indexes and "/Annots" in page.obj:
            page.obj[_KEPT] = page.obj.Annots
            del page.obj["/Annots"]
        for annotation in annotations_of(page.obj):
            annotation[_FLAT] = True
            if annotations and annotation.get("/Subtype") == Name.FileAttachment:
                message = "Files that are attached to annotations are not in the result."
                FidelityWarning.issue("attachments_dropped", message)
    if "/AcroForm" in document.Root:
        document.Root[_KEPT] = form_of(document)
    flat = open_pdf(_draw(document, password, annotations=annotations), password)
    for page in flat.pages:
        _restore(page.obj, "/Annots")
        for link in annotations_of(page.obj):
            if _FLAT in link:
                del link[_FLAT]
    _restore(flat.Root, "/AcroForm")
    if "/AcroForm" in flat.Root:
        form = form_of(flat)
        flattened = {field.objgen for field, _ in walk_fields(form) if _FLAT in field}
        left: Ids = set()
        form.Fields = Array(without_fields(as_list(form.get("/Fields")), flattened, left))
        if "/CO" in form:
            form.CO = Array([field for field in form.CO if field.objgen in left])
        if not len(form.Fields):
            del flat.Root["/AcroForm"]
    return flat


def with_drawn_annotations(document: Pdf, indexes: Set[int], password: str) -> Pdf:
    """As `flatten_pages`; the document itself if it has only links there. Issues a warning for form fields."""
    pages = [page.obj for index, page in enumerate(document.pages) if index in indexes]
    kinds = {str(item.get("/Subtype")) for page in pages for item in annotations_of(page)}
    if "/Widget" in kinds:
        FidelityWarning.issue("forms_dropped", "Form fields are drawn as they are, and cannot be filled in.")
    return flatten_pages(document, indexes, password) if kinds - {"/Link", "/Popup"} else document


def without_fields(fields: Iterable[Any], flattened: Ids, left: Ids) -> list[Object]:
    """The fields without flattened ones and those above no others. Adds the ids of the remaining ones to `left`."""
    kept: list[Object] = []
    for field in fields:
        if not isinstance(field, Dictionary) or field.objgen in flattened | left:
            continue
        left.add(field.objgen)
        if "/Kids" in field:
            field.Kids = Array(without_fields(field.Kids, flattened, left))
        if "/Kids" in field and not len(field.Kids):
            left.discard(field.objgen)
        else:
            kept.append(field)
    return kept


def _draw(document: Pdf, password: str, *, annotations: bool) -> bytes:
    with pymupdf.open(stream=saved(document), filetype="pdf") as drawn:
        authenticate(drawn, password)
        drawn.bake(annots=annotations)
        data: bytes = drawn.tobytes(encryption=pymupdf.PDF_ENCRYPT_KEEP)
    return data


def _restore(holder: Object, key: str) -> None:
    if _KEPT in holder:
        holder[key] = holder[_KEPT]
        del holder[_KEPT]
