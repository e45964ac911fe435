"""Pages that are turned, forms that are flattened, and information that is set, with what stays as it is."""

from typing import Any

import pikepdf
import pypdfium2
import pytest
from pikepdf import Array, Dictionary, Name, Pdf, String

from engine import ConversionError
from engine.mupdf import pymupdf
from tests.support.results.tools import run_tool
from tests.support.samples import pdf_documents as pdf


@pytest.mark.parametrize(("angle", "pages", "expected"), [(90, "all", [90, 180, 90]), (180, "2-3", [0, 270, 180])])
def test_the_angle_is_added_to_that_of_the_page(angle: int, pages: str, expected: list[int]) -> None:
    with pdf.opened(pdf.document("A", 3)) as made:
        made.pages[1].obj.Rotate = 90
        data = pdf.saved(made)

    turned = run_tool("pdf-rotate", data, angle=angle, pages=pages).data

    assert [page.get_rotation() for page in pypdfium2.PdfDocument(turned)] == expected


def test_an_inherited_rotation_is_added_to() -> None:
    with pdf.opened(pdf.document("A", 2)) as made:
        made.Root.Pages.Rotate = 270
        data = pdf.saved(made)

    turned = run_tool("pdf-rotate", data, angle=180, pages="1").data

    assert [page.get_rotation() for page in pypdfium2.PdfDocument(turned)] == [90, 270]


@pytest.mark.parametrize("options", [{"angle": 45}, {"angle": 0}, {}, {"angle": 90, "pages": "3"}])
def test_refused_rotations(options: dict[str, Any]) -> None:
    with pytest.raises(ConversionError) as raised:
        run_tool("pdf-rotate", pdf.document("A", 2), **options)

    assert raised.value.code == "invalid_parameter"


def _full() -> bytes:
    """A document with all that tools keep."""
    extras = (
        pdf.outline(("One", 1, True, [])),
        pdf.named("spot", 1),
        pdf.link(0, to=1),
        pdf.field(0, "n", String("v")),
        pdf.tagged,
    )
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
    plain = pdf.opened(
        pdf.document("A", 2, pdf.field(0, "one", String("first")), pdf.field(1, "two", String("second")))
    )
    locked = pdf.saved(plain, encryption=pikepdf.Encryption(user="user", owner="owner"))

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
