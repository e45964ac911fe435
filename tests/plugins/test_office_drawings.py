"""Drawings of Office, CAD and Visio become pages."""

import pypdfium2
import pytest

from engine import CorruptInput
from plugins._office.libreoffice import LIBREOFFICE
from tests.support.results.conversions import convert
from tests.support.samples import office_files
from tests.support.samples.compound_files import Storage, compound_file
from tests.support.samples.office_files import TEXT, opendocument

pytestmark = pytest.mark.skipif(not LIBREOFFICE.present, reason="LibreOffice is not installed")


def _text(pdf: bytes) -> str:
    """The text of the first page, as PDFium reads it."""
    found: str = pypdfium2.PdfDocument(pdf)[0].get_textpage().get_text_bounded()
    return found.strip()


def test_a_drawing_is_drawn() -> None:
    frame = f"<draw:frame svg:width='9cm' svg:height='2cm'><draw:text-box><text:p>{TEXT}</text:p></draw:text-box>"
    body = f"<office:body><office:drawing><draw:page>{frame}</draw:frame></draw:page></office:drawing></office:body>"

    assert _text(convert(opendocument("graphics", body), "pdf").data) == TEXT


def test_a_drawing_of_visio_is_drawn() -> None:
    assert _text(convert(office_files.vdx(), "pdf").data) == TEXT


def test_a_drawing_of_cad_fills_its_page_and_tells_what_is_not_drawn() -> None:
    result = convert(office_files.dxf({0: "SPLINE", 8: 0}, {0: "MTEXT", 1: "gone"}), "pdf")
    page = pypdfium2.PdfDocument(result.data)[0]
    width, height = page.get_size()

    assert _text(result.data) == TEXT
    assert round(width) == 842  # A4
    assert 440 < height < 460
    assert result.outcome.warnings[0].message == "LibreOffice does not draw: MTEXT, SPLINE."
    left, _, right, _ = page.render().to_pil().convert("L").point(lambda value: 255 * (value < 250)).getbbox()
    assert (round(left / 10), round(right / 10)) == (3, 81)


def test_a_drawing_of_cad_without_lines_is_refused() -> None:
    sizes = b"  9\n$EXTMIN\n 10\n0\n 20\n0\n  9\n$EXTMAX\n 10\n100\n 20\n50\n"
    empty = (
        b"  0\nSECTION\n  2\nHEADER\n" + sizes + b"  0\nENDSEC\n  0\nSECTION\n  2\nENTITIES\n  0\nENDSEC\n  0\nEOF\n"
    )

    with pytest.raises(CorruptInput, match="nothing"):
        convert(empty, "pdf")
    with pytest.raises(CorruptInput, match="truncated"):
        convert(office_files.dxf(ending=""), "pdf")


# LibreOffice writes neither format, so there is no sample of which it draws something.
@pytest.mark.parametrize("streams", [{"VisioDocument": bytes(5000)}, {"Contents": bytes(5000), "\3Internal": b""}])
def test_a_drawing_of_visio_or_publisher_without_content_is_refused(streams: Storage) -> None:
    data = compound_file(streams)

    with pytest.raises(CorruptInput):
        convert(data, "pdf")
    with pytest.raises(CorruptInput, match="truncated"):
        convert(data[:-4000], "pdf")
