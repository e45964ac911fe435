"""Presentations and drawings: PPTX, PPT, ODP and VSDX, by LibreOffice."""

from engine import AnyConversion, FileFormat, hookimpl
from plugins._office import documents
from plugins._office.libreoffice import LIBREOFFICE, Filter

PPTX = FileFormat(
    "pptx",
    media_type="application/vnd.openxmlformats-officedocument.presentationml.presentation",
    extensions=("pptx", "pptm", "potx", "ppsx"),
    sniff=documents.sniff_package("ppt/presentation.xml"),
)
PPT = FileFormat(
    "ppt",
    media_type="application/vnd.ms-powerpoint",
    extensions=("ppt", "pot", "pps"),
    sniff=documents.sniff_streams("PowerPoint Document"),
)
ODP = FileFormat(
    "odp",
    media_type="application/vnd.oasis.opendocument.presentation",
    extensions=("odp", "otp"),
    sniff=documents.sniff_opendocument("presentation"),
)
VSDX = FileFormat(
    "vsdx",
    media_type="application/vnd.ms-visio.drawing.main+xml",
    extensions=("vsdx", "vsdm"),
    sniff=documents.sniff_package("visio/document.xml"),
)
_SLIDES = (PPTX, PPT, ODP)
_TARGETS = ((PPTX, Filter("Impress MS PowerPoint 2007 XML", "pptx")), (ODP, Filter("impress8", "odp")))


@hookimpl
def conversions() -> list[AnyConversion]:
    if not LIBREOFFICE.present:
        return []
    return [
        *(documents.reader(format, Filter("impress_pdf_Export")) for format in _SLIDES),
        documents.reader(VSDX, Filter("draw_pdf_Export")),
        *documents.writers(_SLIDES, _TARGETS),
    ]
