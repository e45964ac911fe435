"""PDF/UA-1: pages with the structure of their text, its language and title; others are refused."""

from base64 import b64encode

import pytest

from engine import ConversionError
from plugins._office.libreoffice import LIBREOFFICE
from tests.support.results.conversions import codes, convert
from tests.support.samples.generated import sample
from tests.support.samples.mails import picture
from tests.support.samples.office_files import opendocument
from tests.support.samples.pdf_documents import opened

_PICTURE = b64encode(picture()).decode()
_HTML = (
    '<!doctype html><html lang="en"><title>Harbors</title><h1>Harbor</h1>'
    f'<p>A <a href="https://example.org/">link</a> <img alt="red" src="data:image/png;base64,{_PICTURE}"></p>'
)
_META = (
    '<office:document-meta xmlns:office="urn:oasis:names:tc:opendocument:xmlns:office:1.0" office:version="1.2" '
    'xmlns:dc="http://purl.org/dc/elements/1.1/"><office:meta><dc:title>Harbors</dc:title></office:meta>'
    "</office:document-meta>"
)
_LINK = '<text:p>A <text:a xlink:href="https://example.org/">link</text:a></text:p>'
_TEXT = opendocument("text", f"<office:body><office:text>{_LINK}</office:text></office:body>", {"meta.xml": _META})
_FRAME = f'<draw:frame svg:width="9cm" svg:height="2cm"><draw:text-box>{_LINK}</draw:text-box></draw:frame>'
_SLIDE = f'<office:presentation><draw:page draw:name="One">{_FRAME}</draw:page></office:presentation>'
_SLIDES = opendocument("presentation", f"<office:body>{_SLIDE}</office:body>", {"meta.xml": _META})
_OFFICE = pytest.mark.skipif(not LIBREOFFICE.present, reason="LibreOffice is not installed")


@pytest.mark.parametrize(
    ("data", "options"),
    [
        (_HTML.encode(), {"pages": "1", "quality": 50}),
        pytest.param(_TEXT, {}, marks=_OFFICE),
        pytest.param(_SLIDES, {}, marks=[_OFFICE, pytest.mark.long]),
    ],
    ids=["html", "text", "slides"],
)
def test_pages_are_accessible(data: bytes, options: dict[str, str | int]) -> None:
    result = convert(data, "pdf", pdf_standard="pdfua-1", **options)

    assert codes(result) == set()
    with opened(result.data) as made:
        root, page = made.Root, made.pages[0].obj
        assert b"pdfuaid:part" in root.Metadata.read_bytes()
        assert (str(root.Lang)[:2], str(made.docinfo.Title)) == ("en", "Harbors")
        assert (bool(root.MarkInfo.Marked), bool(root.ViewerPreferences.DisplayDocTitle)) == (True, True)
        assert page.Tabs == "/S"
        assert [str(link.Contents) for link in page.Annots] in (["https://example.org/"], ["link"])
        kinds = {str(one.S) for one in made.objects if hasattr(one, "keys") and one.get("/Type") == "/StructElem"}
        assert {"/Link"} < kinds


@pytest.mark.parametrize(
    ("data", "lacking"),
    [
        (_HTML.replace("Harbors", "").encode(), "it has no title"),
        (_HTML.replace(' lang="en"', "").encode(), "its language is not known"),
        (_HTML.replace(' alt="red"', "").encode(), "images without an alternative text: 1"),
        (sample("png"), "only texts, slides, HTML and Markdown become it"),
    ],
)
def test_what_a_page_lacks_is_told(data: bytes, lacking: str) -> None:
    with pytest.raises(ConversionError, match=lacking) as refused:
        convert(data, "pdf", pdf_standard="pdfua-1")

    assert (refused.value.reason, refused.value.param) == ("unsupported", "pdf_standard")
