"""Where a PDF's outline, links and actions lead: each destination changed, or dropped with what leads there."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

from pikepdf import Array, Dictionary, Name, Object, Pdf, String

from plugins._pdf.name_trees import name_tree, names

Change: TypeAlias = Callable[[Any], Any]
"""Makes another destination of a destination (an array, or its name), or None of one that is gone."""


def retarget(document: Pdf, change: Change) -> list[Object]:
    """Changes every destination inside the document; the link annotations that lost theirs, which are dropped."""
    rewriting = _Rewriting(change)
    root = document.Root
    if isinstance(root.get("/OpenAction"), Array):
        rewriting.value(root, "/OpenAction")
    else:
        rewriting.action(root, "/OpenAction")
    rewriting.actions(root)
    if (outline := root.get("/Outlines")) is not None:
        link_items(outline, rewriting.items(outline))
    dropped: list[Object] = []
    for page in document.pages:
        rewriting.actions(page.obj)
        annotations = page.obj.get("/Annots")
        if isinstance(annotations, Array):
            kept: list[Object] = []
            for one in annotations:
                leads = not isinstance(one, Dictionary) or rewriting.holder(one) or one.get("/Subtype") != Name.Link
                (kept if leads else dropped).append(one)
            page.obj.Annots = Array(kept)
    return dropped


class _Rewriting:
    """One pass over a document. Hostile files lead in circles, so that everything is visited once."""

    def __init__(self, change: Change) -> None:
        self._change = change
        self._seen: set[tuple[int, int]] = set()

    def holder(self, holder: Object) -> bool:
        """Changes where an outline item or an annotation leads; whether it still does."""
        kept = self.value(holder, "/Dest")
        kept &= self.action(holder, "/A")
        self.actions(holder)
        return kept

    def value(self, holder: Object, key: str) -> bool:
        """Changes the destination under a key; whether it is still there, if it was."""
        value = holder.get(key)
        if value is None:
            return True
        changed = self._change(value)
        if changed is None:
            del holder[key]
        else:
            holder[key] = changed
        return changed is not None

    def actions(self, holder: Object) -> None:
        """Changes what is done on events."""
        events = holder.get("/AA")
        if isinstance(events, Dictionary):
            for key in list(events.keys()):
                self.action(events, key)

    def action(self, holder: Object, key: str) -> bool:
        """Changes the action under a key and those that follow it; one that leads nowhere goes with its followers."""
        action = holder.get(key)
        if not isinstance(action, Dictionary) or self._been_at(action):
            return True
        if action.get("/S") == Name.GoTo and not self.value(action, "/D"):
            del holder[key]
            return False
        following = action.get("/Next")
        if isinstance(following, Array):
            wrapped = [Dictionary(Next=one) for one in following]
            action.Next = Array([one.Next for one in wrapped if self.action(one, "/Next")])
        else:
            self.action(action, "/Next")
        return True

    def items(self, parent: Object) -> list[Object]:
        """The items below `parent` that still lead somewhere, or whose own items do."""
        kept = []
        for item in outline_items(parent):
            if self._been_at(item):
                break
            leads, below = self.holder(item), self.items(item)
            if leads or below:
                link_items(item, below)
                kept.append(item)
        return kept

    def _been_at(self, found: Object) -> bool:
        if not found.is_indirect:
            return False
        been = found.objgen in self._seen
        self._seen.add(found.objgen)
        return been


def outline_items(parent: Object) -> Iterator[Object]:
    """The items right below `parent`."""
    item, seen = parent.get("/First"), set()
    while isinstance(item, Dictionary) and item.objgen not in seen:
        seen.add(item.objgen)
        following = item.get("/Next")
        yield item
        item = following


def link_items(parent: Object, items: list[Object]) -> None:
    """Makes `items` those right below `parent`, which stays open or closed."""
    for key in ("/First", "/Last"):
        if key in parent:
            del parent[key]
    for before, item, after in zip([None, *items], items, [*items[1:], None], strict=False):
        item.Parent = parent
        for key, neighbour in (("/Prev", before), ("/Next", after)):
            if neighbour is not None:
                item[key] = neighbour
            elif key in item:
                del item[key]
    is_open = "/Parent" not in parent or int(parent.get("/Count", 0)) > 0
    if "/Count" in parent:
        del parent["/Count"]
    if items:
        shown = sum(1 + max(0, int(item.get("/Count", 0))) for item in items)
        parent.First, parent.Last, parent.Count = items[0], items[-1], shown if is_open else -shown


def named_destinations(root: Object) -> dict[String | Name, Any]:
    """The destinations by their names: strings stand in a name tree, names in a dictionary as of old."""
    tree = (root.get("/Names") or Dictionary()).get("/Dests")
    old = root.get("/Dests") or Dictionary()
    found: dict[String | Name, Any] = {String(key): value for key, value in names(tree)}
    return found | {Name(key): old[key] for key in list(old.keys())}


def set_named_destinations(document: Pdf, found: dict[String | Name, Any]) -> None:
    """Makes these the document's named destinations."""
    root = document.Root
    old = {str(key): value for key, value in found.items() if isinstance(key, Name)}
    strings = [(bytes(key), value) for key, value in found.items() if isinstance(key, String)]
    if old or "/Dests" in root:
        root.Dests = document.make_indirect(Dictionary(old))
    if "/Names" in root or strings:
        root.Names = root.get("/Names") or Dictionary()
        root.Names.Dests = document.make_indirect(name_tree(strings))


def explicit(value: Any) -> Any:
    """The array of a named destination's value."""
    return value.get("/D") if isinstance(value, Dictionary) else value


def numbers_to_pages(document: Pdf) -> None:
    """Lets destinations that tell their page by its number tell the page itself, as they should."""
    pages = [page.obj for page in document.pages]

    def change(value: Any) -> Any:
        target = explicit(value)
        number = target[0] if isinstance(target, Array) and len(target) else None
        if isinstance(number, int) and 0 <= number < len(pages):
            target[0] = pages[number]
        return value

    retarget(document, change)
    for value in named_destinations(document.Root).values():
        change(value)
