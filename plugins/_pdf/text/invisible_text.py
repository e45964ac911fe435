"""Invisible text of PDF pages, for example from an earlier text recognition."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pikepdf
from pikepdf import Dictionary, Name, Pdf, PdfError, Stream

from plugins._pdf.name_trees import Ids

_INVISIBLE = 3  # text rendering mode
_SHOWING = frozenset({"Tj", "TJ", "'", '"'})


def remove_invisible_text(document: Pdf, page: pikepdf.Page) -> None:
    """Removes invisible text from the content of a page and from its forms. Damaged content stays."""
    if (content := _visible(page)) is not None:
        page.obj.Contents = document.make_stream(content)
    seen: Ids = set()
    holders: list[Any] = [page.obj]
    for holder in holders:  # the loop adds forms
        for _, form in ((holder.get("/Resources") or Dictionary()).get("/XObject") or Dictionary()).items():
            if isinstance(form, Stream) and form.get("/Subtype") == Name.Form and form.objgen not in seen:
                seen.add(form.objgen)
                holders.append(form)
                if (content := _visible(form)) is not None:
                    form.write(content)


def _visible(holder: Any) -> bytes | None:
    """The content of a page or form without invisible text. None if it has none."""
    kept: list[Any] = []
    mode, outer, count = 0, list[int](), 0
    with suppress(PdfError):
        for instruction in pikepdf.parse_content_stream(holder):
            count += 1
            match str(instruction.operator), list(instruction.operands):
                case "q", _:
                    outer.append(mode)
                case "Q", _ if outer:
                    mode = outer.pop()
                case "Tr", [new] if isinstance(new, int):
                    mode = new
                case shown, _ if mode == _INVISIBLE and shown in _SHOWING:
                    continue
            kept.append(instruction)
        return pikepdf.unparse_content_stream(kept) if len(kept) < count else None
    return None
