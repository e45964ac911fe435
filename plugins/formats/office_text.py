"""Documents of text: DOCX, DOC, ODT and RTF, by LibreOffice."""

import re

from engine import AnyConversion, CorruptInput, FileFormat, Signature, ends_with, hookimpl
from plugins._office import documents
from plugins._office.libreoffice import LIBREOFFICE, Filter

DOCX = FileFormat(
    "docx",
    media_type="application/vnd.openxmlformats-officedocument.wordprocessingml.document",
    extensions=("docx", "docm", "dotx", "dotm"),
    sniff=documents.sniff_package("word/document.xml"),
)
DOC = FileFormat(
    "doc", media_type="application/msword", extensions=("doc", "dot"), sniff=documents.sniff_streams("WordDocument")
)
ODT = FileFormat(
    "odt",
    media_type="application/vnd.oasis.opendocument.text",
    extensions=("odt", "ott"),
    sniff=documents.sniff_opendocument("text"),
)
RTF = FileFormat(
    "rtf",
    media_type="application/rtf",
    extensions=("rtf",),
    sniff=Signature((0, rb"{\rtf")),
    is_complete=ends_with(b"}"),
)
_TARGETS = ((DOCX, Filter("MS Word 2007 XML", "docx")), (ODT, Filter("writer8", "odt")))


def _check_lengths(data: bytes) -> bytes:
    """The file itself. Raises CorruptInput for binary data that is longer than the file: LibreOffice would hang."""
    if any(int(length) > len(data) for length in re.findall(rb"\\bin *(\d{1,18})", data)):
        raise CorruptInput("The file states a wrong length of its binary data.")
    return data


@hookimpl
def conversions() -> list[AnyConversion]:
    if not LIBREOFFICE.present:
        return []
    pages = Filter("writer_pdf_Export")
    return [
        *(documents.reader(format, pages) for format in (DOCX, DOC, ODT)),
        documents.reader(RTF, pages, _check_lengths),
        *documents.writers((DOCX, DOC, ODT), _TARGETS),
        *documents.writers((RTF,), _TARGETS, _check_lengths),
    ]
