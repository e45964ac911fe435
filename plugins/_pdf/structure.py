"""The structure of a tagged PDF, without the elements of deleted pages."""

from collections.abc import Iterator
from typing import Any

from pikepdf import Array, Dictionary, Object, Pdf, Stream

from plugins._pdf.name_trees import (
    Ids,
    as_list,
    empty,
    make_name_tree,
    make_number_tree,
    read_name_tree,
    read_number_tree,
)

# Properties that repeat the content of an element; and the ones of its attributes (of tables, of their headings, and
# user properties) that do.
_TEXTS = ("/ActualText", "/Alt", "/E", "/T", "/Phoneme", "/AF")
_TEXTS_OF_ATTRIBUTES = ("/Summary", "/Short", "/P")


def prune_structure(document: Pdf, dead: Ids, removed: list[Object]) -> None:
    """Removes the elements with content on dead pages only, and texts of those that lose some of their content.

    `dead` are the ids of the `removed` pages and annotations, which are not emptied yet.
    """
    root = document.Root.get("/StructTreeRoot")
    if not isinstance(root, Dictionary):
        return
    pruner = _Pruner(dead)
    root.K = Array(pruner.kept_kids(root, None)[0])
    ids = {element.objgen for element in pruner.dropped if element.is_indirect}
    keys = {
        page_or_annotation.get(key) for page_or_annotation in removed for key in ("/StructParents", "/StructParent")
    }
    if "/ParentTree" in root:
        entries = [(key, value) for key, value in read_number_tree(root.ParentTree) if key not in keys]
        root.ParentTree = document.make_indirect(make_number_tree(entries))
    if "/IDTree" in root:
        remaining = [(name, element) for name, element in read_name_tree(root.IDTree) if element.objgen not in ids]
        root.IDTree = document.make_indirect(make_name_tree(remaining))
    for element in pruner.dropped:
        empty(element)


class _Pruner:
    """One pass over the elements, each of which is visited once."""

    def __init__(self, dead: Ids) -> None:
        self.dropped: list[Object] = []
        self._dead = dead
        self._seen: Ids = set()

    def kept_kids(self, element: Object, page: Any) -> tuple[list[Any], bool]:
        """The content and elements in an element that remain, and whether any of its content is removed.

        `page` is the page of the element.
        """
        kept, is_changed = [], False
        for kid in as_list(element.get("/K")):
            if isinstance(kid, Dictionary) and "/S" in kid:
                is_kept, has_changed = self._prune(kid, page)
            else:
                # Content can be on another page than the start of its element.
                places = [kid.get("/Obj"), kid.get("/Pg", page)] if isinstance(kid, Dictionary) else [page]
                is_kept = not any(map(self._is_dead, places))
                has_changed = not is_kept
            kept += [kid] if is_kept else []
            is_changed |= has_changed
        return kept, is_changed

    def _prune(self, element: Object, page: Any) -> tuple[bool, bool]:
        """Returns whether an element remains, and whether any of its content is removed.

        `page` is the page of its parent.
        """
        if element.is_indirect and element.objgen in self._seen:
            return False, False
        self._seen.add(element.objgen)
        page = element.get("/Pg", page)
        kept, is_changed = self.kept_kids(element, page)
        if not kept and ("/K" in element or self._is_dead(page)):
            self.dropped.append(element)
            return False, True
        if is_changed:
            element.K = Array(kept)
            remove_texts(element)
        if "/Pg" in element and self._is_dead(element.Pg):
            del element["/Pg"]
        return True, is_changed

    def _is_dead(self, item: Any) -> bool:
        return isinstance(item, Object) and item.is_indirect and item.objgen in self._dead


def remove_texts(element: Object) -> None:
    """Removes the properties of an element that repeat its content."""
    attributes = [item for item in as_list(element.get("/A")) if isinstance(item, Dictionary)]
    for holder, texts in ((element, _TEXTS), *((item, _TEXTS_OF_ATTRIBUTES) for item in attributes)):
        for key in texts:
            if key in holder:
                del holder[key]


def holders_of_keys(page: Object) -> Iterator[Object]:
    """A page, its annotations and its form XObjects, which have keys of the structure."""
    xobjects = ((page.get("/Resources") or Dictionary()).get("/XObject") or Dictionary()).items()
    for holder in (page, *(page.get("/Annots") or ()), *(value for _, value in xobjects)):
        if isinstance(holder, Dictionary | Stream):
            yield holder
