"""Name trees and number trees of PDF as lists, and unique names."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

from pikepdf import Array, Dictionary, Object, String

Names = list[tuple[bytes, Any]]
Numbers = list[tuple[int, Any]]

_UTF16 = b"\xfe\xff"


def read_name_tree(root: Object | None) -> Names:
    """The entries of a name tree; empty for None."""
    return [(bytes(key), value) for key, value in _pairs(root, "/Names") if isinstance(key, String)]


def read_number_tree(root: Object | None) -> Numbers:
    """The entries of a number tree; empty for None."""
    return [(key, value) for key, value in _pairs(root, "/Nums") if isinstance(key, int)]


def make_name_tree(entries: Iterable[tuple[bytes, Any]]) -> Dictionary:
    """A name tree with one node."""
    flat = [part for key, value in sorted(entries, key=_key) for part in (String(key), value)]
    return Dictionary(Names=Array(flat))


def make_number_tree(entries: Iterable[tuple[int, Any]]) -> Dictionary:
    """A number tree with one node."""
    return Dictionary(Nums=Array([part for pair in sorted(entries, key=_key) for part in pair]))


def unique_name(name: bytes, used: Collection[bytes]) -> bytes:
    """`name`, with a number appended if it is in `used`. Names are UTF-16 or single-byte text."""
    number, candidate = 1, name
    while candidate in used:
        number += 1
        suffix = f" ({number})"
        candidate = name + (suffix.encode("utf-16-be") if name.startswith(_UTF16) else suffix.encode())
    return candidate


def _pairs(root: Object | None, leaf: str) -> list[tuple[Any, Any]]:
    pairs: list[tuple[Any, Any]] = []
    seen: set[tuple[int, int]] = set()
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


def _key(entry: tuple[Any, Any]) -> Any:
    return entry[0]
