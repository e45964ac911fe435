"""Deletes pages from a PDF, with everything that reveals their content: users delete pages to remove secrets.

Deleted pages and the objects that only they use are emptied, so that any remaining reference leads to an empty object.
Known references (destinations, structure, articles, form fields, names, page labels) are removed. `dead` are the ids of
deleted pages and of the annotations on them.
"""

from collections.abc import Iterable
from typing import Any

from pikepdf import Array, Dictionary, Name, Object, Pdf, Stream, String

from plugins._pdf.destinations import (
    Change,
    change_destinations,
    destination_array,
    named_destinations,
    page_resolver,
    set_named_destinations,
)
from plugins._pdf.name_trees import (
    Ids,
    as_list,
    empty,
    make_name_tree,
    page_labels,
    read_name_tree,
    set_page_labels,
)
from plugins._pdf.resources import drop_unused_resources, resource_ids
from plugins._pdf.structure import prune_structure


def remove_pages(document: Pdf, indices: list[int]) -> int:
    """Deletes the pages at `indices`, which count from 0. At least one page must remain.

    Returns the number of links on other pages that led to them, which are deleted, too.
    """
    resolve = page_resolver(document)
    labels = page_labels(document.Root, len(document.pages))
    deleted = [document.pages[index].obj for index in indices]
    for index in reversed(indices):
        del document.pages[index]
    # Each page has inherited its resources by now.
    resources = {one for page in deleted for one in resource_ids(page)}
    remaining = {annotation.objgen for page in document.pages for annotation in _annotations(page.obj)}
    annotations = [item for page in deleted for item in _annotations(page) if item.objgen not in remaining]
    dead = {page.objgen for page in deleted} | _ids(annotations)
    links = _drop_destinations(document, dead, resolve)
    dead |= _ids(links)
    prune_structure(document, dead, [*deleted, *annotations, *links])
    _drop_beads(document, dead)
    for removed in [*deleted, *annotations, *links]:
        empty(removed)
    drop_fields(document, dead)
    _drop_names(document, dead)
    if "/PageLabels" in document.Root:
        removed_indices = set(indices)
        set_page_labels(document, [label for index, label in enumerate(labels) if index not in removed_indices])
    _drop_private_data(document)
    for page in document.pages:
        if resources & resource_ids(page.obj):
            drop_unused_resources(page)
    return len(links)


def _drop_private_data(document: Pdf) -> None:
    """Removes data of applications, which can contain the whole document, and the description of its parts."""
    for holder in (document.Root, *(page.obj for page in document.pages)):
        for key in {"/PieceInfo", "/DPartRoot", "/DPart"} & set(holder.keys()):
            del holder[key]


def _drop_names(document: Pdf, dead: Ids) -> None:
    """Removes what is dead or refers to it from the name trees; `_drop_destinations` handles named destinations."""
    trees = document.Root.get("/Names") or Dictionary()
    for key in set(trees.keys()) - {"/Dests"}:
        remaining = [(name, value) for name, value in read_name_tree(trees[key]) if not _refers(value, dead)]
        trees[key] = document.make_indirect(make_name_tree(remaining))


def _drop_destinations(document: Pdf, dead: Ids, resolve: Change) -> list[Object]:
    """Removes the destinations on dead pages, after `resolve`. Returns the removed links to them."""
    destinations = named_destinations(document.Root)
    living = {name: value for name, value in destinations.items() if not _is_on(resolve(value), dead)}

    def change(value: Any) -> Any:
        is_name = isinstance(value, String | Name)
        is_dead = value in destinations and value not in living if is_name else _is_on(resolve(value), dead)
        return None if is_dead else value

    links = change_destinations(document, change)
    if len(living) < len(destinations):
        set_named_destinations(document, living)
    return links


def drop_fields(document: Pdf, dead: Ids) -> None:
    """Removes the form fields that are dead, and those above them that have no others; the form without any."""
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
    """The fields without those on dead pages only. Adds the ids of the remaining fields to `living`."""
    kept: list[Object] = []
    for field in fields:
        if not isinstance(field, Dictionary) or field.objgen in dead or field.objgen in living:
            continue
        living.add(field.objgen)
        if "/Kids" in field:
            kids = _living_fields(field.Kids, dead, living)
            if not kids:
                living.discard(field.objgen)
                empty(field)
                continue
            field.Kids = Array(kids)
        kept.append(field)
    return kept


def _drop_beads(document: Pdf, dead: Ids) -> None:
    """Removes the beads (parts of articles) on dead pages and links the remaining ones."""
    threads: list[Object] = []
    dropped: list[Object] = []
    for thread in document.Root.get("/Threads") or ():
        beads: list[Object] = []
        bead = thread.get("/F")
        seen: Ids = set()
        while isinstance(bead, Dictionary) and bead.objgen not in seen:
            seen.add(bead.objgen)
            (dropped if _is_dead(bead.get("/P"), dead) else beads).append(bead)
            bead = bead.get("/N")
        for previous, bead in zip([*beads[-1:], *beads], beads, strict=False):
            previous.N, bead.V = bead, previous
        if beads:
            thread.F = beads[0]
        (threads if beads else dropped).append(thread)
    for removed in dropped:  # actions can lead to them
        empty(removed)
    if "/Threads" in document.Root:
        document.Root.Threads = Array(threads)


def _annotations(page: Object) -> list[Object]:
    return [item for item in page.get("/Annots") or () if isinstance(item, Dictionary)]


def _ids(objects: Iterable[Object]) -> Ids:
    return {item.objgen for item in objects if item.is_indirect}


def _is_dead(item: Any, dead: Ids) -> bool:
    return isinstance(item, Dictionary | Stream) and item.objgen in dead


def _refers(value: Any, dead: Ids) -> bool:
    """Whether a value, or what it contains, is dead."""
    contained = [item for _, entry in value.items() for item in as_list(entry)] if isinstance(value, Dictionary) else []
    return any(_is_dead(item, dead) for item in (value, *contained))


def _is_on(value: Any, dead: Ids) -> bool:
    target = destination_array(value)
    return isinstance(target, Array) and len(target) > 0 and (target[0] is None or _is_dead(target[0], dead))
