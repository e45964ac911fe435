"""Form fields of parts of a PDF: those with a widget on one of the pages."""

from collections.abc import Iterable
from typing import Any

from pikepdf import Array, Dictionary, Object, Pdf, String

from plugins._pdf.form_fields import walk_fields
from plugins._pdf.name_trees import as_list, unique_name

_KEY = "/ConvertdField"  # widgets have this key until their part is complete
_MAX_DEPTH = 100  # fields in each other


class PartFields:
    """The form of a document. Its fields are taken apart, so that no widget refers to the widgets of other pages."""

    def __init__(self, document: Pdf, pages: Iterable[Object]) -> None:
        form = document.Root.get("/AcroForm")
        self._chains: list[list[Object]] = []  # the fields above each widget, from the root
        self._widgets: list[tuple[int, int]] = []
        if not isinstance(form, Dictionary):
            return
        calculated = [field.objgen for field in as_list(form.get("/CO")) if isinstance(field, Dictionary)]
        self._order = {field: number for number, field in enumerate(calculated)}
        fields = {field.objgen for field, _ in walk_fields(form) if field.is_indirect}
        widgets = [
            widget
            for page in pages
            for widget in as_list(page.get("/Annots"))
            if isinstance(widget, Dictionary) and widget.objgen in fields
        ]
        for widget in widgets:
            if _KEY not in widget:
                widget[_KEY] = len(self._chains)
                self._chains.append(_fields_above(widget))
                self._widgets.append(widget.objgen)
        for field in (*widgets, *(field for chain in self._chains for field in chain)):
            for key in {"/Parent", "/Kids"} & set(field.keys()):
                del field[key]
        entries = {key: value for key, value in form.items() if key not in ("/Fields", "/CO", "/XFA")}
        self._entries = document.make_indirect(Dictionary(entries))

    def add_to(self, part: Pdf, pages: Iterable[Object], repeated: Iterable[Object]) -> None:
        """Adds the fields of the widgets on these pages. The fields of a repeated page get names of their own."""
        roots: list[Object] = []
        calculated: list[tuple[int, Object]] = []
        names: set[bytes] = set()
        for place, group in enumerate([[*pages], *([page] for page in repeated)]):
            first = len(roots)
            self._add_group(part, group, roots, calculated if place == 0 else [], is_copy=place > 0)
            for root in roots[first:]:
                if isinstance(root.get("/T"), String):
                    name = unique_name(bytes(root.T), names)
                    names.add(name)
                    root.T = String(name)
        if not roots:
            return
        form = part.Root.AcroForm = part.copy_foreign(self._entries)
        form.Fields = Array(roots)
        if calculated:
            form.CO = Array([field for _, field in sorted(calculated, key=lambda entry: entry[0])])

    def _add_group(
        self,
        part: Pdf,
        pages: Iterable[Object],
        roots: list[Object],
        calculated: list[tuple[int, Object]],
        *,
        is_copy: bool,
    ) -> None:
        """Joins the widgets on these pages with copies of the fields above them."""
        copies: dict[tuple[int, int], Object] = {}
        for widget in [item for page in pages for item in as_list(page.get("/Annots")) if isinstance(item, Dictionary)]:
            if _KEY not in widget:
                continue
            number = int(widget[_KEY])
            del widget[_KEY]
            parent: Object | None = None
            for field in self._chains[number]:
                if field.objgen not in copies:
                    copy = part.copy_foreign(field)
                    copies[field.objgen] = part.make_indirect(Dictionary(dict(copy.items()))) if is_copy else copy
                    self._attach(copies[field.objgen], field.objgen, parent, roots, calculated)
                parent = copies[field.objgen]
            self._attach(widget, self._widgets[number], parent, roots, calculated)

    def _attach(
        self,
        field: Object,
        original: tuple[int, int],
        parent: Object | None,
        roots: list[Object],
        calculated: list[tuple[int, Object]],
    ) -> None:
        if original in self._order:
            calculated.append((self._order[original], field))
        if parent is None:
            roots.append(field)
            return
        if "/Kids" not in parent:
            parent.Kids = Array()
        parent.Kids.append(field)
        field.Parent = parent


def _fields_above(widget: Object) -> list[Object]:
    chain: list[Object] = []
    node: Any = widget.get("/Parent")
    while isinstance(node, Dictionary) and node.is_indirect and len(chain) < _MAX_DEPTH:
        chain.insert(0, node)
        node = node.get("/Parent")
    return chain
