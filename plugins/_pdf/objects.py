"""Objects of PDF files: opens them, walks through those that a trailer leads to, and copies them to parts of a file.

A part is another PDF, or the document itself, of which the other pages are removed. `Pdf.copy_foreign` also copies what
an object refers to, except pages: a reference to a page is null until the page itself is copied. Objects that are kept
apart, such as annotations and elements of the structure, have the type of pages for this. Those that are not taken into
the part are emptied if the document is the part.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from io import BytesIO
from typing import Any

import pikepdf
from pikepdf import Array, Dictionary, Name, Object, ObjectStreamMode, Pdf, Stream, String

from plugins._pdf import archive_claims
from plugins._pdf.name_trees import Ids, as_list
from plugins._pdf.passwords import variants

_SHARED = "/JBIG2Globals"
_PRIVATE = frozenset(("/PieceInfo", "/Thumb"))
_MAX_PARENTS = 100  # nodes above a page


def open_pdf(data: bytes, password: str = "") -> Pdf:
    """Opens a file that a client has sent. Raises PdfError, and PasswordError for a wrong password."""
    return open_with(data, password)[0]


def open_with(data: bytes, password: str) -> tuple[Pdf, str]:
    """Opens a file as `open_pdf` does. Also returns what opened it: the password, or none if it is not needed."""
    document, opening = _open(data, password)
    # Saving an image whose shared data refer to themselves would end the process.
    streams = [item for item in document.objects if isinstance(item, Stream) and "/DecodeParms" in item]
    for parameters in [found for item in streams for found in _sharing(item)]:
        if any(_sharing(parameters[_SHARED])):
            del parameters[_SHARED]
    return document, opening


def _open(data: bytes, password: str) -> tuple[Pdf, str]:
    for variant in dict.fromkeys((*variants(password), "")):
        with suppress(pikepdf.PasswordError):
            document = pikepdf.open(BytesIO(data), password=variant)
            # An empty owner password must not open a file without its user password.
            if variant or document.user_password_matched or not document.is_encrypted:
                return document, variant if document.is_encrypted else ""
    raise pikepdf.PasswordError


def saved(document: Pdf, *, encryption: Any = None, **parameters: Any) -> bytes:
    """The objects that the document uses, as a file: in object streams, which PDF/A-1 does not have.

    `encryption` and `parameters` are as for pikepdf; by default, the passwords and permissions of the document stay.
    Raises MemoryError.
    """
    if encryption:
        archive_claims.remove_claim(document)
    kept = document.is_encrypted if encryption is None else encryption
    packet = archive_claims.packet_of(document)
    is_old = archive_claims.claim(packet).get(b"part") == b"1"
    mode = ObjectStreamMode.disable if is_old else ObjectStreamMode.generate
    names_version = b"PDFVersion" in packet  # otherwise XMP stays as it is: pikepdf would replace what it cannot read
    file = BytesIO()
    document.save(
        file,
        object_stream_mode=mode,
        encryption=kept,
        fix_metadata_version=names_version,
        deterministic_id=not kept,
        **parameters,
    )
    if any("bad_alloc" in warning for warning in document.get_warnings()):
        raise MemoryError  # QPDF writes a stream without data instead
    return file.getvalue()


def _sharing(item: Any) -> Iterator[Any]:
    """The parameters of a stream that refer to data that images by JBIG2 share."""
    if isinstance(item, Stream):
        for parameters in as_list(item.get("/DecodeParms")):
            if isinstance(parameters, Dictionary) and _SHARED in parameters:
                yield parameters


def stored_length(stream: Stream) -> int:
    """The number of bytes that a stream declares, of which none are read; 0 without one."""
    length = stream.get("/Length")
    return length if isinstance(length, int) else 0


def entries(holder: Any) -> list[tuple[Any, Any]]:
    """The values of a dictionary, a stream or an array with their keys or indexes; none of something else."""
    if isinstance(holder, Array):
        return list(enumerate(holder))
    return list(holder.items()) if isinstance(holder, Dictionary | Stream) else []


def remove_entries(found: Iterable[tuple[Any, Any]]) -> None:
    """Removes entries, holders with their keys or indexes in the order of `walk`; from name trees with their names."""
    for holder, key in reversed([*found]):  # a deletion changes the indexes of later entries
        del holder[key]
        if isinstance(holder, Array) and key and isinstance(holder[key - 1], String):
            del holder[key - 1]


def annotations_of(page: Object) -> list[Any]:
    """The annotations of a page."""
    return [item for item in as_list(page.get("/Annots")) if isinstance(item, Dictionary)]


def inherited(node: Any, key: str) -> Any:
    """The value of a page, or of the nearest node above it."""
    for _ in range(_MAX_PARENTS):
        if not isinstance(node, Dictionary) or key in node:
            break
        node = node.get("/Parent")
    return node.get(key) if isinstance(node, Dictionary) else None


def remove_private_data(document: Pdf) -> None:
    """Removes what programs keep in a file beside what it shows, and small pictures of its pages."""
    for item in document.objects:
        for key in _PRIVATE.intersection(item.keys() if isinstance(item, Dictionary | Stream) else ()):
            del item[key]


def walk(document: Pdf) -> Iterator[tuple[Any, Any, Any]]:
    """Yields each entry that is a dictionary, a stream or an array: its holder, its key or index, and its value.

    The entry can be replaced meanwhile. The content of an indirect object is visited once.
    """
    seen: Ids = set()
    pending: list[Any] = [document.trailer]
    while pending:
        holder = pending.pop()
        for key, value in entries(holder):
            if isinstance(value, Dictionary | Stream | Array):
                yield holder, key, value
                current = holder[key]
                if current.is_indirect:
                    if current.objgen in seen:
                        continue
                    seen.add(current.objgen)
                pending.append(current)


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
