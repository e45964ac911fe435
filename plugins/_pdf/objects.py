"""The objects of a PDF that its trailer leads to."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pikepdf import Array, Dictionary, Pdf, Stream

from plugins._pdf.name_trees import Ids


def walk(document: Pdf) -> Iterator[tuple[Any, Any, Any]]:
    """Yields each entry that is a dictionary, a stream or an array: its holder, its key or index, and its value.

    The entry can be replaced meanwhile. The content of an indirect object is visited once.
    """
    seen: Ids = set()
    pending: list[Any] = [document.trailer]
    while pending:
        holder = pending.pop()
        entries = enumerate(holder) if isinstance(holder, Array) else holder.items()
        for key, value in list(entries):
            if isinstance(value, Dictionary | Stream | Array):
                yield holder, key, value
                current = holder[key]
                if current.is_indirect:
                    if current.objgen in seen:
                        continue
                    seen.add(current.objgen)
                pending.append(current)
