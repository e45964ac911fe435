"""SVG, plain and compressed: drawn by CairoSVG, written from documents by MuPDF."""

from __future__ import annotations

import re
import zlib
from warnings import warn

from engine import (
    DOCUMENT,
    RASTER,
    Content,
    CorruptInput,
    FidelityWarning,
    FileFormat,
    Frame,
    Loss,
    Options,
    Raster,
    Requirement,
    conversion,
    hookimpl,
)
from engine.conversions import AnyConversion
from engine.media import Document
from plugins.pdf import PDF

try:
    from plugins import _cairo
except OSError:
    HAS_CAIRO = False
else:
    HAS_CAIRO = True

_HEAD = 65_536  # bytes in which the root element must begin
_MAX_TEXT = 32 * 1024 * 1024  # bytes of an unpacked or expanded file
_GZIP = b"\x1f\x8b"


def _sniff(content: Content) -> int:
    """Whether the root element is svg, behind declarations and comments."""
    try:
        head = _unpacked(content[:_HEAD], _HEAD)
    except zlib.error:
        return 0
    text = _text(head).lstrip("\ufeff \t\r\n")
    while text.startswith(("<?", "<!")):
        opening, closing = next(pair for pair in _SKIPPED if text.startswith(pair[0]))
        subset = text.find("[", 0, text.find(">") + 1) if opening == "<!DOCTYPE" else -1
        end = text.find("]", subset) if subset >= 0 else 0
        end = text.find(closing, max(end, 0))
        if end < 0:
            return 0
        text = text[end + len(closing) :].lstrip()
    return 4 if re.match(r"<(\w+:)?svg[\s/>]", text) else 0


_SKIPPED = (("<?", "?>"), ("<!--", "-->"), ("<!DOCTYPE", ">"), ("<!", ">"))

SVG = FileFormat("svg", media_type="image/svg+xml", extensions=("svg", "svgz"), sniff=_sniff)


def _text(head: bytes) -> str:
    encoding = "utf-16" if head[:2] in (b"\xff\xfe", b"\xfe\xff") else "latin-1"
    return head.removeprefix(b"\xef\xbb\xbf").decode(encoding, "replace")


def _unpacked(data: bytes, limit: int) -> bytes:
    """At most `limit` bytes of a file that may be gzipped."""
    if data[:2] != _GZIP:
        return data
    return zlib.decompressobj(wbits=31).decompress(data, limit)


_DOCTYPE = re.compile(rb"<!DOCTYPE[^\[>]*(?:\[(.*?)\]\s*)?>", re.DOTALL)
_ENTITY = re.compile(rb"""<!ENTITY\s+([\w.:-]+)\s+(?:"([^"]*)"|'([^']*)')\s*>""")
_REFERENCE = re.compile(rb"&([A-Za-z_][\w.:-]*);")
_PREDEFINED = frozenset({b"amp", b"lt", b"gt", b"quot", b"apos"})
_MAX_DEPTH = 8


def source(data: bytes) -> bytes:
    """The XML as CairoSVG takes it: unpacked, and with the entities that drawing programs declare put in.

    Only texts declared in the file itself are put in, to a bounded depth and size; it reads nothing else.
    """
    svg = _unpacked(data, _MAX_TEXT)
    doctype = _DOCTYPE.search(svg)
    if doctype is None:
        return svg
    declared = _ENTITY.findall(doctype.group(1) or b"")
    texts = {name: double or single for name, double, single in declared if name not in _PREDEFINED}
    svg = svg[: doctype.start()] + svg[doctype.end() :]
    for _ in range(_MAX_DEPTH):
        expanded = _expanded(svg, texts)
        if expanded == svg:
            return svg
        svg = expanded
    raise CorruptInput("The SVG's entities refer to each other too deeply.")


def _expanded(svg: bytes, texts: dict[bytes, bytes]) -> bytes:
    references = [match.group(1) for match in _REFERENCE.finditer(svg)]
    if len(svg) + sum(len(texts.get(name, b"")) for name in references) > _MAX_TEXT:
        raise CorruptInput("The SVG's entities make it too long.")
    return _REFERENCE.sub(lambda match: texts.get(match.group(1), match.group(0)), svg)


@conversion(SVG, RASTER, loss=Loss.STRUCTURE, cost=4)
def draw(data: bytes, _options: Options) -> Raster:
    return Raster([Frame(_cairo.pixels(source(data)))], dpi=(96, 96))


@conversion(SVG, PDF, cost=4)
def to_pdf(data: bytes, _options: Options) -> bytes:
    return _cairo.pdf(source(data))


@conversion(SVG, SVG, loss=Loss.DETAIL, cost=4)
def redraw(data: bytes, _options: Options) -> bytes:
    return _cairo.outlined(source(data))


@conversion(DOCUMENT, SVG, loss=Loss.DETAIL, cost=4)
def from_document(document: Document, _options: Options) -> bytes:
    """The first page, texts as outlines, because their fonts do not come along."""
    if document.page_count > 1:
        message = f"The target holds the first of {document.page_count} pages."
        warn(FidelityWarning("pages_dropped", message), stacklevel=2)
    svg: str = document[0].get_svg_image(text_as_path=True)
    return svg.encode()


@hookimpl
def conversions() -> list[AnyConversion]:
    drawn: list[AnyConversion] = [draw, to_pdf, redraw]
    return [from_document, *drawn] if HAS_CAIRO else [from_document]


@hookimpl
def requirements() -> list[Requirement]:
    return [Requirement("cairo", "reading SVG", "apt-get install libcairo2", present=HAS_CAIRO)]
