"""Pages that are arranged, cropped, resized, placed on sheets, laid over each other, and turned upright."""

from typing import Any

import numpy as np
import pikepdf
import pytest
from numpy.typing import NDArray
from pikepdf import Array, Dictionary, Name, Pdf, String
from PIL import Image

from engine import ConversionError
from engine.mupdf import pymupdf
from plugins._pdf.name_trees import page_labels
from plugins.tools import pdf_ocr
from tests.support.results.conversions import run_tool
from tests.support.results.pdf_checks import drawn_pages
from tests.support.samples import pdf_documents as pdf
from tests.support.samples.generated import sample
from tests.support.samples.generated import saved as image_file
from tests.support.samples.pdf_documents import document, opened, page_texts, saved
from tests.support.samples.scans import SCANNED

Box = tuple[float, float, float, float]
_ROTATIONS = pytest.mark.parametrize("rotation", [0, 90, 180, 270])


def _painted(rotation: int = 0, pages: int = 1, **keys: Any) -> bytes:
    """Pages of 300 to 600 points as they are shown, with a pattern of red 30 to 60 points from left and top."""
    with pikepdf.new() as made:
        for _ in range(pages):
            turned = rotation % 180
            page = made.add_blank_page(page_size=(600, 300) if turned else (300, 600)).obj
            tile = made.make_stream(b"1 0 0 rg 0 0 10 10 re f", PatternType=1, PaintType=1, TilingType=1)
            tile.BBox, tile.XStep, tile.YStep, tile.Resources = Array([0, 0, 10, 10]), 10, 10, Dictionary()
            page.Resources = Dictionary(Pattern=Dictionary(P=tile))
            box = {
                0: "30 510 60 60",
                90: "30 30 60 60",
                180: "210 30 60 60",
                270: "510 210 60 60",
            }[rotation]
            page.Contents = made.make_stream(f"q /Pattern cs /P scn {box} re f".encode())
            page.Rotate = rotation
            for key, value in keys.items():
                page[f"/{key}"] = value
        return saved(made)


def _drawn(data: bytes) -> list[NDArray[np.float64]]:
    """The pages: height x width x 3, a pixel per point."""
    return drawn_pages(data, scale=1, mode="RGB")


def _red(pixels: NDArray[np.float64]) -> Box:
    """Left, top, right and bottom of what is red."""
    rows, columns = np.nonzero((pixels[..., 0] > 200) & (pixels[..., 1] < 60))
    return int(columns.min()), int(rows.min()), int(columns.max()) + 1, int(rows.max()) + 1


def _near(*edges: float) -> Any:
    return pytest.approx(edges, abs=1.5)


def _refused(name: str, *inputs: bytes, **options: Any) -> tuple[str | None, str | None]:
    with pytest.raises(ConversionError) as raised:
        run_tool(name, *inputs, **options)
    return raised.value.param, raised.value.reason


def test_pages_of_several_files_in_any_order() -> None:
    labels = {"PageLabels": Dictionary(Nums=Array([0, Dictionary(S=Name.r)]))}
    first = document(
        "A", 3, pdf.link(0, to=2), pdf.field(0, "name", String("Ann")), pdf.outline(("Three", 2, True, []))
    )
    with opened(first) as changed:
        changed.Root.PageLabels = labels["PageLabels"]
        first = saved(changed)
    entries = [
        {"file": 2},
        {"file": 0, "page": 3, "rotate": 90},
        {"blank": "a5", "rotate": 90},
        {"file": 1, "page": 2},
        {"file": 0},
        {"file": 0, "page": 1, "rotate": 180},
    ]

    result = run_tool("pdf-arrange", first, document("B", 2), sample("png"), pages=entries)

    assert result.codes == set()
    assert page_texts(result.data) == ["", "A page 3", "", "B page 2", "A page 1", "A page 1"]
    with opened(result.data) as made:
        assert [int(page.obj.get("/Rotate", 0)) for page in made.pages] == [0, 90, 90, 0, 0, 180]
        assert [float(edge) for edge in made.pages[2].mediabox] == pytest.approx([0, 0, 419.53, 595.28], abs=0.01)
        assert made.pages[4].obj.Annots[0].Dest[0].objgen == made.pages[1].obj.objgen
        assert [str(one.T) for one in made.Root.AcroForm.Fields] == ["name", "name (2)"]
        assert page_labels(made.Root, 6)[1] == ("/r", None, 3)
    assert [entry[1:3] for entry in pymupdf.open(stream=result.data).get_toc()] == [["Three", 2]]


def test_frames_of_an_image_are_pages() -> None:
    image = Image.new("RGB", (30, 40), "red")
    frames = image_file(image, "TIFF", save_all=True, append_images=[Image.new("RGB", (72, 36))], dpi=(72, 72))

    data = run_tool("pdf-arrange", frames, pages=[{"file": 0, "page": 2}, {"file": 0}]).data

    assert [pixels.shape[:2] for pixels in _drawn(data)] == [(36, 72), (40, 30)]


@pytest.mark.parametrize(
    ("entries", "reason"),
    [
        ([], "out_of_range"),
        ([{"file": 1}], "out_of_range"),
        ([{"file": 0, "page": 3}], "out_of_range"),
        ([{"file": 0, "page": 0}], "malformed"),
        ([{"file": 0, "rotate": 45}], "malformed"),
        ([{"blank": "b9"}], "malformed"),
        ([{"page": 1}], "malformed"),
        ([{"file": 0, "blank": "a4"}], "malformed"),
        ([{"blank": "a4", "page": 1}], "malformed"),
    ],
)
def test_refused_arrangements(entries: list[dict[str, Any]], reason: str) -> None:
    assert _refused("pdf-arrange", document("A", 2), pages=entries) == ("pages", reason)


@_ROTATIONS
@pytest.mark.parametrize("keys", [{}, {"UserUnit": 2}, {"TrimBox": Array([0, 0, 100, 100])}])
def test_a_box_is_of_the_page_as_shown(rotation: int, keys: dict[str, Any]) -> None:
    unit = keys.get("UserUnit", 1)
    box = ",".join(str(edge * unit) for edge in (20, 25, 200, 100))

    data = run_tool("pdf-crop", _painted(rotation, **keys), box=box).data

    (pixels,) = _drawn(data)
    scale = pixels.shape[1] / 200
    assert (pixels.shape[1] / scale, pixels.shape[0] / scale) == (200, 100)
    assert _red(pixels) == _near(10 * scale, 5 * scale, 70 * scale, 65 * scale)
    with opened(data) as made:
        page = made.pages[0]
        assert page.mediabox == page.cropbox == page.trimbox


def test_a_margin_is_cut_off_and_its_text_stays() -> None:
    data = run_tool("pdf-crop", document("A", 3), margin=25.4, pages="2-3").data

    with opened(data) as made:
        assert [[float(edge) for edge in page.cropbox] for page in made.pages] == [
            [0, 0, 201, 300],
            [72, 72, 130, 228],
            [72, 72, 131, 228],
        ]
        assert b"A page 2" in made.pages[1].Contents.read_bytes()


@pytest.mark.parametrize(
    ("options", "param", "reason"),
    [
        ({}, "box", "missing"),
        ({"box": "0,0,9,9", "margin": 1.0}, "box", "exclusive"),
        ({"box": "0,0,900,9"}, "box", "out_of_range"),
        ({"box": "250,0,9,9"}, "box", "out_of_range"),
        ({"box": "0,0,1,9"}, "box", "out_of_range"),
        ({"box": "-1,0,9,9"}, "box", "malformed"),
        ({"margin": 40.0}, "margin", "out_of_range"),
    ],
)
def test_refused_crops(options: dict[str, Any], param: str, reason: str) -> None:
    assert _refused("pdf-crop", document("A", 1), **options) == (param, reason)


@_ROTATIONS
@pytest.mark.parametrize(
    ("fit", "expected"),
    [
        ("inside", (129.3, 42.1, 213.5, 126.3)),
        ("cover", (59.5, 0, 178.6, 4.2)),
        ("fill", (59.5, 42.1, 178.6, 126.3)),
    ],
)
def test_pages_are_scaled_with_their_patterns(rotation: int, fit: str, expected: Box) -> None:
    data = run_tool("pdf-resize-pages", _painted(rotation), page_size="a4", fit=fit).data

    (pixels,) = _drawn(data)
    assert pixels.shape[:2] == (842, 596)
    assert _red(pixels) == pytest.approx(expected, abs=2)


def _note_and_mark(made: Pdf) -> None:
    """Adds a note to the first page, and marks the content of all as that of the structure."""
    note = Dictionary(Type=Name.Annot, Subtype=Name.Square, Rect=[20, 20, 60, 40], RD=[2, 2, 2, 2], C=[1, 0, 0])
    pdf.annotate(made, 0, note)
    for page in made.pages:
        page.obj.Contents = made.make_stream(b"/P <</MCID 0>> BDC " + page.obj.Contents.read_bytes() + b" EMC")


def _linked() -> bytes:
    """Two pages with a note, a field, links, an outline and a structure."""
    field = pdf.field(0, "name", String("Ann"), DA=String("/Helv 10 Tf 0 g"))
    links = pdf.link(0, to=1), pdf.link(0, Dest=String("there")), pdf.named("there", 1)
    return document("A", 2, _note_and_mark, *links, field, pdf.tagged, pdf.outline(("Two", 1, True, [])))


def test_what_lies_on_a_resized_page_follows() -> None:
    with opened(run_tool("pdf-resize-pages", _linked(), page_size="a4", fit="fill").data) as made:
        page, other = made.pages
        across, down = 595.2756 / 201, 841.8898 / 300
        items = {str(item.Subtype): item for item in page.obj.Annots}
        assert [float(edge) for edge in items["/Square"].Rect] == _near(20 * across, 20 * down, 60 * across, 40 * down)
        assert bytes(items["/Widget"].DA) == b"/Helv %.4f Tf 0 g" % (10 * (across * down) ** 0.5)
        for target in (page.obj.Annots[1].Dest, made.Root.Names.Dests.Names[1].D, made.Root.Outlines.First.Dest):
            assert target[0].objgen == other.obj.objgen
            assert float(target[3]) == pytest.approx(300 * down)
        _assert_structure(made, [page, other])


def _assert_structure(made: Pdf, pages: list[pikepdf.Page]) -> None:
    """Each element of the structure has its content, in a form of these pages."""
    for element, page in zip(made.Root.StructTreeRoot.K, pages, strict=True):
        assert element.K.Pg.objgen == page.obj.objgen
        forms = [form.objgen for _, form in page.Resources.XObject.items()]
        assert element.K.Stm.objgen in forms
        assert isinstance(element.K.Stm.StructParents, int)
        assert "/StructParents" not in page.obj


def test_what_lies_on_a_page_follows_it_to_a_sheet() -> None:
    result = run_tool("pdf-nup", _linked())

    assert result.codes == {"forms_dropped"}
    (pixels,) = _drawn(result.data)
    assert (pixels.min(axis=2) < 100).any()
    with opened(result.data) as made:
        (sheet,) = made.pages
        links = [item for item in sheet.obj.Annots if item.Subtype == Name.Link]
        assert len(links) == len(sheet.obj.Annots) == 2
        assert float(links[0].Rect[0]) == pytest.approx((150 - 201 * 0.67) / 2 + 10 * 0.67, abs=0.1)
        for target in (links[0].Dest, made.Root.Outlines.First.Dest):
            assert target[0].objgen == sheet.obj.objgen
            assert float(target[2]) == pytest.approx(150 + (150 - 202 * 0.67) / 2, abs=0.1)
        _assert_structure(made, [sheet, sheet])


def _places(data: bytes) -> list[list[str]]:
    """The texts of each sheet, in rows from the top."""
    found = []
    for page in pymupdf.open(stream=data):
        words = [(round(word[1] / 20), word[0], word[4]) for word in page.get_text("words")]
        found.append([text for *_, text in sorted(words) if text.isdigit()])
    return found


@pytest.mark.parametrize(
    ("pages", "options", "expected"),
    [
        (3, {}, ["1 2", "3"]),
        (5, {"per_sheet": 4}, ["1 2 3 4", "5"]),
        (7, {"per_sheet": 6, "pages": "7,1-6"}, ["7 1 2 3 4 5", "6"]),
        (4, {"booklet": True}, ["4 1", "2 3"]),
        (6, {"booklet": True}, ["1", "2", "6 3", "4 5"]),
        (16, {"per_sheet": 16}, [" ".join(map(str, range(1, 17)))]),
    ],
)
def test_the_order_of_pages_on_sheets(pages: int, options: dict[str, Any], expected: list[str]) -> None:
    assert _places(run_tool("pdf-nup", document("", pages), **options).data) == [row.split() for row in expected]


@_ROTATIONS
def test_pages_on_a_sheet_are_upright(rotation: int) -> None:
    (sheet,) = _drawn(run_tool("pdf-nup", _painted(rotation, 2)).data)

    assert sheet.shape[:2] == (600, 300)
    for half in (sheet[:, :150], sheet[:, 150:]):
        assert _red(half) == _near(15, 150 + 15, 45, 150 + 45)


@pytest.mark.parametrize(("style", "lost"), [("r", {"metadata_dropped"}), ("D", set())])
def test_labels_of_pages_that_sheets_cannot_have_are_told(style: str, lost: set[str]) -> None:
    made = opened(document("A", 2))
    made.Root.PageLabels = Dictionary(Nums=Array([0, Dictionary(S=Name(f"/{style}"))]))

    result = run_tool("pdf-nup", saved(made))

    with opened(result.data) as read:
        assert (result.codes, "/PageLabels" in read.Root) == (lost, False)


def test_a_booklet_has_two_pages_on_a_sheet() -> None:
    assert _refused("pdf-nup", document("A", 2), booklet=True, per_sheet=4) == ("per_sheet", "exclusive")


@pytest.mark.parametrize(
    ("overlays", "options", "expected", "code"),
    [
        (1, {}, ["A1B1", "A2B1", "A3B1"], set()),
        (1, {"pages": "2"}, ["A1", "A2B1", "A3"], set()),
        (2, {}, ["A1B1", "A2B2", "A3"], set()),
        (3, {"pages": "2-3"}, ["A1", "A2B1", "A3B2"], {"pages_dropped"}),
    ],
)
def test_pages_are_laid_over_pages(overlays: int, options: dict[str, Any], expected: list[str], code: set[str]) -> None:
    over = document("B", overlays, *([pdf.link(0, to=0)] if code else []))
    result = run_tool("pdf-overlay", document("A", 3), files={"overlay": over}, **options)

    texts = [page.get_text().replace("page", "").split() for page in pymupdf.open(stream=result.data)]
    assert ["".join(text) for text in texts] == expected
    assert result.codes == (code | {"links_dropped"} if code else set())


@_ROTATIONS
def test_an_overlay_is_drawn_as_it_is_shown(rotation: int) -> None:
    base = saved(_blank(150, 600))

    over, under = (
        _drawn(run_tool("pdf-overlay", data, files={"overlay": _painted(rotation, UserUnit=2)}, under=below).data)[0]
        for data, below in ((base, False), (saved(_blank(150, 600, b"0 0 150 600 re f")), True))
    )

    assert _red(over) == _near(15, 165, 45, 195)  # 600 x 1200 points become 150 x 300
    assert not under.any()


def _blank(width: int, height: int, content: bytes = b"") -> Pdf:
    made = pikepdf.new()
    made.add_blank_page(page_size=(width, height)).obj.Contents = made.make_stream(content)
    return made


def test_an_overlay_is_needed_that_opens() -> None:
    locked = run_tool("pdf-protect", document("B", 1), user_password="user").data

    assert _refused("pdf-overlay", document("A", 1)) == ("overlay", "missing")
    assert _refused("pdf-overlay", document("A", 1), files={"overlay": locked}) == ("overlay", "pdf_encrypted")


def _written(*angles: int) -> bytes:
    """Pages with a line of text each, turned counterclockwise by these angles, and rotated by 90 degrees."""
    made = pymupdf.open()
    for angle in angles:
        page = made.new_page()
        page.insert_text((200, 400), "A line of text", rotate=angle)
        page.set_rotation(90)
    return bytes(made.tobytes())


def test_text_becomes_upright() -> None:
    result = run_tool("pdf-auto-rotate", _written(0, 90, 180, 270), pages="1-3")

    with opened(result.data) as made:
        assert [int(page.obj.get("/Rotate", 0)) for page in made.pages] == [0, 90, 180, 90]
    assert result.codes == set()


@pytest.mark.skipif(not pdf_ocr.PROGRAMS, reason="needs Tesseract")
def test_scans_become_upright() -> None:
    made = pymupdf.open()
    page = made.new_page(width=360, height=240)
    for line in range(8):
        page.insert_text((20, 60 + line * 20), SCANNED, fontname="tiro")
    pixels = page.get_pixmap(dpi=150, colorspace=pymupdf.csGRAY)
    image = Image.frombytes("L", (pixels.width, pixels.height), pixels.samples)
    turned = image_file(image.rotate(90, expand=True), "PNG", dpi=(150, 150))
    data = run_tool("pdf-from-images", turned, sample("jpeg")).data

    result = run_tool("pdf-auto-rotate", data)

    with opened(result.data) as made:
        assert [int(page.obj.get("/Rotate", 0)) for page in made.pages] == [90, 0]
    assert result.codes == {"no_text"}
