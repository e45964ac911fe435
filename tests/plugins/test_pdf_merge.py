"""Merged PDFs, checked with other readers."""

import pikepdf
import pypdfium2
import pytest
from pikepdf import Array, Dictionary, Name, Pdf, String

from engine import ConversionError
from engine.mupdf import pymupdf
from tests.support.samples import pdf_documents as pdf
from tests.support.samples.hostile_documents import flat_pdf


def test_pages_are_in_the_given_order() -> None:
    result = pdf.merge(pdf.document("A", 2), pdf.document("B", 1), pdf.document("C", 3))

    expected = ["A page 1", "A page 2", "B page 1", "C page 1", "C page 2", "C page 3"]
    assert pdf.page_texts(result.data) == expected
    assert (result.outcome.original_page_count, result.outcome.page_count) == (6, 6)
    assert result.outcome.warnings == ()
    pdf.opened(result.data)


def test_twenty_files_with_duplicates() -> None:
    same = pdf.document("A", 1, pdf.outline(("One", 0, True, [])))

    result = pdf.merge(*[same] * 20)

    assert result.outcome.page_count == 20
    assert [page for _, _, page in pymupdf.open("pdf", result.data).get_toc()] == list(range(1, 21))


def test_outlines() -> None:
    away = Dictionary(S=Name.URI, URI=String("https://example.com/"))
    remote = Dictionary(S=Name.GoToR, F=String("other.pdf"), D=Array([3, Name.Fit]))
    first = pdf.document("A", 2, pdf.outline(("A1", 0, False, [("A2", 1, True, [])]), ("Web", away, True, [])))
    second = pdf.document(
        "B", 3, pdf.named("spot", 2), pdf.outline(("B", "spot", True, [("B2", 1, True, [])]), ("R", remote, True, []))
    )

    data = pdf.merge(first, second).data

    found = [(level, title, page) for level, title, page, *_ in pymupdf.open("pdf", data).get_toc()]
    assert found == [(1, "A1", 1), (2, "A2", 2), (1, "Web", -1), (1, "B", 5), (2, "B2", 4), (1, "R", -1)]
    read = pdf.opened(data)
    root = read.Root.Outlines
    items = [root.First, root.First.Next, root.First.Next.Next, root.Last]
    assert [int(item.get("/Count", 0)) for item in items] == [-1, 0, 1, 0]
    assert root.Count == 5
    assert all(item.C == [1, 0, 0] and item.F == 2 and item.Parent == root for item in items)
    assert [str(items[1].A.URI), str(items[3].A.F), int(items[3].A.D[0])] == ["https://example.com/", "other.pdf", 3]


def test_links_and_names_refer_to_pages_of_their_own_document() -> None:
    to_name = [pdf.link(0, Dest=name) for name in (String("spot"), Name.spot)]
    inputs = [pdf.document(name, 2, pdf.named("spot", 1), pdf.link(0, to=1), *to_name) for name in "AB"]

    data = pdf.merge(*inputs).data

    read = pymupdf.open("pdf", data)
    assert [[one["page"] for one in read[index].get_links()] for index in (0, 2)] == [[1, 1, 1], [3, 3, 3]]
    found = pdf.opened(data)
    tree = dict(zip(*[iter(found.Root.Names.Dests.Names)] * 2, strict=True))
    assert [str(name) for name in tree] == ["spot", "spot (2)"]


def test_links_to_web_pages_and_page_numbers() -> None:
    web = pdf.link(0, A=Dictionary(S=Name.URI, URI=String("https://example.com/")))
    linking = pdf.document("B", 2, pdf.link(0, Dest=Array([1, Name.Fit])), web)

    read = pymupdf.open("pdf", pdf.merge(pdf.document("A", 3), linking).data)

    to_page, to_web = read[3].get_links()
    assert (to_page["page"], to_web["uri"]) == (4, "https://example.com/")


def test_fields_of_the_same_name_keep_their_values() -> None:
    other_font = pdf.document(
        "B", 1, pdf.field(0, "name", String("Bob"), DA=String("/Helv 12 Tf")), pdf.field(0, "b", String("b"))
    )
    third = pdf.opened(other_font)
    third.Root.AcroForm.DR.Font.Helv.BaseFont = Name("/Times-Roman")
    third.Root.AcroForm.NeedAppearances = True

    data = pdf.merge(pdf.document("A", 1, pdf.field(0, "name", String("Ann"))), other_font, pdf.saved(third)).data

    widgets = [widget for page in pymupdf.open("pdf", data) for widget in page.widgets()]
    assert [(w.field_name, w.field_value) for w in widgets] == [
        ("name", "Ann"), ("name (2)", "Bob"), ("b", "b"), ("name (3)", "Bob"), ("b (2)", "b"),
    ]  # fmt: skip
    found = pdf.opened(data)
    form = found.Root.AcroForm
    assert [one.objgen for one in form.CO] == [one.objgen for one in form.Fields]
    fonts = {name: str(font.BaseFont) for name, font in form.DR.Font.items()}
    assert fonts == {"/Helv": "/Courier", "/Helv_2": "/Times-Roman"}
    assert [str(one.get("/DA")) for one in form.Fields][3:] == ["/Helv_2 12 Tf", "/Helv_2 9 Tf 0 g"]
    assert bool(form.NeedAppearances)


def _choices(made: Pdf) -> None:
    """A group of two radio buttons, the second chosen, and a ticked box."""
    pdf.field(0, "box", Name.Yes, FT=Name.Btn, AS=Name.Yes)(made)
    group = made.make_indirect(Dictionary(FT=Name.Btn, Ff=1 << 15, T=String("group"), V=Name.two, Kids=Array()))
    for state in ("/one", "/two"):
        look = made.make_stream(b"0 0 10 10 re f", Type=Name.XObject, Subtype=Name.Form, BBox=[0, 0, 10, 10])
        looks = Dictionary(N=Dictionary({state: look, "/Off": look}))
        chosen = Name(state if state == "/two" else "/Off")
        widget = Dictionary(Type=Name.Annot, Subtype=Name.Widget, Rect=[0, 0, 9, 9], AS=chosen, AP=looks, Parent=group)
        group.Kids.append(pdf.annotate(made, 0, widget))
    made.Root.AcroForm.Fields.append(group)


def test_check_boxes_and_radio_buttons() -> None:
    data = pdf.merge(pdf.document("A", 1, _choices), pdf.document("B", 1, _choices)).data

    found = pdf.opened(data)
    fields = found.Root.AcroForm.Fields
    assert [(str(one.T), str(one.V)) for one in fields] == [
        ("box", "/Yes"), ("group", "/two"), ("box (2)", "/Yes"), ("group (2)", "/two"),
    ]  # fmt: skip
    assert [[str(kid.AS) for kid in fields[index].Kids] for index in (1, 3)] == [["/Off", "/two"]] * 2
    assert {kid.P.objgen for kid in fields[3].Kids} == {found.pages[1].obj.objgen}


def _roman(made: Pdf) -> None:
    made.Root.PageLabels = Dictionary(
        Nums=Array([0, Dictionary(S=Name.r), 2, Dictionary(S=Name.D, P=String("x"), St=7)])
    )


def test_page_labels() -> None:
    data = pdf.merge(pdf.document("A", 2), pdf.document("B", 4, _roman), pdf.document("C", 2)).data

    read = pymupdf.open("pdf", data)
    assert [page.get_label() for page in read] == ["1", "2", "i", "ii", "x7", "x8", "1", "2"]


_FACTS = {"filename": "note.txt", "description": "", "mime_type": "", "creation_date": "", "mod_date": ""}


def _attached(content: bytes) -> pikepdf.Pdf:
    made = pdf.opened(pdf.document("A", 1))
    made.attachments["note.txt"] = pikepdf.AttachedFileSpec(made, content, **_FACTS)
    return made


def test_attachments_of_the_same_name_are_renamed() -> None:
    read = pymupdf.open("pdf", pdf.merge(pdf.saved(_attached(b"first")), pdf.saved(_attached(b"second"))).data)

    assert [read.embfile_get(name) for name in read.embfile_names()] == [b"first", b"second"]


def _layers(made: Pdf) -> None:
    shown, hidden = (made.make_indirect(Dictionary(Type=Name.OCG, Name=String(name))) for name in ("shown", "hidden"))
    usual = Dictionary(OFF=Array([hidden]), Order=Array([shown, hidden]))
    made.Root.OCProperties = Dictionary(OCGs=Array([shown, hidden]), D=usual)


def _usually_hidden(made: Pdf) -> None:
    _layers(made)
    made.Root.OCProperties.D = Dictionary(BaseState=Name.OFF, ON=Array([made.Root.OCProperties.OCGs[0]]))


@pytest.mark.parametrize("kinds", [(_layers, _usually_hidden), (_usually_hidden, _layers)])
def test_hidden_layers_remain_hidden(kinds: tuple[object, object]) -> None:
    data = pdf.merge(*(pdf.document("A", 1, kind) for kind in kinds)).data  # type: ignore[arg-type]

    found = pdf.opened(data)
    layers, usual = list(found.Root.OCProperties.OCGs), found.Root.OCProperties.D
    on, off = ({layer.objgen for layer in usual.get(key) or ()} for key in ("/ON", "/OFF"))
    all_off = usual.get("/BaseState") == Name.OFF
    hidden = [layer.objgen in off or (all_off and layer.objgen not in on) for layer in layers]
    assert [(str(layer.Name), out) for layer, out in zip(layers, hidden, strict=True)] == [
        ("shown", False), ("hidden", True), ("shown", False), ("hidden", True),
    ]  # fmt: skip


def test_structure() -> None:
    found = pdf.opened(pdf.merge(pdf.document("A", 2, pdf.tagged), pdf.document("B", 2, pdf.tagged)).data)

    root = found.Root.StructTreeRoot
    numbers = list(root.ParentTree.Nums)
    parents = {int(key): value for key, value in zip(numbers[::2], numbers[1::2], strict=True)}
    assert len(root.K) == 4
    for page, element in zip(found.pages, root.K, strict=True):
        assert element.Pg.objgen == page.obj.objgen
        assert parents[int(page.obj.StructParents)][0].objgen == element.objgen
        assert element.P.objgen == root.objgen


def _described(made: Pdf) -> None:
    made.docinfo.Title = String("First")
    made.Root.Lang = String("de")
    made.Root.PageMode = Name.UseOutlines
    made.Root.ViewerPreferences = Dictionary(DisplayDocTitle=True)
    made.Root.OpenAction = pdf.at(made, 1)
    made.Root.Metadata = made.make_stream(
        b"<x:xmpmeta xmlns:x='adobe:ns:meta/'/>", Type=Name.Metadata, Subtype=Name.XML
    )
    made.pages[0].obj.Rotate, made.pages[0].obj.CropBox = 90, Array([10, 10, 100, 100])


def test_document_entries_are_those_of_the_first_document() -> None:
    found = pdf.opened(pdf.merge(pdf.document("A", 2, _described), pdf.document("B", 1)).data)

    root = found.Root
    assert (str(found.docinfo.Title), str(root.Lang), root.PageMode) == ("First", "de", Name.UseOutlines)
    assert bool(root.ViewerPreferences.DisplayDocTitle)
    assert root.OpenAction[0].objgen == found.pages[1].obj.objgen
    assert b"xmpmeta" in root.Metadata.read_bytes()
    page = found.pages[0].obj
    assert (int(page.Rotate), [int(edge) for edge in page.CropBox]) == (90, [10, 10, 100, 100])


@pytest.mark.parametrize("locked", [0, 1])
@pytest.mark.parametrize("password", ["user", "owner"])
def test_encryption_is_dropped_with_a_warning(password: str, locked: int) -> None:
    inputs = [pdf.document("A", 1), pdf.document("B", 1)]
    plain = pdf.opened(inputs[locked])
    inputs[locked] = pdf.saved(plain, encryption=pikepdf.Encryption(user="user", owner="owner"))

    result = pdf.merge(*inputs, password=password)

    assert [warned.code for warned in result.outcome.warnings] == ["encryption_dropped"]
    assert pdf.page_texts(result.data) == ["A page 1", "B page 1"]
    with pdf.opened(result.data) as merged:
        assert not merged.is_encrypted


@pytest.mark.parametrize("bad", [pdf.document("B", 3)[:700], b"%PDF-1.7\n", pdf.saved(Pdf.new())])
def test_the_error_names_the_corrupt_file(bad: bytes) -> None:
    with pytest.raises(ConversionError) as raised:
        pdf.merge(pdf.document("A", 1), bad)

    assert (raised.value.reason, raised.value.details["index"]) == ("corrupt_input", 1)


def test_a_image_is_refused() -> None:
    with pytest.raises(ConversionError) as raised:
        pdf.REGISTRY.plan([pdf.REGISTRY.formats[name] for name in ("pdf", "jpeg")], "pdf", "pdf-merge")

    assert (raised.value.code, raised.value.reason) == ("invalid_file_type", "not_a_pdf")
    assert raised.value.details["index"] == 1


@pytest.mark.parametrize("count", [2**31 - 1, -5, 1])
def test_a_wrong_number_of_pages_is_corrected(count: int) -> None:
    wrong = flat_pdf(3).replace(b"/Count 3", b"/Count %d" % count)

    for result in (pdf.merge(wrong, pdf.document("A", 1)), pdf.merge(pdf.document("A", 1), wrong)):
        assert len(pypdfium2.PdfDocument(result.data)) == 4
        assert [warned.code for warned in result.outcome.warnings] == ["repaired"]


def test_too_many_pages_are_refused() -> None:
    with pytest.raises(ConversionError) as raised:
        pdf.merge(flat_pdf(5000), flat_pdf(5001))

    assert (raised.value.code, raised.value.reason) == ("file_too_large", "pages")
    assert raised.value.details == {"max_pages": 10_000, "pages": 10_001}
