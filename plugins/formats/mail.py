"""Mails: as they are sent (EML), and as Outlook stores them (MSG), as pages and as the structure of their text."""

from __future__ import annotations

import re

from engine import (
    BLOCKS,
    DOCUMENT,
    AnyConversion,
    Blocks,
    Content,
    FileFormat,
    Loss,
    Signature,
    conversion,
    hookimpl,
    lazy_imports,
)
from engine.option_types import Landscape, Margin, Pages, PageSize
from plugins._office import compound_file, documents
from plugins.formats import html
from plugins.formats.html import PANGO

with lazy_imports():
    from engine.mupdf import pymupdf
    from plugins._text import mails, outlook

MODULES = (*html.MODULES, "plugins._text.mails", "plugins._text.outlook")
TEMPLATE = html.TEMPLATE
_HEAD = 65_536  # bytes within which the fields must end
_FIRST = b"ARC- Authentication- DKIM- Date: Delivered- From: MIME- Message- Received: Return- Subject: To: X-".split()
_FIELDS = re.compile(rb"(?:[!-9;-~]++:[^\r\n]*+\r?\n(?:[ \t][^\r\n]*+\r?\n)*+)++(?:\r?\n|\Z)")
_OF_MAILS = frozenset({b"date", b"message-id", b"received", b"mime-version"})


def _sniff(content: Content) -> int:
    """12 if the file begins with the fields of a mail, which say who sent it, and when or how."""
    fields = _FIELDS.match(content[:_HEAD])
    names = {line.partition(b":")[0].lower() for line in fields[0].splitlines()} if fields else set()
    return 12 if b"from" in names and names & _OF_MAILS else 0


EML = FileFormat(
    "eml",
    media_type="message/rfc822",
    extensions=("eml",),
    sniff=Signature((0, tuple(_FIRST)), then=_sniff),
    text_extensions=("eml",),
)
MSG = FileFormat(
    "msg",
    media_type="application/vnd.ms-outlook",
    extensions=("msg",),
    sniff=documents.sniff_streams("__properties_version1.0"),
    is_complete=compound_file.is_complete,
    must_be_complete=True,
)


def _declare(format: FileFormat) -> list[AnyConversion]:
    """The steps from a format of mails: its head, its text with its pictures, and the names of attached files."""

    def page(data: bytes) -> bytes:
        return mails.to_page(mails.parse(data) if format is EML else outlook.parse(data))

    @conversion(format, DOCUMENT, cost=9, isolated=True)
    def read(
        data: bytes,
        *,
        page_size: PageSize | None = None,
        landscape: Landscape | None = None,
        margin: Margin | None = None,
        pages: Pages | None = None,
    ) -> pymupdf.Document:
        return html.read.run(page(data), page_size=page_size, landscape=landscape, margin=margin, pages=pages)

    @conversion(format, BLOCKS, loss=Loss.DETAIL, isolated=True)
    def read_blocks(data: bytes) -> Blocks:
        return html.read_blocks.run(page(data))

    return [*([read] if PANGO.present else []), read_blocks]


@hookimpl
def conversions() -> list[AnyConversion]:
    return [*_declare(EML), *_declare(MSG)]
