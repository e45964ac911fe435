"""Name trees and number trees of PDF as lists, unique names, and the page labels in a number tree."""

from collections.abc import Collection, Iterable
from operator import itemgetter
from typing import Any, TypeAlias

from pikepdf import Array, Dictionary, Name, Object, Pdf, String

Names = list[tuple[bytes, Any]]
Numbers = list[tuple[int, Any]]
Id: TypeAlias = tuple[int, int]
"""Object and generation number of an indirect object."""
Ids: TypeAlias = set[Id]
Label: TypeAlias = tuple[str | None, bytes | None, int]
"""Style, prefix and number of a page label."""

_UTF16 = b"\xfe\xff"


def read_name_tree(root: Object | None) -> Names:
    """The entries of a name tree; empty for None."""
    return [(bytes(key), value) for key, value in _pairs(root, "/Names") if isinstance(key, String)]


def read_number_tree(root: Object | None) -> Numbers:
    """The entries of a number tree; empty for None."""
    return [(key, value) for key, value in _pairs(root, "/Nums") if isinstance(key, int)]


def make_name_tree(entries: Iterable[tuple[bytes, Any]]) -> Dictionary:
    """A name tree with one node."""
    flat = [part for key, value in sorted(entries, key=itemgetter(0)) for part in (String(key), value)]
    return Dictionary(Names=Array(flat))


def make_number_tree(entries: Iterable[tuple[int, Any]]) -> Dictionary:
    """A number tree with one node."""
    return Dictionary(Nums=Array([part for pair in sorted(entries, key=itemgetter(0)) for part in pair]))


def unique_name(name: bytes, used: Collection[bytes]) -> bytes:
    """`name`, with a number appended if it is in `used`. Names are UTF-16 or single-byte text."""
    number = 1
    candidate = name
    while candidate in used:
        number += 1
        suffix = f" ({number})"
        candidate = name + (suffix.encode("utf-16-be") if name.startswith(_UTF16) else suffix.encode())
    return candidate


def as_list(kids: Any) -> list[Any]:
    """The items of a value that may be missing, one item or an array."""
    if kids is None:
        return []
    return list(kids) if isinstance(kids, Array) else [kids]


def empty(item: Object) -> None:
    """Removes all entries of a dictionary, so that references to it reveal nothing."""
    for key in list(item.keys()):
        del item[key]


def page_labels(root: Object, count: int) -> list[Label]:
    """The label of every page; 1, 2, 3 … by default."""
    labels: list[Label] = [("/D", None, number) for number in range(1, count + 1)]
    for first, row in sorted(read_number_tree(root.get("/PageLabels")), key=itemgetter(0)):
        if isinstance(row, Dictionary) and first >= 0:
            style = row.get("/S")
            prefix = row.get("/P")
            shared = None if style is None else str(style), None if prefix is None else bytes(prefix)
            start = int(row.get("/St", 1)) - first
            labels[first:] = [(*shared, start + index) for index in range(first, count)]
    return labels


def set_page_labels(document: Pdf, labels: list[Label]) -> None:
    """Sets the page labels, with one entry for each run of consecutive numbers."""
    rows = []
    previous: Label | None = None
    for index, label in enumerate(labels):
        style, prefix, number = label
        if previous is None or label != (*previous[:2], previous[2] + 1):
            row = Dictionary()
            if style is not None:
                row.S = Name(style)
                row.St = number
            if prefix is not None:
                row.P = String(prefix)
            rows.append((index, row))
        previous = label
    document.Root.PageLabels = document.make_indirect(make_number_tree(rows))


def _pairs(root: Object | None, leaf: str) -> list[tuple[Any, Any]]:
    pairs: list[tuple[Any, Any]] = []
    seen: Ids = set()
    nodes: list[Any] = [root]
    while nodes:
        node = nodes.pop()
        if not isinstance(node, Dictionary) or (node.is_indirect and node.objgen in seen):
            continue
        seen.add(node.objgen)
        flat: list[Any] = list(node.get(leaf) or ())
        pairs += zip(flat[::2], flat[1::2], strict=False)
        nodes += reversed(list(node.get("/Kids") or ()))
    return pairs
