"""Files of Office: documents of text, spreadsheets, presentations and drawings, which LibreOffice writes."""

import re
import zlib
from zipfile import BadZipFile

from engine import (
    AnyConversion,
    Content,
    CorruptInput,
    FileFormat,
    Signature,
    ends_with,
    hookimpl,
    lazy_imports,
)
from plugins._office import compound_file, documents, limits
from plugins._office.libreoffice import LIBREOFFICE, Filter
from plugins._text import zip_archives
from plugins._text.markup import in_markup, root_name

with lazy_imports():
    from lxml import etree

_HEAD = 65_536  # bytes within which markup and drawings begin
_DXF_START = re.compile(rb"(?:[ \t]*999\r?\n[^\n]*\n)*+[ \t]*0\r?\n[ \t]*SECTION\r?\n")  # after comments
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
ODG = FileFormat(
    "odg",
    media_type="application/vnd.oasis.opendocument.graphics",
    extensions=("odg", "otg"),
    sniff=documents.sniff_opendocument("graphics"),
    is_complete=zip_archives.is_complete,
)
VSD = FileFormat(
    "vsd",
    media_type="application/vnd.visio",
    extensions=("vsd", "vst"),
    sniff=documents.sniff_streams("VisioDocument"),
    is_complete=compound_file.is_complete,
    must_be_complete=True,
)
PUB = FileFormat(
    "pub",
    media_type="application/x-mspublisher",
    extensions=("pub",),
    sniff=documents.sniff_streams("Contents", beside=("\3Internal",)),
    is_complete=compound_file.is_complete,
    must_be_complete=True,
)
VSDX = FileFormat(
    "vsdx",
    media_type="application/vnd.ms-visio.drawing.main+xml",
    extensions=("vsdx", "vsdm"),
    sniff=documents.sniff_package("visio/document.xml"),
    is_complete=zip_archives.is_complete,
)
VDX = FileFormat(
    "vdx",
    media_type="application/vnd.visio",
    extensions=("vdx",),
    sniff=in_markup(lambda content: 13 if root_name(content[:_HEAD]) == "VisioDocument" else 0),
    is_complete=ends_with(b"</VisioDocument>"),
    must_be_complete=True,
)
DXF = FileFormat(
    "dxf",
    media_type="image/vnd.dxf",
    extensions=("dxf",),
    sniff=Signature((0, (b" ", b"0", b"9")), then=lambda content: 16 if _DXF_START.match(content[:_HEAD]) else 0),
    text_extensions=("dxf",),
    is_complete=ends_with(b"EOF"),
    must_be_complete=True,
)
TO_DOCX = Filter("MS Word 2007 XML", "docx")
_TEXTS = ((DOCX, TO_DOCX), (ODT, Filter("writer8", "odt")))
_SHEETS = (
    (XLSX, Filter("Calc MS Excel 2007 XML", "xlsx")),
    (ODS, Filter("calc8", "ods")),
)
TO_PPTX = Filter("Impress MS PowerPoint 2007 XML", "pptx")
_SLIDES = ((PPTX, TO_PPTX), (ODP, Filter("impress8", "odp")))


def _check_rtf(data: bytes) -> bytes:
    """The file itself. Raises TooLarge, and CorruptInput for binary data that is longer than the file.

    LibreOffice would hang.
    """
    if any(int(length) > len(data) for length in re.findall(rb"\\bin *0*(\d{1,18})", data)):
        raise CorruptInput("The file states a wrong length of its binary data.")
    limits.check_rtf(data)
    return data


def _check_content(data: bytes) -> bytes:
    """The file itself. Raises CorruptInput for a text of OpenDocument that is not well-formed, and TooLarge.

    LibreOffice would read it as if it was empty.
    """
    if documents.is_encrypted(data):
        return data
    try:
        with zip_archives.open_checked(data, limit_markup=True) as archive:
            content = archive.read("content.xml")
        limits.check_odt(content)
        etree.fromstring(content, etree.XMLParser(resolve_entities="internal", no_network=True))
    except (KeyError, BadZipFile, zlib.error, etree.XMLSyntaxError) as error:
        raise CorruptInput("The document is damaged, or nested too deeply.") from error
    return data


CHECKS = ((ODT, _check_content), (RTF, _check_rtf))
"""Formats whose files are checked before LibreOffice opens them."""


@hookimpl
def conversions() -> list[AnyConversion]:
    if not LIBREOFFICE.present:
        return []
    return [
        *documents.writers((DOCX, DOC), _TEXTS),
        *(step for format, check in CHECKS for step in documents.writers((format,), _TEXTS, check)),
        *documents.writers((XLSX, XLS, ODS), _SHEETS),
        *documents.writers((PPTX, PPT, ODP), _SLIDES),
    ]
