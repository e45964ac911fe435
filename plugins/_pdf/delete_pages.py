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
    make_name_tree,
    make_number_tree,
    page_labels,
    read_name_tree,
    read_number_tree,
    set_page_labels,
)

_TEXTS = ("/ActualText", "/Alt", "/E")  # properties of a structure element that repeat its content


def remove_pages(document: Pdf, indices: list[int]) -> int:
    """Deletes the pages at `indices`, which count from 0. At least one page must remain.

    Returns the number of links on other pages that led to them, which are deleted, too.
    """
    resolve = page_resolver(document)
    labels = page_labels(document.Root, len(document.pages))
    deleted = [document.pages[index].obj for index in indices]
    resources = _resource_ids(deleted)
    for index in reversed(indices):
        del document.pages[index]
    remaining = {annotation.objgen for page in document.pages for annotation in _annotations(page.obj)}
    annotations = [item for page in deleted for item in _annotations(page) if item.objgen not in remaining]
    dead = {page.objgen for page in deleted} | _ids(annotations)
    links = _drop_destinations(document, dead, resolve)
    dead |= _ids(links)
    _prune_structure(document, dead, [*deleted, *annotations, *links])
    _drop_beads(document, dead)
    for removed in [*deleted, *annotations, *links]:
        _empty(removed)
    _drop_fields(document, dead)
    _drop_names(document, dead)
    if "/PageLabels" in document.Root:
        removed_indices = set(indices)
        set_page_labels(document, [label for index, label in enumerate(labels) if index not in removed_indices])
    if resources & _resource_ids(page.obj for page in document.pages):
        document.remove_unreferenced_resources()
    return len(links)


def _drop_names(document: Pdf, dead: Ids) -> None:
    """Removes dead objects from the name trees; `_drop_destinations` handles named destinations."""
    trees = document.Root.get("/Names") or Dictionary()
    for key in set(trees.keys()) - {"/Dests"}:
        remaining = [(name, value) for name, value in read_name_tree(trees[key]) if not _is_dead(value, dead)]
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
                _empty(field)
                continue
            field.Kids = Array(kids)
        kept.append(field)
    return kept


def _prune_structure(document: Pdf, dead: Ids, removed: list[Object]) -> None:
    """Removes the elements with content on dead pages only.

    `removed` are these pages and their annotations, before they are emptied.
    """
    root = document.Root.get("/StructTreeRoot")
    if not isinstance(root, Dictionary):
        return
    dropped: list[Object] = []
    seen: Ids = set()
    root.K = Array([kid for kid in as_list(root.get("/K")) if _is_kept(kid, root, dead, dropped, seen)])
    ids = {element.objgen for element in dropped if element.is_indirect}
    keys = {
        page_or_annotation.get(key) for page_or_annotation in removed for key in ("/StructParents", "/StructParent")
    }
    if "/ParentTree" in root:
        entries = [(key, value) for key, value in read_number_tree(root.ParentTree) if key not in keys]
        root.ParentTree = document.make_indirect(make_number_tree(entries))
    if "/IDTree" in root:
        remaining = [(name, element) for name, element in read_name_tree(root.IDTree) if element.objgen not in ids]
        root.IDTree = document.make_indirect(make_name_tree(remaining))
    for element in dropped:
        _empty(element)


def _is_kept(kid: Any, parent: Object, dead: Ids, dropped: list[Object], seen: Ids) -> bool:
    """Whether content or an element remains. Elements without remaining content are added to `dropped`."""
    page = parent.get("/Pg")
    if not isinstance(kid, Dictionary):
        return page is None or page.objgen not in dead
    if "/S" not in kid:  # content, possibly on another page than the start of its element
        places = [kid.get("/Obj"), kid.get("/Pg", page)]
        return not any(isinstance(place, Object) and place.objgen in dead for place in places)
    if kid.is_indirect and kid.objgen in seen:
        return False
    seen.add(kid.objgen)
    before = as_list(kid.get("/K"))
    after = [child for child in before if _is_kept(child, kid, dead, dropped, seen)]
    if before and not after:
        dropped.append(kid)
        return False
    if len(after) < len(before):
        kid.K = Array(after)
        for key in _TEXTS:
            if key in kid:
                del kid[key]
    if "/Pg" in kid and kid.Pg.objgen in dead:
        del kid["/Pg"]
    return True


def _drop_beads(document: Pdf, dead: Ids) -> None:
    """Removes the beads (parts of articles) on dead pages and links the remaining ones."""
    threads = []
    for thread in document.Root.get("/Threads") or ():
        beads, bead = [], thread.get("/F")
        seen: Ids = set()
        while isinstance(bead, Dictionary) and bead.objgen not in seen:
            seen.add(bead.objgen)
            if not _is_dead(bead.get("/P"), dead):
                beads.append(bead)
            bead = bead.get("/N")
        for previous, bead in zip([*beads[-1:], *beads], beads, strict=False):
            previous.N, bead.V = bead, previous
        if beads:
            thread.F = beads[0]
            threads.append(thread)
    if "/Threads" in document.Root:
        document.Root.Threads = Array(threads)


def _resource_ids(pages: Iterable[Object]) -> Ids:
    """The ids of the resource dictionaries of pages, and of the dictionaries by category in them."""
    dictionaries: list[Any] = []
    for page in pages:
        resources = page.get("/Resources")
        if isinstance(resources, Dictionary):
            dictionaries += [resources, *(category for _, category in resources.items())]
    return _ids(item for item in dictionaries if isinstance(item, Dictionary))


def _annotations(page: Object) -> list[Object]:
    return [item for item in page.get("/Annots") or () if isinstance(item, Dictionary)]


def _ids(objects: Iterable[Object]) -> Ids:
    return {item.objgen for item in objects if item.is_indirect}


def _is_dead(item: Any, dead: Ids) -> bool:
    return isinstance(item, Dictionary | Stream) and item.objgen in dead


def _is_on(value: Any, dead: Ids) -> bool:
    target = destination_array(value)
    return isinstance(target, Array) and len(target) > 0 and (target[0] is None or _is_dead(target[0], dead))


def _empty(item: Object) -> None:
    for key in list(item.keys()):
        del item[key]
