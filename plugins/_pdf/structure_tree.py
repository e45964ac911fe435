"""The structure tree of a tagged PDF: removes the elements of deleted pages."""

from __future__ import annotations

from typing import Any, TypeAlias

from pikepdf import Array, Dictionary, Object, Pdf

from plugins._pdf.name_trees import make_name_tree, make_number_tree, read_name_tree, read_number_tree

Ids: TypeAlias = set[tuple[int, int]]
"""Object and generation numbers of indirect objects."""

_TEXTS = ("/ActualText", "/Alt", "/E")


def prune_structure(document: Pdf, dead: Ids, removed: list[Object]) -> None:
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
        for key in list(element.keys()):
            del element[key]


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


def as_list(kids: Any) -> list[Any]:
    """The children of an element, which may be missing, one or an array."""
    if kids is None:
        return []
    return list(kids) if isinstance(kids, Array) else [kids]
