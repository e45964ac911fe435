"""Pages that are extracted, and files that are split, with what belongs to their pages; and encryption."""

from io import BytesIO
from time import sleep
from typing import Any

import pikepdf
import pypdfium2
import pytest
from pikepdf import Array, Dictionary, Name, Pdf, String

from engine import ConversionError, InvalidOption
from engine.mupdf import pymupdf
from tests.support.results.conversions import ToolRun, codes, convert, run_tool
from tests.support.samples.generated import sample
from tests.support.samples.pdf_documents import (
    annotate,
    at,
    delete,
    document,
    field,
    link,
    merge,
    named,
    opened,
    outline,
    page_texts,
    saved,
    tagged,
)

_DATA = document("A", 2)


def _split(data: bytes, **options: Any) -> list[bytes]:
    return [*run_tool("pdf-split", data, **options).files.values()]


def test_a_repeated_run_makes_the_same_bytes() -> None:
    first = _split(_DATA, every=1), run_tool("pdf-merge", _DATA, _DATA).data
    sleep(1.1)  # an id made of the time would be another one
    assert first == (_split(_DATA, every=1), run_tool("pdf-merge", _DATA, _DATA).data)


def _extract(data: bytes, pages: str) -> ToolRun:
    return run_tool("pdf-extract-pages", data, pages=pages)


def _toc(data: bytes) -> list[tuple[int, str, int]]:
    return [(level, title, page) for level, title, page, *_ in pymupdf.open(stream=data).get_toc()]


@pytest.mark.parametrize(
    ("pages", "expected"),
    [("3,1,1,5-", [3, 1, 1, 5, 6]), ("all", [1, 2, 3, 4, 5, 6]), (" 2 - 3 ,6", [2, 3, 6]), ('[6, "1-2"]', [6, 1, 2])],
)
def test_pages_are_extracted_in_the_given_order(pages: str, expected: list[int]) -> None:
    result = _extract(document("A", 6), pages)

    assert page_texts(result.data) == [f"A page {number}" for number in expected]
    assert (result.outcome.page_count, result.outcome.original_page_count) == (len(expected), 6)
    opened(result.data)


@pytest.mark.parametrize("pages", ["", "0", "7", "3-1", "1,,2", "-2", "x", "1-6,7", "all,9", "1;2"])
def test_pages_that_cannot_be_extracted(pages: str) -> None:
    with pytest.raises(ConversionError) as raised:
        _extract(document("A", 6), pages)

    assert (raised.value.code, raised.value.param) == ("invalid_parameter", "pages")


def test_very_many_repeated_pages_are_refused() -> None:
    with pytest.raises(ConversionError) as raised:
        _extract(document("A", 200), ",".join(["1-200"] * 51))

    assert raised.value.param == "pages"


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"every": 4}, [[1, 2, 3, 4], [5, 6]]),
        ({"every": 9}, [[1, 2, 3, 4, 5, 6]]),
        ({"pages": "4-;1,1;2"}, [[4, 5, 6], [1, 1], [2]]),
        ({"pages": '["4-", "1,1", 2]'}, [[4, 5, 6], [1, 1], [2]]),
        ({"bookmarks": True}, [[1], [2, 3], [4, 5, 6]]),
    ],
)
def test_a_file_for_each_part(options: dict[str, Any], expected: list[list[int]]) -> None:
    chapters = outline(("B / 2", 3, True, []), ("A: 1", 1, True, [("A.1", 2, True, [])]), ("Again", 3, True, []))

    result = run_tool("pdf-split", document("A", 6, chapters), **options)

    assert [page_texts(data) for data in result.files.values()] == [
        [f"A page {number}" for number in numbers] for numbers in expected
    ]
    assert (result.outcome.container, result.outcome.file_count) == ("zip", len(expected))
    if "bookmarks" in options:
        assert [*result.files] == ["01.pdf", "02-A: 1.pdf", "03-B / 2.pdf"]


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({}, "missing"),
        ({"every": 1, "bookmarks": True}, "exclusive"),
        ({"bookmarks": True}, "nothing_found"),
        ({"pages": "1;;2"}, "malformed"),
        ({"pages": "1;9"}, "out_of_range"),
        ({"max_bytes": 1000}, "target_unreachable"),
    ],
)
def test_requests_that_split_nothing(options: dict[str, Any], reason: str) -> None:
    large = document("A", 2, _fill)
    with pytest.raises(ConversionError) as raised:
        _split(large, **options)

    assert raised.value.reason == reason


def _fill(made: Pdf) -> None:
    """Content of some kilobytes for the second page."""
    text = b"".join(b"BT /F1 9 Tf (%d) Tj ET " % (number * 7919 % 10_007) for number in range(900))
    made.pages[1].obj.Contents = made.make_stream(text)


def test_files_are_as_large_as_the_limit_allows() -> None:
    data = document("A", 9)
    limit = 1600

    parts = _split(data, max_bytes=limit)

    counts = [len(opened(part).pages) for part in parts]
    assert sum(counts) == 9
    assert max(counts) > 1
    assert all(len(part) <= limit for part in parts)
    first = 1
    for count in counts[:-1]:
        one_more = _extract(data, f"{first}-{first + count}").data
        assert len(one_more) > limit
        first += count


def test_links_that_are_lost_are_told_for_files_of_a_size() -> None:
    data = document("A", 9, link(0, to=8))

    assert run_tool("pdf-split", data, max_bytes=1600).codes == {"links_dropped"}
    assert run_tool("pdf-split", data, max_bytes=100_000).codes == set()


def test_a_merge_of_a_split_is_the_document() -> None:
    items = outline(
        ("One", 0, True, [("In", 1, True, [("Deep", 1, True, [])])]), ("Two", 2, False, [("Sub", 3, True, [])])
    )
    data = document("A", 4, items, tagged, field(1, "name", String("Ann")), link(2, to=3))

    merged = merge(*_split(data, every=2)).data

    with pymupdf.open(stream=data) as before, pymupdf.open(stream=merged) as after:
        assert [page.get_pixmap().samples for page in before] == [page.get_pixmap().samples for page in after]
        assert [[one["page"] for one in page.get_links()] for page in after] == [[], [], [3], []]
        assert [widget.field_name for page in after for widget in page.widgets()] == ["name"]
    assert _toc(merged) == _toc(data)
    assert len(opened(merged).Root.StructTreeRoot.K) == 4


def test_outlines_follow_their_pages() -> None:
    away = Dictionary(S=Name.URI, URI=String("https://example.com/"))
    inner: list[Any] = [("One", 0, False, [("Two", 1, True, []), ("Three", 2, True, [])]), ("Web", away, True, [])]
    items = outline(("Part", None, True, inner), ("End", 3, True, []))

    first, second = _split(document("A", 4, items), every=2)

    assert _toc(first) == [(1, "Part", -1), (2, "One", 1), (3, "Two", 2)]
    assert _toc(second) == [(1, "Part", -1), (2, "Three", 1), (2, "Web", -1), (1, "End", 2)]
    read = opened(first)
    root = read.Root.Outlines
    assert [int(item.Count) for item in (root, root.First, root.First.First)] == [2, 1, -1]


def test_links_and_names_of_other_pages_are_removed() -> None:
    links = [link(0, to=1), link(0, to=3), link(0, Dest=String("spot")), link(0, Dest=String("none"))]
    data = document("A", 4, named("spot", 2), *links)

    result = run_tool("pdf-split", data, every=2)

    first, second = (opened(data) for data in result.files.values())
    kept = [one.Dest for one in first.pages[0].Annots]
    assert [str(one) if isinstance(one, String) else "page" for one in kept] == ["page", "none"]
    assert result.codes == {"links_dropped"}
    assert "/Dests" not in (first.Root.get("/Names") or {})
    assert str(second.Root.Names.Dests.Names[0]) == "spot"
    assert not any(b"A page 3" in item.read_bytes() for item in first.objects if isinstance(item, pikepdf.Stream))


def test_repeated_pages_have_fields_of_their_own() -> None:
    data = document("A", 2, field(0, "name", String("Ann")), link(1, to=0), _group)

    with pymupdf.open(stream=_extract(data, "1,2,1").data) as read:
        names = [[widget.field_name for widget in page.widgets()] for page in read]
        assert names == [["name", "group.a"], ["group.b"], ["name (2)", "group (2).a"]]
        assert [one["page"] for one in read[1].get_links()] == [0]


def _group(made: Pdf) -> None:
    """A field with a field on each of the first two pages."""
    group = made.make_indirect(Dictionary(T=String("group"), FT=Name.Tx, Kids=Array()))
    for index, name in enumerate("ab"):
        widget = Dictionary(Type=Name.Annot, Subtype=Name.Widget, Rect=[0, 0, 9, 9], T=String(name), Parent=group)
        group.Kids.append(annotate(made, index, widget))
    made.Root.AcroForm.Fields.append(group)


def test_a_part_has_only_fields_of_its_pages() -> None:
    data = document("A", 3, field(2, "last", String("secret")), _group)

    read = [opened(part) for part in _split(data, every=1)]
    first, second, third = (part.Root for part in read)

    found = [[str(one.T) for one in part.AcroForm.Fields] for part in (first, second, third)]
    assert found == [["group"], ["group"], ["last"]]
    assert [str(one.T) for one in first.AcroForm.Fields[0].Kids] == ["a"]
    assert third.AcroForm.CO[0].objgen == third.AcroForm.Fields[0].objgen
    assert "/CO" not in first.AcroForm


def test_labels_and_layers_stay_with_their_pages() -> None:
    def add(made: Pdf) -> None:
        layers = [made.make_indirect(Dictionary(Type=Name.OCG, Name=String(name))) for name in ("one", "two", "three")]
        for page, layer in zip(made.pages, layers, strict=True):
            page.obj.Resources.Properties = Dictionary(L=layer)
            page.contents_add(b"/OC /L BDC EMC")
        usual = Dictionary(OFF=Array([layers[1]]), Order=Array([layers[2], Array([layers[0]])]))
        made.Root.OCProperties = Dictionary(OCGs=Array(layers), D=usual)
        made.Root.PageLabels = Dictionary(Nums=Array([0, Dictionary(S=Name.r, St=4), 2, Dictionary(P=String("x"))]))

    parts = _split(document("A", 3, add), every=1)

    assert [pymupdf.open(stream=part)[0].get_label() for part in parts] == ["iv", "v", "x"]
    read = [opened(part) for part in parts]
    found = [part.Root.OCProperties for part in read]
    assert [[str(layer.Name) for layer in one.OCGs] for one in found] == [["one"], ["two"], ["three"]]
    assert [len(one.D.get("/OFF", [])) for one in found] == [0, 1, 0]
    assert [len(one.D.get("/Order", [])) for one in found] == [1, 0, 1]
    assert [layer.keys() for one in found for layer in one.OCGs] == [{"/Type", "/Name"}] * 3


def test_structure_of_a_part_has_no_text_of_other_pages() -> None:
    def spread(made: Pdf) -> None:
        """A paragraph on the first two pages."""
        tagged(made)
        root = made.Root.StructTreeRoot
        reference = Dictionary(Type=Name.MCR, Pg=made.pages[1].obj, MCID=1)
        root.K[0].K = Array([0, reference])

    read = [opened(part) for part in _split(document("A", 2, spread), every=1)]
    first, second = (part.Root for part in read)

    assert [len(part.StructTreeRoot.K) for part in (first, second)] == [1, 2]
    with opened(delete(document("A", 2, spread), "1").data) as left:
        assert "/Pg" not in left.Root.StructTreeRoot.K[0]
    assert "/ActualText" not in first.StructTreeRoot.K[0]
    assert [str(one.get("/ActualText", "")) for one in second.StructTreeRoot.K] == ["", "spoken 2"]
    for part in (first, second):
        element = part.StructTreeRoot.K[-1]
        assert element.Pg.objgen == part.Pages.Kids[0].objgen
        assert part.StructTreeRoot.ParentTree.Nums[1][0].objgen == element.objgen


def test_resources_that_pages_share_do_not_lead_to_other_pages() -> None:
    def share(made: Pdf) -> None:
        forms = {}
        for index, page in enumerate(made.pages):
            font = page.obj.Resources.Font
            inner = made.make_stream(
                b"BT /F1 9 Tf (inner %d) Tj ET" % index, Type=Name.XObject, Subtype=Name.Form, BBox=[0, 0, 99, 9]
            )
            forms[f"/X{index}"] = inner
            page.obj.Contents = made.make_stream(b"/X%d Do" % index)
        shared = made.make_indirect(Dictionary(Font=font, XObject=Dictionary(forms)))
        for page in made.pages:
            page.obj.Resources = shared

    data = document("A", 3, share)
    parts = _split(data, every=1)

    assert [page_texts(part) for part in parts] == [[f"inner {index}"] for index in range(3)]
    for index, part in enumerate(parts):
        read = opened(part)
        contents = [item.read_bytes() for item in read.objects if isinstance(item, pikepdf.Stream)]
        assert [one for one in contents if b"inner" in one] == [b"BT /F1 9 Tf (inner %d) Tj ET" % index]


def test_what_belongs_to_no_page_is_in_the_first_part() -> None:
    made = pikepdf.open(BytesIO(document("A", 2)))
    made.attachments["note.txt"] = b"a note"
    made.Root.Lang = String("de")
    made.docinfo.Title = String("Title")

    parts = [opened(part) for part in _split(saved(made), every=1)]

    assert [[*part.attachments] for part in parts] == [["note.txt"], []]
    assert parts[0].attachments["note.txt"].get_file().read_bytes() == b"a note"
    assert [(str(part.Root.Lang), str(part.docinfo.Title)) for part in parts] == [("de", "Title")] * 2


def test_open_actions_stay_if_their_page_does() -> None:
    made = pikepdf.open(BytesIO(document("A", 2)))
    made.Root.OpenAction = at(made, 1)

    kept, removed = (opened(_extract(saved(made), pages).data) for pages in "21")
    assert kept.Root.OpenAction[0].objgen == kept.pages[0].obj.objgen
    assert "/OpenAction" not in removed.Root


def test_parts_of_an_encrypted_file_have_nothing_of_the_whole() -> None:
    whole = opened(document("A", 3))
    whole.Root.PieceInfo = Dictionary(Private=String("private"))
    whole.docinfo.Title = String("Title")
    locked = saved(whole, encryption=pikepdf.Encryption(owner="owner", user=""))

    part = opened(run_tool("pdf-split", locked, pages="1,3").data)

    assert ("/PieceInfo" in part.Root, str(part.docinfo.Title), part.is_encrypted) == (False, "Title", True)


@pytest.mark.parametrize(
    ("passwords", "opening"),
    [
        ({"user_password": "käse", "owner_password": "owner"}, ["käse", "owner"]),
        ({"user_password": "user"}, ["user"]),
        ({"owner_password": "owner"}, ["", "owner"]),
        ({"user_password": "x" * 127}, ["x" * 127]),
    ],
)
def test_either_password_opens_the_file_in_all_readers(passwords: dict[str, Any], opening: list[str]) -> None:
    data = run_tool("pdf-protect", _DATA, **passwords).data

    for password in opening:
        assert opened(data, password).encryption.R == 6
        assert pypdfium2.PdfDocument(data, password=password or None)[0].get_textpage().get_text_bounded() == "A page 1"
        with pymupdf.open(stream=data) as read:
            assert not read.needs_pass or read.authenticate(password)
            assert read[0].get_text().strip() == "A page 1"
    for wrong in ("", "wrong"):
        if wrong not in opening:
            with pytest.raises(pikepdf.PasswordError):
                pikepdf.open(BytesIO(data), password=wrong)


@pytest.mark.parametrize(
    ("typed", "stored"),
    [("\uff50ass", "pass"), ("pa\u00adss", "pass"), ("Ⅸ", "IX"), ("a\u00a0b", "a b"), ("ka\u0308se", "käse")],
)
def test_passwords_are_prepared_as_the_standard_says(typed: str, stored: str) -> None:
    data = run_tool("pdf-protect", _DATA, user_password=typed).data

    assert opened(data, stored).user_password_matched
    assert pypdfium2.PdfDocument(data, password=stored)[0].get_textpage().get_text_bounded() == "A page 1"


def test_passwords_open_files_of_programs_that_prepare_none() -> None:
    typed = "pa\u00adss"
    data = run_tool("pdf-protect", _DATA, user_password=typed).data
    others = saved(pikepdf.open(BytesIO(_DATA)), encryption=pikepdf.Encryption(user=typed, owner="owner", R=6))

    for file in (data, others):
        assert run_tool("pdf-unlock", file, password=typed).codes == set()
        assert codes(convert(file, "pdf", password=typed, quality=50)) <= {"quality_ignored"}


@pytest.mark.parametrize("source", ["txt", "svg", "eps", "png", "jpeg", "tiff", "pdf"])
def test_conversions_protect_their_result(source: str) -> None:
    data = sample(source)

    given = {"user_password": "\uff55ser", "owner_password": "owner", "allow": "print"}
    protected, plain = convert(data, "pdf", source, **given), convert(data, "pdf", source)

    with opened(protected.data, "user") as read:
        assert (read.encryption.R, read.allow.print_highres, read.allow.extract) == (6, True, False)
    assert opened(protected.data, "owner").owner_password_matched
    assert codes(protected) == codes(plain)
    assert not opened(plain.data).is_encrypted


def test_a_password_for_a_file_that_opens_without_one_is_told() -> None:
    for source in ("txt", "png", "pdf"):
        result = convert(sample(source), "pdf", source, password="secret")
        (warned,) = result.outcome.warnings
        assert (warned.code, "password" in warned.message) == ("option_ignored", True)
        assert not opened(result.data).is_encrypted
    owned = run_tool("pdf-protect", _DATA, owner_password="owner").data
    assert codes(convert(owned, "pdf", password="owner")) == set()
    assert codes(convert(owned, "pdf", password="wrong")) == {"option_ignored"}


def test_new_passwords_of_a_conversion_replace_the_old_ones() -> None:
    locked = run_tool("pdf-protect", _DATA, user_password="old", allow="print").data

    again = convert(locked, "pdf", password="old", user_password="new", metadata="all").data

    assert opened(again, "new").allow.extract
    with pytest.raises(pikepdf.PasswordError):
        pikepdf.open(BytesIO(again), password="old")
    with pytest.raises(InvalidOption) as raised:
        convert(_DATA, "pdf", allow="print")
    assert raised.value.param == "user_password"


@pytest.mark.parametrize(
    ("allow", "expected"),
    [
        (None, {"print", "copy", "modify", "annotate", "forms"}),
        ("", set()),
        ("print", {"print"}),
        (" copy , forms", {"copy", "forms"}),
        ('["modify", "annotate"]', {"modify", "annotate"}),
    ],
)
def test_permissions(allow: str | None, expected: set[str]) -> None:
    options: dict[str, Any] = {} if allow is None else {"allow": allow}

    found = opened(run_tool("pdf-protect", _DATA, user_password="u", **options).data, "u").allow

    fields: dict[str, tuple[bool, ...]] = {
        "print": (found.print_lowres, found.print_highres),
        "copy": (found.extract,),
        "modify": (found.modify_other, found.modify_assembly),
        "annotate": (found.modify_annotation,),
        "forms": (found.modify_form,),
    }
    assert {name for name, values in fields.items() if all(values)} == expected
    assert {name for name, values in fields.items() if any(values)} == expected
    assert found.accessibility


def test_the_random_password_of_the_owner_is_another_one_each_time() -> None:
    first, second = (opened(run_tool("pdf-protect", _DATA, user_password="u").data, "u") for _ in range(2))

    assert first.trailer.Encrypt.O != second.trailer.Encrypt.O


@pytest.mark.parametrize(
    ("options", "param"),
    [
        ({}, "user_password"),
        ({"user_password": ""}, "user_password"),
        ({"user_password": "u", "allow": "print,everything"}, "allow"),
        ({"user_password": "ü" * 64}, "user_password"),
        ({"user_password": "a\x07"}, "user_password"),
        ({"owner_password": "\u00ad"}, "owner_password"),
        ({"owner_password": "u" * 128}, "owner_password"),
    ],
)
def test_refused_requests(options: dict[str, Any], param: str) -> None:
    with pytest.raises(ConversionError) as raised:
        run_tool("pdf-protect", _DATA, **options)

    assert (raised.value.code, raised.value.param) == ("invalid_parameter", param)
    assert "ü" not in str(raised.value)


def test_new_passwords_replace_the_old_ones() -> None:
    locked = run_tool("pdf-protect", _DATA, user_password="old", allow="print").data

    again = run_tool("pdf-protect", locked, password="old", user_password="new").data

    assert opened(again, "new").allow.extract
    with pytest.raises(pikepdf.PasswordError):
        pikepdf.open(BytesIO(again), password="old")


@pytest.mark.parametrize("revision", [2, 3, 4, 6])
@pytest.mark.parametrize("password", ["user", "owner"])
def test_either_password_unlocks(revision: Any, password: str) -> None:
    keys: dict[str, Any] = {"aes": revision >= 4, "metadata": revision >= 4}
    locked = saved(
        pikepdf.open(BytesIO(_DATA)), encryption=pikepdf.Encryption(user="user", owner="owner", R=revision, **keys)
    )

    result = run_tool("pdf-unlock", locked, password=password)

    assert not opened(result.data).is_encrypted
    assert (page_texts(result.data), result.codes) == (["A page 1", "A page 2"], set())


def test_no_password_is_needed_where_that_of_users_is_empty() -> None:
    locked = run_tool("pdf-protect", _DATA, owner_password="owner", allow="").data

    assert not opened(run_tool("pdf-unlock", locked).data).is_encrypted


def test_a_file_without_encryption_stays_as_it_is() -> None:
    result = run_tool("pdf-unlock", _DATA, password="needless")

    assert (result.data, result.codes) == (_DATA, {"kept_original", "option_ignored"})
    assert run_tool("pdf-unlock", _DATA, sanitize=True).codes == set()
