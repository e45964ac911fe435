"""What a selection of pages keeps of a PDF, and what images and vectors of pages lose is told."""

from collections.abc import Callable

import pytest

from engine.mupdf import pymupdf
from tests.support.results.conversions import codes, convert

_LOOKS = ["png", "jpeg", "tiff", "svg", "eps"]


def _document() -> pymupdf.Document:
    """Four pages with text."""
    document = pymupdf.open()
    for number in range(1, 5):
        document.new_page(width=200, height=100).insert_text((10, 50), f"page {number}")
    return document


def _link(document: pymupdf.Document, page: int, target: int) -> None:
    area = pymupdf.Rect(10, 10, 50, 20)
    document[page].insert_link({"kind": pymupdf.LINK_GOTO, "from": area, "page": target, "to": pymupdf.Point(0, 0)})


def _attach(document: pymupdf.Document) -> None:
    document.embfile_add("data.csv", b"1,2,3")


def _attach_to_page(document: pymupdf.Document) -> None:
    document[0].add_file_annot((10, 10), b"1,2,3", "data.csv")


def _add_link(document: pymupdf.Document) -> None:
    area = pymupdf.Rect(10, 10, 50, 20)
    document[0].insert_link({"kind": pymupdf.LINK_URI, "from": area, "uri": "https://example.org"})


def _add_field(document: pymupdf.Document, page: int = 0) -> None:
    widget = pymupdf.Widget()
    widget.field_name, widget.field_type, widget.field_value = f"name{page}", pymupdf.PDF_WIDGET_TYPE_TEXT, "Ada"
    widget.rect = pymupdf.Rect(10, 60, 90, 80)
    document[page].add_widget(widget)


@pytest.mark.parametrize("target", _LOOKS)
@pytest.mark.parametrize(
    ("add", "code"),
    [
        (_attach, "attachments_dropped"),
        (_attach_to_page, "attachments_dropped"),
        (_add_link, "links_dropped"),
        (_add_field, "forms_dropped"),
    ],
)
def test_a_image_of_a_page_loses(target: str, add: Callable[[pymupdf.Document], None], code: str) -> None:
    document = _document()
    document.select([0])
    add(document)
    data = bytes(document.tobytes())
    assert codes(convert(data, target)) == {code}
    assert codes(convert(data, "pdf")) == set()


@pytest.mark.parametrize("target", _LOOKS)
def test_a_plain_page_loses_nothing(target: str) -> None:
    dropped = set() if target == "tiff" else {"pages_dropped"}
    assert codes(convert(bytes(_document().tobytes()), target)) == dropped
    assert codes(convert(bytes(_document().tobytes()), target, pages="2")) == set()


@pytest.mark.parametrize("target", ["png", "svg"])
def test_only_pages_that_are_converted_count(target: str) -> None:
    document = _document()
    _add_link(document)
    data = bytes(document.tobytes())
    assert codes(convert(data, target, pages="2")) == set()
    assert codes(convert(data, target, pages="1")) == {"links_dropped"}
    assert codes(convert(data, target, pages="1-2")) == {"links_dropped"}


@pytest.mark.parametrize("target", ["png", "svg", "tiff"])
def test_a_result_without_encryption(target: str) -> None:
    encryption = {"encryption": pymupdf.PDF_ENCRYPT_AES_256, "owner_pw": "owner"}
    data = bytes(_document().tobytes(**encryption, user_pw="secret"))
    result = convert(data, target, password="secret", pages="1")
    assert codes(result) == {"encryption_dropped"}
    assert result.data == convert(bytes(_document().tobytes()), target, pages="1").data
    assert codes(convert(bytes(_document().tobytes(**encryption)), target, pages="1")) == {"encryption_dropped"}
    kept = convert(data, "pdf", password="secret", pages="1")
    assert codes(kept) == set()
    assert pymupdf.open(stream=kept.data).needs_pass


def test_selected_pages_keep_what_refers_to_them() -> None:
    document = _document()
    for page, target in ((0, 1), (1, 3), (3, 0)):
        _link(document, page, target)
    _attach(document)
    _add_field(document, 0)
    _add_field(document, 2)
    document.set_toc([[1, "one", 1], [2, "two", 2], [1, "three", 3], [1, "four", 4]])
    document.set_page_labels([{"startpage": 0, "prefix": "A-", "style": "D", "firstpagenum": 1}])
    result = convert(bytes(document.tobytes()), "pdf", pages="1,4")
    kept = pymupdf.open(stream=result.data)
    assert [page.get_text().strip() for page in kept] == ["page 1\nAda", "page 4"]
    assert kept.get_toc() == [[1, "one", 1], [1, "four", 2]]
    assert [[link["page"] for link in page.get_links()] for page in kept] == [[], [0]]
    assert [page.get_label() for page in kept] == ["A-1", "A-4"]
    assert kept.embfile_get("data.csv") == b"1,2,3"
    assert [widget.field_name for page in kept for widget in page.widgets()] == ["name0"]
    assert codes(result) == {"links_dropped"}  # from the first page to the second
    assert b"page 2" not in result.data
    whole = convert(bytes(document.tobytes()), "pdf", pages="all")
    assert codes(whole) == set()
    assert len(pymupdf.open(stream=whole.data).get_toc()) == 4
    assert pymupdf.open(stream=whole.data).embfile_names() == ["data.csv"]


def test_links_between_selected_pages_are_no_loss() -> None:
    document = _document()
    _link(document, 1, 2)
    _link(document, 2, 1)
    document.set_toc([[1, "two", 2]])
    result = convert(bytes(document.tobytes()), "pdf", pages="2-3")
    assert codes(result) == set()
    kept = pymupdf.open(stream=result.data)
    assert [[link["page"] for link in page.get_links()] for page in kept] == [[1], [0]]


def test_a_selection_of_a_repaired_file() -> None:
    document = _document()
    document.set_toc([[1, "one", 1], [1, "two", 2]])
    data, _, _ = bytes(document.tobytes(use_objstms=0)).rpartition(b"startxref")
    result = convert(data + b"startxref\n7\n%%EOF\n", "pdf", pages="2")
    assert codes(result) == {"repaired"}
    assert pymupdf.open(stream=result.data).get_toc() == [[1, "two", 1]]
