"""Fonts: scripts that the fonts of the system lack, what no font has, emoji, and machines without fonts."""

import os
import subprocess
import sys
from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from engine.mupdf import pymupdf
from engine.pipeline import PipelineResult
from engine.registry import load_registry
from plugins._browser.chromium import CHROMIUM
from plugins.formats.svg import COLOR_EMOJI, FONTS
from tests.support.results.conversions import codes, convert, run_tool
from tests.support.samples.pdf_documents import document
from tests.support.samples.scripts import EMOJI, MISSING, WORDS

_SAMPLE = (5, 9, 62, 66)  # Arabic, Devanagari, phonetics, and emoji that are joined
_WORDS = [pytest.param(word, marks=() if number in _SAMPLE else pytest.mark.long) for number, word in enumerate(WORDS)]


def _svg(text: str, attributes: str = "") -> bytes:
    text = f'<text x="150" y="40" font-size="24" font-family="sans-serif" {attributes}>{text}</text>'
    return f'<svg xmlns="http://www.w3.org/2000/svg" width="300" height="60">{text}</svg>'.encode()


def _html(text: str) -> bytes:
    return f"<!DOCTYPE html><title>a</title><p>{text}</p>".encode()


def _book(text: str) -> bytes:
    return f"<FictionBook><body><section><p>{text}</p></section></body></FictionBook>".encode()


_TO_PDF: dict[str, Callable[[str], PipelineResult]] = {
    "Typst": lambda text: convert(_svg(text), "pdf"),
    "WeasyPrint": lambda text: convert(_html(text), "pdf", renderer="print"),
    "browser": lambda text: convert(_html(text), "pdf"),
    "Markdown": lambda text: convert(text.encode(), "pdf", "a.md"),
    "MuPDF": lambda text: convert(text.encode(), "pdf", "a.txt"),
    "e-book": lambda text: convert(_book(text), "pdf"),
}


def _boxes(pdf: bytes) -> int:
    """How many glyphs for missing characters a PDF has. Emoji are images, or shapes in a font without such a glyph."""
    runs = [run for page in pymupdf.open("pdf", pdf) for run in page.get_texttrace()]
    assert runs
    return sum(glyph == 0 for run in runs if "ColorEmoji" not in run["font"] for _, glyph, *_ in run["chars"])


def _image(data: bytes) -> Image.Image:
    return Image.open(BytesIO(data)).convert("RGBA")


@pytest.mark.parametrize("word", _WORDS)
@pytest.mark.parametrize("renderer", _TO_PDF)
def test_scripts_are_drawn(renderer: str, word: str) -> None:
    result = _TO_PDF[renderer](word)

    if renderer == "e-book" and word == EMOJI[3]:  # MuPDF draws a box for the variation selector of a digit
        assert codes(result) == {"glyphs_missing"}
        return
    assert _boxes(result.data) == 0
    assert codes(result) == ({"font_substituted"} if renderer == "MuPDF" and word in EMOJI else set())


@pytest.mark.parametrize("word", _WORDS)
def test_pixels_have_the_glyphs_of_vectors(word: str) -> None:
    """What resvg draws is like what MuPDF draws of the PDF."""
    result = convert(_svg(word), "png")
    page = pymupdf.open("pdf", convert(_svg(word), "pdf").data)[0].get_pixmap(dpi=96)
    white = Image.new("RGBA", (300, 60), "white")
    drawn = np.asarray(Image.alpha_composite(white, _image(result.data)).convert("L"), float)

    assert codes(result) == set()
    assert drawn.min() < 200
    assert np.abs(drawn - np.asarray(Image.frombytes("RGB", (300, 60), page.samples).convert("L"))).mean() < 2


@pytest.mark.parametrize("renderer", _TO_PDF)
def test_characters_that_no_font_has_are_told(renderer: str) -> None:
    result = _TO_PDF[renderer](f"a {MISSING} b")

    (warned,) = result.outcome.warnings
    assert (warned.code, "U+0378" in warned.message) == ("glyphs_missing", True)
    assert _boxes(result.data) == 1


@pytest.mark.skipif(not CHROMIUM.present, reason="no browser is installed")
def test_characters_of_private_use_are_for_fonts_of_the_page() -> None:
    style = "<style>@font-face{font-family:a;src:local(a)}</style>"

    assert codes(convert(_html("\ue000"), "pdf")) == {"glyphs_missing"}
    assert "glyphs_missing" not in codes(convert(_html(f"\ue000{style}"), "pdf"))


@pytest.mark.parametrize("options", [{"text": f"日{MISSING}"}, {"format": f"{{page}}{MISSING}"}])
def test_characters_that_marks_on_pages_lack_are_told(options: dict[str, Any]) -> None:
    tool = "pdf-watermark" if "text" in options else "pdf-number-pages"

    assert run_tool(tool, document("A", 1), **options).codes == {"glyphs_missing"}


def _places(pdf: bytes) -> dict[str, tuple[float, float]]:
    """The left and right edges of the characters of a PDF in pixels."""
    drawn = [char for run in pymupdf.open("pdf", pdf)[0].get_texttrace() for char in run["chars"]]
    return {chr(code): (box[0] * 4 / 3, box[2] * 4 / 3) for code, _, _, box in drawn if code > 0}


@pytest.mark.parametrize(("anchor", "share"), [("start", 0), ("middle", 0.5), ("end", 1)])
@pytest.mark.parametrize("text", ["xbc क्षत्रिय 12", "xb<tspan>c क्षत्रिय</tspan> 12", "xbc <a>क्षत्रिय 12</a>"])
def test_text_in_several_fonts_is_whole_and_in_its_place(text: str, anchor: str, share: float) -> None:
    result = convert(_svg(text, f'text-anchor="{anchor}"'), "pdf")
    places = _places(result.data)
    left, right = places["x"][0], places["2"][1]

    assert right - left == pytest.approx(121, abs=1)
    assert left + share * (right - left) == pytest.approx(150, abs=7)  # resvg draws a syllable narrower
    assert (_boxes(result.data), codes(result)) == (0, set())


@pytest.mark.parametrize(
    "text",
    [
        '<textPath href="#line">शब्द</textPath>',
        '<tspan x="10 60 90 120">a☃𝄞क</tspan>',
        '<tspan writing-mode="tb">ab शब</tspan>',
    ],
)
def test_text_that_is_not_divided_has_its_fonts(text: str) -> None:
    drawing = _svg(text, 'textLength="90"').replace(b"<text", b'<path id="line" d="M9 30H290"/><text', 1)
    results = [convert(drawing, target) for target in ("pdf", "png")]

    assert [codes(result) for result in results] == [set(), set()]
    assert _boxes(results[0].data) == 0


def test_text_in_several_fonts_keeps_the_order_from_right_to_left() -> None:
    for text, attributes in (("a שלום 🎉 עולם b", ""), ("b שלום 🎉 עולם a", 'direction="rtl" text-anchor="end"')):
        places = _places(convert(_svg(text, attributes), "pdf").data)

        assert sorted("aע🎉שb", key=places.__getitem__) == ["a", "ע", "🎉", "ש", "b"]


@pytest.mark.skipif(not COLOR_EMOJI.present, reason="no font has emoji in color")
@pytest.mark.parametrize(("text", "has_color"), [("12 😀", True), ("❤️", True), ("❤", False), ("12", False)])
def test_emoji_have_colors(text: str, has_color: bool) -> None:
    for data in (_svg(text), _html(text)):
        pixels = np.asarray(_image(convert(data, "png").data).convert("RGB"), int)
        assert (np.ptp(pixels, axis=2).max() > 100) == has_color


_PROGRAM = """
import sys
from pathlib import Path
from tests.support.results.conversions import codes, convert
for name in sys.argv[1:]:
    options = {"renderer": "print"} if name.endswith(".html") else {}
    result = convert(Path(name).read_bytes(), "pdf", **options)
    Path(name).with_suffix(".pdf").write_bytes(result.data)
    print(*codes(result))
"""


def test_a_machine_without_fonts_draws_text(tmp_path: Path) -> None:
    configuration = tmp_path / "fonts.conf"
    configuration.write_text("<fontconfig></fontconfig>")
    (tmp_path / "a.svg").write_bytes(_svg("Größe 😀"))
    (tmp_path / "b.html").write_bytes(_html("Größe"))
    environment = {**os.environ, "FONTCONFIG_FILE": str(configuration), "PYTHONPATH": str(Path.cwd())}
    command = [sys.executable, "-c", _PROGRAM, "a.svg", "b.html"]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=True)

    assert done.stdout == "font_substituted\n\n"
    for name in ("a.pdf", "b.pdf"):
        data = (tmp_path / name).read_bytes()
        assert _boxes(data) == 0
        names = {font[3].partition("+")[2] for font in pymupdf.open("pdf", data)[0].get_fonts()}
        assert names
        assert all(name.startswith(("NotoSerif", "Noto-Serif", "NotoEmoji")) for name in names)


def test_the_fonts_are_requirements() -> None:
    assert {FONTS, COLOR_EMOJI} <= {need for plugin in load_registry().plugins for need in plugin.requirements}
