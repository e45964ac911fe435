"""Documents of text: DOCX, DOC, ODT and RTF, by LibreOffice."""

from engine import AnyConversion, FileFormat, Signature, ends_with, hookimpl
from plugins import _office
from plugins._libreoffice import LIBREOFFICE, Filter

DOCX = FileFormat(
    "docx",
    media_type="application/vnd.openxmlformats-officedocument.wordprocessingml.document",
    extensions=("docx", "docm", "dotx", "dotm"),
    sniff=_office.sniff_package("word/document.xml"),
)
DOC = FileFormat(
    "doc", media_type="application/msword", extensions=("doc", "dot"), sniff=_office.sniff_streams("WordDocument")
)
ODT = FileFormat(
    "odt",
    media_type="application/vnd.oasis.opendocument.text",
    extensions=("odt", "ott"),
    sniff=_office.sniff_opendocument("text"),
)
RTF = FileFormat(
    "rtf",
    media_type="application/rtf",
    extensions=("rtf",),
    sniff=Signature((0, rb"{\rtf")),
    is_complete=ends_with(b"}"),
)
FORMATS = (DOCX, DOC, ODT, RTF)
_TARGETS = ((DOCX, Filter("MS Word 2007 XML", "docx")), (ODT, Filter("writer8", "odt")))


@hookimpl
def conversions() -> list[AnyConversion]:
    if not LIBREOFFICE.present:
        return []
    readers = [_office.reader(format, Filter("writer_pdf_Export")) for format in FORMATS]
    return [*readers, *_office.writers(FORMATS, _TARGETS)]
