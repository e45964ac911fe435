"""Texts of documents: their order, letters and what they lack; and the encodings of text files."""

from collections.abc import Callable

import pymupdf
import pytest

from engine import CorruptInput, InvalidOption, decode_text
from engine.options import validate_options
from engine.registry import load_registry
from tests.support.results.conversions import codes, convert

_REGISTRY = load_registry()
_COLUMNS = ("the left column has words %d", "and the right one others %d", "while a third is narrow %d")


def _rows(*cells: str, title: str = "") -> bytes:
    """A PDF of ten rows, in each of which the cells are drawn from left to right."""
    document = pymupdf.open()
    page = document.new_page()
    page.insert_text((40, 50), title)
    for row in range(10):
        for column, cell in enumerate(cells):
            page.insert_text((40 + 180 * column, 64 + 13 * row), cell.replace("%d", str(row)), fontsize=10)
    data: bytes = document.tobytes()
    return data


@pytest.mark.parametrize("target", ["txt", "md", "html"])
@pytest.mark.parametrize("count", [2, 3])
@pytest.mark.parametrize("title", ["", "A title of all columns, and as wide as all of them are together: on the page"])
def test_columns_are_read_down(target: str, count: int, title: str) -> None:
    text = convert(_rows(*_COLUMNS[:count], title=title), target).data.decode()

    places = [text.index(cell.replace("%d", str(row))) for cell in _COLUMNS[:count] for row in range(10)]
    assert places == sorted(places)
    assert not title or text.index(title) < places[0]


@pytest.mark.parametrize("target", ["txt", "md"])
def test_tables_are_read_row_by_row(target: str) -> None:
    text = convert(_rows("Item number %d", "%d.50", "0%d"), target).data.decode()

    assert text.index("Item number 3") < text.index("3.50") < text.index("Item number 4")


@pytest.mark.parametrize("target", ["txt", "md", "html"])
def test_ligatures_are_letters(target: str) -> None:
    document = pymupdf.open()
    font = {"fontname": "dejavu", "fontfile": "/usr/share/fonts/truetype/dejavu/DejaVuSans.ttf"}
    document.new_page().insert_text((40, 50), "e\ufb03cient \ufb01sh \ufb02ow o\ufb00er", **font)

    assert "efficient fish flow offer" in convert(document.tobytes(), target).data.decode()


def test_characters_without_width_are_kept() -> None:
    document = pymupdf.open()
    page = document.new_page()
    page.insert_text((40, 50), "shown")
    page.insert_text((40, 150), "z")
    font = page.get_fonts()[0][0]
    for key, value in {"FirstChar": ord("z"), "LastChar": ord("z"), "Widths": [0]}.items():
        document.xref_set_key(font, key, str(value))

    assert convert(document.tobytes(), "txt").data.decode().split() == ["shown", "z"]


def _inline_image(document: pymupdf.Document, page: pymupdf.Page) -> None:
    number = document.get_new_xref()
    document.update_object(number, "<<>>")
    document.update_stream(number, b"q 99 0 0 99 0 0 cm BI /W 2 /H 2 /CS /G /BPC 8 ID \x00\xff\x80\x10 EI Q")
    document.xref_set_key(page.xref, "Contents", f"{number} 0 R")


def _outlines(document: pymupdf.Document, page: pymupdf.Page) -> None:
    for index in range(40):
        page.draw_line((50 + 5 * index, 50), (60 + 5 * index, 90))


def _nothing(document: pymupdf.Document, page: pymupdf.Page) -> None:
    pass


@pytest.mark.parametrize("target", ["txt", "md", "html"])
@pytest.mark.parametrize(("draw", "has_more"), [(_inline_image, True), (_outlines, True), (_nothing, False)])
def test_pages_without_text_are_told(
    draw: Callable[[pymupdf.Document, pymupdf.Page], None], has_more: bool, target: str
) -> None:
    document = pymupdf.open()
    draw(document, document.new_page())

    told = {"pictures_dropped"} if target == "txt" else {"no_text"}
    assert codes(convert(document.tobytes(), target)) == (told if has_more else set())


@pytest.mark.parametrize(
    ("encoding", "text"),
    [
        ("cp1251", "Съешь же ещё этих мягких французских булок"),
        ("koi8_r", "Съешь же ещё этих мягких французских булок"),
        ("gb18030", "姓名,城市\n张三,北京\n李四,上海"),
        ("big5", "姓名,城市\n張三,臺北\n李四,高雄"),
        ("cp949", "안녕하세요 세계. 한국어 문자"),
        ("cp932", "こんにちは世界。日本語の文字コードの検出"),
        ("euc_jp", "こんにちは世界。日本語の文字コードの検出"),
        ("iso8859_2", "Zażółć gęślą jaźń, příliš žluťoučký kůň"),
        ("cp1250", "Pchnąć w tę łódź jeża lub ośm skrzyń fig."),
    ],
)
def test_the_encoding_of_a_text_is_recognized(encoding: str, text: str) -> None:
    with pytest.warns(match="`encoding` can name another one"):
        assert decode_text(text.encode(encoding)) == text


@pytest.mark.parametrize(
    "text",
    [
        "Café naïve, déjà vu, “quoted” text",
        "Größe und Maße: für Äpfel, Öl",
        "Price: 5 €, temp 20 °C, ½ cup, © 2024",
        "El niño comió piñas en España. ¿Qué pasó?",
        "Århus, København, smørrebrød",
        "Não há coração. São João é português.",
        "Þórður át ísinn á Ísafirði",
        "MÜLLER;STRASSE;KÖLN\nÄÖÜ;ß;é",
    ],
)
def test_texts_of_western_europe_are_in_windows_1252(text: str) -> None:
    assert decode_text(text.encode("cp1252")) == text


@pytest.mark.parametrize(("name", "target"), [("a.txt", "pdf"), ("a.md", "html"), ("a.md", "pdf"), ("a.csv", "pdf")])
def test_the_encoding_can_be_named(name: str, target: str) -> None:
    result = convert("Привет\n".encode("koi8_r"), target, name, encoding="koi8-r")

    text = result.data.decode() if target == "html" else pymupdf.open("pdf", result.data)[0].get_text()
    assert "Привет" in text
    assert not codes(result) - {"font_substituted"}


@pytest.mark.parametrize("name", ["rot13", "utf-7", "nothing", "idna"])
def test_other_encodings_are_refused(name: str) -> None:
    with pytest.raises(InvalidOption, match="encoding must be the name of an encoding"):
        validate_options(_REGISTRY.options, {"encoding": name})


def test_a_text_in_another_encoding_is_refused() -> None:
    with pytest.raises(CorruptInput, match="not text in utf-8"):
        decode_text("Größe".encode("cp1252"), "utf-8")
    with pytest.raises(CorruptInput, match="`encoding`"):
        decode_text(bytes(range(128, 256)) * 3)
