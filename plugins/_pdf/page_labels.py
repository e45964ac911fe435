"""Page labels: the numbers that readers display for pages."""

from __future__ import annotations

from typing import TypeAlias

from pikepdf import Dictionary, Name, Object, Pdf, String

from plugins._pdf.name_trees import make_number_tree, read_number_tree

Label: TypeAlias = tuple[str | None, bytes | None, int]
"""Style, prefix and number of a page label."""


def page_labels(root: Object, count: int) -> list[Label]:
    """The label of every page; 1, 2, 3 … by default."""
    labels: list[Label] = [("/D", None, number) for number in range(1, count + 1)]
    for first, row in sorted(read_number_tree(root.get("/PageLabels")), key=lambda entry: entry[0]):
        if isinstance(row, Dictionary) and first >= 0:
            style, prefix = row.get("/S"), row.get("/P")
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
