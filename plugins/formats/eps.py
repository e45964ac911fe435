"""EPS (Encapsulated PostScript), read, and written from documents, by Ghostscript."""

from __future__ import annotations

import math
import re
import struct
import subprocess
from collections.abc import Iterable
from io import BytesIO
from pathlib import Path
from tempfile import TemporaryDirectory

from engine import (
    DOCUMENT,
    RASTER,
    AnyConversion,
    CorruptInput,
    FidelityWarning,
    FileFormat,
    Loss,
    Requirement,
    Signature,
    TooLarge,
    any_of,
    conversion,
    ends_with,
    hookimpl,
    lazy_imports,
)
from engine.option_types import Metadata
from plugins import _programs
from plugins._pdf.images import postscript
from plugins.formats.jpeg import JPEG
from plugins.formats.pdf import OPTIONS_OF_DOCUMENTS, PDF, checked_images, filter_document, to_bytes, warn_first_page

with lazy_imports():
    from engine.mupdf import pymupdf
    from plugins._pdf import active_content, layers, objects, resources
    from plugins._pdf.images import transparency

MODULES = (
    "plugins._pdf.active_content",
    "plugins._pdf.resources",
    "plugins._pdf.images.transparency",
    *postscript.MODULES,
)
TEMPLATE = "documents"
_DOS_HEADER = b"\xc5\xd0\xd3\xc6"  # binary header with the offsets of the program and a preview

EPS = FileFormat(
    "eps",
    media_type="application/postscript",
    extensions=("eps", "epsf", "epsi", "ps"),
    sniff=any_of(Signature((0, b"%!PS")), Signature((0, _DOS_HEADER)), Signature((0, b"\x04%!PS"))),
    is_complete=ends_with(b"%%EOF"),
)

PROGRAMS = _programs.find("gs")
"""The path of Ghostscript, if it is installed."""
GHOSTSCRIPT = Requirement(
    "Ghostscript",
    "reading EPS, and writing EPS with vectors from PDF",
    "apt-get install ghostscript",
    present=bool(PROGRAMS),
)

_BOUNDING_BOX = re.compile(rb"^%%(HiRes|Page)?BoundingBox: [-\d. ]+$", re.MULTILINE)
_DEFERRED_BOX = re.compile(rb"(?<![^\r\n])(%%(?:HiRes)?BoundingBox:)[ \t]*\(atend\)")
_DECLARED_BOX = re.compile(rb"(?<![^\r\n])%%(HiRes)?BoundingBox:([^\r\n]*)")
_MAX_SIDE = 100_000  # points
_MAX_PATTERNS = 10  # levels of patterns in patterns, a limit of Ghostscript
_WRITE_END = "CONVERTD_END (w) file closefile"
# -dLastPage alone would run the whole program.
_TWO_PAGES = ("-dLastPage=2", "-c", f"<< /BeginPage {{1 gt {{{_WRITE_END} quit}} if}} >> setpagedevice", "-f")
# The last line of a complete program is executed, after it has shown a page or closed its operands, dictionaries and
# graphics states. At the outermost one, grestore restores the font set before the program, and the size of the page.
_FIRST_LINE = f"""\
/convertd.font currentfont def
/convertd.dictionaries countdictstack def
/convertd.end {{
  count 0 eq countdictstack convertd.dictionaries eq and currentpagedevice /PageCount get 0 gt
  {{pop true}} {{showpage grestore currentfont convertd.font eq and}} ifelse {{{_WRITE_END}}} if
}} bind def
currentfont [1 0 0 1 0 0] makefont setfont
""".encode()
_LAST_LINE = b"\nconvertd.end\n"
_STRUCTURED = re.compile(rb"\b(?:showpage|g?save|begin)\b")  # in programs that can show that they are complete
_BOX_COMMENT = rb"(?<![^\r\n])%s([-+.\d \t]+)(?=[\r\n])"
_KEPT_IN_CATALOG = frozenset({"Type", "Pages", "OCProperties"})
_KEPT_IN_PAGE = frozenset({"Type", "Parent", "Contents", "Resources", "MediaBox", "CropBox", "Rotate", "Group"})
_TRAILER = -1  # object number of the trailer in PyMuPDF
_FORM = "<</Type/XObject/Subtype/Form/BBox[{}]/Matrix[{}]/Resources {}>>"

# Ghostscript would compress images as JPEG by default.
_LOSSLESS = [
    f"-d{setting}"
    for kind in ("Color", "Gray")
    for setting in (f"AutoFilter{kind}Images=false", f"{kind}ImageFilter=/FlateEncode")
]


@conversion(EPS, PDF, cost=10, programs=PROGRAMS, isolated=True, without=OPTIONS_OF_DOCUMENTS)
def to_pdf(data: bytes) -> bytes:
    program = _extract_program(data)
    _check_bounding_box(program)
    pdf = _run_ghostscript(program, "pdfwrite", "-dEPSCrop", *_LOSSLESS, *_TWO_PAGES)
    document = pymupdf.open(stream=pdf, filetype="pdf")
    # Ghostscript renders a program that is truncated before its first mark as a blank page.
    if not document[0].get_bboxlog():
        raise CorruptInput("The PostScript program draws nothing.")
    if document.page_count > 1:
        if document[1].get_bboxlog():
            FidelityWarning.issue("pages_dropped", "Only the first page was converted. An EPS file has one page.")
        document.select([0])
        pdf = to_bytes(document)
    if program.endswith(_LAST_LINE) and not _STRUCTURED.search(data):
        FidelityWarning.issue("repaired", "The PostScript program has no end; it was drawn as far as it goes.")
    # The operator pdfmark adds what has no effect in the EPS itself.
    return active_content.check_file(pdf, "", sanitize=True)


def _run_ghostscript(data: bytes, device: str, *arguments: str) -> bytes:
    """Renders `data` (PostScript or PDF) with `device`. Raises CorruptInput, also for an end that is not reached."""
    # -dSAFER permits access to TMPDIR, so TMPDIR is a separate folder.
    with TemporaryDirectory() as folder:
        source = Path(folder, "in")
        result = Path(folder, "out")
        end = Path(folder, "end")
        source.write_bytes(data)
        command = [
            *PROGRAMS,
            "-q", "-dSAFER", "-dBATCH", "-dNOPAUSE",
            f"-sDEVICE={device}",
            f"-sOutputFile={result}",
            f"-sCONVERTD_END={end}",
            *arguments,
            str(source),
        ]  # fmt: skip
        process = subprocess.run(
            command,
            env={"TMPDIR": folder},
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            check=False,
        )
        # Ghostscript exits with 0 for empty and truncated files too.
        if process.returncode or not result.exists() or not result.stat().st_size:
            raise CorruptInput("The PostScript program cannot be rendered.")
        if data.endswith(_LAST_LINE) and not end.exists():
            raise CorruptInput("The PostScript program is truncated.")
        return result.read_bytes()


def _check_bounding_box(program: bytes) -> None:
    """Raises TooLarge if the image is larger than Ghostscript draws, which it reports as an error of the program."""
    boxes: dict[bytes, bytes] = dict(reversed(_DECLARED_BOX.findall(program.partition(b"%%EndComments")[0])))
    try:
        left, bottom, right, top = map(float, boxes.get(b"HiRes", boxes.get(b"", b"")).split())
    except ValueError:
        return  # Ghostscript ignores an invalid box
    _check_size(right - left, top - bottom)


def _check_size(width: float, height: float) -> None:
    """Raises TooLarge for an image of this size in points."""
    if max(width, height) > _MAX_SIDE:
        raise TooLarge(
            f"The image has {width:g} x {height:g} points; the limit is {_MAX_SIDE} per side.",
            reason="pixels",
            details={"max_side": _MAX_SIDE},
        )


def _extract_program(data: bytes) -> bytes:
    """The PostScript program as Ghostscript expects it: with an EPSF header, without which it ignores the bounding box,
    and with the bounding box in the header, not in the trailer. Without a comment that ends it, it checks itself.

    Raises CorruptInput for a file that ends before the program."""
    if data.startswith(_DOS_HEADER):
        start, size = struct.unpack_from("<II", data, 4)
        if start + size > len(data):
            raise CorruptInput("The file is truncated.")
        data = data[start : start + size]
    data = data.strip(b"\x04")  # ends a job on a serial line
    data = _DEFERRED_BOX.sub(lambda deferred: _box_in_trailer(data, deferred), data)
    first, newline, rest = data.partition(b"\r" if b"\n" not in data[:256] else b"\n")
    first = first if b"EPSF" in first else b"%!PS-Adobe-3.0 EPSF-3.0"
    if not ends_with(b"%%EOF")(data):
        if _DEFERRED_BOX.search(data):
            raise CorruptInput("The PostScript program is truncated.")
        rest = _FIRST_LINE + rest + _LAST_LINE
    return first + newline + rest


def _box_in_trailer(data: bytes, deferred: re.Match[bytes]) -> bytes:
    """The comment with the bounding box that `deferred` announces for the end of the file."""
    boxes = re.findall(_BOX_COMMENT % re.escape(deferred[1]), data[deferred.end() :])
    return deferred[1] + boxes[-1] if boxes else deferred[0]


@conversion(DOCUMENT, EPS, cost=10, terminal=True, programs=PROGRAMS, isolated=True)
def from_document(document: pymupdf.Document, *, metadata: Metadata = "safe") -> bytes:
    """Writes the first page as vectors, as viewers show it. Transparent parts become images."""
    warn_first_page(document)
    _check_images(document)
    filter_document(document, metadata)
    document.select([0])
    document = _without_hidden_layers(document)
    document.bake()
    width, height = _make_upright(document)
    _check_size(width, height)
    if not document[0].get_bboxlog():
        document[0].draw_rect(document[0].rect, color=None, fill=(1, 1, 1))  # without marks, it would look truncated
    document, flattened = transparency.flatten(document)
    if flattened:
        FidelityWarning.issue("effects_rasterized", "Transparent parts became images of at most 300 dpi.")
    _remove_structures(document)
    # Ghostscript would write glyphs of composite fonts as bitmaps.
    outlines = any(kind == "Type0" for _, _, kind, *_ in document.get_page_fonts(0, full=True))
    settings = ["-dPDFSTOPONERROR", *(["-dNoOutputFonts"] if outlines else [])]
    try:
        program = _run_ghostscript(document.tobytes(garbage=1), "eps2write", *settings)
    except CorruptInput:
        _check_patterns(document)
        raise
    return _set_bounding_box(program, width, height)


def _check_patterns(document: pymupdf.Document) -> None:
    """Raises TooLarge if patterns are nested more deeply than Ghostscript writes them."""
    with objects.open_pdf(document.tobytes()) as pdf:
        if resources.has_nested_patterns(pdf.pages[0].obj, _MAX_PATTERNS):
            message = f"Patterns are nested deeper than {_MAX_PATTERNS} levels, which EPS files cannot hold."
            raise TooLarge(message, reason="elements", details={"max_nesting": _MAX_PATTERNS})


def _check_images(document: pymupdf.Document) -> None:
    """Raises CorruptInput for a damaged image by JBIG2, which Ghostscript would leave out."""
    for xref, *_, filter in (image[:9] for image in document[0].get_images()):
        if filter == "JBIG2Decode":
            with checked_images():
                pymupdf.Pixmap(document, xref)


def _without_hidden_layers(document: pymupdf.Document) -> pymupdf.Document:
    """The document without the parts of hidden layers that Ghostscript would show."""
    if not document.get_ocgs():
        return document
    changed = BytesIO()
    with objects.open_pdf(document.tobytes()) as pdf:
        layers.remove_hidden_layers(pdf)
        pdf.save(changed)
    return type(document)(stream=changed.getvalue(), filetype="pdf")


def _make_upright(document: pymupdf.Document) -> tuple[float, float]:
    """Draws the content of the only page as a form, with rotation, crop box and unit applied. Returns its size in
    points.

    Ghostscript writes the content outside the crop box, too, and fails on some resources of pages, but not of forms.
    """
    page = document[0]
    width = page.rect.width
    height = page.rect.height
    rotation = page.rotation
    page.set_rotation(0)
    area = page.rect * ~page.transformation_matrix
    turned = page.rect * pymupdf.Matrix(rotation)
    matrix = page.transformation_matrix * pymupdf.Matrix(rotation) * pymupdf.Matrix(1, 0, 0, -1, -turned.x0, turned.y1)
    kind, resources = document.xref_get_key(page.xref, "Resources")
    form = document.get_new_xref()
    content = document.get_new_xref()
    document.update_object(
        form, _FORM.format(_numbers(area), _numbers(matrix), "<<>>" if kind == "null" else resources)
    )
    document.update_stream(form, page.read_contents())
    document.update_object(content, "<<>>")
    document.update_stream(content, b"/Page Do")
    box = f"[0 0 {width:.4f} {height:.4f}]"
    replaced = {
        "Contents": f"{content} 0 R",
        "Resources": f"<</XObject<</Page {form} 0 R>>>>",
        **dict.fromkeys(("MediaBox", "CropBox"), box),
    }
    for key, value in replaced.items():
        document.xref_set_key(page.xref, key, value)
    return width, height


def _numbers(values: Iterable[float]) -> str:
    return " ".join(f"{value:.6f}" for value in values)


def _remove_structures(document: pymupdf.Document) -> None:
    """Removes from the document what does not change the look of a page. Ghostscript fails if some of it is invalid."""
    for xref, kept in ((document.pdf_catalog(), _KEPT_IN_CATALOG), (document[0].xref, _KEPT_IN_PAGE)):
        keys = [key for key in document.xref_get_keys(xref) if key in kept]
        # Not set to null: Ghostscript fails on some keys without a value.
        document.update_object(xref, f"<<{''.join(f'/{key} {document.xref_get_key(xref, key)[1]}' for key in keys)}>>")
    document.xref_set_key(_TRAILER, "Info", "null")


def _set_bounding_box(program: bytes, width: float, height: float) -> bytes:
    """`program` with the page as bounding box, in points. Ghostscript writes the box of the marks, without margins."""

    def replacement(match: re.Match[bytes]) -> bytes:
        kind = match.group(1) or b""
        corner = f"{width:.3f} {height:.3f}" if kind == b"HiRes" else f"{_rounded_up(width)} {_rounded_up(height)}"
        return b"%%" + kind + b"BoundingBox: 0 0 " + corner.encode()

    return _BOUNDING_BOX.sub(replacement, program, count=4)


def _rounded_up(length: float) -> int:
    return math.ceil(round(length, 3))


embed_jpeg = conversion(JPEG, EPS, terminal=True, cost=0.5)(postscript.embed_jpeg)
from_raster = conversion(
    RASTER,
    EPS,
    loss=Loss.DETAIL,
    cost=1,
    memory=16,
    capabilities=postscript.CAPABILITIES,
)(postscript.from_raster)


@hookimpl
def conversions() -> list[AnyConversion]:
    images: list[AnyConversion] = [embed_jpeg, from_raster]
    return [to_pdf, from_document, *images] if GHOSTSCRIPT.present else images
