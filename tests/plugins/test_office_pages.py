"""Pages that LibreOffice prints: tracked changes, notes, outlines, sheets, and formulas that it does not know."""

from collections.abc import Sequence
from io import BytesIO
from zipfile import ZipFile

import pikepdf
import pypdfium2
import pytest
from PIL import Image
from PIL.JpegImagePlugin import JpegImageFile
from pptx import Presentation
from pptx.util import Inches
from xlsxwriter import Workbook

from engine import InvalidOption
from plugins._office.libreoffice import LIBREOFFICE
from tests.support.results.conversions import codes, convert
from tests.support.samples.books import zipped
from tests.support.samples.office_files import docx

pytestmark = pytest.mark.skipif(not LIBREOFFICE.present, reason="LibreOffice is not installed")

_WORD = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"
_AUTHOR = 'w:id="1" w:author="A" w:date="2020-01-01T00:00:00Z"'
_REVISED = docx(
    parts={
        "word/document.xml": f'<w:document xmlns:w="{_WORD}"><w:body><w:p>'
        f'<w:r><w:t xml:space="preserve">kept </w:t></w:r>'
        f'<w:ins {_AUTHOR}><w:r><w:t xml:space="preserve">added </w:t></w:r></w:ins>'
        f"<w:del {_AUTHOR}><w:r><w:delText>removed</w:delText></w:r></w:del></w:p></w:body></w:document>"
    }
)


def _texts(data: bytes) -> list[str]:
    """The text of each page."""
    return [page.get_textpage().get_text_bounded().strip() for page in pypdfium2.PdfDocument(data)]


def _has_outline(data: bytes) -> bool:
    with pikepdf.open(BytesIO(data)) as document:
        return "/Outlines" in document.Root


def _workbook(columns: int = 40) -> bytes:
    file = BytesIO()
    with Workbook(file) as workbook:
        for name in ("first", "second"):
            sheet = workbook.add_worksheet(name)
            sheet.write_row(0, 0, [f"{name}{number}" for number in range(columns)])
    return file.getvalue()


@pytest.mark.parametrize(
    ("markup", "words"),
    [(None, ["kept", "added", "removed"]), ("final", ["kept", "added"]), ("original", ["kept", "removed"])],
)
def test_tracked_changes_are_as_requested(markup: str | None, words: Sequence[str]) -> None:
    options = {} if markup is None else {"markup": markup}

    assert _texts(convert(_REVISED, "pdf", **options).data)[0].split() == words


def test_the_notes_of_slides_are_pages_at_the_end() -> None:
    deck = Presentation()
    slide = deck.slides.add_slide(deck.slide_layouts[5])
    slide.shapes.title.text = "Title"
    slide.notes_slide.notes_text_frame.text = "Spoken words"
    slide.shapes.add_textbox(Inches(1), Inches(3), Inches(3), Inches(1)).text_frame.text = "Body"
    Image.effect_noise((200, 200), 50).convert("RGB").save(picture := BytesIO(), "png")
    slide.shapes.add_picture(picture, Inches(5), Inches(3))
    deck.save(file := BytesIO())

    with_notes = _texts(convert(file.getvalue(), "pdf", notes=True, pages="all").data)
    without = convert(file.getvalue(), "pdf")
    plain = convert(file.getvalue(), "pdf", bookmarks=False)

    assert ["Spoken words" in text for text in with_notes] == [False, True]
    assert len(_texts(without.data)) == 1
    assert (_has_outline(without.data), _has_outline(plain.data)) == (True, False)
    with pikepdf.open(BytesIO(without.data)) as document:
        assert "/StructTreeRoot" in document.Root
        (image,) = document.pages[0].get_images().values()
        assert JpegImageFile(BytesIO(image.read_raw_bytes())).quantization[0][0] == 3  # of JPEG with quality 90


def test_sheets_are_fitted_or_chosen() -> None:
    data = _workbook()

    pages = len(_texts(convert(data, "pdf").data))
    fitted = _texts(convert(data, "pdf", fit_to_width=True).data)
    single = pypdfium2.PdfDocument(convert(data, "pdf", single_page_sheets=True).data)

    assert pages > 4
    assert ["first39" in text for text in fitted] == [True, False]
    assert [page.get_width() > 1500 for page in single] == [True, True]
    for sheet in ("2", "second"):
        assert all("first" not in text for text in _texts(convert(data, "pdf", sheet=sheet).data))
    with pytest.raises(InvalidOption) as raised:
        convert(data, "pdf", sheet="third")
    assert (raised.value.param, raised.value.reason) == ("sheet", "out_of_range")


def test_sheets_have_the_rows_of_the_file_and_comments_on_request() -> None:
    file = BytesIO()
    with Workbook(file) as workbook:
        sheet = workbook.add_worksheet()
        for row in range(40):
            sheet.set_row(row, 30)
            sheet.write(row, 0, row)
        sheet.write_comment("A1", "Noted")
    with ZipFile(file) as archive:  # as Excel stores heights that fit the content
        parts = {name: archive.read(name).replace(b' customHeight="1"', b"") for name in archive.namelist()}

    for comments in (False, True):
        result = convert(zipped(parts), "pdf", comments=comments)
        assert len(_texts(result.data)) == 2
        with pikepdf.open(BytesIO(result.data)) as document:
            assert ("/Annots" in document.pages[0]) == comments


def test_unknown_functions_keep_their_values() -> None:
    file = BytesIO()
    with Workbook(file) as workbook:
        sheet = workbook.add_worksheet()
        sheet.write_formula("A1", "=_xlfn.XLOOKUP(2,B1:B2,B1:B2)", value=123)
        sheet.write_formula("A2", "=SUM(B1:B2)", value=7)
        sheet.write_dynamic_array_formula("A3:A4", "=_xlfn._xlws.FILTER(B1:B2,B1:B2>2)", value=456)
        sheet.write_column("B1", [2, 5])

    result = convert(file.getvalue(), "ods")

    assert [(one.code, one.message.rpartition(": ")[2]) for one in result.outcome.warnings] == [
        ("functions_unknown", "XLOOKUP, FILTER.")
    ]
    with ZipFile(BytesIO(result.data)) as archive:
        content = archive.read("content.xml")
    assert b"#NAME" not in content
    assert all(value in content for value in (b">123<", b">456<", b"of:=SUM("))


def test_fonts_that_no_text_has_are_not_told() -> None:
    styles = f'<w:styles xmlns:w="{_WORD}"><w:style w:styleId="x"><w:rPr><w:rFonts w:ascii="Tahoma"/></w:rPr></w:style>'
    unused = docx(parts={"word/styles.xml": f"{styles}</w:styles>"})

    assert codes(convert(unused, "pdf")) == set()
    assert codes(convert(docx(font="Verdana"), "pdf")) == {"font_substituted"}


@pytest.mark.parametrize(("text", "font"), [("\u1e6d", "Times New Roman"), ("a", "Bitstream Vera Serif")])
def test_fonts_with_the_same_metrics_are_not_told(text: str, font: str) -> None:
    """Also not if they lack a character, which another font has."""
    assert codes(convert(docx(text, font=font), "pdf")) == set()
