"""The structure of documents that are laid out on pages, as JSON shows it."""

import json
import re
from base64 import b64decode
from io import BytesIO
from typing import Any
from zipfile import ZipFile

import pptx
import pytest

from engine.mupdf import pymupdf
from plugins._blocks.pandoc import PANDOC
from tests.support.results.conversions import codes, convert
from tests.support.samples.generated import sample
from tests.support.samples.scans import SCANNED, scanned_pdf

_SIZE = 10
_ASCENDER = pymupdf.Font("helv").ascender  # of the size
_PROSE = "many words of running text which fill the whole line of a column here"


def _page(made: pymupdf.Document, *texts: tuple[float, float, str], **style: Any) -> pymupdf.Page:
    """A page of A4 with each text at a distance from the left and the top."""
    page = made.new_page()
    for left, top, text in texts:
        page.insert_text((left, top), text, **{"fontsize": _SIZE, **style})
    return page


def _blocks(made: pymupdf.Document, **options: Any) -> list[dict[str, Any]]:
    result: list[dict[str, Any]] = json.loads(convert(made.tobytes(), "json", **options).data)["blocks"]
    return result


def _text(block: dict[str, Any]) -> str:
    return "".join(run.get("text", "") for run in block["runs"])


def _cells(table: dict[str, Any]) -> list[list[str]]:
    return [["".join(map(_text, cell["blocks"])) for cell in row] for row in table["rows"]]


def _lines(left: float, top: float, *lines: str) -> list[tuple[float, float, str]]:
    return [(left, top + 12 * index, line) for index, line in enumerate(lines)]


def test_columns_are_read_one_after_the_other_and_paragraphs_go_on() -> None:
    made = pymupdf.open()
    _page(
        made,
        *_lines(50, 100, _PROSE, _PROSE, _PROSE, "a paragraph of the first column that ends within the word inter-"),
        *_lines(360, 100, "national and goes on", _PROSE, _PROSE, "until its end."),
        (50, 50, "A line over both of the columns, which is as wide as they are together with the gap between them."),
    )

    _, paragraph = _blocks(made)

    assert "word international and goes on" in _text(paragraph).replace("\n", " ")
    assert _text(paragraph).endswith("until its end.")


def test_levels_of_headings_are_by_outline_size_and_weight() -> None:
    made = pymupdf.open()
    page = _page(made, *_lines(50, 200, *[_PROSE] * 6))
    page.insert_text((50, 50), "Title", fontsize=24)
    page.insert_text((50, 100), "Chapter", fontsize=16)
    page.insert_text((50, 150), "In bold", fontsize=_SIZE, fontname="hebo")
    known = [(one["level"], _text(one)) for one in _blocks(made) if one["type"] == "heading"]
    made.set_toc([[1, "Title", 1], [2, "Chapter", 1], [3, "In bold", 1]])
    page.insert_text((50, 320), "Another", fontsize=16)

    assert known == [(1, "Title"), (2, "Chapter"), (3, "In bold")]
    assert [(one["level"], _text(one)) for one in _blocks(made) if one["type"] == "heading"] == [*known, (2, "Another")]


def test_lists_are_nested_by_their_indent() -> None:
    made = pymupdf.open()
    texts = ["1. one", "2. two", "   a) inner", "   b) other", "3. three"]
    _page(made, *((50 + 20 * text.startswith(" "), 100 + 12 * n, text.strip()) for n, text in enumerate(texts)))

    (found,) = _blocks(made)

    assert (found["kind"], [_text(item["blocks"][0]) for item in found["items"]]) == (
        "numbers",
        ["one", "two", "three"],
    )
    inner = found["items"][1]["blocks"][1]
    assert (inner["style"], [_text(item["blocks"][0]) for item in inner["items"]]) == ("a", ["inner", "other"])


def test_cells_of_tables_with_rules_have_their_spans() -> None:
    made = pymupdf.open()
    page = _page(made, (55, 112, "Fruit"), (155, 112, "Prices"), (55, 132, "Pear"), (155, 132, "1.20"), (255, 132, "3"))
    page.insert_text((155, 152), "2.40", fontsize=_SIZE)
    page.insert_text((255, 152), "6", fontsize=_SIZE)
    for start, end in [
        ((50, 100), (350, 100)), ((50, 120), (350, 120)), ((150, 140), (350, 140)), ((50, 160), (350, 160)),
        ((50, 100), (50, 160)), ((150, 100), (150, 160)), ((250, 120), (250, 160)), ((350, 100), (350, 160)),
    ]:  # fmt: skip
        page.draw_line(start, end)

    (table,) = _blocks(made)

    assert _cells(table) == [["Fruit", "Prices"], ["Pear", "1.20", "3"], ["2.40", "6"]]
    assert (table["rows"][0][1]["colspan"], table["rows"][1][0]["rowspan"], table["header_rows"]) == (2, 2, 1)


def test_cells_that_are_aligned_are_a_table() -> None:
    rows = [["Date", "Text", "Amount"], ["2024-01-02", "Rent of May", "-500.00"], ["2024-01-03", "", "2,000.00"]]
    rows.append(["2024-01-09", "Shop", "-12.10"])
    made = pymupdf.open()
    _page(made, *((50 + 120 * x, 100 + 15 * y, text) for y, row in enumerate(rows) for x, text in enumerate(row)))

    (table,) = _blocks(made)

    assert (_cells(table), table["header_rows"]) == (rows, 1)


def test_a_head_and_rows_with_narrow_gaps_are_in_their_table() -> None:
    made = pymupdf.open()
    _page(made, (50, 100, "Date"), (90, 100, "Text"), (202, 100, "Debit Credit"), (260, 100, "Balance"))
    body = [["01.06.", "Rent", "", "7.00", "9.00"], ["02.06.", "Shop", "-5.00", "", "4.00"]] * 2
    for y, row in enumerate(body, 1):
        for left, text in zip((50, 90, 200, 230, 265), row, strict=True):
            made[0].insert_text((left, 100 + 13 * y), text, fontsize=_SIZE)

    (table,) = _blocks(made)

    assert _cells(table) == [["Date", "Text", "Debit", "Credit", "Balance"], *body]


def test_lines_of_a_cell_are_in_the_nearest_row() -> None:
    places: list[tuple[float, float, str]] = [
        (50, 100, "1"),
        (90, 100, "one"),
        (250, 100, "1.00"),
        (90, 120, "two which is"),
        (50, 131, "2"),
    ]
    places += [
        (90, 131, "long"),
        (250, 131, "2.00"),
        (90, 150, "three, in the"),
        (50, 155.5, "3"),
        (250, 155.5, "3.00"),
    ]
    made = pymupdf.open()
    _page(made, *places, (90, 161, "middle"), (50, 180, "4"), (90, 180, "four"), (250, 180, "4.00"))

    (table,) = _blocks(made)

    texts = ["one", "two which is long", "three, in the middle", "four"]
    assert _cells(table) == [[str(number), text, f"{number}.00"] for number, text in enumerate(texts, 1)]


def test_a_table_goes_on_on_the_next_pages() -> None:
    head = ["Date", "Text", "Amount"]
    rows = [[f"{day:02}.06.2026", f"Text {day}", f"{day}.00"] for day in (1, 2, 3, 5, 8, 13, 19, 20, 22)]
    made = pymupdf.open()
    for start in (0, 3, 6):
        _page(made)
        for y, row in enumerate([head, *rows[start : start + 3]]):
            for left, text in zip((50, 150, 250), row, strict=True):
                made[-1].insert_text((left, 40 + 13 * y), text, fontsize=_SIZE)
    result = convert(made.tobytes(), "json")

    (table,) = json.loads(result.data)["blocks"]
    assert (_cells(table), codes(result)) == ([head, *rows], set())


def test_headers_footers_and_numbers_of_pages_are_left_out() -> None:
    made = pymupdf.open()
    for number in range(1, 5):
        _page(made, (50, 40, "The journal"), (50, 300, f"Text of page {number}."), (290, 810, f"{number} / 4"))
    result = convert(made.tobytes(), "json")

    assert list(map(_text, json.loads(result.data)["blocks"])) == [f"Text of page {number}." for number in range(1, 5)]
    assert codes(result) == set()


def test_pictures_keep_their_files() -> None:
    jpeg = sample("jpeg")
    made = pymupdf.open()
    page = _page(made, (50, 100, "before"), (50, 300, "after"))
    page.insert_image((50, 120, 170, 260), stream=jpeg, keep_proportion=False)

    before, picture, after = _blocks(made)

    (run,) = picture["runs"]
    assert (_text(before), _text(after)) == ("before", "after")
    assert (run["picture"]["width"], run["picture"]["height"]) == (120, 140)
    assert pymupdf.Pixmap(jpeg).samples == pymupdf.Pixmap(b64decode(run["picture"]["data"])).samples


def test_links_lead_to_pages_of_the_web_and_to_headings() -> None:
    made = pymupdf.open()
    page = _page(made, *_lines(50, 100, "see here and there", *[_PROSE] * 3))
    second = _page(made, (50, 100, "Below"), fontsize=20)
    second.insert_text((50, 150), _PROSE, fontsize=_SIZE)
    page = made[0]
    (here,) = page.search_for("here and")
    (there,) = page.search_for("there")
    page.insert_link(
        {
            "kind": pymupdf.LINK_URI,
            "from": pymupdf.Rect(here.tl, (here.x0 + 20, here.y1)),
            "uri": "https://example.com/",
        }
    )
    page.insert_link({"kind": pymupdf.LINK_GOTO, "from": there, "page": 1, "to": pymupdf.Point(50, 80)})

    found = _blocks(made)

    linked = {run["text"]: run["link"] for run in found[0]["runs"] if "link" in run}
    (heading,) = (one for one in found if one["type"] == "heading")
    assert linked == {"here": "https://example.com/", "there": f"#{heading['anchor']}"}


@pytest.mark.skipif(not PANDOC.present, reason="Pandoc is not installed")
def test_pages_of_docx_have_the_size_margins_and_letters_of_most_pages() -> None:
    made = pymupdf.open()
    for size in ((600, 300), (600, 300), (200, 200)):
        page = made.new_page(width=size[0], height=size[1])
        page.insert_text((50, 40 + 9 * _ASCENDER), _PROSE, fontsize=9)
    archive = ZipFile(BytesIO(convert(made.tobytes(), "docx").data))
    document = archive.read("word/document.xml").decode()
    assert '<w:pgSz w:w="12000" w:h="6000" w:orient="landscape"/>' in document
    margins = re.search(r'w:left="(\d+)" w:top="(\d+)" w:right="(\d+)" w:bottom="(\d+)"', document)
    assert margins
    assert [round(int(margin) / 20) for margin in margins.groups()] == [50, 40, 50, 40]
    assert '<w:sz w:val="18"' in archive.read("word/styles.xml").decode().partition("</w:rPrDefault>")[0]


@pytest.mark.skipif(not PANDOC.present, reason="Pandoc is not installed")
@pytest.mark.parametrize(
    ("source", "options", "size", "margin"),
    [
        ("md", {}, (11906, 16838), 1134),
        ("md", {"page_size": "a5", "landscape": True, "margin": 10.0}, (11906, 8391), 567),
        ("pdf", {"landscape": False, "margin": 0.0}, (6000, 12000), 0),
        ("pdf", {"page_size": "a5"}, (8391, 11906), 1000),
    ],
)
def test_pages_of_docx_are_a4_or_as_the_options_say(
    source: str, options: dict[str, Any], size: tuple[int, int], margin: int
) -> None:
    made = pymupdf.open()
    made.new_page(width=600, height=300).insert_text((50, 100), "text")
    data = made.tobytes() if source == "pdf" else b"text"
    document = ZipFile(BytesIO(convert(data, "docx", f"a.{source}", **options).data)).read("word/document.xml").decode()
    assert f'<w:pgSz w:w="{size[0]}" w:h="{size[1]}"' in document
    assert f'<w:pgMar w:left="{margin}"' in document


def test_notes_stand_at_their_marks() -> None:
    made = pymupdf.open()
    page = _page(made, *_lines(50, 100, *[_PROSE] * 3), (50, 700, "A claim"))
    page.insert_text((50 + pymupdf.get_text_length("A claim", fontsize=_SIZE), 696), "1", fontsize=6)
    page.insert_text((50, 777), "1", fontsize=5)
    page.insert_text((53, 780), "Its source.", fontsize=8)

    (_, claim) = _blocks(made)

    assert (claim["runs"][0]["text"], _text(claim["runs"][1]["note"][0])) == ("A claim", "Its source.")


@pytest.mark.parametrize("target", ["md", "html", "json"])
def test_a_scan_keeps_its_picture_and_says_that_it_has_no_text(target: str) -> None:
    made = pymupdf.open()
    made.new_page().insert_image((0, 0, 595, 842), stream=sample("jpeg"))

    result = convert(made.tobytes(), target)

    assert codes(result) == {"no_text"}
    assert len(result.data) > len(sample("jpeg"))


@pytest.mark.parametrize("target", ["md", "txt"])
def test_text_of_scans_is_recognized(target: str) -> None:
    result = convert(scanned_pdf(), target, ocr=True)

    assert result.data.decode().split() == SCANNED.split()
    assert codes(result) == set()


def test_a_slide_has_the_texts_and_pictures_of_its_page() -> None:
    made = pymupdf.open()
    page = _page(made, *_lines(50, 100, "first line", "second line"), color=(1, 0, 0))
    page.insert_image((50, 200, 170, 290), stream=sample("jpeg"), keep_proportion=False)
    made.new_page()

    result = convert(made.tobytes(), "pptx")

    shown, empty = (slide.shapes for slide in pptx.Presentation(BytesIO(result.data)).slides)
    picture, text = shown
    assert [round(side.pt) for side in (picture.left, picture.top, picture.width, picture.height)] == [50, 200, 120, 90]
    assert (text.text_frame.text, round(text.left.pt), len(empty)) == ("first line\nsecond line", 50, 0)
    (run,) = text.text_frame.paragraphs[1].runs
    assert (run.font.size.pt, str(run.font.color.rgb), run.font.name) == (_SIZE, "FF0000", "Arial")
    assert codes(result) == set()
