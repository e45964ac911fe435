"""Parts of a PDF: new documents with some of its pages, and with what belongs to these pages.

What belongs to other pages only is not in the file of a part: users delete pages to remove secrets. The time for all
parts together grows with the pages and objects of the document: what refers to pages is assigned to them once, and no
part is compared with the pages of others.
"""

from collections.abc import Iterable, Mapping, Sequence
from copy import copy
from typing import Any, TypeAlias

import pikepdf
from pikepdf import Array, Dictionary, Name, Object, Pdf, String

from engine import FidelityWarning
from plugins._pdf.destinations import (
    PartOutline,
    change_destinations,
    destination_array,
    named_destinations,
    set_named_destinations,
)
from plugins._pdf.form_fields import PartFields, remove_xfa
from plugins._pdf.layers import add_layers
from plugins._pdf.name_trees import (
    Id,
    Ids,
    as_list,
    empty,
    make_name_tree,
    page_labels,
    read_name_tree,
    set_page_labels,
)
from plugins._pdf.objects import annotations_of, in_part, is_apart, keep_apart, take
from plugins._pdf.pages.part_structure import PartStructure
from plugins._pdf.resources import UsedResources

Pairs: TypeAlias = list[tuple[Object, Object]]
"""Annotations of a document, each with the one in a part."""

# Entries of the catalog that every part gets.
_COMMON = {
    "/Lang", "/MarkInfo", "/Metadata", "/OutputIntents", "/PageLayout", "/PageMode", "/ViewerPreferences",
    "/Extensions",
}  # fmt: skip
# Entries that are made for each part, that concern the whole file, or that can contain any page.
_MADE = {
    "/Outlines", "/Dests", "/AcroForm", "/PageLabels", "/StructTreeRoot", "/OCProperties", "/Threads", "/PieceInfo",
    "/DPartRoot", "/Perms", "/DSS",
}  # fmt: skip


def keep_pages(document: Pdf, numbers: Sequence[int]) -> None:
    """Leaves only the pages of these numbers in a document, as in a part of it with attachments."""
    Divider(document).fill(document, numbers, with_attachments=True)


class Divider:
    """A document from which parts are made. Issues a warning if it has an XFA form, which no part has."""

    def __init__(self, document: Pdf) -> None:
        self._document = document
        remove_xfa(document)
        document.pages.append(document.pages[0])  # gives all pages the attributes that they inherit
        del document.pages[-1]
        self.pages = list(document.pages)
        objects = [page.obj for page in self.pages]
        self._numbers = {page.objgen: number for number, page in enumerate(objects)}
        self._labels = page_labels(document.Root, len(self.pages)) if "/PageLabels" in document.Root else None
        self._resources = UsedResources(objects)
        self._destinations = {
            name: document.make_indirect(value) for name, value in named_destinations(document.Root).items()
        }
        self._names: dict[int, list[String | Name]] = {}
        for name, value in self._destinations.items():
            number = self._page_of(value)
            if number is not None:
                self._names.setdefault(number, []).append(name)
        apart: list[Object] = []
        self._apart = apart
        self.outline = PartOutline(document, self._page_of, apart)
        self._structure = PartStructure(document, self._numbers, apart)
        self._fields = PartFields(document, apart)
        self._articles = PartArticles(document, self._numbers, apart)
        layers = document.Root.get("/OCProperties")
        self._layers = document.make_indirect(layers) if isinstance(layers, Dictionary) else None
        for page in objects:
            keys = page.keys()
            for key in keys & {"/PieceInfo", "/DPart"}:
                del page[key]
            for key in keys & {"/Annots", "/B"}:
                for item in as_list(page[key]):
                    keep_apart(item, apart)

    def _page_of(self, destination: Any) -> int | None:
        """The page, counted from 0, on which a destination is."""
        if isinstance(destination, String | Name):
            destination = self._destinations.get(destination)
        target = destination_array(destination)
        first = target[0] if isinstance(target, Array) and len(target) else None
        if isinstance(first, int):
            return first if 0 <= first < len(self.pages) else None
        return self._numbers.get(first.objgen) if isinstance(first, Dictionary) else None

    def fill(self, part: Pdf, numbers: Sequence[int], *, with_attachments: bool) -> None:
        """Puts the pages of these numbers, which count from 0, into a part, in this order, and what belongs to them.

        `part` is a document without pages, or the document itself, from which no other part can be made afterwards. A
        page can be there several times, each with annotations and fields of its own. `with_attachments`: the part also
        has what belongs to no page, such as attached files. Issues a warning if links to other pages are removed.
        """
        missing = {name for number in {*numbers} for name in self._resources.keep(self.pages[number].obj)}
        pages, widgets = self._add_pages(part, numbers)
        self._fill_catalog(part, pages, with_attachments=with_attachments)
        if part is self._document:
            others = [page.obj for number, page in enumerate(self.pages) if number not in pages]
            for item in [*others, *(item for page in others for item in annotations_of(page) if is_apart(item))]:
                empty(item)
        self._fields.add_to(part, widgets, missing)
        self._articles.add_to(part, pages)
        self._set_destinations(part, pages)
        self._structure.add_to(part, pages)
        if part is self._document:
            for item in filter(is_apart, self._apart):
                empty(item)
        if self._layers is not None:
            add_layers(part, self._layers)
        if self._labels is not None:
            set_page_labels(part, [self._labels[number] for number in numbers])

    def _add_pages(self, part: Pdf, numbers: Sequence[int]) -> tuple[dict[int, Object], list[Pairs]]:
        """Adds the pages. Returns them by number, and their annotations: of all, and of each repeated page."""
        if part is self._document:
            others = {*range(len(self.pages))}.difference(numbers if [*numbers] == sorted({*numbers}) else ())
            for number in sorted(others, reverse=True):
                del part.pages[number]
        pages: dict[int, Object] = {}
        annotations: dict[int, Pairs] = {}
        repeated: list[Pairs] = []
        are_there = len(part.pages) > 0
        for number in numbers:
            if number not in pages:
                if not are_there:
                    part.pages.append(self.pages[number])
                pages[number] = self.pages[number].obj if part is self._document else part.pages[-1].obj
                apart = [*filter(is_apart, annotations_of(self.pages[number].obj))]
                annotations[number] = [(item, take(part, item)) for item in apart]
            else:
                part.pages.append(pikepdf.Page(pages[number]))
                own = _own_annotations(part, part.pages[-1].obj)
                repeated.append([(item, own[first.objgen]) for item, first in annotations[number]])
        return pages, [[pair for pairs in annotations.values() for pair in pairs], *repeated]

    def _fill_catalog(self, part: Pdf, pages: Mapping[int, Object], *, with_attachments: bool) -> None:
        """Adds the entries of the catalog that are made for no part, and removes others."""
        source = self._document
        root = self._document.Root
        if part is not source:
            info = source.trailer.get("/Info")
            if isinstance(info, Dictionary) and "/Type" not in info:  # broken files may name another object
                part.trailer.Info = part.copy_foreign(source.make_indirect(info))
            part.Root.Version = Name(f"/{source.pdf_version}")
            keys = root.keys() - _MADE - {"/Type", "/Pages"} if with_attachments else root.keys() & _COMMON
            for key in sorted(keys - {"/Version", "/Names"}):
                part.Root[key] = self._in_part(part, root[key])
        names = root.get("/Names")
        others = {page for page, number in self._numbers.items() if number not in pages}
        if part is source:
            for key in root.keys() & _MADE:
                del root[key]
        if with_attachments and isinstance(names, Dictionary):
            part.Root.Names = Dictionary()
            for key in names.keys() - {"/Dests", "/XFAResources"}:
                tree = dict(entry for entry in read_name_tree(names[key]) if not _refers(entry[1], others))
                entries = {name: self._in_part(part, value) for name, value in tree.items()}
                part.Root.Names[key] = part.make_indirect(make_name_tree(entries.items()))

    def _in_part(self, part: Pdf, value: Any) -> Any:
        return in_part(part, self._document.make_indirect(value)) if isinstance(value, Object) else value

    def _set_destinations(self, part: Pdf, pages: Mapping[int, Object]) -> None:
        """Adds the outline and the named destinations of these pages, and removes links to others."""
        living = {page.objgen for page in pages.values()}
        known = {name for number in pages for name in self._names.get(number, ())}

        def change(value: Any) -> Any:
            if isinstance(value, String | Name):
                return value if value in known or value not in self._destinations else None
            target = destination_array(value)
            if not isinstance(target, Array) or not len(target):
                return value
            if isinstance(target[0], int):
                target[0] = pages.get(target[0])
            page = target[0]
            return None if page is None or (isinstance(page, Dictionary) and page.objgen not in living) else value

        self.outline.add_to(part, pages)
        if known:
            named = {name: change(in_part(part, self._destinations[name])) for name in known}
            set_named_destinations(part, named)
        links = change_destinations(part, change)
        for link in links:
            empty(link)
        if links:
            FidelityWarning.issue("links_dropped", "Links to pages that are not in the same file were removed.")


def _refers(value: Any, others: Ids) -> bool:
    """Whether a value, or what it contains, is one of these objects."""
    contained = [item for _, entry in value.items() for item in as_list(entry)] if isinstance(value, Dictionary) else []
    return any(isinstance(item, Dictionary) and item.objgen in others for item in (value, *contained))


def _own_annotations(part: Pdf, page: Object) -> dict[Id, Object]:
    """Gives a repeated page annotations of its own, which refer to each other. Returns them by those of the first."""
    for key in {"/StructParents", "/B"} & set(page.keys()):
        del page[key]
    copies: dict[Id, Object] = {item.objgen: part.make_indirect(copy(item)) for item in annotations_of(page)}
    for own in copies.values():
        own.P = page
        if "/StructParent" in own:
            del own["/StructParent"]
        for key in ("/Popup", "/IRT", "/Parent"):
            other = own.get(key)
            if isinstance(other, Dictionary) and other.objgen in copies:
                own[key] = copies[other.objgen]
    if "/Annots" in page:
        page.Annots = Array(list(copies.values()))
    return copies


class PartArticles:
    """The articles of a document, and their beads by page."""

    def __init__(self, document: Pdf, numbers: Mapping[Id, int], apart: list[Object]) -> None:
        self._threads = [thread for thread in as_list(document.Root.get("/Threads")) if isinstance(thread, Dictionary)]
        self._of_page: dict[int, list[tuple[int, int, Object]]] = {}  # article, position and bead
        for index, thread in enumerate(self._threads):
            keep_apart(thread, apart)
            bead = thread.get("/F")
            position = 0
            while isinstance(bead, Dictionary) and not is_apart(bead):
                keep_apart(bead, apart)
                page = bead.get("/P")
                number = numbers.get(page.objgen) if isinstance(page, Dictionary) else None
                if number is not None:
                    self._of_page.setdefault(number, []).append((index, position, bead))
                bead = bead.get("/N")
                position = position + 1

    def add_to(self, part: Pdf, pages: Iterable[int]) -> None:
        """Adds the articles with beads on these pages."""
        beads: dict[int, list[tuple[int, Object]]] = {}
        for number in pages:
            for index, position, bead in self._of_page.get(number, ()):
                beads.setdefault(index, []).append((position, take(part, bead)))
        threads: list[Object] = []
        for index, found in sorted(beads.items()):
            chain = [bead for _, bead in sorted(found, key=lambda entry: entry[0])]
            for previous, bead in zip([chain[-1], *chain], chain, strict=False):
                previous.N, bead.V = bead, previous
            threads.append(take(part, self._threads[index]))
            threads[-1].F = chain[0]
        if threads:
            part.Root.Threads = Array(threads)
