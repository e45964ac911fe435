"""The structure of parts of a tagged PDF: the elements with content on their pages, and those above them."""

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from pikepdf import Array, Dictionary, Name, Object, Pdf

from plugins._pdf.name_trees import as_list, make_name_tree, make_number_tree, read_name_tree, read_number_tree
from plugins._pdf.structure import holders_of_keys, remove_texts

_KEYS = ("/StructParents", "/StructParent")
_SHARED = ("/RoleMap", "/ClassMap", "/Namespaces")


class _Element(NamedTuple):
    """An element in another one, by its number."""

    number: int


class PartStructure:
    """The elements of a structure. Each is taken apart, so that it does not lead to others."""

    def __init__(self, document: Pdf, numbers: Mapping[tuple[int, int], int]) -> None:
        root = document.Root.get("/StructTreeRoot")
        self._elements: list[Object] = []
        self._above: list[tuple[int | None, int]] = []  # the element above, and the position in it
        self._sizes: list[int] = []
        self._of_page: dict[int, list[tuple[int, int, Any]]] = {}  # element, position and content
        self._indexes: dict[tuple[int, int], int] = {}
        if not isinstance(root, Dictionary):
            return
        self._document = document
        self._read(root, numbers)
        for element in self._elements:
            for key in {"/K", "/P", "/Pg"} & set(element.keys()):
                del element[key]
        self._parents = dict(read_number_tree(root.get("/ParentTree")))
        self._ids = read_name_tree(root.get("/IDTree"))
        marks = document.Root.get("/MarkInfo")
        self._marks = document.make_indirect(marks if isinstance(marks, Dictionary) else Dictionary(Marked=True))
        shared = {key: root[key] for key in _SHARED if key in root}
        self._shared = {key: document.make_indirect(value) for key, value in shared.items()}

    def _read(self, root: Object, numbers: Mapping[tuple[int, int], int]) -> None:
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
            page, kids = element.get("/Pg", page), as_list(element.get("/K"))
            self._sizes.append(len(kids))
            for place, kid in enumerate(kids):
                if isinstance(kid, Dictionary) and "/S" in kid:
                    continue
                at = kid.get("/Pg", page) if isinstance(kid, Dictionary) else page
                self._assign(at, numbers, (index, place, kid))
            if not kids:
                self._assign(page, numbers, (index, 0, None))
            pending += [(kid, index, place, page) for place, kid in enumerate(kids)][::-1]

    def _assign(self, page: Any, numbers: Mapping[tuple[int, int], int], content: tuple[int, int, Any]) -> None:
        if isinstance(page, Dictionary) and page.objgen in numbers:
            self._of_page.setdefault(numbers[page.objgen], []).append(content)

    def add_to(self, part: Pdf, pages: Mapping[int, Object]) -> None:
        """Adds the elements with content on these pages, which are copies in the part by their numbers."""
        kids: dict[int | None, list[tuple[int, Any]]] = {None: []}  # elements and content by position, for each element
        places: dict[int, Object] = {}
        for number, page in pages.items():
            for index, position, content in self._of_page.get(number, ()):
                self._involve(index, kids)
                if content is not None:
                    kids[index].append((position, self._content(part, content, page)))
                if isinstance(content, int):  # is on the page of its element
                    places[index] = page
                places.setdefault(index, page)
        if len(kids) == 1:
            return
        copies = {index: part.copy_foreign(self._elements[index]) for index in kids if index is not None}
        root = part.Root.StructTreeRoot = part.make_indirect(Dictionary(Type=Name.StructTreeRoot))
        for element, found in kids.items():
            holder = root if element is None else copies[element]
            ordered = []
            for _, kid in sorted(found, key=lambda entry: entry[0]):
                ordered.append(copies[kid.number] if isinstance(kid, _Element) else kid)
                if isinstance(kid, _Element):
                    ordered[-1].P = holder
            if ordered:
                holder.K = Array(ordered)
            if element is None:
                continue
            if element in places:
                holder.Pg = places[element]
            if len(ordered) < self._sizes[element]:
                remove_texts(holder)
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

    def _content(self, part: Pdf, content: Any, page: Object) -> Any:
        """Content of a page: a number, or a reference to a part of the page or to an object."""
        if not isinstance(content, Dictionary):
            return content
        copy = Dictionary({key: value for key, value in content.items() if key not in ("/Pg", "/Obj", "/Stm")})
        for key in ("/Obj", "/Stm"):
            if isinstance(content.get(key), Object) and content[key].is_indirect:
                copy[key] = part.copy_foreign(content[key])
        copy.Pg = page
        return copy

    def _add_trees(self, part: Pdf, root: Object, pages: Iterable[Object], copies: Mapping[int, Object]) -> None:
        """Adds the elements by their keys in pages and objects, and by their names."""

        def copied(element: Any) -> Object | None:
            is_element = isinstance(element, Dictionary) and element.objgen in self._indexes
            return copies.get(self._indexes[element.objgen]) if is_element else None

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
        names = [(name, element) for name, value in self._ids if (element := copied(value)) is not None]
        if names:
            root.IDTree = part.make_indirect(make_name_tree(names))
        for key, value in self._shared.items():
            root[key] = part.copy_foreign(value)
        part.Root.MarkInfo = part.copy_foreign(self._marks)
