"""The outline of a PDF as a tree of titles and pages."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pikepdf import Array, Dictionary, Name, Object, Pdf, String

from engine import InvalidOption
from plugins._pdf.destinations import destination_array, link_items, named_destinations, outline_items, target_of
from plugins._pdf.fields import text_of
from plugins._pdf.name_trees import Ids

MAX_ITEMS = 2000
MAX_LEVELS = 50
_KEYS = {"title", "page", "children"}


def read_outline(document: Pdf) -> list[dict[str, Any]]:
    """The items of the outline, each with its `title`, the number of its `page` from 1 or None, and its `children`."""
    pages = {page.obj.objgen: number for number, page in enumerate(document.pages, 1)}
    names = named_destinations(document.Root)
    seen: Ids = set()

    def page_of(item: Object) -> int | None:
        target = target_of(item)
        place = destination_array(names.get(target) if isinstance(target, Name | String) else target)
        first = place[0] if isinstance(place, Array) and len(place) else None
        if isinstance(first, int):
            return first + 1 if first in range(len(pages)) else None
        return pages.get(first.objgen) if isinstance(first, Dictionary) else None

    def read(parent: Object, levels: int) -> list[dict[str, Any]]:
        items: list[dict[str, Any]] = []
        for item in outline_items(parent) if levels else ():
            if item.objgen in seen:
                break
            seen.add(item.objgen)
            title = text_of(item.get("/Title", ""))
            items.append({"title": title, "page": page_of(item), "children": read(item, levels - 1)})
        return items

    outline = document.Root.get("/Outlines")
    return read(outline, MAX_LEVELS) if isinstance(outline, Dictionary) else []


def set_outline(document: Pdf, items: Sequence[Any]) -> None:
    """Replaces the outline by these items, which are as those of `read_outline`; without any, removes it.

    Raises InvalidOption for wrong items, more than MAX_ITEMS, or more than MAX_LEVELS levels.
    """
    pages = [page.obj for page in document.pages]
    count = 0

    def make(parent: Object, children: Any, place: str, levels: int) -> None:
        nonlocal count
        if not isinstance(children, list):
            raise _invalid(f"{place} must be a list")
        count += len(children)
        if count > MAX_ITEMS or levels < 0:
            raise _invalid(f"outline must have at most {MAX_ITEMS} items in {MAX_LEVELS} levels", "out_of_range")
        made: list[Object] = []
        for index, item in enumerate(children):
            here = f"{place}[{index}]"
            if not isinstance(item, dict) or not item.keys() <= _KEYS or not isinstance(item.get("title"), str):
                raise _invalid(f"{here} must be an object of title, page and children")
            page = item.get("page")
            if page is not None and (type(page) is not int or not 1 <= page <= len(pages)):
                raise _invalid(f"{here}.page must be a number from 1 to {len(pages)}", "out_of_range")
            entry = document.make_indirect(Dictionary(Title=String(item["title"]), Parent=parent))
            if page is not None:
                entry.Dest = Array([pages[page - 1], Name.XYZ, None, None, None])
            make(entry, item.get("children", []), f"{here}.children", levels - 1)
            made.append(entry)
        link_items(parent, made)

    root = document.make_indirect(Dictionary(Type=Name.Outlines))
    make(root, items, "outline", MAX_LEVELS)
    if "/Outlines" in document.Root:
        del document.Root["/Outlines"]
    if items:
        document.Root.Outlines = root


def _invalid(message: str, reason: str = "malformed") -> InvalidOption:
    return InvalidOption(f"{message}.", reason=reason, param="outline")
