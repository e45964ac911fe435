"""Files of Office: documents of text, spreadsheets, presentations and drawings, which LibreOffice writes."""

import re

from engine import (
    AnyConversion,
    Content,
    CorruptInput,
    FileFormat,
    Signature,
    hookimpl,
)
from plugins._office import compound_file, documents
from plugins._office.libreoffice import LIBREOFFICE, Filter
from plugins._text import zip_archives

_ESCAPED = re.compile(rb"\\[\\{}]")


def _is_complete_rtf(content: Content) -> bool:
    """Whether all groups are closed. With binary data, which can contain braces, whether the last one is."""
    data = bytes(content[:])
    if b"\\bin" in data:
        return data.rstrip(b"\0 \r\n").endswith(b"}")
    groups = _ESCAPED.sub(b"", data)
    return groups.count(b"{") <= groups.count(b"}")


DOCX = FileFormat(
    "docx",
    media_type="application/vnd.openxmlformats-officedocument.wordprocessingml.document",
    extensions=("docx", "docm", "dotx", "dotm"),
    sniff=documents.sniff_package("word/document.xml"),
    is_complete=zip_archives.is_complete,
)
DOC = FileFormat(
    "doc",
    media_type="application/msword",
    extensions=("doc", "dot"),
    sniff=documents.sniff_streams("WordDocument"),
    is_complete=compound_file.is_complete,
    must_be_complete=True,
)
ODT = FileFormat(
    "odt",
    media_type="application/vnd.oasis.opendocument.text",
    extensions=("odt", "ott"),
    sniff=documents.sniff_opendocument("text"),
    is_complete=zip_archives.is_complete,
)
RTF = FileFormat(
    "rtf",
    media_type="application/rtf",
    extensions=("rtf",),
    sniff=Signature((0, rb"{\rtf")),
    is_complete=_is_complete_rtf,
    must_be_complete=True,
)
XLSX = FileFormat(
    "xlsx",
    media_type="application/vnd.openxmlformats-officedocument.spreadsheetml.sheet",
    extensions=("xlsx", "xlsm", "xltx", "xltm"),
    sniff=documents.sniff_package("xl/workbook.xml"),
    is_complete=zip_archives.is_complete,
)
XLS = FileFormat(
    "xls",
    media_type="application/vnd.ms-excel",
    extensions=("xls", "xlt"),
    sniff=documents.sniff_streams("Workbook", "Book"),
    is_complete=compound_file.is_complete,
    must_be_complete=True,
)
ODS = FileFormat(
    "ods",
    media_type="application/vnd.oasis.opendocument.spreadsheet",
    extensions=("ods", "ots"),
    sniff=documents.sniff_opendocument("spreadsheet"),
    is_complete=zip_archives.is_complete,
)
PPTX = FileFormat(
    "pptx",
    media_type="application/vnd.openxmlformats-officedocument.presentationml.presentation",
    extensions=("pptx", "pptm", "potx", "ppsx"),
    sniff=documents.sniff_package("ppt/presentation.xml"),
    is_complete=zip_archives.is_complete,
)
PPT = FileFormat(
    "ppt",
    media_type="application/vnd.ms-powerpoint",
    extensions=("ppt", "pot", "pps"),
    sniff=documents.sniff_streams("PowerPoint Document"),
    is_complete=compound_file.is_complete,
    must_be_complete=True,
)
ODP = FileFormat(
    "odp",
    media_type="application/vnd.oasis.opendocument.presentation",
    extensions=("odp", "otp"),
    sniff=documents.sniff_opendocument("presentation"),
    is_complete=zip_archives.is_complete,
)
VSDX = FileFormat(
    "vsdx",
    media_type="application/vnd.ms-visio.drawing.main+xml",
    extensions=("vsdx", "vsdm"),
    sniff=documents.sniff_package("visio/document.xml"),
    is_complete=zip_archives.is_complete,
)
TO_DOCX = Filter("MS Word 2007 XML", "docx")
_TEXTS = ((DOCX, TO_DOCX), (ODT, Filter("writer8", "odt")))
_SHEETS = (
    (XLSX, Filter("Calc MS Excel 2007 XML", "xlsx")),
    (ODS, Filter("calc8", "ods")),
)
TO_PPTX = Filter("Impress MS PowerPoint 2007 XML", "pptx")
_SLIDES = ((PPTX, TO_PPTX), (ODP, Filter("impress8", "odp")))


def check_lengths(data: bytes) -> bytes:
    """The file itself. Raises CorruptInput for binary data that is longer than the file: LibreOffice would hang."""
    if any(int(length) > len(data) for length in re.findall(rb"\\bin *(\d{1,18})", data)):
        raise CorruptInput("The file states a wrong length of its binary data.")
    return data


@hookimpl
def conversions() -> list[AnyConversion]:
    if not LIBREOFFICE.present:
        return []
    return [
        *documents.writers((DOCX, DOC, ODT), _TEXTS),
        *documents.writers((RTF,), _TEXTS, check_lengths),
        *documents.writers((XLSX, XLS, ODS), _SHEETS),
        *documents.writers((PPTX, PPT, ODP), _SLIDES),
    ]
