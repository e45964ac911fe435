"""Form fields of a PDF: merging forms, and removing signatures and XFA."""

import re
from collections.abc import Iterator
from itertools import chain, count
from typing import Any

from pikepdf import Array, Dictionary, Name, Object, Pdf, String

from engine import FidelityWarning
from plugins._pdf.name_trees import Ids, unique_name


def remove_signatures(document: Pdf) -> None:
    """Removes signatures and XFA, which are invalid for other pages. Issues a warning for each."""
    invalidate_signatures(document)
    remove_xfa(document)


def invalidate_signatures(document: Pdf) -> None:
    """Removes signatures, which are invalid for a changed document. Issues a warning if there are any."""
    root = document.Root
    form = root.get("/AcroForm") or Dictionary()
    signed = "/Perms" in root
    for field, inherited in _walk(form):
        if inherited.get("/FT") == Name.Sig and "/V" in field:
            del field["/V"]
            signed = True
    for holder, key in ((root, "/Perms"), (root, "/DSS"), (form, "/SigFlags")):
        if key in holder:
            del holder[key]
    if signed:
        FidelityWarning.issue("signature_invalidated", "Signatures were removed: a changed document invalidates them.")


def remove_xfa(document: Pdf) -> None:
    """Removes the XFA form, which repeats the values of all fields. Issues a warning if there is one."""
    form = document.Root.get("/AcroForm") or Dictionary()
    if "/XFA" in form:
        del form["/XFA"]
        FidelityWarning.issue("xfa_dropped", "The XFA form was removed; its form fields are kept.")


def merge_forms(ours: Object, theirs: Object) -> None:
    """Adds the fields of another form. Fields with a name in use are renamed, so that each keeps its value."""
    renamed = _merge_resources(ours, theirs)
    roots = [field for field in theirs.get("/Fields") or () if isinstance(field, Dictionary)]
    for field, inherited in _walk(theirs):
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


def _walk(form: Object) -> Iterator[tuple[Object, dict[str, Any]]]:
    """Every field and widget with its inherited attributes, parents first."""
    seen: Ids = set()
    pending: list[tuple[Any, dict[str, Any]]] = [(field, {}) for field in form.get("/Fields") or ()]
    while pending:
        field, parent_attributes = pending.pop()
        if not isinstance(field, Dictionary) or (field.is_indirect and field.objgen in seen):
            continue
        seen.add(field.objgen)
        inherited = parent_attributes | {key: field[key] for key in ("/FT", "/Q") if key in field}
        yield field, inherited
        pending += [(kid, inherited) for kid in field.get("/Kids") or ()]
