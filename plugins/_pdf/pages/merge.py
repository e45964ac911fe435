"""Merges PDFs: pages, outline, names, form, page labels, layers and structure."""

from collections.abc import Callable, Sequence
from typing import Any

from pikepdf import Array, Dictionary, Name, Object, Pdf, String

from engine import FidelityWarning
from plugins._pdf import archive_claims
from plugins._pdf.destinations import (
    change_destinations,
    link_items,
    named_destinations,
    outline_items,
    resolve_page_numbers,
    set_named_destinations,
)
from plugins._pdf.form_fields import merge_forms, remove_signatures, remove_xfa
from plugins._pdf.name_trees import (
    Ids,
    as_list,
    make_name_tree,
    make_number_tree,
    page_labels,
    read_name_tree,
    read_number_tree,
    set_page_labels,
    unique_name,
)
from plugins._pdf.pages.part_structure import holders_of_keys


def merged(documents: list[Pdf]) -> Pdf:
    """The pages of documents in one, without encryption if there are several; the list is empty afterwards.

    Signatures and XFA forms are removed, and different claims to be PDF/A. Issues a warning for each.
    """
    if len(documents) > 1 and any(document.is_encrypted for document in documents):
        FidelityWarning.issue("encryption_dropped", "The merged PDF is not encrypted.")
    if not all(archive_claims.is_same_claim(documents[0], document) for document in documents[1:]):
        for document in documents:
            archive_claims.remove_claim(document)
    version = max(document.pdf_version for document in documents)
    for document in documents:
        remove_signatures(document)
        remove_xfa(document)
    made = documents.pop(0)
    if documents:
        made = _without_encryption(made)
        made.Root.Version = Name(f"/{version}")
    # Releases each input after its pages are copied, to limit memory.
    while documents:
        append(made, documents.pop(0))
    return made


def _without_encryption(document: Pdf) -> Pdf:
    """The document itself, or a copy if it is encrypted."""
    if not document.is_encrypted:
        return document
    copy = Pdf.new()
    info = document.trailer.get("/Info")
    if isinstance(info, Dictionary) and "/Type" not in info:  # broken files may name another object
        copy.trailer.Info = copy.copy_foreign(document.make_indirect(info))
    append(copy, document)
    return copy


def append(document: Pdf, other: Pdf) -> None:
    """Appends the pages of `other` and merges their outline, names, form, labels, layers and structure.

    Entries that a document has once, such as language or metadata, come from the first document. `other` is
    modified and must not be used afterwards.
    """
    start = len(document.pages)
    labels = page_labels(document.Root, start) + page_labels(other.Root, len(other.pages))
    labeled = any("/PageLabels" in pdf.Root for pdf in (document, other))
    resolve_page_numbers(other)
    adds_destinations = len(named_destinations(other.Root)) > 0
    if adds_destinations:
        _rename_destinations(other, named_destinations(document.Root))
    document.pages.extend(other.pages)
    pages = [page.obj for page in document.pages][start:]  # a slice of `document.pages` takes quadratic time
    # copy_foreign maps references to pages to the copies made by extend.
    ours = document.Root
    theirs = document.copy_foreign(other.Root)
    destinations = named_destinations(ours) | named_destinations(theirs) if adds_destinations else {}
    _merge_structure(document, ours, theirs, pages)
    merges: dict[str, Callable[[Object, Object], None]] = {
        "/Outlines": lambda mine, more: link_items(mine, [*outline_items(mine), *outline_items(more)]),
        "/Names": lambda mine, more: _merge_names(document, mine, more),
        "/AcroForm": merge_forms,
        "/OCProperties": _merge_layers,
    }
    for key, merge in merges.items():
        if key in theirs and key in ours:
            merge(ours[key], theirs[key])
        elif key in theirs:
            ours[key] = theirs[key]
    for key in ("/Threads", "/AF"):
        if key in theirs:
            ours[key] = Array([*(ours.get(key) or ()), *theirs[key]])
    if start == 0:
        for key in set(theirs.keys()) - set(ours.keys()) - {"/Pages"}:
            ours[key] = theirs[key]
    if destinations:
        set_named_destinations(document, destinations)
    if labeled:
        set_page_labels(document, labels)


def put_below_item(document: Pdf, title: str) -> None:
    """Puts the outline below one item that leads to the first page, and is closed."""
    below = document.Root.get("/Outlines")
    item = document.make_indirect(Dictionary(Title=String(title), Dest=[document.pages[0].obj, Name.Fit]))
    items = [*outline_items(below)] if isinstance(below, Dictionary) else []
    outline = document.Root.Outlines = document.make_indirect(Dictionary(Type=Name.Outlines))
    item.Count = -1
    item.Parent = outline
    link_items(item, items)
    link_items(outline, [item])


def _rename_destinations(document: Pdf, used: dict[String | Name, Any]) -> None:
    """Renames the named destinations whose names are in `used`, and all references to them."""
    destinations = named_destinations(document.Root)
    taken = {
        kind: {bytes(name) for name in (*used, *destinations) if isinstance(name, kind)} for kind in (String, Name)
    }
    renamed: dict[String | Name, String | Name] = {}
    for name in destinations:
        if name in used:
            kind = String if isinstance(name, String) else Name
            unique = unique_name(bytes(name), taken[kind])
            taken[kind].add(unique)
            renamed[name] = String(unique) if kind is String else Name(unique.decode())
    if renamed:
        set_named_destinations(document, {renamed.get(name, name): value for name, value in destinations.items()})
        change_destinations(
            document, lambda value: renamed.get(value, value) if isinstance(value, String | Name) else value
        )


def _merge_names(document: Pdf, ours: Object, theirs: Object) -> None:
    """Merges the name trees of attachments, scripts and others, except destinations."""
    for key in list(theirs.keys()):
        if key == "/Dests":
            continue
        entries = dict(read_name_tree(ours.get(key)))
        for name, value in read_name_tree(theirs[key]):
            entries[unique_name(name, entries)] = value
        ours[key] = document.make_indirect(make_name_tree(entries.items()))


def _merge_layers(ours: Object, theirs: Object) -> None:
    """Merges layers. Each layer keeps its visibility, which may differ from the default of the merged document."""
    layers = list(theirs.get("/OCGs") or ())
    defaults = theirs.get("/D") or Dictionary()
    ours.OCGs = Array([*(ours.get("/OCGs") or ()), *layers])
    ours.D = mine = ours.get("/D") or Dictionary()
    off_by_default = defaults.get("/BaseState") == Name.OFF
    exceptions = {layer.objgen for layer in defaults.get("/ON" if off_by_default else "/OFF") or ()}
    for layer in layers:
        key = "/OFF" if off_by_default != (layer.objgen in exceptions) else "/ON"
        mine[key] = Array([*(mine.get(key) or ()), layer])
    for key in ("/Order", "/RBGroups", "/Locked", "/AS"):
        if key in defaults:
            mine[key] = Array([*(mine.get(key) or ()), *defaults[key]])


def _merge_structure(document: Pdf, ours: Object, theirs: Object, pages: Sequence[Object]) -> None:
    """Merges the structure of tagged PDFs. The structure keys of the added pages are shifted to stay unique."""
    added = theirs.get("/StructTreeRoot")
    if not isinstance(added, Dictionary):
        return
    if "/StructTreeRoot" not in ours:
        ours.StructTreeRoot = document.make_indirect(Dictionary(Type=Name.StructTreeRoot))
        ours.MarkInfo = theirs.get("/MarkInfo") or Dictionary(Marked=True)
    root = ours.StructTreeRoot
    entries = read_number_tree(root.get("/ParentTree"))
    shift = max([0, *(key + 1 for key, _ in entries)])
    shifted: Ids = set()
    for page in pages:
        _shift_keys(page, shift, shifted)
    entries += [(key + shift, value) for key, value in read_number_tree(added.get("/ParentTree"))]
    root.ParentTree = document.make_indirect(make_number_tree(entries))
    root.ParentTreeNextKey = max([0, *(key + 1 for key, _ in entries)])
    kids = as_list(added.get("/K"))
    for kid in kids:
        kid.P = root
    root.K = Array([*as_list(root.get("/K")), *kids])
    for key in ("/RoleMap", "/ClassMap"):
        if key in added:
            root[key] = Dictionary({**dict(added[key].items()), **dict((root.get(key) or Dictionary()).items())})
    if "/IDTree" in added:
        elements = dict(read_name_tree(root.get("/IDTree")))
        for name, element in read_name_tree(added.IDTree):
            name = unique_name(name, elements)
            elements[name] = element
            element.ID = String(name)
        root.IDTree = document.make_indirect(make_name_tree(elements.items()))


def _shift_keys(page: Object, shift: int, shifted: Ids) -> None:
    """Adds `shift` to the structure keys of a page, its annotations and its form XObjects, which pages may share."""
    for holder in holders_of_keys(page):
        if holder.objgen in shifted:
            continue
        if holder.is_indirect:
            shifted.add(holder.objgen)
        for key in ("/StructParents", "/StructParent"):
            if isinstance(number := holder.get(key), int):
                holder[key] = number + shift
