"""Form fields of parts of a PDF: those with a widget on one of the pages."""

from collections.abc import Iterable
from copy import copy as shallow_copy
from typing import Any

from pikepdf import Array, Dictionary, Object, Pdf, String

from plugins._pdf.form_fields import walk_fields
from plugins._pdf.name_trees import Id, as_list, unique_name
from plugins._pdf.pages.part_objects import in_part, is_apart, keep_apart, take
from plugins._pdf.resources import categories, names_in, with_entries


class PartFields:
    """The form of a document, whose fields do not lead to those below them."""

    def __init__(self, document: Pdf, apart: list[Object]) -> None:
        form = document.Root.get("/AcroForm")
        self._document = document
        self._form = form if isinstance(form, Dictionary) else Dictionary()
        calculated = [field.objgen for field in as_list(self._form.get("/CO")) if isinstance(field, Dictionary)]
        self._order = {field: number for number, field in enumerate(calculated)}
        fields = [field for field, _ in walk_fields(self._form)]
        self._ids = {field.objgen for field in fields if field.is_indirect}
        for field in fields:
            keep_apart(field, apart)
            if is_apart(field) and "/Kids" in field:
                del field["/Kids"]

    def add_to(self, part: Pdf, groups: Iterable[Iterable[tuple[Object, Object]]], names: set[str]) -> None:
        """Adds the fields of widgets, each with its copy: those of the pages, and those of each repeated page.

        The fields of a repeated page get names of their own. `names` are those of resources that the pages name, but
        do not have.
        """
        roots: list[Object] = []
        calculated: dict[int, Object] = {}
        taken: set[bytes] = set()
        for place, group in enumerate(groups):
            first = len(roots)
            copies: dict[Id, Object] = {}
            for widget, copy in group:
                if widget.objgen in self._ids and widget.objgen not in copies:
                    roots += self._join(part, widget, copy, copies, is_repeated=place > 0)
            if place == 0:
                calculated = {self._order[field]: copies[field] for field in self._order.keys() & copies.keys()}
            names |= {name for copy in copies.values() for name in names_in(copy.get("/DA"))}
            for root in roots[first:]:
                if isinstance(root.get("/T"), String):
                    root.T = String(unique_name(bytes(root.T), taken))
                    taken.add(bytes(root.T))
        if not roots:
            return
        form = part.Root.AcroForm = in_part(part, self._entries(names))
        form.Fields = Array(roots)
        if calculated:
            form.CO = Array([field for _, field in sorted(calculated.items())])

    def _join(
        self, part: Pdf, widget: Object, copy: Object, copies: dict[Id, Object], *, is_repeated: bool
    ) -> list[Object]:
        """Joins the copy of a widget with copies of the fields above it. Returns the highest if it is new."""
        field: Any = widget
        copies[widget.objgen] = copy
        while isinstance(field := field.get("/Parent"), Dictionary) and field.objgen in self._ids:
            is_new = field.objgen not in copies
            if is_new:
                above = take(part, field)
                copies[field.objgen] = part.make_indirect(shallow_copy(above)) if is_repeated else above
                copies[field.objgen].Kids = Array()
            copy.Parent = copies[field.objgen]
            copy.Parent.Kids.append(copy)
            if not is_new:
                return []
            copy = copies[field.objgen]
        return [copy]

    def _entries(self, names: set[str]) -> Object:
        """The entries of the form that do not list fields, with the resources that have these names."""
        names |= names_in(self._form.get("/DA"))
        entries = {key: value for key, value in self._form.items() if key not in ("/Fields", "/CO", "/XFA")}
        if isinstance(self._form.get("/DR"), Dictionary):
            found = categories(self._form.DR).items()
            used = {key: {name: one[name] for name in names & one.keys()} for key, one in found}
            entries["/DR"] = with_entries(self._form.DR, used)
        return self._document.make_indirect(Dictionary(entries))
