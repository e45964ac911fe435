"""The tool pdf-compress: where images are drawn, what is merged, what stays, the options, and fonts."""

import subprocess
import sys
from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pikepdf
import pytest
from fontTools.misc.eexec import encrypt
from fontTools.misc.psCharStrings import T1CharString
from pikepdf import Array, Dictionary, Name, Pdf, Stream, String
from PIL import Image, ImageChops, ImageFont

from engine import ConversionError
from engine.mupdf import pymupdf
from plugins._pdf.images.stored_images import StoredImage
from tests.support.results.conversions import codes
from tests.support.results.pdf_checks import drawn_pages
from tests.support.samples.generated import saved as encoded
from tests.support.samples.hostile_documents import flat_pdf
from tests.support.samples.pdf_documents import compress, opened, page_texts, saved
from tests.support.samples.pdf_images import (
    GRAY,
    PHOTO,
    SIDE,
    add_page,
    drawn,
    flate,
    image_document,
    image_stream,
    images,
)

_TRUETYPE = ImageFont.load_default(20)
assert isinstance(_TRUETYPE, ImageFont.FreeTypeFont)
_FONTS = {"TrueType": bytes(_TRUETYPE.font_bytes), "CFF": bytes(pymupdf.Font("helv").buffer)}


@pytest.mark.parametrize(
    ("content", "side"),
    [
        (b"q 24 0 0 24 0 0 cm /P Do Q", 50),
        (b"q 0 24 -24 0 90 0 cm /P Do Q", 50),
        (b"q 6 0 0 6 0 0 cm /P Do Q q 24 0 0 24 0 0 cm /P Do Q", 50),
        (b"q 2 0 0 2 0 0 cm q 12 0 0 12 0 0 cm /P Do Q Q", 50),
        (b"0 1 -1 0 90 0 cm 0 -24 12 0 0 0 cm /P Do", 50),
        (b"q 48 0 0 12 0 0 cm /P Do Q", 100),
        (b"q 70 0 0 70 0 0 cm /P Do Q", SIDE),
    ],
)
def test_the_largest_place_counts(content: bytes, side: int) -> None:
    document = Pdf.new()
    drawn_often = flate(document, GRAY, Name.DeviceGray)
    small = b"q 3 0 0 3 0 0 cm /P Do Q"
    for elsewhere in (small, content, small):
        add_page(document, drawn_often, elsewhere)
    (image,) = images(compress(saved(document)).data)
    assert image.width == side


def _in_form(document: Pdf, image: Any, **keys: Any) -> Stream:
    resources = Dictionary(XObject=Dictionary(P=image))
    content = b"q 12 0 0 12 0 0 cm /P Do Q"
    return document.make_stream(content, Resources=resources, BBox=[0, 0, 12, 12], **keys)


def _form(document: Pdf, page: Any, image: Any) -> None:
    form = _in_form(document, image, Type=Name.XObject, Subtype=Name.Form, Matrix=[2, 0, 0, 2, 0, 0])
    page.Resources.XObject = Dictionary(F=form)
    page.Contents = document.make_stream(b"/F Do")


def _pattern(document: Pdf, page: Any, image: Any) -> None:
    keys: dict[str, Any] = {"PatternType": 1, "PaintType": 1, "TilingType": 1, "XStep": 12, "YStep": 12}
    keys["Matrix"] = [2, 0, 0, 2, 0, 0]
    page.Resources = Dictionary(Pattern=Dictionary(T=_in_form(document, image, **keys)))
    page.Contents = document.make_stream(b"/Pattern cs /T scn 0 0 96 96 re f")


def _appearance(document: Pdf, page: Any, image: Any) -> None:
    form = _in_form(document, image, Type=Name.XObject, Subtype=Name.Form)
    keys: dict[str, Any] = {"Type": Name.Annot, "Subtype": Name.Stamp, "Rect": [10, 10, 34, 34]}
    page.Annots = Array([Dictionary(**keys, AP=Dictionary(N=form))])
    page.Resources = Dictionary()


def _soft_mask(document: Pdf, page: Any, image: Any) -> None:
    group = Dictionary(S=Name.Transparency, CS=Name.DeviceGray)
    form = _in_form(document, image, Type=Name.XObject, Subtype=Name.Form, Group=group)
    mask = Dictionary(Type=Name.Mask, S=Name.Luminosity, G=form)
    page.Resources = Dictionary(ExtGState=Dictionary(M=Dictionary(SMask=mask)))
    page.Contents = document.make_stream(b"2 0 0 2 0 0 cm /M gs 0 0 30 30 re f")


def _user_unit(document: Pdf, page: Any, image: Any) -> None:
    page.UserUnit = 2
    page.Contents = document.make_stream(b"12 0 0 12 0 0 cm /P Do")


@pytest.mark.parametrize("place", [_form, _pattern, _appearance, _soft_mask, _user_unit])
def test_places_are_found_through_other_objects(place: Callable[[Pdf, Any, Any], None]) -> None:
    document = Pdf.new()
    image = flate(document, GRAY, Name.DeviceGray)
    add_page(document, image)
    document.pages[0].obj.Resources.XObject = Dictionary(P=image)
    place(document, document.pages[0].obj, image)
    data = saved(document)
    result = compress(data).data
    assert {one.width for one in images(result)} == {50}
    assert np.abs(drawn(result) - drawn(data)).mean() < 2.5


def test_nested_forms_take_no_exponential_time() -> None:
    document = Pdf.new()
    inner: Any = flate(document, GRAY, Name.DeviceGray)
    for _ in range(40):
        content = b"".join(b"q %d 0 0 1 0 0 cm /P Do Q " % factor for factor in (1, 1, 1, 1))
        form = document.make_stream(content + b"0.5 0 0 0.5 0 0 cm /P Do", Type=Name.XObject, Subtype=Name.Form)
        form.Resources = Dictionary(XObject=Dictionary(P=inner))
        form.BBox = Array([0, 0, 1, 1])
        inner = form
    inner.Resources.XObject.Self = inner
    add_page(document, inner)
    (image,) = images(compress(saved(document)).data)
    assert image.width == 50


def test_a_low_quality_reduces_the_resolution_too() -> None:
    data = image_document(lambda made: flate(made, GRAY, Name.DeviceGray))
    widths = [images(compress(data, quality=quality).data)[0].width for quality in (75, 30, 10, 1)]
    assert widths[0] == widths[1] == 50 > widths[2] > widths[3]


def test_flat_drawings_stay_exact() -> None:
    drawing = Image.new("RGB", (SIDE, SIDE), "white")
    for start in range(0, SIDE, 20):
        drawing.paste((start // 2, 0, 200), (start, start, start + 10, SIDE))
    data = image_document(lambda made: flate(made, drawing, Name.DeviceRGB))
    result = compress(data, dpi=1200).data
    (image,) = images(result)
    assert image.entries["/Filter"] == "/FlateDecode"
    assert image.image is not None
    assert ImageChops.difference(image.image, drawing).getbbox() is None


def test_a_jpeg_of_lower_quality_keeps_its_pixels() -> None:
    data = image_document(
        lambda made: image_stream(made, encoded(PHOTO, "JPEG", quality=60), Name.DeviceRGB, Filter=Name.DCTDecode)
    )
    result = compress(data, dpi=1200).data
    (before,), (after,) = images(data), images(result)
    assert before.image is not None
    assert after.image is not None
    assert ImageChops.difference(before.image, after.image).getbbox() is None
    assert len(after.raw) < len(before.raw)


def test_equal_objects_are_merged() -> None:
    document = Pdf.new()
    for _ in range(4):
        space = Array([Name.ICCBased, document.make_stream(b"a profile", N=3)])
        data = encoded(PHOTO, "JPEG", quality=60)
        mask = flate(document, GRAY, Name.DeviceGray)
        add_page(document, image_stream(document, data, space, Filter=Name.DCTDecode, SMask=mask))
    layers = [document.make_indirect(Dictionary(Type=Name.OCG, Name=String("layer"))) for _ in range(2)]
    document.Root.OCProperties = Dictionary(OCGs=Array(layers), D=Dictionary(OFF=Array(layers[:1])))
    result = compress(saved(document)).data
    assert len(images(result)) == 2
    with opened(result) as merged:
        assert len({layer.objgen for layer in merged.Root.OCProperties.OCGs}) == 2
        assert len([item for item in merged.objects if isinstance(item, Stream) and item.get("/N") == 3]) == 1


def test_the_original_stays_if_it_is_not_larger() -> None:
    once = compress(image_document(lambda made: flate(made, GRAY, Name.DeviceGray))).data
    again = compress(once)
    assert codes(again) == {"kept_original"}
    assert again.data == once


def test_signatures_are_invalidated_only_by_changes() -> None:
    document = Pdf.new()
    add_page(document, flate(document, GRAY, Name.DeviceGray))
    field = Dictionary(FT=Name.Sig, T=String("s"), V=document.make_indirect(Dictionary(Type=Name.Sig)))
    packets = Array([String("form"), document.make_stream(b"<xdp/>")])
    document.Root.AcroForm = Dictionary(Fields=Array([document.make_indirect(field)]), SigFlags=3, XFA=packets)
    data = saved(document)
    result = compress(data)
    assert codes(result) == {"signature_invalidated"}
    with opened(result.data) as changed:
        assert "/V" not in changed.Root.AcroForm.Fields[0]
        assert "/XFA" in changed.Root.AcroForm
    assert codes(compress(result.data)) == {"kept_original"}


def test_encryption_stays() -> None:
    document = Pdf.new()
    add_page(document, flate(document, GRAY, Name.DeviceGray))
    permissions = pikepdf.Permissions(extract=False, print_highres=False)
    data = saved(document, encryption=pikepdf.Encryption(user="user", owner="owner", R=6, allow=permissions))
    result = compress(data, password="user")
    kept = opened(result.data, password="user")
    assert (kept.allow.extract, kept.allow.print_highres, kept.allow.print_lowres) == (False, False, True)
    assert kept.encryption.R == 6
    assert opened(result.data, password="owner").owner_password_matched
    with pytest.raises(ConversionError) as caught:
        compress(data)
    assert caught.value.reason == "pdf_encrypted"


def test_active_content_is_told_or_removed() -> None:
    document = Pdf.new()
    add_page(document, flate(document, GRAY, Name.DeviceGray))
    document.Root.OpenAction = Dictionary(S=Name.JavaScript, JS=String("app.alert(1)"))
    data = saved(document)
    assert codes(compress(data)) == {"active_content"}
    once = compress(data, sanitize=True)
    assert "/OpenAction" not in opened(once.data).Root
    tiny = Pdf.new()
    tiny.add_blank_page()
    tiny.Root.OpenAction = Dictionary(S=Name.JavaScript, JS=String("1"))
    before = saved(tiny, object_stream_mode=pikepdf.ObjectStreamMode.disable)
    after = compress(before, sanitize=True).data
    assert "/OpenAction" not in opened(after).Root
    assert len(after) > len(before) - 20


def test_a_linearized_file() -> None:
    data = image_document(lambda made: flate(made, GRAY, Name.DeviceGray))
    assert opened(compress(data, linearize=True).data).is_linearized
    assert not opened(compress(data).data).is_linearized


def test_a_size_limit() -> None:
    document = Pdf.new()
    for angle in range(0, 360, 45):
        add_page(document, flate(document, PHOTO.rotate(angle), Name.DeviceRGB))
    data = saved(document)
    usual = compress(data, dpi=600)
    limit = len(usual.data) // 4
    found = compress(data, dpi=600, max_bytes=limit)
    assert len(found.data) <= limit
    assert 1 <= (found.outcome.quality_used or 0) < 30
    assert max(one.width for one in images(found.data)) < SIDE
    assert compress(data, max_bytes=len(data)).outcome.quality_used == 75
    attached = image_document(lambda made: made.make_stream(np.random.default_rng(1).bytes(2000), Subtype=Name.Unknown))
    with pytest.raises(ConversionError) as caught:
        compress(attached, max_bytes=1000)
    assert (caught.value.reason, caught.value.details["max_bytes"]) == ("target_unreachable", 1000)
    assert 2000 < caught.value.details["smallest"] < 3000


def test_a_damaged_file_is_not_the_result() -> None:
    result = compress(flat_pdf(3))

    assert codes(result) == {"repaired"}
    assert len(opened(result.data).pages) == 3


def _document(font: bytes) -> bytes:
    document = pymupdf.open()
    for number in range(3):
        page = document.new_page(width=300, height=100)
        page.insert_font("Full", fontbuffer=font)
        page.insert_text((50, 50), f"Seite {number} größer", fontname="Full")
    return bytes(document.tobytes())


def _assert_same_pages(first: bytes, second: bytes) -> None:
    assert page_texts(first) == page_texts(second)
    assert all(map(np.array_equal, *(drawn_pages(data, scale=1, mode="RGB") for data in (first, second))))


@pytest.mark.parametrize("font", _FONTS)
def test_fonts_are_subset_and_text_stays(font: str) -> None:
    data = _document(_FONTS[font])
    result = compress(data).data
    _assert_same_pages(data, result)
    assert len(result) < len(data) / 2


def test_fonts_of_form_fields_stay_whole() -> None:
    with pikepdf.open(BytesIO(_document(_FONTS["CFF"]))) as made:
        fonts = made.pages[0].obj.Resources.Font
        made.Root.AcroForm = Dictionary(Fields=Array([]), DR=Dictionary(Font=fonts), DA=String("/Full 0 Tf"))
        data = saved(made)
    assert _font_sizes(compress(data).data) == _font_sizes(data)


def _font_sizes(data: bytes) -> list[int]:
    with opened(data) as document:
        descriptors = [item for item in document.objects if isinstance(item, Dictionary) and "/FontName" in item]
        files = [item[key] for item in descriptors for key in ("/FontFile2", "/FontFile3") if key in item]
        return [len(file.read_bytes()) for file in files]


def _compiled(text: str) -> bytes:
    """A program of Type 1."""
    program = T1CharString(program=[int(part) if part.lstrip("-").isdigit() else part for part in text.split()])
    program.compile()
    return bytes(program.bytecode)


_SUBROUTINES = {
    0: _compiled("3 0 callothersubr pop pop setcurrentpoint return"),
    1: _compiled("0 1 callothersubr return"),
    2: _compiled("0 2 callothersubr return"),
    3: _compiled("return"),
    4: _compiled("500 80 hstem return"),
    5: _compiled("400 hlineto 500 vlineto -400 hlineto return"),
}


_GLYPHS = {
    ".notdef": _compiled("0 500 hsbw endchar"),
    # A box with hints, by a subroutine; its origin is not at the left.
    "A": _compiled("50 600 hsbw 0 80 hstem 20 60 vstem 100 vmoveto 5 callsubr closepath endchar"),
    # Curves, and a number that is divided.
    "B": _compiled(
        "0 700 hsbw 100 2000 10 div rmoveto 300 0 100 200 0 300 rrcurveto -300 100 -200 -100 vhcurveto "
        "closepath endchar"
    ),
    # A flat curve, and hints that change within the glyph.
    "C": _compiled(
        "0 700 hsbw 0 80 hstem 100 100 rmoveto 4 1 3 callothersubr pop callsubr 1 callsubr 100 20 rmoveto 2 callsubr "
        "-50 -20 rmoveto 2 callsubr 25 20 rmoveto 2 callsubr 25 0 rmoveto 2 callsubr 25 0 rmoveto 2 callsubr "
        "25 -20 rmoveto 2 callsubr 50 0 rmoveto 2 callsubr 50 300 100 0 callsubr 400 vlineto -200 hlineto "
        "closepath endchar"
    ),
    "acute": _compiled("100 300 hsbw 700 vmoveto 100 hlineto 100 vlineto closepath endchar"),
    # A box below an accent.
    "Aacute": _compiled("50 600 hsbw 100 220 50 65 194 seac"),
}


def _type1(glyphs: dict[str, bytes], subroutines: dict[int, bytes], *, is_hexadecimal: bool = False) -> bytes:
    def hidden(code: bytes) -> bytes:
        return bytes(encrypt(bytes(4) + code, 4330)[0])

    names = b"".join(b"dup %d /%s put\n" % (ord(name), name.encode()) for name in "ABC")
    clear = b"%!PS-AdobeFont-1.0: Test\n/FontName /Test def /FontMatrix [0.001 0 0 0.001 0 0] readonly def\n"
    clear += b"/FontBBox {0 0 900 900} readonly def /Encoding 256 array\n0 1 255 {1 index exch /.notdef put} for\n"
    clear += names + b"dup 193 /Aacute put\nreadonly def\ncurrentfile eexec\n"
    private = b"dup /Private 8 dict dup begin /RD {string currentfile exch readstring pop} def\n"
    private += b"/BlueValues [-15 0 600 615] def /StdHW [80] def /BlueScale .04 def\n/Subrs %d array\n" % len(
        subroutines
    )
    for number, code in subroutines.items():
        private += b"dup %d %d RD %s NP\n" % (number, len(hidden(code)), hidden(code))
    private += b"ND\n2 index /CharStrings %d dict dup begin\n" % len(glyphs)
    for name, code in glyphs.items():
        private += b"/%s %d RD %s ND\n" % (name.encode(), len(hidden(code)), hidden(code))
    encrypted = bytes(encrypt(b"abcd" + private + b"end\nend\nmark currentfile closefile\n", 55665)[0])
    body = encrypted.hex().encode() if is_hexadecimal else encrypted
    return clear + body + b"\n" + b"0" * 512 + b"\ncleartomark\n"


def _with_type1(font: bytes, **entries: Any) -> bytes:
    document = Pdf.new()
    file = document.make_stream(font, Length1=font.index(b"eexec") + 6, Length2=len(font), Length3=0)
    descriptor = Dictionary(Type=Name.FontDescriptor, FontName=Name.Test, Flags=4, FontBBox=[0, 0, 900, 900])
    descriptor.FontFile = file
    made = Dictionary(Type=Name.Font, Subtype=Name.Type1, BaseFont=Name.Test, FirstChar=65, LastChar=67, **entries)
    made.Widths = Array([600, 700, 700])
    made.FontDescriptor = document.make_indirect(descriptor)
    page = document.add_blank_page(page_size=(300, 100))
    page.obj.Resources = Dictionary(Font=Dictionary(F=document.make_indirect(made)))
    page.obj.Contents = document.make_stream(b"BT /F 60 Tf 20 30 Td (ABC) Tj (\\301) Tj ET")
    return saved(document)


@pytest.mark.parametrize("is_hexadecimal", [False, True])
@pytest.mark.parametrize("encoding", [None, Dictionary(Type=Name.Encoding, Differences=[65, Name.B, Name.A, Name.C])])
def test_type1_becomes_cff(encoding: Any, *, is_hexadecimal: bool) -> None:
    font = _type1(_GLYPHS, _SUBROUTINES, is_hexadecimal=is_hexadecimal)
    data = _with_type1(font, **({} if encoding is None else {"Encoding": encoding}))
    result = compress(data).data
    _assert_same_pages(data, result)
    pages = [pymupdf.open(stream=one)[0] for one in (data, result)]
    assert pages[0].get_pixmap(dpi=100).samples == pages[1].get_pixmap(dpi=100).samples
    assert pages[0].get_text("rawdict")["blocks"] == pages[1].get_text("rawdict")["blocks"]
    with opened(result) as document:
        (descriptor,) = (one for one in document.objects if isinstance(one, Dictionary) and "/FontName" in one)
        assert descriptor.FontFile3.Subtype == Name.Type1C
        assert "/FontFile" not in descriptor


_CALLS_TWICE = {number: _compiled(f"{number + 1} callsubr {number + 1} callsubr return") for number in range(60)}


_CALLS_TWICE[60] = _compiled("return")


_CALL = _compiled("0 9 hsbw 0 callsubr endchar")


_BROKEN: dict[str, bytes] = {
    "calls without end": _type1({**_GLYPHS, "A": _CALL}, _CALLS_TWICE),
    "calls of itself": _type1({**_GLYPHS, "A": _CALL}, {0: _compiled("0 callsubr return")}),
    "accent of itself": _type1({**_GLYPHS, "A": _compiled("0 9 hsbw 0 0 0 65 65 seac")}, {}),
    "empty stack": _type1({**_GLYPHS, "A": _compiled("rrcurveto callothersubr endchar")}, {}),
    "no glyphs": _type1({}, {}),
    "truncated": _type1(_GLYPHS, _SUBROUTINES)[:900],
    "not encrypted": b"%!PS-AdobeFont-1.0: Test",
    "huge number": _type1(_GLYPHS, {10**9: b""}),
}


@pytest.mark.parametrize("name", _BROKEN)
def test_broken_fonts_stay(name: str) -> None:
    font = _BROKEN[name]
    data = _with_type1(font if b"eexec" in font else font + b" eexec")
    with opened(compress(data).data) as document:
        (descriptor,) = (one for one in document.objects if isinstance(one, Dictionary) and "/FontName" in one)
        assert descriptor.FontFile.read_bytes() == (font if b"eexec" in font else font + b" eexec")


def test_private_data_thumbnails_and_unused_names_go() -> None:
    made = Pdf.new()
    add_page(made, flate(made, PHOTO, Name.DeviceRGB))
    page = made.pages[0].obj
    page.Resources.XObject.Unused = made.make_stream(b"unused " * 999, Type=Name.XObject, Subtype=Name.Form)
    private = made.make_stream(b"private " * 999)
    page.PieceInfo = made.Root.PieceInfo = Dictionary(Program=Dictionary(Private=private))
    page.Thumb = flate(made, PHOTO, Name.DeviceRGB)

    result = opened(compress(saved(made)).data)

    kept = result.pages[0].obj
    assert {"/PieceInfo", "/Thumb"}.isdisjoint({*kept.keys(), *result.Root.keys()})
    assert list(kept.Resources.XObject.keys()) == ["/P"]
    assert sum(isinstance(item, Stream) for item in result.objects) < 6


@pytest.mark.parametrize("mode", ["L", "1"])
def test_large_images_are_reduced_in_bands(mode: str) -> None:
    pixels = Image.linear_gradient("L").resize((4000, 6001)).convert(mode)
    made = Pdf.new()
    stream = made.make_stream(pixels.tobytes(), Type=Name.XObject, Subtype=Name.Image, ColorSpace=Name.DeviceGray)
    stream.Width, stream.Height = pixels.size
    stream.BitsPerComponent = 1 if mode == "1" else 8
    stored = StoredImage.of(stream)
    assert stored is not None

    reduced = stored.decode(4)

    expected = pixels.convert("L").reduce(4)
    assert reduced is not None
    assert (reduced.mode, reduced.size) == (expected.mode, expected.size)
    assert np.abs(np.asarray(reduced, int) - np.asarray(expected, int)).max() <= 1


_WITHOUT_MEMORY = """
import resource, sys
from pathlib import Path
import pikepdf
from plugins._pdf.objects import open_pdf, saved
document = open_pdf(Path(sys.argv[1]).read_bytes())
pages = int(Path("/proc/self/statm").read_text().split()[0])
resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + (12 << 20),) * 2)
try:
    sys.exit(len(saved(document)) < 1 << 20)
except MemoryError:
    sys.exit(3)
"""


def test_a_stream_for_which_there_is_no_memory_is_not_left_out(tmp_path: Path) -> None:
    made = Pdf.new()
    made.add_blank_page().obj.Contents = made.make_stream(np.random.default_rng(0).bytes(24 << 20))
    made.save(tmp_path / "large.pdf")

    done = subprocess.run([sys.executable, "-c", _WITHOUT_MEMORY, tmp_path / "large.pdf"], check=False)

    assert done.returncode == 3
