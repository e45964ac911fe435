"""Facts of a PDF: its fonts, images, encryption, signatures and standard."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Any

from pikepdf import Dictionary, Name, NamePath, Object, Pdf, Stream
from pikepdf.models.metadata import decode_pdf_date

from plugins._pdf import archive_claims
from plugins._pdf.fields import Field, text_of
from plugins._pdf.name_trees import Ids, as_list
from plugins._pdf.objects import annotations_of, inherited
from plugins._pdf.resources import drawn_objects

_SUBSET = re.compile(r"[A-Z]{6}\+")
_UNIVERSAL = re.compile(rb"pdfuaid:part(?:\s*=\s*[\"']|\s*>)\s*(\d)")
_FILES = {"/FontFile", "/FontFile2", "/FontFile3"}
_METHODS = {"rc4": "RC4", "aes": "AES", "aesv3": "AES"}


def fonts(document: Pdf) -> list[dict[str, Any]]:
    """The different fonts of all pages, annotations and forms, and of what these draw."""
    pending: list[Any] = [document.Root.get(NamePath.AcroForm.DR)]
    for page in document.pages:
        pending += [inherited(page.obj, "/Resources"), *(one.get("/AP") for one in annotations_of(page.obj))]
    found = [_font(one) for one in _fonts_in(pending)]
    return [one for index, one in enumerate(found) if one not in found[:index]]


def _fonts_in(pending: list[Any]) -> Iterator[Object]:
    """The fonts below these dictionaries, which are visited once, as are those in them."""
    seen: Ids = set()
    while pending:
        item = pending.pop()
        if not isinstance(item, Dictionary | Stream) or (item.is_indirect and item.objgen in seen):
            continue
        seen |= {item.objgen} if item.is_indirect else set()
        if item.get("/Type") == Name.Font or "/BaseFont" in item:
            yield item
            pending.append(item.get("/Resources"))
        else:
            pending += [value for key, value in item.items() if key not in ("/Parent", "/P", "/Dest")]


def _font(font: Object) -> dict[str, Any]:
    inner = next((one for one in as_list(font.get("/DescendantFonts")) if isinstance(one, Dictionary)), font)
    descriptor = inner.get("/FontDescriptor")
    name = text_of(font.get("/BaseFont") or font.get("/Name") or "")
    kind = text_of(inner.get("/Subtype", ""))
    embedded = kind == "Type3" or (isinstance(descriptor, Dictionary) and not _FILES.isdisjoint(descriptor.keys()))
    return {"name": name, "type": kind, "embedded": embedded, "subset": bool(_SUBSET.match(name))}


def images(document: Pdf) -> Iterator[dict[str, Any]]:
    """The images that pages draw, each with the first page that does."""
    seen: Ids = set()
    for number, page in enumerate(document.pages, 1):
        for image in drawn_objects(page.obj):
            if image.get("/Subtype") != Name.Image or image.objgen in seen:
                continue
            seen.add(image.objgen)
            space = next(iter(as_list(image.get("/ColorSpace"))), None)
            keys = {"width": "/Width", "height": "/Height", "bits": "/BitsPerComponent"}
            numbers = {name: image.get(key) for name, key in keys.items()}
            yield {
                "page": number,
                **{name: value if isinstance(value, int) else None for name, value in numbers.items()},
                "color_space": None if space is None else text_of(space),
                "filters": [text_of(one) for one in as_list(image.get("/Filter"))],
                "bytes": len(image.read_raw_bytes()),
            }


def encryption(document: Pdf, permissions: dict[str, tuple[str, ...]]) -> dict[str, Any] | None:
    """The method and the key length in bits, and what is permitted by name; None without encryption."""
    if not document.is_encrypted:
        return None
    found = document.encryption
    allowed = document.allow
    return {
        "method": _METHODS.get(found.stream_method.name, found.stream_method.name),
        "bits": found.bits,
        "permissions": [name for name, parts in permissions.items() if all(getattr(allowed, one) for one in parts)],
    }


def signatures(fields: Iterable[Field]) -> Iterator[dict[str, Any]]:
    """The signatures as they describe themselves: none is verified."""
    for field in fields:
        signature = field.attributes.get("/V")
        if field.kind == "signature" and isinstance(signature, Dictionary):
            keys = {"name": "/Name", "reason": "/Reason", "location": "/Location", "signed_at": "/M"}
            keys["type"] = "/SubFilter"
            given = {key: signature.get(name) for key, name in keys.items()}
            values = {key: None if value is None else text_of(value) for key, value in given.items()}
            yield {"field": field.name, **values, "signed_at": _time(values["signed_at"] or "")}


def _time(date: str) -> str | None:
    """A date of PDF such as D:20260102030405+01'00' in ISO 8601; None for another text."""
    with suppress(ValueError):
        return decode_pdf_date(date).isoformat()
    return None


def standard(document: Pdf) -> str | None:
    """The standards that the file claims to follow, such as PDF/A-2b or PDF/A-2a, PDF/UA-1."""
    claim = archive_claims.claim_of(document)
    packet = document.Root.get("/Metadata")
    universal = _UNIVERSAL.findall(packet.read_bytes()) if isinstance(packet, Stream) else []
    part, level = (claim.get(key, b"").decode() for key in (b"part", b"conformance"))
    found = [f"PDF/A-{part}{level.lower()}"] if part else []
    return ", ".join([*found, *(f"PDF/UA-{one.decode()}" for one in universal[:1])]) or None
