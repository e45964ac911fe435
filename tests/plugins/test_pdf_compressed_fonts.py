"""The tool pdf-compress on fonts: glyphs that no text uses go, Type 1 becomes CFF, and text stays as it is."""

from io import BytesIO
from typing import Any

import numpy as np
import pikepdf
import pytest
from fontTools.misc.eexec import encrypt
from fontTools.misc.psCharStrings import T1CharString
from pikepdf import Array, Dictionary, Name, Pdf, String
from PIL import ImageFont

from engine.mupdf import pymupdf
from tests.support.results.pdf_checks import drawn_pages
from tests.support.samples.pdf_documents import compress, opened, page_texts, saved

_TRUETYPE = ImageFont.load_default(20)
assert isinstance(_TRUETYPE, ImageFont.FreeTypeFont)
_FONTS = {"TrueType": bytes(_TRUETYPE.font_bytes), "CFF": bytes(pymupdf.Font("helv").buffer)}


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
