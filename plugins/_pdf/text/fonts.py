"""Removes the glyphs from embedded fonts of a PDF that its text does not use."""

from __future__ import annotations

from typing import Any

from pikepdf import Dictionary, Name, NamePath, Object, Pdf, PdfError, Stream

from engine import lazy_imports
from engine.mupdf import pymupdf
from plugins._pdf import flate
from plugins._pdf.name_trees import Ids
from plugins._pdf.objects import entries, walk
from plugins._pdf.passwords import authenticate

with lazy_imports():
    from plugins._pdf.text import type1

_FILES = ("/FontFile2", "/FontFile3")  # MuPDF leaves Type 1 fonts as they are.
_MAX_FILE = 8 << 20  # bytes of a Type 1 font that is converted


def name_descriptors(document: Pdf) -> None:
    """Makes the descriptors of all fonts indirect objects, as `subset_fonts` needs them."""
    for holder, key, value in walk(document):
        if key == "/FontDescriptor" and not value.is_indirect:
            holder[key] = document.make_indirect(value)


def convert_type1(document: Pdf) -> None:
    """Converts Type 1 fonts to CFF, if that makes them smaller. Damaged fonts stay."""
    converted: dict[tuple[int, int], Stream | None] = {}
    for item in document.objects:
        file = item.get("/FontFile") if isinstance(item, Dictionary) else None
        if isinstance(file, Stream):
            if file.objgen not in converted:
                converted[file.objgen] = _to_cff(document, file)
            compact = converted[file.objgen]
            if compact is not None:
                del item["/FontFile"]
                item.FontFile3 = compact


def _to_cff(document: Pdf, file: Stream) -> Stream | None:
    raw = file.read_raw_bytes()
    try:
        data = file.read_bytes()
        compressed = flate.compress(type1.to_cff(data)) if len(data) <= _MAX_FILE else raw
    except (PdfError, type1.UnsupportedFont):
        return None
    if len(compressed) >= len(raw):
        return None
    compact = Stream(document, compressed, {"/Subtype": Name.Type1C, "/Filter": Name.FlateDecode})
    return document.make_indirect(compact)


def subset_fonts(document: Pdf, data: bytes, password: str) -> None:
    """Subsets fonts of a document that was read from `data`. Those with which form fields can be filled in stay."""
    kept = _fonts_of_forms(document)
    descriptors = [
        item
        for item in document.objects
        if isinstance(item, Dictionary) and item.objgen not in kept and any(key in item for key in _FILES)
    ]
    if not descriptors:
        return
    copy = pymupdf.open(stream=data, filetype="pdf")
    authenticate(copy, password)
    copy.subset_fonts()
    for descriptor in descriptors:
        _replace_file(document, descriptor, copy)


def _fonts_of_forms(document: Pdf) -> Ids:
    """The descriptors of fonts in the default resources of forms."""
    named = [font for _, font in entries(document.Root.get(NamePath.AcroForm.DR.Font))]
    descendants = [one for font in named for one in font.get("/DescendantFonts") or ()]
    found = (font.get("/FontDescriptor") for font in (*named, *descendants) if isinstance(font, Dictionary))
    return {descriptor.objgen for descriptor in found if isinstance(descriptor, Object)}


def _replace_file(document: Pdf, descriptor: Any, copy: pymupdf.Document) -> None:
    """Takes the font file of a descriptor from a copy of the document, if it is smaller there."""
    key = next(key for key in _FILES if key in descriptor)
    kind, reference = copy.xref_get_key(descriptor.objgen[0], key[1:])
    if kind != "xref" or not isinstance(descriptor[key], Stream):
        return
    data = copy.xref_stream(int(reference.split()[0]))
    compressed = flate.compress(data or b"")
    if data and len(compressed) < len(descriptor[key].read_raw_bytes()):
        entries = {"/Length1": len(data), "/Subtype": descriptor[key].get("/Subtype")}
        file = Stream(document, compressed, {name: value for name, value in entries.items() if value is not None})
        file.Filter = Name.FlateDecode
        descriptor[key] = document.make_indirect(file)
