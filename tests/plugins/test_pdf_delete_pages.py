"""Deleting pages removes their content and references; the others are kept, and what is lost is told."""

from collections.abc import Callable
from io import BytesIO

import pikepdf
import pytest
from pikepdf import Array, Dictionary, Name, Pdf, Stream, String

from engine import ConversionError
from engine.mupdf import pymupdf
from tests.support.results.conversions import codes, convert
from tests.support.samples.pdf_documents import (
    Item,
    at,
    contents,
    delete,
    document,
    field,
    link,
    named,
    opened,
    outline,
    page_texts,
    saved,
    tagged,
)

_LOOKS = ["png", "jpeg", "tiff", "svg", "eps"]


def _plain(data: bytes) -> bytes:
    """All bytes of the file, uncompressed."""
    found = opened(data)
    return saved(
        found,
        compress_streams=False,
        stream_decode_level=pikepdf.StreamDecodeLevel.generalized,
        object_stream_mode=pikepdf.ObjectStreamMode.disable,
    )


@pytest.mark.parametrize(("pages", "left"), [("2", [1, 3, 4]), ("1,3-4", [2]), ("4, 4 ,1", [2, 3])])
def test_the_other_pages_are_kept(pages: str, left: list[int]) -> None:
    result = delete(document("A", 4), pages)

    assert page_texts(result.data) == [f"A page {number}" for number in left]
    assert (result.outcome.original_page_count, result.outcome.page_count) == (4, len(left))
    assert sorted([*(result.outcome.deleted_pages or ()), *left]) == [1, 2, 3, 4]
    assert result.outcome.warnings == ()


def _secrets(made: Pdf) -> None:
    """A document with all kinds of references to its second page, and form XObjects shared by all pages."""
    tagged(made)
    form = made.make_stream(b"BT /F1 9 Tf (secret form) Tj ET", Type=Name.XObject, Subtype=Name.Form, BBox=[0, 0, 9, 9])
    resources = made.make_indirect(made.pages[0].obj.Resources)
    resources.XObject = Dictionary(Secret=form)
    for page in made.pages:
        page.obj.Resources = resources
    made.pages[1].contents_add(b"/Secret Do")
    field(1, "f", String("secret value"), Contents=String("secret tip"))(made)
    made.Root.Names = Dictionary(Templates=Dictionary(Names=Array([String("secret"), made.pages[1].obj])))
    made.Root.OpenAction = Dictionary(S=Name.GoTo, D=at(made, 1))
    made.Root.Threads = Array([made.make_indirect(Dictionary(Type=Name.Thread))])
    beads = [made.make_indirect(Dictionary(P=made.pages[number].obj)) for number in (0, 1, 2)]
    for before, bead in zip([beads[-1], *beads], beads, strict=False):
        before.N, bead.V = bead, before
    made.Root.Threads[0].F = beads[1]


def test_no_content_of_a_deleted_page_remains_in_the_file() -> None:
    whole = document("A", 3, _secrets)
    for text in (b"A page 2", b"secret", b"spoken 2"):
        assert text in _plain(whole)

    data = delete(whole, "2").data

    found = _plain(data)
    for text in (b"A page 2", b"secret", b"spoken 2"):
        assert text not in found
    assert all(text in found for text in (b"A page 1", b"spoken 3"))
    read = opened(data)
    assert "/OpenAction" not in read.Root
    assert "/AcroForm" not in read.Root
    bead = read.Root.Threads[0].F
    assert [bead.N.P.objgen, bead.P.objgen] == [read.pages[0].obj.objgen, read.pages[1].obj.objgen]
    assert bead.N.N.objgen == bead.objgen
    assert [element.Pg.objgen for element in read.Root.StructTreeRoot.K] == [page.obj.objgen for page in read.pages]


def test_outlines() -> None:
    gone: Item = ("gone", 1, True, [("below", 1, True, [])])
    below: list[Item] = [("living", 2, True, []), ("dead", "spot", True, [])]
    parent: Item = ("parent", 1, False, below)
    group: Item = ("group", None, False, below)
    data = delete(document("A", 3, named("spot", 1), outline(("first", 0, True, []), gone, parent, group)), "2").data

    found = [(level, title, page) for level, title, page, *_ in pymupdf.open("pdf", data).get_toc()]
    assert found == [(1, "first", 1), (1, "living", 2), (1, "group", -1), (2, "living", 2)]
    read = opened(data)
    last = read.Root.Outlines.Last
    assert [int("/Dest" in last), int("/A" in last), int(last.Count), int(read.Root.Outlines.Count)] == [0, 0, -1, 3]


def test_links_and_names() -> None:
    extras = (named("dead", 1), named("alive", 2), link(0, to=1), link(0, to=2), link(0, Dest=String("dead")))
    action = Dictionary(S=Name.GoTo, D=String("alive"))
    web = Dictionary(S=Name.URI, URI=String("https://example.com/"))

    result = delete(document("A", 3, *extras, link(0, A=action), link(0, A=web), link(0, Dest=Name.dead)), "2")

    data = result.data
    assert [warned.code for warned in result.outcome.warnings] == ["links_dropped"]
    assert [one.get("page", one.get("uri")) for one in pymupdf.open("pdf", data)[0].get_links()] == [
        1, 1, "https://example.com/",
    ]  # fmt: skip
    read = opened(data)
    assert [str(name) for name in read.Root.Names.Dests.Names[::2]] == ["alive"]
    assert list(read.Root.Dests) == ["/alive"]


def test_fields() -> None:
    data = delete(document("A", 2, field(0, "gone", String("x")), field(1, "kept", String("value"))), "1").data

    (page,) = pymupdf.open("pdf", data)
    assert [(widget.field_name, widget.field_value) for widget in page.widgets()] == [("kept", "value")]
    read = opened(data)
    assert [str(one.T) for one in read.Root.AcroForm.CO] == ["kept"]


def test_labels_are_kept_with_their_pages() -> None:
    def roman(made: Pdf) -> None:
        made.Root.PageLabels = Dictionary(Nums=Array([0, Dictionary(S=Name.r), 3, Dictionary(S=Name.D, P=String("x"))]))

    read = pymupdf.open("pdf", delete(document("A", 5, roman), "2,4").data)

    assert [page.get_label() for page in read] == ["i", "iii", "x2"]


@pytest.mark.parametrize("password", [None, "user"])
@pytest.mark.parametrize("strength", [4, 6])
def test_encryption_is_kept(password: str | None, strength: int) -> None:
    allowed = pikepdf.Permissions(extract=False)
    lock = pikepdf.Encryption(user=password or "", owner="owner", R=strength, allow=allowed)  # type: ignore[arg-type]
    whole = pikepdf.open(BytesIO(document("A", 2)))

    data = delete(saved(whole, encryption=lock), "1", password).data

    read = opened(data, password or "")
    assert (read.is_encrypted, read.allow.extract, read.encryption.R) == (True, False, strength)
    assert opened(data, "owner").owner_password_matched
    if password:
        with pytest.raises(pikepdf.PasswordError):
            pikepdf.open(BytesIO(data))


def test_signatures_are_removed() -> None:
    def signed(made: Pdf) -> None:
        field(0, "sign", Dictionary(Type=Name.Sig, Contents=String("signed")), FT=Name.Sig)(made)
        made.Root.AcroForm.SigFlags = 3
        made.Root.Perms = Dictionary(DocMDP=made.Root.AcroForm.Fields[0].V)

    result = delete(document("A", 2, signed), "2")

    assert [warned.code for warned in result.outcome.warnings] == ["signature_invalidated"]
    read = opened(result.data)
    assert "/Perms" not in read.Root
    assert "/SigFlags" not in read.Root.AcroForm
    assert "/V" not in read.Root.AcroForm.Fields[0]


@pytest.mark.parametrize("pages", ["4", "all", "1-999999999", "1-3", "3,1,2"])
def test_pages_that_cannot_be_deleted(pages: str) -> None:
    with pytest.raises(ConversionError) as raised:
        delete(document("A", 3), pages)

    assert (raised.value.code, raised.value.param) == ("invalid_parameter", "pages")
    assert raised.value.details["page_count"] == 3


@pytest.mark.parametrize("strength", [4, 6])
def test_an_empty_owner_password_does_not_open_the_file(strength: int) -> None:
    lock = pikepdf.Encryption(user="user", owner="", R=strength)  # type: ignore[arg-type]
    data = saved(pikepdf.open(BytesIO(document("A", 2))), encryption=lock)

    with pytest.raises(ConversionError) as refused:
        delete(data, "1")

    assert refused.value.reason == "pdf_encrypted"
    assert len(opened(delete(data, "1", "user").data, "user").pages) == 1


def test_one_image_of_twenty_is_left() -> None:
    def images(made: Pdf) -> None:
        contents("form")(made)
        for image in [*made.pages[0].obj.Resources.XObject.Fo.Resources.XObject.as_dict().values()]:
            image.Subtype, image.Width, image.Height = Name.Image, 1, 1

    data = document("A", 20, images)

    with pikepdf.open(BytesIO(delete(data, "2-20").data)) as read:
        assert sum(isinstance(one, Stream) and one.get("/Subtype") == Name.Image for one in read.objects) == 1


def test_the_page_tree_as_form_fields() -> None:
    def broken(made: Pdf) -> None:
        made.Root.AcroForm = Dictionary(Fields=Array([made.Root, made.Root.Pages, made.pages[0].obj]))

    assert page_texts(delete(document("A", 3, broken), "2").data) == ["A page 1", "A page 3"]


def _document() -> pymupdf.Document:
    """Four pages with text."""
    document = pymupdf.open()
    for number in range(1, 5):
        document.new_page(width=200, height=100).insert_text((10, 50), f"page {number}")
    return document


def _link(document: pymupdf.Document, page: int, target: int) -> None:
    area = pymupdf.Rect(10, 10, 50, 20)
    document[page].insert_link({"kind": pymupdf.LINK_GOTO, "from": area, "page": target, "to": pymupdf.Point(0, 0)})


def _attach(document: pymupdf.Document) -> None:
    document.embfile_add("data.csv", b"1,2,3")


def _attach_to_page(document: pymupdf.Document) -> None:
    document[0].add_file_annot((10, 10), b"1,2,3", "data.csv")


def _add_link(document: pymupdf.Document) -> None:
    area = pymupdf.Rect(10, 10, 50, 20)
    document[0].insert_link({"kind": pymupdf.LINK_URI, "from": area, "uri": "https://example.org"})


def _add_field(document: pymupdf.Document, page: int = 0) -> None:
    widget = pymupdf.Widget()
    widget.field_name, widget.field_type, widget.field_value = f"name{page}", pymupdf.PDF_WIDGET_TYPE_TEXT, "Ada"
    widget.rect = pymupdf.Rect(10, 60, 90, 80)
    document[page].add_widget(widget)


@pytest.mark.parametrize("target", _LOOKS)
@pytest.mark.parametrize(
    ("add", "code"),
    [
        (_attach, "attachments_dropped"),
        (_attach_to_page, "attachments_dropped"),
        (_add_link, "links_dropped"),
        (_add_field, "forms_dropped"),
    ],
)
def test_a_image_of_a_page_loses(target: str, add: Callable[[pymupdf.Document], None], code: str) -> None:
    document = _document()
    document.select([0])
    add(document)
    data = bytes(document.tobytes())
    assert codes(convert(data, target)) == {code}
    assert codes(convert(data, "pdf")) == set()


@pytest.mark.parametrize("target", _LOOKS)
def test_a_plain_page_loses_nothing(target: str) -> None:
    dropped = set() if target == "tiff" else {"pages_dropped"}
    assert codes(convert(bytes(_document().tobytes()), target)) == dropped
    assert codes(convert(bytes(_document().tobytes()), target, pages="2")) == set()


@pytest.mark.parametrize("target", ["png", "svg"])
def test_only_pages_that_are_converted_count(target: str) -> None:
    document = _document()
    _add_link(document)
    data = bytes(document.tobytes())
    assert codes(convert(data, target, pages="2")) == set()
    assert codes(convert(data, target, pages="1")) == {"links_dropped"}
    assert codes(convert(data, target, pages="1-2")) == {"links_dropped"}


@pytest.mark.parametrize("target", ["png", "svg", "tiff"])
def test_a_result_without_encryption(target: str) -> None:
    encryption = {"encryption": pymupdf.PDF_ENCRYPT_AES_256, "owner_pw": "owner"}
    data = bytes(_document().tobytes(**encryption, user_pw="secret"))
    result = convert(data, target, password="secret", pages="1")
    assert codes(result) == {"encryption_dropped"}
    assert result.data == convert(bytes(_document().tobytes()), target, pages="1").data
    assert codes(convert(bytes(_document().tobytes(**encryption)), target, pages="1")) == {"encryption_dropped"}
    kept = convert(data, "pdf", password="secret", pages="1")
    assert codes(kept) == set()
    assert pymupdf.open(stream=kept.data).needs_pass


def test_selected_pages_keep_what_refers_to_them() -> None:
    document = _document()
    for page, target in ((0, 1), (1, 3), (3, 0)):
        _link(document, page, target)
    _attach(document)
    _add_field(document, 0)
    _add_field(document, 2)
    document.set_toc([[1, "one", 1], [2, "two", 2], [1, "three", 3], [1, "four", 4]])
    document.set_page_labels([{"startpage": 0, "prefix": "A-", "style": "D", "firstpagenum": 1}])
    result = convert(bytes(document.tobytes()), "pdf", pages="1,4")
    kept = pymupdf.open(stream=result.data)
    assert [page.get_text().strip() for page in kept] == ["page 1\nAda", "page 4"]
    assert kept.get_toc() == [[1, "one", 1], [1, "four", 2]]
    assert [[link["page"] for link in page.get_links()] for page in kept] == [[], [0]]
    assert [page.get_label() for page in kept] == ["A-1", "A-4"]
    assert kept.embfile_get("data.csv") == b"1,2,3"
    assert [widget.field_name for page in kept for widget in page.widgets()] == ["name0"]
    assert codes(result) == {"links_dropped"}  # from the first page to the second
    assert b"page 2" not in result.data
    whole = convert(bytes(document.tobytes()), "pdf", pages="all")
    assert codes(whole) == set()
    assert len(pymupdf.open(stream=whole.data).get_toc()) == 4
    assert pymupdf.open(stream=whole.data).embfile_names() == ["data.csv"]


def test_links_between_selected_pages_are_no_loss() -> None:
    document = _document()
    _link(document, 1, 2)
    _link(document, 2, 1)
    document.set_toc([[1, "two", 2]])
    result = convert(bytes(document.tobytes()), "pdf", pages="2-3")
    assert codes(result) == set()
    kept = pymupdf.open(stream=result.data)
    assert [[link["page"] for link in page.get_links()] for page in kept] == [[1], [0]]


def test_a_selection_of_a_repaired_file() -> None:
    document = _document()
    document.set_toc([[1, "one", 1], [1, "two", 2]])
    data, _, _ = bytes(document.tobytes(use_objstms=0)).rpartition(b"startxref")
    result = convert(data + b"startxref\n7\n%%EOF\n", "pdf", pages="2")
    assert codes(result) == {"repaired"}
    assert pymupdf.open(stream=result.data).get_toc() == [[1, "two", 1]]
