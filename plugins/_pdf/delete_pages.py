"""Pages taken out of a PDF, with all that tells of them: people delete pages to remove secrets.

A page that goes and what belongs to it alone is emptied first, so that whatever still refers to it finds nothing;
then the places that are known to refer to it are put in order.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeAlias

from pikepdf import Array, Dictionary, Name, Object, Pdf, Stream, String

from plugins._pdf.destinations import explicit, named_destinations, numbers_to_pages, retarget, set_named_destinations
from plugins._pdf.name_trees import name_tree, names
from plugins._pdf.page_labels import page_labels, set_page_labels
from plugins._pdf.structure_tree import prune_structure

Ids: TypeAlias = set[tuple[int, int]]


def remove_pages(document: Pdf, indices: list[int]) -> None:
    """Removes the pages, counted from 0. At least one has to remain."""
    numbers_to_pages(document)
    labels = page_labels(document.Root, len(document.pages))
    gone = [document.pages[index].obj for index in indices]
    shared = _resources(gone)
    for index in reversed(indices):
        del document.pages[index]
    staying = {one.objgen for page in document.pages for one in _annotations(page.obj)}
    annotations = [one for page in gone for one in _annotations(page) if one.objgen not in staying]
    dead = {page.objgen for page in gone} | _ids(annotations)
    links = _drop_destinations(document, dead)
    dead |= _ids(links)
    prune_structure(document, dead, [*gone, *annotations, *links])
    _drop_beads(document, dead)
    for one in [*gone, *annotations, *links]:
        _empty(one)
    _drop_fields(document, dead)
    if (found := document.Root.get("/Names")) is not None:
        for key in set(found.keys()) - {"/Dests"}:
            kept = [(name, value) for name, value in names(found[key]) if not _is_dead(value, dead)]
            found[key] = document.make_indirect(name_tree(kept))
    if "/PageLabels" in document.Root:
        removed = set(indices)
        set_page_labels(document, [label for index, label in enumerate(labels) if index not in removed])
    if shared & _resources(page.obj for page in document.pages):
        document.remove_unreferenced_resources()


def _drop_destinations(document: Pdf, dead: Ids) -> list[Object]:
    """Drops what leads to dead pages; the links that did so from living ones."""
    found = named_destinations(document.Root)
    living = {name: value for name, value in found.items() if not _leads_to(value, dead)}

    def change(value: Any) -> Any:
        lost = value in found and value not in living if isinstance(value, String | Name) else _leads_to(value, dead)
        return None if lost else value

    links = retarget(document, change)
    if len(living) < len(found):
        set_named_destinations(document, living)
    return links


def _drop_fields(document: Pdf, dead: Ids) -> None:
    form = document.Root.get("/AcroForm")
    if form is None:
        return
    living: Ids = set()
    form.Fields = Array(_living_fields(form.get("/Fields") or (), dead, living))
    if "/CO" in form:
        form.CO = Array([field for field in form.CO if field.objgen in living])
    if not len(form.Fields):
        del document.Root["/AcroForm"]


def _living_fields(fields: Iterable[Any], dead: Ids, living: Ids) -> list[Object]:
    """Those of the fields that are shown on a living page, or nowhere; their ids are added to `living`."""
    found: list[Object] = []
    for field in fields:
        if not isinstance(field, Dictionary) or field.objgen in dead or field.objgen in living:
            continue
        living.add(field.objgen)
        if "/Kids" in field:
            kids = _living_fields(field.Kids, dead, living)
            if not kids:
                living.discard(field.objgen)
                _empty(field)
                continue
            field.Kids = Array(kids)
        found.append(field)
    return found


def _drop_beads(document: Pdf, dead: Ids) -> None:
    """Articles run on over the beads that are left."""
    threads = []
    for thread in document.Root.get("/Threads") or ():
        beads, bead = [], thread.get("/F")
        seen: Ids = set()
        while isinstance(bead, Dictionary) and bead.objgen not in seen:
            seen.add(bead.objgen)
            if not _is_dead(bead.get("/P"), dead):
                beads.append(bead)
            bead = bead.get("/N")
        for before, bead in zip([*beads[-1:], *beads], beads, strict=False):
            before.N, bead.V = bead, before
        if beads:
            thread.F = beads[0]
            threads.append(thread)
    if "/Threads" in document.Root:
        document.Root.Threads = Array(threads)


def _resources(pages: Iterable[Object]) -> Ids:
    """The dictionaries of fonts, pictures and so on that pages may share, and what stands in them."""
    found: list[Any] = []
    for page in pages:
        resources = page.get("/Resources")
        if isinstance(resources, Dictionary):
            found += [resources, *(kind for _, kind in resources.items())]
    return _ids(one for one in found if isinstance(one, Dictionary))


def _annotations(page: Object) -> list[Object]:
    return [one for one in page.get("/Annots") or () if isinstance(one, Dictionary)]


def _ids(found: Iterable[Object]) -> Ids:
    return {one.objgen for one in found if one.is_indirect}


def _is_dead(found: Any, dead: Ids) -> bool:
    return isinstance(found, Dictionary | Stream) and found.objgen in dead


def _leads_to(value: Any, dead: Ids) -> bool:
    target = explicit(value)
    return isinstance(target, Array) and len(target) > 0 and (target[0] is None or _is_dead(target[0], dead))


def _empty(found: Object) -> None:
    for key in list(found.keys()):
        del found[key]
