"""Parts of a PDF: new documents with some of its pages, and with what belongs to these pages.

The time for all parts together grows with the pages and objects of the document: what refers to pages is assigned to
them once, and no part is compared with the pages of others.
"""

from collections.abc import Sequence
from io import BytesIO
from typing import Any

import pikepdf
from pikepdf import Array, Dictionary, Name, Object, Pdf, String

from engine import FidelityWarning
from plugins._pdf.destinations import (
    change_destinations,
    destination_array,
    named_destinations,
    resolve_page_numbers,
    set_named_destinations,
)
from plugins._pdf.documents import open_document
from plugins._pdf.form_fields import remove_signatures, remove_xfa
from plugins._pdf.name_trees import make_name_tree, page_labels, read_name_tree, set_page_labels
from plugins._pdf.part_fields import PartFields
from plugins._pdf.part_layers import PartLayers
from plugins._pdf.part_outline import PartOutline
from plugins._pdf.part_structure import PartStructure
from plugins._pdf.resources import keep_used_resources, shared_resources

# Entries of the catalog that every part gets.
_COMMON = ("/Lang", "/Metadata", "/OutputIntents", "/PageLayout", "/PageMode", "/ViewerPreferences", "/Extensions")
# Entries that are made for each part, that concern the whole file, or that can contain any page.
_NOT_COPIED = {
    *("/Type", "/Pages", "/Outlines", "/Dests", "/AcroForm", "/PageLabels", "/StructTreeRoot", "/OCProperties"),
    *("/Threads", "/PieceInfo", "/DPartRoot", "/Perms", "/DSS"),
}


class Divider:
    """A document from which parts are made. Issues a warning if it has signatures, or an XFA form."""

    def __init__(self, data: bytes, password: str | None) -> None:
        document = self._document = open_document(data, password)
        self.is_encrypted = document.is_encrypted
        self._password = password or ""
        self._shell = _without_content(data, password) if self.is_encrypted else None
        remove_signatures(document)
        remove_xfa(document)
        resolve_page_numbers(document)
        Pdf.new().pages.append(document.pages[0])  # gives all pages the attributes that they inherit
        self.pages = list(document.pages)
        self._objects = [page.obj for page in self.pages]
        self._numbers = {page.objgen: number for number, page in enumerate(self._objects)}
        self._labels = page_labels(document.Root, len(self.pages)) if "/PageLabels" in document.Root else None
        self._shared = shared_resources(self._objects)
        self._destinations = {
            name: document.make_indirect(value) for name, value in named_destinations(document.Root).items()
        }
        self._names: dict[int, list[String | Name]] = {}
        for name, value in self._destinations.items():
            number = self._page_of(value)
            if number is not None:
                self._names.setdefault(number, []).append(name)
        self.outline = PartOutline(document, self._page_of)
        self._structure = PartStructure(document, self._numbers)
        self._fields = PartFields(document, self._objects)
        self._layers = PartLayers(document)
        for page in self._objects:
            for key in {"/B", "/PieceInfo", "/DPart"} & set(page.keys()):
                del page[key]

    def _page_of(self, destination: Any) -> int | None:
        """The page, counted from 0, on which a destination is."""
        if isinstance(destination, String | Name):
            destination = self._destinations.get(destination)
        target = destination_array(destination)
        first = target[0] if isinstance(target, Array) and len(target) else None
        return self._numbers.get(first.objgen) if isinstance(first, Dictionary) else None

    def part(self, numbers: Sequence[int], *, with_attachments: bool) -> Pdf:
        """A new document with the pages of these numbers, which count from 0, in this order.

        A page can be there several times, each with annotations and fields of its own. `with_attachments`: also has
        what belongs to no page, such as attached files.
        """
        part = Pdf.new() if self._shell is None else pikepdf.open(BytesIO(self._shell), password=self._password)
        firsts: dict[int, Object] = {}
        repeated: list[Object] = []
        for number in numbers:
            if number not in firsts and self._shared:
                keep_used_resources(self.pages[number], self._shared)
            part.pages.append(pikepdf.Page(firsts[number]) if number in firsts else self.pages[number])
            page = part.pages[-1].obj
            if number in firsts:
                _own_annotations(part, page)
                repeated.append(page)
            else:
                firsts[number] = page
        self._copy_catalog(part, with_attachments=with_attachments)
        self._fields.add_to(part, firsts.values(), repeated)
        self._structure.add_to(part, firsts)
        self._layers.add_to(part)
        self._set_destinations(part, firsts)
        if self._labels is not None:
            set_page_labels(part, [self._labels[number] for number in numbers])
        return part

    def _copy_catalog(self, part: Pdf, *, with_attachments: bool) -> None:
        source = self._document
        info = source.trailer.get("/Info")
        if isinstance(info, Dictionary) and "/Type" not in info:  # broken files may name another object
            part.trailer.Info = part.copy_foreign(source.make_indirect(info))
        part.Root.Version = Name(f"/{source.pdf_version}")
        root = source.Root
        keys = set(root.keys()) - _NOT_COPIED if with_attachments else set(_COMMON) & set(root.keys())
        for key in sorted(keys - {"/Names", "/Version"}):
            part.Root[key] = _copy(part, source, root[key])
        names = root.get("/Names")
        if with_attachments and isinstance(names, Dictionary):
            trees = {key: dict(read_name_tree(tree)) for key, tree in names.items() if key != "/Dests"}
            part.Root.Names = Dictionary(
                {
                    key: part.make_indirect(
                        make_name_tree((name, _copy(part, source, value)) for name, value in tree.items())
                    )
                    for key, tree in trees.items()
                }
            )

    def _set_destinations(self, part: Pdf, firsts: dict[int, Object]) -> None:
        """Adds the outline and the named destinations of these pages, and removes links to others."""
        self.outline.add_to(part, firsts)
        names = [name for number in firsts for name in self._names.get(number, ())]
        if names:
            set_named_destinations(part, {name: part.copy_foreign(self._destinations[name]) for name in names})
        known, living = set(names), {page.objgen for page in firsts.values()}

        def change(value: Any) -> Any:
            if isinstance(value, String | Name):
                return value if value in known or value not in self._destinations else None
            target = destination_array(value)
            page = target[0] if isinstance(target, Array) and len(target) else 0
            return None if page is None or (isinstance(page, Dictionary) and page.objgen not in living) else value

        if change_destinations(part, change):
            FidelityWarning.issue("links_dropped", "Links to pages that are not in the same file were removed.")


def _without_content(data: bytes, password: str | None) -> bytes:
    """The file without pages, with its passwords and permissions."""
    with open_document(data, password) as document:
        del document.pages[:]
        for key in set(document.Root.keys()) - {"/Type", "/Pages"}:
            del document.Root[key]
        if "/Info" in document.trailer:
            del document.trailer["/Info"]
        file = BytesIO()
        document.save(file, encryption=True)
        return file.getvalue()


def _copy(part: Pdf, source: Pdf, value: Any) -> Any:
    return part.copy_foreign(source.make_indirect(value)) if isinstance(value, Object) else value


def _own_annotations(part: Pdf, page: Object) -> None:
    """Gives a repeated page annotations of its own, which refer to each other."""
    annotations = page.get("/Annots")
    if "/StructParents" in page:
        del page["/StructParents"]
    if not isinstance(annotations, Array):
        return
    copies: dict[tuple[int, int], Object] = {}
    for item in annotations:
        if isinstance(item, Dictionary):
            copy: Object = part.make_indirect(Dictionary(dict(item.items())))
            copies[item.objgen] = copy
            copy.P = page
            if "/StructParent" in copy:
                del copy["/StructParent"]
    for copy in [*copies.values()]:
        for key in ("/Popup", "/IRT", "/Parent"):
            other = copy.get(key)
            if isinstance(other, Dictionary) and other.objgen in copies:
                copy[key] = copies[other.objgen]
    page.Annots = Array(list(copies.values()))
