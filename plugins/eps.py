"""EPS (Encapsulated PostScript): read and written through Ghostscript, pixels written by Pillow."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING
from warnings import warn

from engine import (
    DOCUMENT,
    RASTER,
    CorruptInput,
    FidelityWarning,
    FileFormat,
    Loss,
    Options,
    Raster,
    Requirement,
    Signature,
    TargetCapabilities,
    any_of,
    conversion,
    hookimpl,
)
from engine.conversions import AnyConversion
from engine.formats import ends_with
from engine.lazy_import import lazy_import
from plugins import _ghostscript, _pillow, _postscript
from plugins.pdf import PDF, saved

if TYPE_CHECKING:
    from pymupdf import Document

    from engine import mupdf as _mupdf
else:
    _mupdf = lazy_import("engine.mupdf")

_DOS_HEADER = b"\xc5\xd0\xd3\xc6"  # a table that points at the program and at a preview

EPS = FileFormat(
    "eps",
    media_type="application/postscript",
    extensions=("eps", "epsf", "epsi", "ps"),
    sniff=any_of(Signature((0, b"%!PS")), Signature((0, _DOS_HEADER)), Signature((0, b"\x04%!PS"))),
    is_complete=ends_with(b"%%EOF"),
)

# Pictures inside stay as they are: by default they would be encoded as JPEG.
_LOSSLESS = [
    f"-d{setting}"
    for kind in ("Color", "Gray")
    for setting in (f"AutoFilter{kind}Images=false", f"{kind}ImageFilter=/FlateEncode")
]


@conversion(EPS, PDF, cost=10, programs=_ghostscript.PROGRAMS, lazy=True)
def to_pdf(data: bytes, _options: Options) -> bytes:
    pdf = _ghostscript.run(_program(data), "pdfwrite", "-dEPSCrop", *_LOSSLESS)
    # Of a program that is cut before it draws, Ghostscript makes a blank page.
    if not _mupdf.pymupdf.open(stream=pdf, filetype="pdf")[0].get_bboxlog():
        raise CorruptInput("The PostScript program draws nothing.")
    return pdf


def _program(data: bytes) -> bytes:
    """The program alone, and marked as EPS: Ghostscript crops no other to its bounding box."""
    if data.startswith(_DOS_HEADER):
        start, size = struct.unpack_from("<II", data, 4)
        data = data[start : start + size]
    first, newline, rest = data.partition(b"\r" if b"\n" not in data[:256] else b"\n")
    return data if b"EPSF" in first else b"%!PS-Adobe-3.0 EPSF-3.0" + newline + rest


@conversion(DOCUMENT, EPS, cost=10, terminal=True, programs=_ghostscript.PROGRAMS, lazy=True)
def from_document(document: Document, _options: Options) -> bytes:
    """The first page, vectors kept."""
    if document.page_count > 1:
        message = f"The target holds the first of {document.page_count} pages."
        warn(FidelityWarning("pages_dropped", message), stacklevel=2)
    # A page drawn afresh is free of whatever Ghostscript stumbles over in the document around it.
    document.bake()
    single = _mupdf.pymupdf.open()
    page = single.new_page(width=document[0].rect.width, height=document[0].rect.height)
    page.show_pdf_page(page.rect, document, 0)
    program = _ghostscript.run(saved(single), "eps2write", "-dPDFSTOPONERROR")
    return _postscript.boxed(program, page.rect.width, page.rect.height)


@conversion(RASTER, EPS, loss=Loss.DETAIL, cost=2, terminal=True)
def from_raster(raster: Raster, _options: Options) -> bytes:
    return _pillow.saved(raster.first_frame(TargetCapabilities(("L", "RGB", "CMYK"))).image, "EPS") + b"%%EOF\n"


@hookimpl
def conversions() -> list[AnyConversion]:
    return [to_pdf, from_document, from_raster] if _ghostscript.REQUIREMENT.present else [from_raster]


@hookimpl
def requirements() -> list[Requirement]:
    return [_ghostscript.REQUIREMENT]
