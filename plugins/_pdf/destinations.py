"""Destinations of a PDF's outline, links and actions: changed, or removed with the items that refer to them.

The outline of a part of a document has the items that lead to its pages, and those above them.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeAlias

from pikepdf import Array, Dictionary, Name, NamePath, Object, Pdf, String

from plugins._pdf.name_trees import Ids, make_name_tree, read_name_tree
from plugins._pdf.objects import is_apart, keep_apart, take

Change: TypeAlias = Callable[[Any], Any]
"""Returns the new destination for a destination (an array or a name), or None to remove it."""


def change_destinations(document: Pdf, change: Change) -> list[Object]:
    """Applies `change` to every destination. Removes and returns the link annotations that lose theirs."""
    rewriter = _Rewriter(change)
    root = document.Root
    if isinstance(root.get("/OpenAction"), Array):
        rewriter.change_destination(root, "/OpenAction")
    else:
        rewriter.change_action(root, "/OpenAction")
    rewriter.change_actions(root)
    if (outline := root.get("/Outlines")) is not None:
        link_items(outline, rewriter.change_outline(outline))
    dropped: list[Object] = []
    for page in document.pages:
        rewriter.change_actions(page.obj)
        annotations = page.obj.get("/Annots")
        if isinstance(annotations, Array):
            kept: list[Object] = []
            for annotation in annotations:
                is_other = not isinstance(annotation, Dictionary)
                is_kept = is_other or rewriter.change_holder(annotation) or annotation.get("/Subtype") != Name.Link
                (kept if is_kept else dropped).append(annotation)
            page.obj.Annots = Array(kept)
    return dropped


class _Rewriter:
    """One pass over a document. Each object is visited once, because hostile files contain cycles."""

    def __init__(self, change: Change) -> None:
        self._change = change
        self._seen: Ids = set()

    def change_holder(self, holder: Object) -> bool:
        """Changes the destination or action of an outline item or annotation. Returns False if it was removed."""
        kept = self.change_destination(holder, "/Dest")
        kept &= self.change_action(holder, "/A")
        self.change_actions(holder)
        return kept

    def change_destination(self, holder: Object, key: str) -> bool:
        """Changes the destination under `key`. Returns False if it was removed."""
        value = holder.get(key)
        if value is None:
            return True
        changed = self._change(value)
        if changed is None:
            del holder[key]
        else:
            holder[key] = changed
        return changed is not None

    def change_actions(self, holder: Object) -> None:
        """Changes the actions on events."""
        events = holder.get("/AA")
        if isinstance(events, Dictionary):
            for key in list(events.keys()):
                self.change_action(events, key)

    def change_action(self, holder: Object, key: str) -> bool:
        """Changes the action under `key` and its successors. Returns False if it was removed, with its successors."""
        action = holder.get(key)
        if not isinstance(action, Dictionary) or self._is_visited(action):
            return True
        if action.get("/S") == Name.GoTo and not self.change_destination(action, "/D"):
            del holder[key]
            return False
        following = action.get("/Next")
        if isinstance(following, Array):
            wrapped = [Dictionary(Next=successor) for successor in following]
            action.Next = Array([wrapper.Next for wrapper in wrapped if self.change_action(wrapper, "/Next")])
        else:
            self.change_action(action, "/Next")
        return True

    def change_outline(self, parent: Object) -> list[Object]:
        """The children of `parent`. An item whose destination was removed is replaced by its own children."""
        kept = []
        for item in outline_items(parent):
            if self._is_visited(item):
                break
            is_kept = self.change_holder(item)
            children = self.change_outline(item)
            if is_kept:
                link_items(item, children)
            kept += [item] if is_kept else children
        return kept

    def _is_visited(self, item: Object) -> bool:
        if not item.is_indirect:
            return False
        visited = item.objgen in self._seen
        self._seen.add(item.objgen)
        return visited


def outline_items(parent: Object) -> Iterator[Object]:
    """The children of an outline item."""
    item = parent.get("/First")
    seen = set()
    while isinstance(item, Dictionary) and item.objgen not in seen:
        seen.add(item.objgen)
        successor = item.get("/Next")
        yield item
        item = successor


def link_items(parent: Object, items: list[Object]) -> None:
    """Sets the children of an outline item, which stays open or closed."""
    for key in ("/First", "/Last"):
        if key in parent:
            del parent[key]
    for previous, item, following in zip([None, *items], items, [*items[1:], None], strict=False):
        item.Parent = parent
        for key, neighbor in (("/Prev", previous), ("/Next", following)):
            if neighbor is not None:
                item[key] = neighbor
            elif key in item:
                del item[key]
    is_open = "/Parent" not in parent or int(parent.get("/Count", 0)) > 0
    if "/Count" in parent:
        del parent["/Count"]
    if items:
        visible = sum(1 + max(0, int(item.get("/Count", 0))) for item in items)
        parent.First = items[0]
        parent.Last = items[-1]
        parent.Count = visible if is_open else -visible


def named_destinations(root: Object) -> dict[String | Name, Any]:
    """Destinations by name: strings from the name tree, names from the dictionary of PDF 1.1."""
    tree = root.get(NamePath.Names.Dests)
    old = root.get("/Dests") or Dictionary()
    strings: dict[String | Name, Any] = {String(key): value for key, value in read_name_tree(tree)}
    return strings | {Name(key): old[key] for key in list(old.keys())}


def set_named_destinations(document: Pdf, destinations: dict[String | Name, Any]) -> None:
    """Sets the named destinations of the document."""
    root = document.Root
    old = {str(key): value for key, value in destinations.items() if isinstance(key, Name)}
    strings = [(bytes(key), value) for key, value in destinations.items() if isinstance(key, String)]
    if old or "/Dests" in root:
        root.Dests = document.make_indirect(Dictionary(old))
    if "/Names" in root or strings:
        root.Names = root.get("/Names") or Dictionary()
        root.Names.Dests = document.make_indirect(make_name_tree(strings))


def destination_array(value: Any) -> Any:
    """The array of a destination, which a named one may wrap in a dictionary."""
    return value.get("/D") if isinstance(value, Dictionary) else value


def resolve_page_numbers(document: Pdf) -> None:
    """Replaces page numbers in destinations with the page objects, as the standard requires."""
    pages = [page.obj for page in document.pages]

    def change(value: Any) -> Any:
        target = destination_array(value)
        number = target[0] if isinstance(target, Array) and len(target) else None
        if isinstance(number, int) and 0 <= number < len(pages):
            target[0] = pages[number]
        return value

    change_destinations(document, change)
    for value in named_destinations(document.Root).values():
        change(value)


class PartOutline:
    """The items of an outline, each assigned to the page of its destination.

    An item without one belongs to those that it contains, otherwise to the page of the item before it. `chapters` are
    the titles of the items of the first level by their pages, which count from 0; of several on a page, the first.
    """

    def __init__(self, document: Pdf, page_of: Callable[[Any], int | None], apart: list[Object]) -> None:
        self._items: list[Object] = []
        self._above: list[int | None] = []
        self._with_page: list[bool] = []
        self._of_page: dict[int, list[int]] = {}
        self.chapters: dict[int, str] = {}
        outline = document.Root.get("/Outlines")
        if not isinstance(outline, Dictionary):
            return
        page = 0
        pending: list[tuple[Object, int | None]] = [(item, None) for item in [*outline_items(outline)][::-1]]
        while pending:
            item, above = pending.pop()
            if is_apart(item):
                continue
            keep_apart(item, apart)
            index = len(self._items)
            found = page_of(target_of(item))
            children = [*outline_items(item)]
            page = page if found is None else found
            self._items.append(item)
            self._above.append(above)
            self._with_page.append(found is not None)
            if found is not None or not children:
                self._of_page.setdefault(page, []).append(index)
            if above is None and found is not None:
                self.chapters.setdefault(found, str(item.get("/Title", "")))
            pending += [(child, index) for child in children[::-1]]

    def add_to(self, part: Pdf, pages: Iterable[int]) -> None:
        """Adds the items of these pages. Items without a page stay above those that they contain."""
        chosen = {index for page in pages for index in self._of_page.get(page, ())}
        pending = list(chosen)
        while pending:
            above = self._above[pending.pop()]
            if above is not None and above not in chosen and not self._with_page[above]:
                chosen.add(above)
                pending.append(above)
        if not chosen:
            return
        children: dict[int | None, list[int]] = {}
        for index in sorted(chosen):
            children.setdefault(self._nearest(index, chosen), []).append(index)
        outline = part.Root.Outlines = part.make_indirect(Dictionary(Type=Name.Outlines))
        items = {index: take(part, self._items[index]) for index in chosen}
        for item in items.values():
            item.Parent = outline  # a placeholder: only items with a parent can be closed
        for index in sorted(chosen, reverse=True):  # the number of visible items is counted from below
            link_items(items[index], [items[child] for child in children.get(index, ())])
        link_items(outline, [items[child] for child in children[None]])

    def _nearest(self, index: int, chosen: set[int]) -> int | None:
        """The nearest item above that is chosen."""
        above = self._above[index]
        while above is not None and above not in chosen:
            above = self._above[above]
        return above


def target_of(item: Object) -> Any:
    """The destination of an outline item, or of its action."""
    action = item.get("/A")
    if "/Dest" in item or not isinstance(action, Dictionary) or action.get("/S") != Name.GoTo:
        return item.get("/Dest")
    return action.get("/D")
