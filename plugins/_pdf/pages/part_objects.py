"""Objects of parts of a PDF. A part is another PDF, or the document itself, of which the other pages are removed.

`Pdf.copy_foreign` also copies what an object refers to, except pages: a reference to a page is null until the page
itself is copied. Objects that are kept apart, such as annotations and elements of the structure, have the type of pages
for this. Those that are not taken into the part are emptied if the document is the part.
"""

from typing import Any

from pikepdf import Dictionary, Name, Object, Pdf

_PAGE = Name.Page
_TREE = (_PAGE, Name.Pages, Name.Catalog)  # hostile files use them as annotations, fields or others, too
_TYPE = "/ConvertdType"  # the type of an object that is kept apart; false without one


def keep_apart(item: Any, apart: list[Object]) -> None:
    """Adds an indirect dictionary to the objects that other objects do not bring along."""
    if isinstance(item, Dictionary) and item.is_indirect and (kind := item.get("/Type")) not in _TREE:
        item[_TYPE] = kind is not None and kind
        item["/Type"] = _PAGE
        apart.append(item)


def is_apart(item: Any) -> bool:
    """Whether an object is kept apart, and not taken."""
    return isinstance(item, Dictionary) and _TYPE in item


def take(part: Pdf, item: Object) -> Object:
    """An object that is kept apart in its document, in the part."""
    taken = in_part(part, item)
    if _TYPE in taken:
        if kind := taken[_TYPE]:
            taken["/Type"] = kind
        else:
            del taken["/Type"]
        del taken[_TYPE]
    return taken


def in_part(part: Pdf, item: Object) -> Object:
    """An indirect object of the document, or its copy if the part is another PDF."""
    return item if item.is_owned_by(part) else part.copy_foreign(item)
