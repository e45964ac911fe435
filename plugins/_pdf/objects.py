"""Opens PDF files of clients as objects, and walks through the objects that a trailer leads to."""

from __future__ import annotations

from collections.abc import Iterator
from io import BytesIO
from typing import Any

import pikepdf
from pikepdf import Array, Dictionary, Pdf, Stream

from plugins._pdf.name_trees import Ids, as_list

_SHARED = "/JBIG2Globals"


def open_pdf(data: bytes, password: str = "") -> Pdf:
    """Opens a file that a client has sent. Raises PdfError, and PasswordError for a wrong password."""
    document = pikepdf.open(BytesIO(data), password=password)
    # Saving an image whose shared data refer to themselves would end the process.
    streams = [item for item in document.objects if isinstance(item, Stream) and "/DecodeParms" in item]
    for parameters in [found for item in streams for found in _sharing(item)]:
        if any(_sharing(parameters[_SHARED])):
            del parameters[_SHARED]
    return document


def _sharing(item: Any) -> Iterator[Any]:
    """The parameters of a stream that refer to data that images by JBIG2 share."""
    if isinstance(item, Stream):
        for parameters in as_list(item.get("/DecodeParms")):
            if isinstance(parameters, Dictionary) and _SHARED in parameters:
                yield parameters


def walk(document: Pdf) -> Iterator[tuple[Any, Any, Any]]:
    """Yields each entry that is a dictionary, a stream or an array: its holder, its key or index, and its value.

    The entry can be replaced meanwhile. The content of an indirect object is visited once.
    """
    seen: Ids = set()
    pending: list[Any] = [document.trailer]
    while pending:
        holder = pending.pop()
        entries = enumerate(holder) if isinstance(holder, Array) else holder.items()
        for key, value in list(entries):
            if isinstance(value, Dictionary | Stream | Array):
                yield holder, key, value
                current = holder[key]
                if current.is_indirect:
                    if current.objgen in seen:
                        continue
                    seen.add(current.objgen)
                pending.append(current)
