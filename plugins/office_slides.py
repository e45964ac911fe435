"""Presentations and drawings: PPTX, PPT, ODP and VSDX, by LibreOffice."""

from engine import AnyConversion, FileFormat, hookimpl
from plugins import _office
from plugins._libreoffice import LIBREOFFICE, Filter

PPTX = FileFormat(
    "pptx",
    media_type="application/vnd.openxmlformats-officedocument.presentationml.presentation",
    extensions=("pptx", "pptm", "potx", "ppsx"),
    sniff=_office.sniff_package("ppt/presentation.xml"),
)
PPT = FileFormat(
    "ppt",
    media_type="application/vnd.ms-powerpoint",
    extensions=("ppt", "pot", "pps"),
    sniff=_office.sniff_streams("PowerPoint Document"),
)
ODP = FileFormat(
    "odp",
    media_type="application/vnd.oasis.opendocument.presentation",
    extensions=("odp", "otp"),
    sniff=_office.sniff_opendocument("presentation"),
)
VSDX = FileFormat(
    "vsdx",
    media_type="application/vnd.ms-visio.drawing.main+xml",
    extensions=("vsdx", "vsdm"),
    sniff=_office.sniff_package("visio/document.xml"),
)
_SLIDES = (PPTX, PPT, ODP)
_TARGETS = ((PPTX, Filter("Impress MS PowerPoint 2007 XML", "pptx")), (ODP, Filter("impress8", "odp")))


@hookimpl
def conversions() -> list[AnyConversion]:
    if not LIBREOFFICE.present:
        return []
    return [
        *(_office.reader(format, Filter("impress_pdf_Export")) for format in _SLIDES),
        _office.reader(VSDX, Filter("draw_pdf_Export")),
        *_office.writers(_SLIDES, _TARGETS),
    ]
