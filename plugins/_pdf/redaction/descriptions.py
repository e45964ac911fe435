"""Descriptions of parts of pages in the structure of a document, which repeat what the parts show."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from pikepdf import Array, Dictionary, Page, Pdf, PdfError, String, parse_content_stream

from plugins._pdf.name_trees import Ids, as_list, read_number_tree
from plugins._pdf.objects import entries

_TEXTS = ("/ActualText", "/Alt", "/E", "/T")
_PAINTING = frozenset(("f", "F", "f*", "B", "B*", "b", "b*", "S", "s", "sh"))
_IMAGES = frozenset(("Do", "INLINE IMAGE"))
_IS_CHANGED = 1 << 40  # how much a part with an image is taken to have: its pixels may be other ones

Amounts = Mapping[int, int]
"""How much marked parts of a page show, by their ids: bytes of text, and shapes."""


def amounts(page: Page) -> Amounts:
    """How much the marked parts of a page show."""
    found: dict[int, int] = {}
    parts: list[int | None] = []
    for instruction in _instructions(page):
        operator = str(instruction.operator)
        if operator in ("BDC", "BMC"):
            parts.append(_part(page, instruction.operands))
        elif operator == "EMC" and parts:
            parts.pop()
        elif part := next((part + 1 for part in reversed(parts) if part is not None), 0):
            shown = sum(len(bytes(one)) for one in _strings(instruction.operands)) + (operator in _PAINTING)
            found[part - 1] = found.get(part - 1, 0) + (_IS_CHANGED if operator in _IMAGES else shown)
    return found


def remove_changed(document: Pdf, before: Mapping[int, Amounts]) -> None:
    """Removes the descriptions of parts that show less than before, by the index of the page, and of what has them."""
    root = document.Root.get("/StructTreeRoot")
    if not isinstance(root, Dictionary):
        return
    parents: dict[Any, Any] = dict(read_number_tree(root.get("/ParentTree")))
    for index, old in before.items():
        page = document.pages[index]
        new = amounts(page)
        elements = as_list(parents.get(page.obj.get("/StructParents")))
        for part, amount in old.items():
            if 0 <= part < len(elements) and (amount >= _IS_CHANGED or new.get(part, 0) < amount):
                _remove_texts(elements[part])


def _remove_texts(element: Any) -> None:
    """Removes the texts of an element of the structure, and of those above it."""
    seen: Ids = set()
    while isinstance(element, Dictionary) and element.objgen not in seen:
        seen.add(element.objgen)
        for key in _TEXTS:
            if key in element:
                del element[key]
        element = element.get("/P")


def _instructions(page: Page) -> Iterable[Any]:
    try:
        return parse_content_stream(page)
    except PdfError:
        return ()


def _part(page: Page, operands: Any) -> int | None:
    """The id of a marked part, by the operands that begin it."""
    properties = operands[1] if len(operands) > 1 else None
    if not isinstance(properties, Dictionary):
        properties = dict(entries(page.resources.get("/Properties"))).get(str(properties))
    number = properties.get("/MCID") if isinstance(properties, Dictionary) else None
    return number if isinstance(number, int) else None


def _strings(operands: Iterable[Any]) -> Iterable[String]:
    for one in operands:
        if isinstance(one, String):
            yield one
        elif isinstance(one, Array):
            yield from _strings(one)
