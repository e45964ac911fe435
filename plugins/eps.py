"""EPS (Encapsulated PostScript), through Ghostscript; pictures are written by Pillow."""

from __future__ import annotations

import re
import struct
from typing import TYPE_CHECKING

from engine import (
    DOCUMENT,
    RASTER,
    AnyConversion,
    CorruptInput,
    FileFormat,
    Loss,
    Raster,
    Requirement,
    Signature,
    TargetCapabilities,
    any_of,
    conversion,
    ends_with,
    hookimpl,
)
from engine.option_types import Metadata
from plugins import _ghostscript, _pillow
from plugins.pdf import PDF, filter_document, to_bytes, warn_pages_dropped

if TYPE_CHECKING:
    import pymupdf

_DOS_HEADER = b"\xc5\xd0\xd3\xc6"  # binary header with the offsets of the program and a preview

EPS = FileFormat(
    "eps",
    media_type="application/postscript",
    extensions=("eps", "epsf", "epsi", "ps"),
    sniff=any_of(Signature((0, b"%!PS")), Signature((0, _DOS_HEADER)), Signature((0, b"\x04%!PS"))),
    is_complete=ends_with(b"%%EOF"),
)

_MODULES = ("engine.mupdf",)
_BOUNDING_BOX = re.compile(rb"^%%(HiRes|Page)?BoundingBox: [-\d. ]+$", re.MULTILINE)

# Ghostscript would compress pictures as JPEG by default.
_LOSSLESS = [
    f"-d{setting}"
    for kind in ("Color", "Gray")
    for setting in (f"AutoFilter{kind}Images=false", f"{kind}ImageFilter=/FlateEncode")
]


@conversion(EPS, PDF, cost=10, programs=_ghostscript.PROGRAMS, isolated=True, modules=_MODULES)
def to_pdf(data: bytes) -> bytes:
    from engine.mupdf import pymupdf

    pdf = _ghostscript.run(_extract_program(data), "pdfwrite", "-dEPSCrop", *_LOSSLESS)
    # Ghostscript renders a program that is truncated before its first mark as a blank page.
    if not pymupdf.open(stream=pdf, filetype="pdf")[0].get_bboxlog():
        raise CorruptInput("The PostScript program draws nothing.")
    return pdf


def _extract_program(data: bytes) -> bytes:
    """The PostScript program with an EPSF header, without which Ghostscript ignores the bounding box."""
    if data.startswith(_DOS_HEADER):
        start, size = struct.unpack_from("<II", data, 4)
        data = data[start : start + size]
    first, newline, rest = data.partition(b"\r" if b"\n" not in data[:256] else b"\n")
    return data if b"EPSF" in first else b"%!PS-Adobe-3.0 EPSF-3.0" + newline + rest


@conversion(DOCUMENT, EPS, cost=10, terminal=True, programs=_ghostscript.PROGRAMS, isolated=True, modules=_MODULES)
def from_document(document: pymupdf.Document, *, metadata: Metadata = "safe") -> bytes:
    """Writes the first page as vectors."""
    from engine.mupdf import pymupdf

    warn_pages_dropped(document)
    filter_document(document, metadata)
    # Copying the page to a new document removes structures on which Ghostscript fails.
    document.bake()
    copy = pymupdf.open()
    page = copy.new_page(width=document[0].rect.width, height=document[0].rect.height)
    page.show_pdf_page(page.rect, document, 0)
    program = _ghostscript.run(to_bytes(copy), "eps2write", "-dPDFSTOPONERROR")
    return _set_bounding_box(program, page.rect.width, page.rect.height)


def _set_bounding_box(program: bytes, width: float, height: float) -> bytes:
    """`program` with the page as bounding box, in points. Ghostscript writes that of the marks, without margins."""

    def replacement(match: re.Match[bytes]) -> bytes:
        kind = match.group(1) or b""
        corner = f"{width:.2f} {height:.2f}" if kind == b"HiRes" else f"{round(width)} {round(height)}"
        return b"%%" + kind + b"BoundingBox: 0 0 " + corner.encode()

    return _BOUNDING_BOX.sub(replacement, program, count=4)


@conversion(RASTER, EPS, loss=Loss.DETAIL, cost=2, terminal=True, modules=("PIL.EpsImagePlugin",))
def from_raster(raster: Raster) -> bytes:
    return _pillow.encode(raster.first_frame(TargetCapabilities(("L", "RGB", "CMYK"))).image, "EPS") + b"%%EOF\n"


@hookimpl
def conversions() -> list[AnyConversion]:
    return [to_pdf, from_document, from_raster] if _ghostscript.REQUIREMENT.present else [from_raster]


@hookimpl
def requirements() -> list[Requirement]:
    return [_ghostscript.REQUIREMENT]
