"""Pages that are turned, numbered and marked, forms that are flattened, and information that is set."""

from typing import Any

import numpy as np
import pikepdf
import pypdfium2
import pytest
from numpy.typing import NDArray
from pikepdf import Array, Dictionary, Name, Pdf, String
from PIL import Image

from engine import ConversionError
from engine.mupdf import pymupdf
from tests.support.results.conversions import run_tool
from tests.support.results.pdf_checks import drawn_pages
from tests.support.samples import pdf_documents as pdf
from tests.support.samples.generated import saved as image_file
from tests.support.samples.pdf_documents import document, opened, page_texts, saved

_POSITIONS = {
    "northwest": (0, 0), "north": (1, 0), "northeast": (2, 0),
    "west": (0, 1), "center": (1, 1), "east": (2, 1),
    "southwest": (0, 2), "south": (1, 2), "southeast": (2, 2),
}  # fmt: skip


@pytest.mark.parametrize(
    ("angle", "pages", "inherited", "expected"),
    [(90, "all", 0, [90, 180, 90]), (180, "2-3", 0, [0, 270, 180]), (180, "1", 270, [90, 90, 270])],
)
def test_the_angle_is_added_to_that_of_the_page(angle: int, pages: str, inherited: int, expected: list[int]) -> None:
    with pdf.opened(pdf.document("A", 3)) as made:
        made.Root.Pages.Rotate = inherited
        made.pages[1].obj.Rotate = 90
        data = pdf.saved(made)

    turned = run_tool("pdf-rotate", data, angle=angle, pages=pages).data

    assert [page.get_rotation() for page in pypdfium2.PdfDocument(turned)] == expected


@pytest.mark.parametrize("options", [{"angle": 45}, {"angle": 0}, {}, {"angle": 90, "pages": "3"}])
def test_refused_rotations(options: dict[str, Any]) -> None:
    with pytest.raises(ConversionError) as raised:
        run_tool("pdf-rotate", pdf.document("A", 2), **options)

    assert raised.value.code == "invalid_parameter"


def _full() -> bytes:
    """A document with all that tools keep."""
    marked = pdf.outline(("One", 1, True, []))
    extras = (marked, pdf.named("spot", 1), pdf.link(0, to=1), pdf.field(0, "n", String("v")), pdf.tagged)
    made = pdf.opened(pdf.document("A", 2, *extras))
    made.attachments["note.txt"] = b"a note"
    layer = made.make_indirect(Dictionary(Type=Name.OCG, Name=String("layer")))
    made.Root.OCProperties = Dictionary(OCGs=Array([layer]), D=Dictionary(OFF=Array([layer])))
    made.Root.PageLabels = Dictionary(Nums=Array([0, Dictionary(S=Name.r)]))
    made.pages[0].obj.Resources.Properties = Dictionary(L=layer)
    made.pages[0].contents_add(b"/OC /L BDC EMC")
    return pdf.saved(made)


@pytest.mark.parametrize(
    ("tool", "options"),
    [
        ("pdf-rotate", {"angle": 90}),
        ("pdf-number-pages", {}),
        ("pdf-watermark", {"text": "x"}),
        ("pdf-metadata", {"title": "x"}),
        ("pdf-protect", {"owner_password": "x"}),
        ("pdf-extract-pages", {"pages": "1-"}),
        ("pdf-flatten", {"pages": "2"}),
        ("pdf-unlock", {"sanitize": True}),
    ],
)
def test_what_a_document_has_stays(tool: str, options: dict[str, Any]) -> None:
    data = run_tool(tool, _full(), **options).data

    read = pdf.opened(data)
    with pymupdf.open(stream=data) as shown:
        assert [(title, page) for _, title, page, *_ in shown.get_toc()] == [("One", 2)]
        assert [one["page"] for one in shown[0].get_links()] == [1]
        assert [widget.field_value for widget in shown[0].widgets()] == ["v"]
        assert [page.get_label() for page in shown] == ["i", "ii"]
        assert "spot" in shown.resolve_names()
    assert read.attachments["note.txt"].get_file().read_bytes() == b"a note"
    assert [str(layer.Name) for layer in read.Root.OCProperties.D.OFF] == ["layer"]
    assert len(read.Root.StructTreeRoot.K) == 2


def _note(made: Pdf) -> None:
    look = made.make_stream(b"1 0 0 rg 0 0 20 20 re f", Type=Name.XObject, Subtype=Name.Form, BBox=[0, 0, 20, 20])
    square = Dictionary(Type=Name.Annot, Subtype=Name.Square, Rect=[50, 50, 70, 70], AP=Dictionary(N=look), F=4)
    pdf.annotate(made, 1, square)


def test_fields_and_annotations_become_content() -> None:
    data = pdf.document(
        "A", 3, pdf.field(0, "one", String("first")), pdf.field(2, "two", String("second")), pdf.link(1, to=0), _note
    )

    all_pages, some = (run_tool("pdf-flatten", data, pages=pages).data for pages in ("all", "1-2"))

    assert pdf.page_texts(all_pages) == ["A page 1\r\nfirst", "A page 2", "A page 3\r\nsecond"]
    read = pdf.opened(all_pages)
    assert "/AcroForm" not in read.Root
    assert [str(one.Subtype) for page in read.pages for one in page.obj.get("/Annots", ())] == ["/Link"]
    assert pypdfium2.PdfDocument(all_pages)[1].render(scale=1).to_pil().getpixel((60, 240)) == (255, 0, 0)
    read = pdf.opened(some)
    assert [str(one.T) for one in read.Root.AcroForm.Fields] == ["two"]
    assert [str(one.Subtype) for page in read.pages for one in page.obj.get("/Annots", ())] == ["/Link", "/Widget"]
    assert not any("Convertd" in key for item in read.objects if isinstance(item, Dictionary) for key in item)


def test_encrypted_forms_are_flattened() -> None:
    form = pdf.opened(pdf.document("A", 2, pdf.field(0, "one", String("first")), pdf.field(1, "two", String("second"))))
    locked = pdf.saved(form, encryption=pikepdf.Encryption(user="user", owner="owner"))

    flat = run_tool("pdf-flatten", locked, pages="1", password="owner").data

    with pymupdf.open(stream=flat) as read:
        assert read.authenticate("user")
        assert [page.get_text().split() for page in read] == [["A", "page", "1", "first"], ["A", "page", "2", "second"]]
        assert [widget.field_name for page in read for widget in page.widgets()] == ["two"]


def test_information_and_packet_change_together() -> None:
    made = pdf.opened(pdf.document("A", 1))
    with made.open_metadata() as packet:
        packet["dc:title"], packet["dc:creator"], packet["dc:subject"] = "old", ["Ann", "Bob"], {"a", "b"}
        packet["xmp:Rating"] = "5"
    made.docinfo.Title, made.docinfo.Author, made.docinfo.Producer = String("old"), String("Ann"), String("a maker")
    data = pdf.saved(made)

    result = run_tool("pdf-metadata", data, title="Größe", author="", subject="About", keywords="x, y").data

    read = pdf.opened(result)
    packet = read.open_metadata()
    info = {key: str(value) for key, value in read.docinfo.items()}
    assert info == {"/Title": "Größe", "/Subject": "About", "/Keywords": "x, y", "/Producer": "a maker"}
    assert (packet["dc:title"], packet["dc:description"], packet["pdf:Keywords"]) == ("Größe", "About", "x, y")
    assert (set(packet["dc:subject"]), packet["xmp:Rating"]) == ({"x", "y"}, "5")
    assert "dc:creator" not in packet
    assert pymupdf.open(stream=result).metadata["title"] == "Größe"


def test_a_broken_packet_is_replaced() -> None:
    made = pdf.opened(pdf.document("A", 1))
    made.Root.Metadata = made.make_stream(b"<broken", Type=Name.Metadata, Subtype=Name.XML)

    read = pdf.opened(run_tool("pdf-metadata", pdf.saved(made), title="new").data)

    assert (str(read.docinfo.Title), read.open_metadata()["dc:title"]) == ("new", "new")


def test_an_outline_entry_for_each_merged_file() -> None:
    first, second = pdf.document("A", 2, pdf.outline(("In", 1, True, []))), pdf.document("B", 1)

    data = run_tool("pdf-merge", first, second, outline=True).data

    toc = [(level, title, page) for level, title, page, *_ in pymupdf.open(stream=data).get_toc()]
    assert toc == [(1, "file 1", 1), (2, "In", 2), (1, "file 2", 3)]
    assert pymupdf.open(stream=pdf.merge(first, second).data).get_toc() == [[1, "In", 2]]


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
@pytest.mark.parametrize("crop", [(), (40, 60, 290, 460), (-50, -70, 900, 800), (900, 60, -50, 460)])
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


@pytest.mark.parametrize("angle", [90, 180, 270])
def test_marks_are_turned_by_right_angles(angle: int) -> None:
    stamp = image_file(Image.new("RGB", (80, 20), "red"), "PNG")

    pixels = _drawn(run_tool("pdf-watermark", _blank(), files={"stamp": stamp}, angle=angle, size=80, opacity=1).data)

    left, top, right, bottom = _box(pixels)
    assert sorted((right - left, bottom - top)) == [pytest.approx(20, abs=2), pytest.approx(80, abs=2)]
    assert (right - left > bottom - top) is (angle == 180)


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


def test_accents_and_the_ends_of_texts_are_not_cut_off() -> None:
    blank = Pdf.new()
    blank.add_blank_page(page_size=(300, 100))
    data = run_tool("pdf-number-pages", saved(blank), format="Ä€…H", size=40).data

    ink = np.asarray(pypdfium2.PdfDocument(data)[0].render(scale=2).to_pil().convert("L")) < 128
    rows, columns = (np.flatnonzero(ink.any(axis)) for axis in (1, 0))
    assert (np.ptp(rows) / 2) > 0.85 * 40
    assert abs(np.ptp(columns) / 2 - pymupdf.Font("helv").text_length("Ä€…H", 40)) < 6
