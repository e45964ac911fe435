"""The text of PDFs, as text and as HTML."""

from html.parser import HTMLParser

import pytest
from pikepdf import Dictionary, Name, String

from engine.mupdf import pymupdf
from tests.support.results.conversions import codes, convert
from tests.support.samples.generated import sample
from tests.support.samples.pdf_documents import document, link, opened, saved


def _page(*texts: tuple[float, float, str], size: float = 10) -> bytes:
    """A page with a paragraph for each text, at these distances from the left and the top."""
    made = pymupdf.open()
    page = made.new_page()
    for left, top, text in texts:
        page.insert_text((left, top), text, fontsize=24 if text.isupper() else size, fontname="helv")
    return bytes(made.tobytes())


_LEFT, _RIGHT = "left column\nof some lines", "right column\nof some lines"
_TWO_COLUMNS = [(320, 200, _RIGHT + " b"), (50, 100, _LEFT + " a"), (320, 100, _RIGHT + " a"), (50, 200, _LEFT + " b")]
_ORDERED = [_LEFT + " a", _LEFT + " b", _RIGHT + " a", _RIGHT + " b"]
_FOOTER = "a footer that is as wide as the page, with many words, so that it spans both of the columns above it"


@pytest.mark.parametrize(
    ("texts", "expected"),
    [
        (_TWO_COLUMNS, _ORDERED),
        ([*_TWO_COLUMNS, (50, 50, "A TITLE OVER BOTH COLUMNS")], ["A TITLE OVER BOTH COLUMNS", *_ORDERED]),
        ([(50, 300, _FOOTER), *_TWO_COLUMNS], [*_ORDERED, _FOOTER]),
        ([(50, 300, "third"), (50, 100, "first"), (50, 200, "second")], ["first", "second", "third"]),
    ],
)
def test_text_is_in_reading_order(texts: list[tuple[float, float, str]], expected: list[str]) -> None:
    assert convert(_page(*texts), "txt").data.decode() == "\n\n".join(expected) + "\n"


def test_form_feeds_separate_pages() -> None:
    with opened(document("A", 3)) as made:
        made.pages[1].obj.Contents = made.make_stream(b"")
        data = saved(made)

    result = convert(data, "txt")

    assert result.data == b"A page 1\n\n\f\n\fA page 3\n"
    assert convert(data, "txt", pages="3").data == b"A page 3\n"
    assert result.outcome.warnings == ()


def test_characters_of_all_scripts() -> None:
    made = pymupdf.open()
    page = made.new_page()
    page.insert_htmlbox(page.rect, "<p>Größe 漢字 €</p>")

    assert convert(bytes(made.tobytes()), "txt").data.decode() == "Größe 漢字 €\n"


@pytest.mark.parametrize("target", ["txt", "html"])
def test_what_is_no_text_is_told(target: str) -> None:
    scan = convert(sample("png"), "pdf").data

    result = convert(scan, target)

    assert "pictures_dropped" in codes(result)
    assert result.data
    assert codes(convert(document("A", 1, link(0, to=0)), "txt")) == {"links_dropped"}


class _Reader(HTMLParser):
    """Elements with their attributes, and the text in them."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[tuple[str, str]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        if data.strip():
            self.texts.append((self.elements[-1][0], data))


def test_html_has_sections_headings_and_paragraphs() -> None:
    text = convert(_page((50, 50, "TITLE"), (50, 100, "body <b>&amp;</b> text")), "html").data.decode()

    found = _Reader(text)
    assert [tag for tag, _ in found.elements] == [
        "html",
        "head",
        "meta",
        "title",
        "style",
        "body",
        "section",
        "h1",
        "p",
    ]
    assert found.texts[1:] == [("h1", "TITLE"), ("p", "body <b>&amp;</b> text")]
    assert found.elements[6][1] == {"id": "page-1"}


@pytest.mark.parametrize(
    ("uri", "expected"),
    [
        ("https://example.com/?a=1&b=\"'", ["https://example.com/?a=1&b=\"'"]),
        ("javascript:alert(1)", []),
        ("file:///x", []),
    ],
)
def test_links_to_web_pages_stay_in_html(uri: str, expected: list[str]) -> None:
    with opened(document("A", 1)) as made:
        action = Dictionary(S=Name.URI, URI=String(uri))
        area = [15, 95, 150, 120]
        made.pages[0].obj.Annots = [Dictionary(Type=Name.Annot, Subtype=Name.Link, Rect=area, A=action)]
        made.docinfo.Title = String("</title><script>")
        data = saved(made)

    found = _Reader(convert(data, "html").data.decode())

    assert [attributes["href"] for tag, attributes in found.elements if tag == "a"] == expected
    assert "script" not in [tag for tag, _ in found.elements]
