"""The tool pdf-ocr: which pages get text, where it is, and what stays as it was."""

from itertools import groupby
from typing import Any

import numpy as np
import pikepdf
import pytest
from pikepdf import Array, Dictionary, Name

from engine import InvalidOption
from engine.mupdf import pymupdf
from tests.support.results.pdf_checks import complaints
from tests.support.results.tools import ToolRun, run_tool
from tests.support.samples.corpus import Entry, load_corpus
from tests.support.samples.pdf_documents import REGISTRY, document, opened, page_texts, saved
from tests.support.samples.pdf_images import images
from tests.support.samples.scans import LINES, SCANNED, place, scan, scanned_pdf


def _ocr(data: bytes, **options: Any) -> ToolRun:
    return run_tool("pdf-ocr", data, **options)


def _texts(data: bytes) -> list[str]:
    """The text of each page, as PDFium reads it."""
    return [" ".join(text.split()) for text in page_texts(data)]


def _line_height(data: bytes, axis: int) -> int:
    """The largest number of rows, or columns for axis 0, next to each other that are not white, in points."""
    with pymupdf.open(stream=data) as shown:
        pixels = shown[0].get_pixmap(colorspace=pymupdf.csGRAY)
    dark = np.frombuffer(pixels.samples, np.uint8).reshape(pixels.height, pixels.width) < 128
    return max(len(list(run)) for is_dark, run in groupby(map(bool, np.asarray(dark.any(axis)))) if is_dark)


def _looks(data: bytes) -> list[bytes]:
    return [page.get_pixmap().samples for page in pymupdf.open(stream=data)]


def test_the_text_of_a_scan_is_found_and_its_look_stays() -> None:
    before = scanned_pdf()

    result = _ocr(before)

    assert _texts(result.data) == [SCANNED]
    assert _looks(result.data) == _looks(before)
    assert [one.raw for one in images(result.data)] == [one.raw for one in images(before)]
    assert (result.codes, result.outcome.page_count) == (set(), 1)


def test_pages_with_text_are_left_out_unless_forced() -> None:
    text = opened(document("A", 1))
    with opened(scanned_pdf()) as scans:
        text.pages.extend(scans.pages)
    mixed = saved(text)

    assert _texts(_ocr(mixed).data) == ["A page 1", SCANNED]
    assert _ocr(document("A", 1)).codes == {"kept_original"}
    assert _texts(_ocr(document("A", 1), force=True).data) == ["A page 1 A page 1"]


def _invisible(made: pikepdf.Pdf) -> None:
    """Adds text that is not shown to the content of the first page, between some that is."""
    font = made.make_indirect(Dictionary(Type=Name.Font, Subtype=Name.Type1, BaseFont=Name.Helvetica))
    made.pages[0].resources.Font = Dictionary(F=font)
    shown, hidden = b"BT /F 9 Tf 9 9 Td (shown) Tj ET ", b"q BT 3 Tr /F 9 Tf 90 9 Td (old) Tj [(er)] TJ (a) ' ET Q "
    made.pages[0].contents_add(made.make_stream(shown + hidden + shown.replace(b"9 9", b"50 9")))


def test_an_earlier_recognition_is_replaced() -> None:
    with opened(_ocr(scanned_pdf()).data) as made:
        _invisible(made)
        before = saved(made)

    after = _ocr(before, force=True).data

    assert sorted(_texts(before)[0].split()) == sorted([*SCANNED.split(), "old", "er", "a", "shown", "shown"])
    found = _texts(after)[0].split()
    assert {*SCANNED.split(), "shown"} <= {*found}
    assert not {"old", "er", "a"} & {*found}
    assert found.count("quick") == 1
    with opened(after) as read:
        assert b"".join(part.read_bytes() for part in read.pages[0].Contents).count(b"(shown) Tj") == 2
    assert _looks(after) == _looks(before)


@pytest.mark.parametrize("change", ["turned", "cropped"])
def test_words_are_where_they_are_seen(change: str) -> None:
    made = opened(scanned_pdf())
    page = made.pages[0].obj
    width, height = (float(edge) for edge in list(page.MediaBox)[2:])
    left, unit = 0, 1
    match change:
        case "turned":
            content = made.pages[0].Contents.read_bytes()
            page.Contents = made.make_stream(b"q 0 1 -1 0 %f 0 cm " % height + content + b" Q")
            page.MediaBox, page.Rotate = Array([0, 0, height, width]), 90
        case "cropped":
            left, unit = 10, 3
            page.UserUnit = unit
            page.MediaBox, page.CropBox = Array([-50, -60, width + 9, height + 9]), Array([left, 20, width, height])

    result = _ocr(saved(made)).data

    with pymupdf.open(stream=result) as shown:
        words = {word[4]: pymupdf.Rect(word[:4]) * shown[0].rotation_matrix for word in shown[0].get_text("words")}
    for number, line in enumerate(LINES):
        x, y = place(number)
        box = words[line.split()[0]]
        assert abs(box.x0 - (x - left) * unit) < 2 * unit
        assert box.y0 < (y - 6) * unit < (y - 1) * unit < box.y1 < (y + 6) * unit


def test_scans_that_are_upside_down_are_read() -> None:
    (text,) = _texts(_ocr(scan("PNG", 180), language="eng,eng").data)

    assert sorted(text.split()) == sorted(SCANNED.split())


@pytest.mark.parametrize("skew", [-4, 87])
def test_skewed_images_become_level_pages(skew: float) -> None:
    image, axis = scan("JPEG", skew), 0 if skew > 45 else 1

    level = _ocr(image, deskew=True).data

    assert _texts(level) == [SCANNED]
    assert [one.raw for one in images(level)] == [image]
    assert _line_height(level, axis) < 15 < 16 < _line_height(run_tool("pdf-from-images", image).data, axis)


def test_content_that_restores_states_is_straightened() -> None:
    with opened(run_tool("pdf-from-images", scan("JPEG", -4)).data) as made:
        made.pages[0].contents_add(made.make_stream(b"Q Q "), prepend=True)
        restoring = saved(made)

    assert _line_height(_ocr(restoring, deskew=True).data, 1) < 15


def _is_font(item: Any) -> bool:
    return isinstance(item, Dictionary) and item.get("/Type") == Name.Font


def test_layers_of_many_pages_share_their_font() -> None:
    with opened(scanned_pdf()) as made:
        made.pages.append(made.pages[0])
        two = saved(made)

    result = _ocr(two).data

    assert _texts(result) == [SCANNED] * 2
    with opened(result) as read:
        assert [str(one.Subtype) for one in read.objects if _is_font(one)].count("/Type0") == 1


@pytest.mark.parametrize("language", ["eng", "eng,eng", "eng+eng", '["eng"]'])
def test_languages(language: str) -> None:
    assert REGISTRY.tools["pdf-ocr"].options["language"].validate(language) == language


@pytest.mark.parametrize("language", ["", "xyz", "eng,xyz", "osd", "../eng", "-psm", "eng eng"])
def test_languages_that_are_not_installed_are_refused(language: str) -> None:
    with pytest.raises(InvalidOption) as raised:
        _ocr(scanned_pdf(), language=language)

    assert (raised.value.reason, raised.value.param) == ("unknown", "language")
    assert "eng" in raised.value.details["available"]
    assert "osd" not in raised.value.details["available"]


@pytest.mark.parametrize("entry", [entry for entry in load_corpus() if entry.name == "tiff/g4_multipage.tiff"], ids=str)
def test_a_real_scan(entry: Entry) -> None:
    recognized = _ocr(entry.path.read_bytes()).data

    marked = run_tool("pdf-watermark", recognized, text="DRAFT").data

    assert complaints(marked) == set()
    assert [("Page" in text, "DRAFT" in text) for text in _texts(marked)] == [(True, True)] * 3
