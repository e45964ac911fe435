"""Forms that are filled, and what a PDF is described as: fields, outline, attachments, fonts and images."""

import json
from io import BytesIO
from typing import Any
from zipfile import ZipFile

import numpy as np
import pikepdf
import pypdfium2
import pytest
from numpy.typing import NDArray
from pikepdf import Array, AttachedFileSpec, Dictionary, Name, String
from PIL import Image

from engine import ConversionError
from engine.mupdf import pymupdf
from tests.support.results.conversions import ToolRun, run_tool
from tests.support.results.pdf_checks import complaints
from tests.support.samples.generated import sample
from tests.support.samples.pdf_documents import annotate, document, opened, outline, saved
from tests.support.samples.pdf_forms import form

_VALUES: dict[str, Any] = {
    "name": "Ann Ö Lee",
    "notes": "First line\nA second line that is wrapped, because it is long",
    "code": "AB12",
    "agreed": True,
    "bare": True,
    "color": "röd",
    "country": "Sweden",
    "free": "other",
    "letters": ["b", "f"],
    "person.name": "Ωμέγα 漢字",
    "turned": "Up",
}
_WORDS = ["Ann Ö Lee", "First line", "wrapped", "Sweden", "other", "Ωμέγα", "漢字", "Up", "constant"]


def _info(data: bytes) -> dict[str, Any]:
    described: dict[str, Any] = json.loads(run_tool("pdf-info", data).data)
    return described


def _fields(data: bytes) -> dict[str, dict[str, Any]]:
    return {field["name"]: field for field in _info(data)["form_fields"]}


def _drawings(data: bytes) -> list[NDArray[np.int16]]:
    """The page as PDFium and MuPDF draw it, at 72 dpi in gray."""
    read = pypdfium2.PdfDocument(data)
    read.init_forms()
    by_pdfium = read[0].render(may_draw_forms=True).to_pil()
    pixmap = pymupdf.open(stream=data)[0].get_pixmap()
    by_mupdf = Image.frombytes("RGB", (pixmap.width, pixmap.height), pixmap.samples)
    return [np.asarray(one.convert("L"), np.int16) for one in (by_pdfium, by_mupdf)]


def test_fields_are_described() -> None:
    found = _fields(form())

    assert found["name"] == {
        "name": "name",
        "type": "text",
        "label": "Your name",
        "value": None,
        "options": [],
        "page": 1,
        "box": {"x": 20, "y": 30, "width": 160, "height": 20},
        "required": True,
        "read_only": False,
        "max_length": 30,
    }
    kinds = ["text"] * 4 + ["checkbox"] * 2 + ["radio", "choice", "choice", "list", "text", "text"]
    assert [field["type"] for field in found.values()] == kinds
    assert (found["fixed"]["value"], found["fixed"]["read_only"]) == ("constant", True)
    assert [found[name]["options"] for name in ("color", "country", "agreed")] == [
        ["röd", "blå"],
        ["NO", "SE"],
        ["Yes"],
    ]
    assert [found[name]["value"] for name in ("color", "agreed")] == [None, False]


@pytest.mark.parametrize("flatten", [False, True])
def test_every_viewer_shows_the_values(flatten: bool) -> None:
    result = run_tool("pdf-form", form(), fields=_VALUES, flatten=flatten)

    assert (result.codes, complaints(result.data)) == (set(), set())
    text = " ".join(pymupdf.open(stream=result.data)[0].get_text().split())
    assert [word for word in _WORDS if word not in text] == []
    boxes = [field["box"] for field in _fields(form()).values()]
    for drawing in _drawings(result.data):
        for box in boxes:
            x, y, width, height = (round(box[key]) for key in ("x", "y", "width", "height"))
            assert (drawing[y + 3 : y + height - 3, x + 3 : x + width - 3] < 160).any(), box
    assert ("/AcroForm" in opened(result.data).Root) is not flatten


def test_the_values_are_read_back() -> None:
    data = run_tool("pdf-form", form(), fields=_VALUES).data

    values = {name: field["value"] for name, field in _fields(data).items()}
    assert values == {**_VALUES, "country": "SE", "fixed": "constant"}
    read = opened(data)
    assert "/NeedAppearances" not in read.Root.AcroForm
    states = [str(widget.get("/AS")) for widget in read.pages[0].obj.Annots if "/AS" in widget]
    assert sorted(states) == ["/0", "/Off", "/Yes", "/Yes"]


def test_boxes_of_any_size_are_filled() -> None:
    resized = run_tool("pdf-resize-pages", form(), page_size="a4").data
    assert _fields(run_tool("pdf-form", resized, fields=_VALUES).data)["notes"]["value"] == _VALUES["notes"]


def test_values_are_removed_and_replaced() -> None:
    filled = run_tool("pdf-form", form(), fields=_VALUES).data

    changes = {"name": "", "agreed": False, "color": False, "letters": "c", "notes": "", "free": None}
    values = {
        name: field["value"] for name, field in _fields(run_tool("pdf-form", filled, fields=changes).data).items()
    }

    assert [values[name] for name in changes] == ["", False, None, "c", "", "other"]


@pytest.mark.parametrize(
    ("name", "value", "reason", "details"),
    [
        ("nme", "x", "unknown", "available"),
        ("fixed", "x", "unknown", "available"),
        ("name", "x" * 31, "out_of_range", "max"),
        ("name", "a\nb", "malformed", None),
        ("name", True, "malformed", None),
        ("agreed", "No", "unknown", "available"),
        ("color", "red", "unknown", "available"),
        ("country", "DK", "unknown", "available"),
        ("country", ["NO", "SE"], "malformed", None),
        ("letters", ["a", "z"], "unknown", "available"),
    ],
)
def test_values_that_a_field_cannot_have(name: str, value: Any, reason: str, details: str | None) -> None:
    with pytest.raises(ConversionError) as raised:
        run_tool("pdf-form", form(), fields={name: value})

    error = raised.value
    assert (error.param, error.reason, [*error.details]) == ("fields", reason, [details] if details else [])
    assert name in str(error)


def test_fields_that_scripts_calculate_are_told() -> None:
    made = opened(form())
    sums, other = made.Root.AcroForm.Fields[2], made.Root.AcroForm.Fields[0]
    for one, event in ((sums, "/C"), (other, "/K")):
        one.AA = Dictionary({event: Dictionary(S=Name.JavaScript, JS=String("event.value = 1"))})

    filled = run_tool("pdf-form", saved(made), fields={"name": "Bob"}, sanitize=True)
    given = run_tool("pdf-form", saved(made), fields={"code": "1"}, sanitize=True)

    (warned,) = filled.outcome.warnings
    assert (warned.code, warned.message.endswith(": code.")) == ("fields_not_calculated", True)
    assert given.codes == set()


def test_an_xfa_form_and_none() -> None:
    both = opened(form())
    both.Root.AcroForm.XFA = both.make_stream(b"<xdp/>")

    assert run_tool("pdf-form", saved(both), fields={"name": "Bob"}).codes == {"xfa_dropped"}
    with pytest.raises(ConversionError) as raised:
        run_tool("pdf-form", document("A", 1), fields={"name": "Bob"})
    assert (raised.value.param, raised.value.reason) == ("file", "nothing_found")


def test_fields_and_items_in_circles() -> None:
    made = opened(form())
    fields = made.Root.AcroForm.Fields
    fields[10].Kids.append(fields[10])
    fields[0].Kids = Array([fields[0]])
    fields[1].DA = 1_000_000_000_000
    fields[2].Kids = 5
    made.Root.Outlines = made.make_indirect(Dictionary(First=made.make_indirect(Dictionary(Title=String("loop")))))
    item = made.Root.Outlines.First
    item.First = item.Next = item
    names = made.make_indirect(Dictionary())
    names.Kids = Array([names])
    made.Root.Names = Dictionary(EmbeddedFiles=names, Dests=names)
    data = saved(made)

    assert [one["title"] for one in _info(data)["outline"]] == ["loop"]
    assert (
        _fields(run_tool("pdf-form", data, fields={"person.name": "Bob", "notes": "x"}).data)["notes"]["value"] == "x"
    )


_ITEMS = [{"title": "Ä", "page": 2, "children": [{"title": "B", "page": 3, "children": []}]}, {"title": "C"}]


def test_an_outline_is_set_and_read() -> None:
    data = document("A", 3, outline(("Old", 0, True, [])))

    assert _info(data)["outline"] == [{"title": "Old", "page": 1, "children": []}]
    result = run_tool("pdf-metadata", data, outline=_ITEMS).data
    assert _info(result)["outline"] == [_ITEMS[0], {"title": "C", "page": None, "children": []}]
    entries = pymupdf.open(stream=result).get_toc()
    assert entries == [[1, "Ä", 2], [2, "B", 3], [1, "C", -1]]
    assert complaints(result) == set()
    assert _info(run_tool("pdf-metadata", result, outline=[]).data)["outline"] == []


def _nested(levels: int) -> list[Any]:
    return [{"title": "x", "children": _nested(levels - 1)}] if levels else []


@pytest.mark.parametrize(
    ("items", "reason"),
    [
        ([{"title": "x", "page": 4}], "out_of_range"),
        ([{"title": "x", "page": True}], "out_of_range"),
        ([{"page": 1}], "malformed"),
        ([{"title": "x", "children": [{"title": 1}]}], "malformed"),
        ([{"title": "x", "children": {}}], "malformed"),
        ([{"title": "x", "color": 1}], "malformed"),
        ([{"title": "x", "children": [{"title": "y"}] * 2000}], "out_of_range"),
        (_nested(52), "out_of_range"),
    ],
)
def test_wrong_outlines(items: list[Any], reason: str) -> None:
    with pytest.raises(ConversionError) as raised:
        run_tool("pdf-metadata", document("A", 3), outline=items)

    assert (raised.value.param, raised.value.reason) == ("outline", reason)


def _file(made: pikepdf.Pdf, data: bytes, name: str) -> AttachedFileSpec:
    described = {"mime_type": "text/plain", "description": "about", "creation_date": "", "mod_date": ""}
    return AttachedFileSpec(made, data, filename=name, **described)


def _with_attachments() -> bytes:
    made = opened(document("A", 2))
    for key, name in (("a", "../../etc/p\u202ea.TXT"), ("b", "con.xml"), ("c", "CON.xml")):
        made.attachments[key] = _file(made, key.encode(), name)
    note = _file(made, b"on a page", "note.txt").obj
    annotate(made, 1, Dictionary(Subtype=Name.FileAttachment, Rect=[0, 0, 9, 9], FS=note))
    return saved(made)


def test_attachments_are_listed_and_extracted() -> None:
    data = _with_attachments()

    listed = _info(data)["attachments"]
    assert [(one["name"], one["page"], one["size"]) for one in listed[1:]] == [
        ("con.xml", None, 1), ("CON.xml", None, 1), ("note.txt", 2, 9),
    ]  # fmt: skip
    assert (listed[0]["media_type"], listed[0]["description"]) == ("text/plain", "about")
    result = run_tool("pdf-extract-attachments", data)
    with ZipFile(BytesIO(result.data)) as archive:
        contents = {name: archive.read(name) for name in archive.namelist()}
    assert contents == {"pa.txt": b"a", "_con.xml": b"b", "_CON (2).xml": b"c", "note.txt": b"on a page"}
    assert (result.outcome.container, result.outcome.file_count) == ("zip", 4)
    with pytest.raises(ConversionError) as raised:
        run_tool("pdf-extract-attachments", document("A", 1))
    assert (raised.value.param, raised.value.reason) == ("file", "nothing_found")


def _attached() -> ToolRun:
    return run_tool("pdf-attach", _with_attachments(), files={"attachments": b"new"})


def test_files_are_attached_beside_others() -> None:
    data = _attached().data

    assert "attachments" in [one["name"] for one in _info(data)["attachments"]]
    with pikepdf.open(BytesIO(data)) as read:
        assert read.attachments["attachments"].get_file().read_bytes() == b"new"
        assert len(read.attachments) == 4
        assert read.attachments["attachments"].get_file().mime_type == "application/octet-stream"
    again = run_tool("pdf-attach", data, files={"attachments": b"newer"}).data
    assert [one["name"] for one in _info(again)["attachments"]].count("attachments") == 2
    with pytest.raises(ConversionError) as raised:
        run_tool("pdf-attach", data)
    assert (raised.value.param, raised.value.reason) == ("attachments", "missing")


def test_fonts_images_encryption_and_sizes() -> None:
    made = opened(document("A", 2))
    made.pages[1].obj.Rotate = 90
    made.pages[1].obj.CropBox = [10, 20, 110, 220]
    images = run_tool("pdf-from-images", sample("jpeg")).data
    locked = run_tool("pdf-protect", saved(made), owner_password="o", allow="print,copy").data

    described = _info(locked)
    assert (described["pages"], described["page_sizes"]) == (
        2, [{"width": 201, "height": 300, "rotation": 0}, {"width": 200, "height": 100, "rotation": 90}],
    )  # fmt: skip
    assert described["fonts"] == [{"name": "Helvetica", "type": "Type1", "embedded": False, "subset": False}]
    assert described["encryption"] == {"method": "AES", "bits": 256, "permissions": ["print", "copy"]}
    assert (described["standard"], described["images"]) == (None, [])
    image = _info(images)["images"][0]
    with Image.open(BytesIO(sample("jpeg"))) as picture:
        assert (image["width"], image["height"]) == picture.size
    assert (image["page"], image["filters"], image["bits"]) == (1, ["DCTDecode"], 8)
