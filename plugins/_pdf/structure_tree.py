"""A tagged PDF's structure, without what stood on pages that are gone."""

from __future__ import annotations

from typing import Any, TypeAlias

from pikepdf import Array, Dictionary, Object, Pdf

from plugins._pdf.name_trees import name_tree, names, number_tree, numbers

Ids: TypeAlias = set[tuple[int, int]]

_TEXTS = ("/ActualText", "/Alt", "/E")


def prune_structure(document: Pdf, dead: Ids, gone: list[Object]) -> None:
    """Drops the elements whose content was on dead pages; `gone` are these pages and their annotations, still whole."""
    root = document.Root.get("/StructTreeRoot")
    if not isinstance(root, Dictionary):
        return
    dropped: list[Object] = []
    seen: Ids = set()
    root.K = Array([kid for kid in _listed(root.get("/K")) if _lives(kid, root, dead, dropped, seen)])
    ids = {element.objgen for element in dropped if element.is_indirect}
    keys = {one.get(key) for one in gone for key in ("/StructParents", "/StructParent")}
    if "/ParentTree" in root:
        entries = [(key, value) for key, value in numbers(root.ParentTree) if key not in keys]
        root.ParentTree = document.make_indirect(number_tree(entries))
    if "/IDTree" in root:
        known = [(name, element) for name, element in names(root.IDTree) if element.objgen not in ids]
        root.IDTree = document.make_indirect(name_tree(known))
    for element in dropped:
        for key in list(element.keys()):
            del element[key]


def _lives(kid: Any, parent: Object, dead: Ids, dropped: list[Object], seen: Ids) -> bool:
    """Whether a piece of content or an element is still there. What is left without any content is dropped."""
    page = parent.get("/Pg")
    if not isinstance(kid, Dictionary):
        return page is None or page.objgen not in dead
    if "/S" not in kid:  # content, which may stand on another page than its element begins on
        found = [kid.get("/Obj"), kid.get("/Pg", page)]
        return not any(isinstance(one, Object) and one.objgen in dead for one in found)
    if kid.is_indirect and kid.objgen in seen:
        return False
    seen.add(kid.objgen)
    before = _listed(kid.get("/K"))
    after = [one for one in before if _lives(one, kid, dead, dropped, seen)]
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


def _listed(kids: Any) -> list[Any]:
    if kids is None:
        return []
    return list(kids) if isinstance(kids, Array) else [kids]
