"""Outlines of parts of a PDF: the items that lead to their pages, and those above them."""

from collections.abc import Callable, Iterable
from typing import Any

from pikepdf import Dictionary, Name, Object, Pdf

from plugins._pdf.destinations import link_items, outline_items
from plugins._pdf.pages.part_objects import is_apart, keep_apart, take


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
            index, found, children = len(self._items), page_of(_destination(item)), [*outline_items(item)]
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


def _destination(item: Object) -> Any:
    """The destination of an outline item, or of its action."""
    action = item.get("/A")
    if "/Dest" in item or not isinstance(action, Dictionary) or action.get("/S") != Name.GoTo:
        return item.get("/Dest")
    return action.get("/D")
