"""The tool pdf-compress on fonts: glyphs that no text uses go, Type 1 becomes CFF, and text stays as it is."""

from io import BytesIO

import pikepdf
import pypdfium2
import pytest
from pikepdf import Array, Dictionary, String
from PIL import ImageChops, ImageFont

from engine.mupdf import pymupdf
from tests.support.samples.pdf_documents import compress, opened, page_texts, saved

_TRUETYPE = ImageFont.load_default(20)
assert isinstance(_TRUETYPE, ImageFont.FreeTypeFont)
_FONTS = {"TrueType": bytes(_TRUETYPE.font_bytes), "CFF": bytes(pymupdf.Font("helv").buffer)}


def _document(font: bytes) -> bytes:
    document = pymupdf.open()
    for number in range(3):
        page = document.new_page(width=300, height=100)
        page.insert_font("Full", fontbuffer=font)
        page.insert_text((50, 50), f"Seite {number} größer", fontname="Full")
    return bytes(document.tobytes())


def _assert_same_pages(first: bytes, second: bytes) -> None:
    assert page_texts(first) == page_texts(second)
    for page, other in zip(pypdfium2.PdfDocument(first), pypdfium2.PdfDocument(second), strict=True):
        assert ImageChops.difference(page.render().to_pil(), other.render().to_pil()).getbbox() is None


@pytest.mark.parametrize("font", _FONTS)
def test_fonts_are_subset_and_text_stays(font: str) -> None:
    data = _document(_FONTS[font])
    result = compress(data).data
    _assert_same_pages(data, result)
    assert len(result) < len(data) / 2


def test_fonts_of_form_fields_stay_whole() -> None:
    with pikepdf.open(BytesIO(_document(_FONTS["CFF"]))) as made:
        fonts = made.pages[0].obj.Resources.Font
        made.Root.AcroForm = Dictionary(Fields=Array([]), DR=Dictionary(Font=fonts), DA=String("/Full 0 Tf"))
        data = saved(made)
    assert _font_sizes(compress(data).data) == _font_sizes(data)


def _font_sizes(data: bytes) -> list[int]:
    with opened(data) as document:
        descriptors = [item for item in document.objects if isinstance(item, Dictionary) and "/FontName" in item]
        files = [item[key] for item in descriptors for key in ("/FontFile2", "/FontFile3") if key in item]
        return [len(file.read_bytes()) for file in files]
