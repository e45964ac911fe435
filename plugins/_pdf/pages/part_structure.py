"""The structure of parts of a tagged PDF: the elements with content on their pages, and those above them."""

from collections.abc import Iterable, Iterator, Mapping
from copy import copy
from typing import Any, NamedTuple

from pikepdf import Array, Dictionary, NamePath, Object, Pdf, Stream

from plugins._pdf.name_trees import Id, as_list, make_name_tree, make_number_tree, read_name_tree, read_number_tree
from plugins._pdf.objects import annotations_of, entries, in_part, keep_apart, take

# Properties that repeat the content of an element; and the ones of its attributes (of tables, of their headings, and
# user properties) that do.
_TEXTS = ("/ActualText", "/Alt", "/E", "/T", "/Phoneme", "/AF")
_TEXTS_OF_ATTRIBUTES = ("/Summary", "/Short", "/P")
_KEYS = ("/StructParents", "/StructParent")
_TREES = frozenset({"/K", "/ParentTree", "/IDTree"})


class _Element(NamedTuple):
    """An element in another one, by its number."""

    number: int


class PartStructure:
    """The elements of a structure, without those that they contain, by the pages of their content."""

    def __init__(self, document: Pdf, numbers: Mapping[Id, int], apart: list[Object]) -> None:
        root = document.Root.get("/StructTreeRoot")
        self._elements: list[Object] = []
        self._above: list[tuple[int | None, int]] = []  # the element above, and the position in it
        self._sizes: list[int] = []
        self._of_page: dict[int, list[tuple[int, int, Any]]] = {}  # element, position and content
        self._indexes: dict[Id, int] = {}
        if not isinstance(root, Dictionary):
            return
        self._document = document
        self._read(root, numbers)
        self._parents = dict(read_number_tree(root.get("/ParentTree")))
        names = ((name, self._index_of(element)) for name, element in read_name_tree(root.get("/IDTree")))
        self._names = {index: name for name, index in names if index is not None}
        self._root = document.make_indirect(root)
        for item in (self._root, *self._elements):
            keep_apart(item, apart)
            for key in _TREES & item.keys():
                del item[key]

    def _read(self, root: Object, numbers: Mapping[Id, int]) -> None:
        """Assigns all content to its page. An element without a page has the page of its parent."""
        pending: list[tuple[Any, int | None, int, Any]] = []
        pending += [(kid, None, position, None) for position, kid in enumerate(as_list(root.get("/K")))][::-1]
        while pending:
            element, above, position, page = pending.pop()
            if not isinstance(element, Dictionary) or "/S" not in element:
                continue
            element = element if element.is_indirect else self._document.make_indirect(element)
            if element.objgen in self._indexes:
                continue
            index = len(self._elements)
            self._indexes[element.objgen] = index
            self._elements.append(element)
            self._above.append((above, position))
            page = element.get("/Pg", page)
            kids = as_list(element.get("/K"))
            self._sizes.append(len(kids))
            for place, kid in enumerate(kids):
                if isinstance(kid, Dictionary) and "/S" in kid:
                    continue
                at = kid.get("/Pg", page) if isinstance(kid, Dictionary) else page
                self._assign(at, numbers, (index, place, kid))
            if not kids:
                self._assign(page, numbers, (index, 0, None))
            pending += [(kid, index, place, page) for place, kid in enumerate(kids)][::-1]

    def _assign(self, page: Any, numbers: Mapping[Id, int], content: tuple[int, int, Any]) -> None:
        if isinstance(page, Dictionary) and page.objgen in numbers:
            self._of_page.setdefault(numbers[page.objgen], []).append(content)

    def _index_of(self, element: Any) -> int | None:
        return self._indexes.get(element.objgen) if isinstance(element, Dictionary) else None

    def add_to(self, part: Pdf, pages: Mapping[int, Object]) -> None:
        """Adds the elements with content on these pages, which are copies in the part by their numbers."""
        kids: dict[int | None, list[tuple[int, Any]]] = {None: []}  # elements and content by position, for each element
        for number in pages:
            for index, position, content in self._of_page.get(number, ()):
                kid = self._content(part, content) if isinstance(content, Dictionary) else content
                if kid is not None or content is None:
                    self._involve(index, kids)
                if kid is not None:
                    kids[index].append((position, kid))
        if len(kids) == 1:
            return
        root = part.Root.StructTreeRoot = take(part, self._root)
        copies = {index: take(part, self._elements[index]) for index in kids if index is not None}
        changed: set[int | None] = set()
        for index in sorted(copies, reverse=True):  # elements come after those above them
            element = copies[index]
            found = _in_order(kids[index], copies)
            if found:
                element.K = Array(found)
            if "/Pg" in element and "/Type" not in element.Pg:  # a page that is emptied
                del element["/Pg"]
            if len(found) < self._sizes[index] or index in changed:
                remove_texts(element)
                changed.add(self._above[index][0])
        root.K = Array(_in_order(kids[None], copies))
        self._add_trees(part, root, pages.values(), copies)

    def _involve(self, index: int, kids: dict[int | None, list[tuple[int, Any]]]) -> None:
        """Adds an element and those above it to `kids`."""
        added: list[tuple[int | None, int, int]] = []
        current: int | None = index
        while current is not None and current not in kids:
            kids[current] = []
            above, position = self._above[current]
            added.append((above, position, current))
            current = above
        for holder, position, element in added:
            kids[holder].append((position, _Element(element)))

    def _content(self, part: Pdf, content: Object) -> Object | None:
        """A reference to a part of a page or to an object; None if the object is not in the part."""
        own = copy(in_part(part, self._document.make_indirect(content)))
        return None if "/Obj" in content and not [*own.get("/Obj", {}).keys()] else own

    def _add_trees(self, part: Pdf, root: Object, pages: Iterable[Object], copies: Mapping[int, Object]) -> None:
        """Adds the elements by their keys in pages and objects, and by their names."""

        def copied(element: Any) -> Object | None:
            index = self._index_of(element)
            return None if index is None else copies.get(index)

        entries: dict[int, Any] = {}
        for holder in (holder for page in pages for holder in holders_of_keys(page)):
            for number in (int(holder[name]) for name in _KEYS if isinstance(holder.get(name), int)):
                value = self._parents.get(number)
                if isinstance(value, Array):
                    entries[number] = part.make_indirect(Array([copied(element) for element in value]))
                elif (element := copied(value)) is not None:
                    entries[number] = element
        root.ParentTree = part.make_indirect(make_number_tree(entries.items()))
        root.ParentTreeNextKey = max([0, *(number + 1 for number in entries)])
        names = [(self._names[index], copies[index]) for index in self._names.keys() & copies.keys()]
        if names:
            root.IDTree = part.make_indirect(make_name_tree(names))


def _in_order(kids: list[tuple[int, Any]], copies: Mapping[int, Object]) -> list[Any]:
    """The elements and content of an element by their positions."""
    ordered = [kid for _, kid in sorted(kids, key=lambda entry: entry[0])]
    return [copies[kid.number] if isinstance(kid, _Element) else kid for kid in ordered]


def remove_texts(element: Object) -> None:
    """Removes the properties of an element that repeat its content."""
    attributes = [item for item in as_list(element.get("/A")) if isinstance(item, Dictionary)]
    for holder, texts in ((element, _TEXTS), *((item, _TEXTS_OF_ATTRIBUTES) for item in attributes)):
        for key in texts:
            if key in holder:
                del holder[key]


def holders_of_keys(page: Object) -> Iterator[Object]:
    """A page, its annotations and its form XObjects, which have keys of the structure."""
    xobjects = (value for _, value in entries(page.get(NamePath.Resources.XObject)))
    yield from (page, *annotations_of(page), *(value for value in xobjects if isinstance(value, Stream)))
