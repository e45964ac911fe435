"""The text of PDFs, as text and as HTML, and the tool pdf-ocr: which pages get text, and where it is."""

import os
import subprocess
import sys
from html.parser import HTMLParser
from io import BytesIO
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
import pikepdf
import pytest
from pikepdf import Array, Dictionary, Name, String
from PIL import Image

from engine import FidelityWarning, InvalidOption
from engine.mupdf import pymupdf
from plugins._pdf.text import text_layer
from plugins.tools import pdf_ocr
from tests.support.results.conversions import ToolRun, codes, convert, run_tool
from tests.support.results.pdf_checks import complaints
from tests.support.samples.corpus import Entry, load_corpus
from tests.support.samples.generated import sample
from tests.support.samples.generated import saved as saved_image
from tests.support.samples.pdf_documents import REGISTRY, document, link, opened, page_texts, saved
from tests.support.samples.pdf_images import images
from tests.support.samples.rasters import photo
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


@pytest.mark.parametrize("skew", [-10, 87])
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


def test_the_language_with_the_most_certain_words_is_chosen() -> None:
    (english,) = pdf_ocr.commands("eng").values()
    commands = {"digits": [*english, "-c", "tessedit_char_whitelist=0123456789"], "eng": english}
    page = text_layer.Scan(Image.open(BytesIO(scan())), 150)

    with pytest.warns(FidelityWarning, match="as eng;"):
        (layer,) = text_layer.recognized([page], commands)

    assert layer is not None
    assert "quick" in page_texts(layer.data)[0]


@pytest.mark.parametrize(
    ("installed", "tried"),
    [("deu eng fra osd", "eng deu fra"), ("deu fra", "deu fra"), ("eng a b c d e f g h", "eng"), ("osd", "eng")],
)
def test_without_a_language_all_installed_ones_are_tried_unless_they_are_many(
    tmp_path: Path, installed: str, tried: str
) -> None:
    for code in installed.split():
        (tmp_path / f"{code}.traineddata").touch()
    program = "from plugins.tools import pdf_ocr; print(*pdf_ocr.commands(None))"
    environment = {**os.environ, "TESSDATA_PREFIX": str(tmp_path)}

    done = subprocess.run([sys.executable, "-c", program], env=environment, check=True, capture_output=True, text=True)

    assert done.stdout.split() == tried.split()


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


@pytest.mark.parametrize(
    ("format", "turned", "target"),
    [("JPEG", 0, "md"), ("PNG", 10, "txt"), ("PNG", 180, "md"), ("TIFF", 93, "txt")],
)
def test_text_of_images(format: str, turned: float, target: str) -> None:
    result = convert(scan(format, turned), target, ocr=True)

    assert result.data.decode().split() == SCANNED.split()
    assert codes(result) == set()


def test_text_of_pages_of_an_image() -> None:
    pages = [Image.open(BytesIO(scan("PNG", turned))) for turned in (0, -90)]
    data = saved_image(pages[0], "TIFF", save_all=True, append_images=[Image.new("L", (99, 99), 255), pages[1]])

    assert convert(data, "txt").data.decode().split() == SCANNED.split() * 2
    assert convert(data, "txt", pages="2,3").data.decode().split() == SCANNED.split()


@pytest.mark.parametrize("target", ["txt", "md"])
@pytest.mark.parametrize("ocr", [True, False])
def test_images_without_text(target: str, *, ocr: bool) -> None:
    result = convert(saved_image(photo((80, 60)), "PNG"), target, ocr=ocr)

    assert not result.data.strip()
    assert codes(result) == {"no_text"}


def test_only_some_images_become_text_and_nothing_else_of_it() -> None:
    pairs = {(plan.source.name, plan.target.name) for plan in REGISTRY.catalogue() if "recognized" in str(plan)}

    assert pairs == {(source, target) for source in ("jpeg", "png", "tiff") for target in ("md", "txt")}


@pytest.mark.parametrize("entry", [entry for entry in load_corpus() if entry.name == "tiff/g4_multipage.tiff"], ids=str)
def test_a_real_scan(entry: Entry) -> None:
    recognized = _ocr(entry.path.read_bytes()).data

    marked = run_tool("pdf-watermark", recognized, text="DRAFT").data

    assert complaints(marked) == set()
    assert [("Page" in text, "DRAFT" in text) for text in _texts(marked)] == [(True, True)] * 3


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


@pytest.mark.parametrize(("target", "code"), [("txt", "pictures_dropped"), ("html", "no_text")])
def test_what_is_no_text_is_told(target: str, code: str) -> None:
    scan = convert(sample("png"), "pdf").data

    result = convert(scan, target)

    assert code in codes(result)
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

    page = _Reader(text)
    assert [tag for tag, _ in page.elements] == ["html", "head", "meta", "title", "style", "body", "h1", "p"]
    assert page.texts[-2:] == [("h1", "TITLE"), ("p", "body <b>&amp;</b> text")]


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
