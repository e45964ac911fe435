"""Page numbers and watermarks: where they are, what they show, and what stays below them."""

from typing import Any

import numpy as np
import pikepdf
import pytest
from numpy.typing import NDArray
from pikepdf import Array
from PIL import Image

from engine import ConversionError
from tests.support.results.pdf_checks import drawn_pages
from tests.support.results.tools import run_tool
from tests.support.samples.generated import saved as image_file
from tests.support.samples.pdf_documents import document, opened, page_texts, saved

_POSITIONS = {
    "northwest": (0, 0), "north": (1, 0), "northeast": (2, 0),
    "west": (0, 1), "center": (1, 1), "east": (2, 1),
    "southwest": (0, 2), "south": (1, 2), "southeast": (2, 2),
}  # fmt: skip


def _blank(rotation: int = 0, crop: tuple[int, ...] = (), pages: int = 1) -> bytes:
    """Empty pages of 300 to 600 points."""
    with pikepdf.new() as made:
        for _ in range(pages):
            page = made.add_blank_page(page_size=(300, 600)).obj
            page.Rotate = rotation
            if crop:
                page.CropBox = Array(crop)
        return saved(made)


def _drawn(data: bytes, page: int = 0) -> NDArray[np.float64]:
    """The page: height x width x 3, a pixel per point."""
    return drawn_pages(data, scale=1, mode="RGB")[page]


def _box(pixels: NDArray[np.float64]) -> tuple[int, int, int, int]:
    """Left, top, right and bottom of what is not white."""
    rows, columns = np.nonzero((pixels < 250).any(axis=2))
    return int(columns.min()), int(rows.min()), int(columns.max()) + 1, int(rows.max()) + 1


@pytest.mark.parametrize("rotation", [0, 90, 180, 270])
@pytest.mark.parametrize("crop", [(), (40, 60, 290, 460)])
def test_marks_are_upright_at_their_position(rotation: int, crop: tuple[int, ...]) -> None:
    stamp = image_file(Image.new("RGB", (80, 40), "red"), "PNG")
    for position, (column, row) in _POSITIONS.items():
        options: dict[str, Any] = {"position": position, "angle": 0, "size": 80, "opacity": 1}
        pixels = _drawn(run_tool("pdf-watermark", _blank(rotation, crop), files={"stamp": stamp}, **options).data)

        left, top, right, bottom = _box(pixels)
        height, width = pixels.shape[:2]
        assert [right - left, bottom - top] == [pytest.approx(80, abs=2), pytest.approx(40, abs=2)]
        spaces = (left, width - right), (top, height - bottom)
        for place, (before, after) in zip((column, row), spaces, strict=True):
            assert (before == pytest.approx(after, abs=2)) is (place == 1)
            assert place == 1 or min(before, after) == pytest.approx(20, abs=1) == (before, after)[place // 2]


def test_the_angle_is_counterclockwise() -> None:
    stamp = image_file(Image.new("RGB", (80, 10), "red"), "PNG")

    pixels = _drawn(run_tool("pdf-watermark", _blank(), files={"stamp": stamp}, angle=45, size=80, opacity=1).data)

    left, top, right, bottom = _box(pixels)
    assert (pixels[top + 8, right - 8] < 250).any()  # it rises to the right
    assert (pixels[bottom - 8, left + 8] < 250).any()
    assert (pixels[top + 2, left + 2] == 255).all()


def test_opacity_mixes_the_colors_once() -> None:
    stamp = image_file(Image.new("RGB", (80, 40), "red"), "PNG")

    pixels = _drawn(run_tool("pdf-watermark", _blank(), files={"stamp": stamp}, angle=0, opacity=0.5).data)

    assert pixels[300, 150].tolist() == [255, pytest.approx(128, abs=2), pytest.approx(128, abs=2)]


def test_a_text_has_its_size_and_color() -> None:
    options: dict[str, Any] = {"text": "HHHH", "angle": 0, "size": 50, "color": "#0000ff", "opacity": 1}

    pixels = _drawn(run_tool("pdf-watermark", _blank(), **options).data)

    left, top, right, bottom = _box(pixels)
    assert bottom - top == pytest.approx(50 * 0.72, abs=3)  # the height of capitals
    assert right - left == pytest.approx(4 * 50 * 0.722, abs=12)
    assert pixels[(top + bottom) // 2, left + 5 : right].min(axis=0).tolist() == [0, 0, 255]


def test_tiles_cover_the_page() -> None:
    pixels = _drawn(run_tool("pdf-watermark", _blank(), text="Draft", position="tile", size=20).data)

    cells = [pixels[row : row + 150, column : column + 150] for row in range(0, 600, 150) for column in (0, 150)]
    assert all((cell < 250).any() for cell in cells)


def test_a_mark_fits_pages_of_any_size() -> None:
    with pikepdf.new() as made:
        for size in ((100, 100), (2000, 500)):
            made.add_blank_page(page_size=size)
        data = run_tool("pdf-watermark", saved(made), text="Confidential").data

    for page in (0, 1):
        left, top, right, bottom = _box(_drawn(data, page))
        height, width = _drawn(data, page).shape[:2]
        assert max((right - left) / width, (bottom - top) / height) == pytest.approx(0.7, abs=0.12)


def test_a_mark_can_be_below_the_content() -> None:
    with opened(_blank()) as made:
        made.pages[0].obj.Contents = made.make_stream(b"0 0 300 600 re f")
        data = saved(made)

    over, under = (
        run_tool("pdf-watermark", data, text="X", color="red", opacity=1, under=below).data for below in (False, True)
    )

    assert (_drawn(over)[..., 0] > 200).any()
    assert not _drawn(under).any()


@pytest.mark.parametrize("content", [b"q 2 0 0 2 50 50 cm", b"Q Q 0.5 0 0 0.5 9 9 cm", b"q q Q 0.1 0 0 0.1 0 0 cm"])
def test_unbalanced_content_does_not_move_marks(content: bytes) -> None:
    with opened(_blank()) as made:
        made.pages[0].obj.Contents = made.make_stream(content)
        data = saved(made)

    found, expected = (_box(_drawn(run_tool("pdf-number-pages", one, size=30).data)) for one in (data, _blank()))
    assert found == expected


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, ["1 / 3", "2 / 3", "3 / 3"]),
        ({"format": "Page {page}", "start": 8, "pages": "2-3"}, ["", "Page 9", "Page 10"]),
        ({"format": "{page} {x} {", "pages": "1"}, ["1 {x} {", "", ""]),
        ({"format": "¿ {page} € (é) \\"}, ["¿ 1 € (é) \\", "¿ 2 € (é) \\", "¿ 3 € (é) \\"]),
        ({"format": "第{page}頁"}, ["第1頁", "第2頁", "第3頁"]),
    ],
)
def test_numbers_of_pages(options: dict[str, Any], expected: list[str]) -> None:
    data = run_tool("pdf-number-pages", _blank(pages=3), **options).data

    assert page_texts(data) == expected
    opened(data)


def test_pages_that_share_resources_and_content_get_their_own_numbers() -> None:
    with opened(document("A", 3)) as made:
        first = made.pages[0].obj
        for page in made.pages:
            page.obj.Resources, page.obj.Contents = first.Resources, first.Contents
        data = saved(made)

    once = run_tool("pdf-number-pages", data).data
    twice = run_tool("pdf-number-pages", once, position="north", format="{page}!").data

    assert [text.split() for text in page_texts(twice)] == [f"A page 1 {n} / 3 {n}!".split() for n in (1, 2, 3)]


def test_a_image_with_transparency_and_a_page_can_be_stamps() -> None:
    half = image_file(Image.new("RGBA", (40, 40), (255, 0, 0, 128)), "PNG")

    mixed = _drawn(run_tool("pdf-watermark", _blank(), files={"stamp": half}, angle=0, opacity=1).data)
    text = run_tool("pdf-watermark", _blank(), files={"stamp": document("S", 2)}, angle=0).data

    assert mixed[300, 150].tolist() == [255, pytest.approx(127, abs=2), pytest.approx(127, abs=2)]
    assert page_texts(text) == ["S page 1"]


@pytest.mark.parametrize(
    ("files", "options", "reason"), [({}, {}, "missing"), ({"stamp": _blank()}, {"text": "x"}, "exclusive")]
)
def test_either_a_text_or_a_image(files: dict[str, bytes], options: dict[str, Any], reason: str) -> None:
    with pytest.raises(ConversionError) as raised:
        run_tool("pdf-watermark", _blank(), files=files, **options)

    assert (raised.value.reason, raised.value.param) == (reason, "text")
