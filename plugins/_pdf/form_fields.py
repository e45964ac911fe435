"""A PDF's form fields: walked, joined with another document's, and freed of what other pages make untrue."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import chain, count
from typing import Any
from warnings import warn

from pikepdf import Array, Dictionary, Name, Object, Pdf, String

from engine import FidelityWarning
from plugins._pdf.name_trees import unique_name


def remove_signatures(document: Pdf) -> None:
    """Takes out the signatures, which hold for the document as it was, and XFA, which describes it as it was."""
    root = document.Root
    form = root.get("/AcroForm") or Dictionary()
    signed = "/Perms" in root
    for field, inherited in _walked(form):
        if inherited.get("/FT") == Name.Sig and "/V" in field:
            del field["/V"]
            signed = True
    for holder, key in ((root, "/Perms"), (root, "/DSS"), (form, "/SigFlags")):
        if key in holder:
            del holder[key]
    if signed:
        warn(
            FidelityWarning("signature_invalidated", "Signatures do not survive a change; they are gone."), stacklevel=2
        )
    if "/XFA" in form:
        del form["/XFA"]
        warn(FidelityWarning("xfa_dropped", "The form's XFA description is gone; its fields remain."), stacklevel=2)


def fields(form: Object) -> Iterator[Object]:
    """All fields and their widgets, parents first."""
    return (field for field, _ in _walked(form))


def join_forms(ours: Object, theirs: Object) -> None:
    """Adds their fields to our form. Those of a name that is taken get another, so that each keeps its value."""
    renamed = _join_resources(ours, theirs)
    roots = [field for field in theirs.get("/Fields") or () if isinstance(field, Dictionary)]
    for field, inherited in _walked(theirs):
        if "/DA" in field and renamed:
            field.DA = _with_fonts(bytes(field.DA), renamed)
        if "/T" in field and "/Parent" not in field and "/DA" not in field and "/DA" in theirs:
            field.DA = _with_fonts(bytes(theirs.DA), renamed)
        if "/Q" in theirs and "/Parent" not in field and "/Q" not in inherited:
            field.Q = theirs.Q
    taken = {bytes(field.T) for field in ours.get("/Fields") or () if isinstance(field.get("/T"), String)}
    for field in roots:
        if isinstance(field.get("/T"), String):
            name = unique_name(bytes(field.T), taken)
            taken.add(name)
            field.T = String(name)
    ours.Fields = Array([*(ours.get("/Fields") or ()), *roots])
    if "/CO" in theirs:
        ours.CO = Array([*(ours.get("/CO") or ()), *theirs.CO])
    if theirs.get("/NeedAppearances"):
        ours.NeedAppearances = True


def _join_resources(ours: Object, theirs: Object) -> dict[bytes, bytes]:
    """Adds their fonts and so on to ours; what those had to be renamed to whose names are taken by others."""
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
            free = _free(name, mine)
            mine[free] = entries[name]
            if free != name and category == "/Font":
                renamed[name.encode()] = free.encode()
    return renamed


def _free(name: str, taken: Object) -> str:
    numbered = (f"{name}_{number}" for number in count(2))
    return next(found for found in chain([name], numbered) if found not in taken)


def _with_fonts(appearance: bytes, renamed: dict[bytes, bytes]) -> String:
    return String(re.sub(rb"/[^\s/<>()\[\]{}%]+", lambda found: renamed.get(found[0], found[0]), appearance))


def _walked(form: Object) -> Iterator[tuple[Object, dict[str, Any]]]:
    """Every field with what it inherits."""
    seen: set[tuple[int, int]] = set()
    found: list[tuple[Any, dict[str, Any]]] = [(field, {}) for field in form.get("/Fields") or ()]
    while found:
        field, above = found.pop()
        if not isinstance(field, Dictionary) or (field.is_indirect and field.objgen in seen):
            continue
        seen.add(field.objgen)
        inherited = above | {key: field[key] for key in ("/FT", "/Q") if key in field}
        yield field, inherited
        found += [(kid, inherited) for kid in field.get("/Kids") or ()]
