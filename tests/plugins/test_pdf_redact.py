"""Redaction leaves nothing of a text or an area in any stream or string, and everything else as it was."""

from io import BytesIO
from typing import Any

import pypdfium2
import pytest
from pikepdf import Array, Dictionary, Name, Object, Pdf, String
from PIL import Image

from engine import ConversionError
from engine.mupdf import pymupdf
from plugins._pdf.redaction.matching import Matcher
from tests.support.results.conversions import ToolRun, run_tool
from tests.support.samples.pdf_documents import all_texts, annotate, field, opened, outline, saved, tagged

_SECRET = "Secret"
_HEIGHT = 400  # points


def _text(text: str, x: float = 50, y: float = 300, state: str = "") -> bytes:
    return f"BT /F 12 Tf {state} {x} {y} Td ({text}) Tj ET\n".encode()


def _document(*contents: bytes) -> Pdf:
    made = Pdf.new()
    font = Dictionary(Type=Name.Font, Subtype=Name.Type1, BaseFont=Name.Helvetica, Encoding=Name.WinAnsiEncoding)
    shared = made.make_indirect(font)
    for content in contents:
        page = made.add_blank_page(page_size=(300, _HEIGHT)).obj
        page.Resources = Dictionary(Font=Dictionary(F=shared))
        page.Contents = made.make_stream(content)
    return made


def _stream(made: Pdf, text: str, **keys: Any) -> Object:
    font = made.pages[0].obj.Resources.Font
    return made.make_stream(_text(text, y=150), BBox=[0, 0, 300, 400], Resources=Dictionary(Font=font), **keys)


def _form(made: Pdf, text: str, **keys: Any) -> Object:
    return _stream(made, text, Type=Name.XObject, Subtype=Name.Form, **keys)


def _redact(made: Pdf, **options: Any) -> ToolRun:
    return run_tool("pdf-redact", saved(made), **options)


def _read(data: bytes) -> str:
    return "\n".join(page.get_textpage().get_text_range() for page in pypdfium2.PdfDocument(data))


def _box(x: float, y: float, width: float, height: float, page: int = 1) -> dict[str, float]:
    return {"page": page, "x": x, "y": y, "width": width, "height": height}


def _shared(made: Pdf) -> None:
    form = _form(made, "Secret public")
    for page in made.pages:
        page.obj.Resources.XObject = Dictionary(X=form)
        page.contents_add(b"/X Do")


def _mask(made: Pdf) -> None:
    group = Dictionary(S=Name.Transparency, CS=Name.DeviceGray)
    mask = Dictionary(SMask=Dictionary(S=Name.Luminosity, G=_form(made, _SECRET, Group=group)))
    made.pages[0].obj.Resources.ExtGState = Dictionary(G=mask)
    made.pages[0].contents_add(b"/G gs 0 0 9 9 re f")


def _pattern(made: Pdf) -> None:
    tile = _stream(made, _SECRET, PatternType=1, PaintType=1, TilingType=1, XStep=300, YStep=400)
    made.pages[0].obj.Resources.Pattern = Dictionary(P=tile)
    made.pages[0].contents_add(b"/Pattern cs /P scn 0 0 300 400 re f")


def _layer(made: Pdf) -> None:
    layer = made.make_indirect(Dictionary(Type=Name.OCG, Name=String(_SECRET)))
    made.Root.OCProperties = Dictionary(OCGs=Array([layer]), D=Dictionary(OFF=Array([layer])))
    made.pages[0].obj.Resources.Properties = Dictionary(L=layer)
    made.pages[0].contents_add(b"/OC /L BDC " + _text(_SECRET, y=200) + b"EMC")


def _annotation(made: Pdf) -> None:
    look = Dictionary(N=_form(made, _SECRET))
    keys: dict[str, Any] = {"Type": Name.Annot, "Subtype": Name.Stamp, "Rect": [10, 10, 90, 30], "AP": look}
    annotate(made, 0, Dictionary(**keys, Contents=String("a SECRET"), RC=String("<b>Sec</b>ret"), T=String(_SECRET)))


def _field(made: Pdf) -> None:
    field(0, "name", String(_SECRET), TU=String("is secret"), Opt=Array([String(_SECRET), String("public")]))(made)


def _described(made: Pdf) -> None:
    tagged(made)
    made.Root.StructTreeRoot.K[0].Alt = String(_SECRET)
    made.pages[0].contents_add(b"/Span <</ActualText (a secret)>> BDC EMC")


def _metadata(made: Pdf) -> None:
    outline((f"1 {_SECRET}", 0, True, []))(made)
    made.trailer.Info = made.make_indirect(Dictionary(Title=String(_SECRET)))
    with made.open_metadata() as packet:
        packet["dc:title"] = f"{_SECRET} & more"


def _private(made: Pdf) -> None:
    made.pages[0].obj.PieceInfo = Dictionary(A=Dictionary(Private=_form(made, _SECRET)))
    made.pages[0].obj.Thumb = made.make_stream(_SECRET.encode())


def _attachments(made: Pdf) -> None:
    for name, content in ((f"{_SECRET}.txt", b"1"), ("a.txt", _SECRET.encode()), ("b.txt", b"public")):
        made.attachments[name] = content


_HOLDERS = (_shared, _mask, _pattern, _layer, _annotation, _field, _described, _metadata, _private, _attachments)


@pytest.mark.parametrize("add", _HOLDERS)
def test_a_text_is_in_nothing_that_a_file_has(add: Any) -> None:
    made = _document(_text("one Secret public"), _text("public"))
    add(made)

    result = _redact(made, text=["secret"])

    assert [text for text in all_texts(result.data) if _SECRET.lower() in text.lower()] == []
    assert _read(result.data).count("public") == (4 if add is _shared else 2)
    if add is _attachments:
        document = opened(result.data)
        assert (set(document.attachments), result.codes) == ({"\u2588.txt", "b.txt"}, {"attachments_dropped"})


@pytest.mark.parametrize(
    ("content", "wanted", "left"),
    [
        (_text("A Secret b", state="3 Tr"), "secret", "A b"),
        (_text("S e c r e t b"), "Secret", "b"),
        (b"BT /F 12 Tf 50 300 Td (a Sec-) Tj 0 -14 Td (ret b) Tj ET", "secret", "a b"),
        (b"BT /F 12 Tf 50 300 Td (a Jane) Tj 0 -14 Td (Doe b) Tj ET", "jane doe", "a b"),
        (b"BT /F 12 Tf 50 300 Td [(a Se) -150 (cr) 90 (et b)] TJ ET", "secret", "a b"),
        (b"".join(_text(one, x) for one, x in (("ret", 70), ("Sec", 50), ("b", 110))), "secret", "b"),
        (_text("Secret", -900, -900) + _text("b"), "secret", "b"),
        (_text("above", y=311) + _text("Secret b") + _text("below", y=289), "secret", "above b below"),
        (b"BT /F 12 Tf 0 1 -1 0 100 50 Tm (a Secret b) Tj ET", "secret", "a b"),
        (_text("Jos\\351 and Jose"), "jose", "Jos\u00e9 and"),
    ],
)
def test_texts_are_found_however_they_are_drawn(content: bytes, wanted: str, left: str) -> None:
    result = _redact(_document(content), text=[wanted])

    assert (" ".join(_read(result.data).split()), result.codes) == (left, set())


@pytest.mark.parametrize(
    ("text", "wanted", "is_found"),
    [
        ("the end\u0338", "end", True),
        ("Jos\u00e9", "jose", False),
        ("o\ufb03ce", "off", True),
        ("so\u00adft", "SOFT", True),
        ("Stra\u00dfe", "STRASSE", True),
        ("it\u2019s", "it's", True),
    ],
)
def test_characters_are_read_as_letters(text: str, wanted: str, is_found: bool) -> None:
    assert Matcher([wanted], None).matches(text) is is_found


def test_an_expression_is_linear_and_valid() -> None:
    result = _redact(_document(_text("id 123-45-6789 of a")), pattern=r"(\d+)+-\d\d-\d{4}")

    assert _read(result.data).split() == ["id", "of", "a"]
    for pattern in ("(", "(?=a)a", r"(a)\1", "((a{1000}){1000}){1000}"):
        with pytest.raises(ConversionError) as refused:
            _redact(_document(b""), pattern=pattern)
        assert (refused.value.reason, refused.value.param) == ("malformed", "pattern")


@pytest.mark.parametrize(
    "show", ["(one, Secret word) Tj", "[(one, Secret word)] TJ", "[(o) 20 (ne, Secret w) -9 (ord)] TJ"]
)
def test_what_follows_a_text_stays_in_its_place(show: str) -> None:
    made = _document(f"BT /F 12 Tf 50 300 Td {show} ET".encode())

    result = _redact(made, text=["secret"])

    with pymupdf.open(stream=saved(made)) as old, pymupdf.open(stream=result.data) as new:
        before, after = (document[0].search_for("word")[0] for document in (old, new))
    assert abs(before.x0 - after.x0) < 0.01


@pytest.mark.parametrize("turn", [0, 90, 180, 270])
def test_an_area_is_of_the_page_as_shown(turn: int) -> None:
    made = _document(_text("Secret", 100, 200) + _text("public", 100, 240))
    made.pages[0].obj.CropBox, made.pages[0].obj.Rotate = Array([50, 60, 250, 380]), turn
    with pymupdf.open(stream=saved(made)) as shown:
        left, top, right, bottom = shown[0].search_for(_SECRET)[0] * shown[0].rotation_matrix
        before = shown[0].get_pixmap()
    left, right, top, bottom = min(left, right), max(left, right), min(top, bottom), max(top, bottom)

    result = _redact(made, boxes=[_box(left, top + 2, right - left, bottom - top - 4)], color="#f00")

    assert _read(result.data).split() == ["public"]
    with pymupdf.open(stream=result.data) as shown:
        after = shown[0].get_pixmap()
        assert after.pixel(int(left + right) // 2, int(top + bottom) // 2) == (255, 0, 0)
        outside = [(x, y) for x in range(after.width) for y in range(after.height) if not left - 1 < x < right + 1]
        assert all(before.pixel(*place) == after.pixel(*place) for place in outside)


@pytest.mark.parametrize(("mode", "kind"), [("RGB", "JPEG"), ("RGBA", "PNG"), ("1", "PNG"), ("CMYK", "JPEG")])
def test_pixels_below_an_area_are_gone_from_its_page_only(mode: str, kind: str) -> None:
    file = BytesIO()
    Image.radial_gradient("L").convert("RGB").convert(mode).save(file, kind)
    with pymupdf.open() as made:
        number = made.new_page(width=256, height=256).insert_image((0, 0, 256, 256), stream=file.getvalue())
        made.new_page(width=256, height=256).insert_image((0, 0, 256, 256), xref=number)
        data = made.tobytes()
        old = [page.get_pixmap() for page in made]

    result = run_tool("pdf-redact", data, boxes=[_box(100, 100, 50, 50)])

    with pymupdf.open(stream=result.data) as made:
        new = [page.get_pixmap() for page in made]
        image = pymupdf.Pixmap(pymupdf.csRGB, pymupdf.Pixmap(made, made[0].get_images()[0][0]))
        assert {image.pixel(x, y)[:3] for x in (101, 125, 148) for y in (101, 125, 148)} == {(255, 255, 255)}
    assert new[1].samples == old[1].samples
    rows = [y for y in range(256) if not 99 <= y <= 150]
    assert all(old[0].pixel(x, y) == new[0].pixel(x, y) for x in range(256) for y in rows)


def test_an_area_takes_what_belongs_to_it() -> None:
    made = _document(b"/P <</MCID 0>> BDC " + _text(_SECRET) + b"EMC 90 300 m 110 310 120 320 130 300 c f", b"")
    for add in (_annotation, _described):
        add(made)
    field(0, "name", String(_SECRET))(made)
    made.pages[0].obj.Annots[1].Rect = Array([60, 20, 70, 30])
    areas = [_box(0, 60, 300, 60), _box(0, 360, 100, 40)]

    result = _redact(made, boxes=areas)

    assert _read(result.data).split() == []
    document = opened(result.data)
    assert (list(document.pages[0].Annots), list(document.Root.AcroForm.Fields)) == ([], [])
    assert "/ActualText" not in document.Root.StructTreeRoot.K[0]
    assert document.Root.StructTreeRoot.K[1].ActualText == "spoken 2"
    assert b" c" not in document.pages[0].Contents[0].read_bytes()


def test_an_encrypted_file_keeps_its_passwords() -> None:
    locked = run_tool("pdf-protect", saved(_document(_text("one Secret"))), user_password="user").data

    result = run_tool("pdf-redact", locked, pattern="[^x]", password="user")

    with pymupdf.open(stream=result.data) as shown:
        assert (shown.authenticate("user") > 0, shown[0].get_text().strip()) == (True, "")


def test_what_is_not_found_and_not_searched_is_told() -> None:
    with pymupdf.open() as made:
        made.new_page().insert_text((50, 50), "public")
        made.new_page().insert_image((0, 0, 9, 9), pixmap=pymupdf.Pixmap(pymupdf.csGRAY, pymupdf.IRect(0, 0, 9, 9)))
        result = run_tool("pdf-redact", made.tobytes(), text=["PUBLIC", "none"], pattern="x{9}")

    assert result.codes == {"no_text", "option_ignored"}
    assert [one.message for one in result.outcome.warnings if one.code == "option_ignored"] == [
        "Nothing was found and removed for text 2, pattern."
    ]


@pytest.mark.parametrize(
    ("options", "reason"),
    [({}, "missing"), ({"boxes": [_box(0, 0, 1, 1, 2)]}, "out_of_range"), ({"boxes": [_box(0, 0, 0, 1)]}, "malformed")],
)
def test_requests_without_sense_are_refused(options: dict[str, Any], reason: str) -> None:
    with pytest.raises(ConversionError) as refused:
        _redact(_document(b""), **options)
    assert refused.value.reason == reason
