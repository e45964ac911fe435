"""Broken and hostile PDFs: circles, false sizes, deep nesting, endless chains and decompression bombs."""

from __future__ import annotations

import struct
import zlib
from functools import cache

import pikepdf

from tests.support.samples.hostile_documents import flat_pdf, repeated_page
from tests.support.samples.pdf_documents import document, saved
from tests.support.samples.raw_pdfs import FONT, PAGE, PAGES, TEXT, assembled, bomb, chain, object_stream, pdf, stream

_DEEP = 5_000  # links of chains
_BOMB = 150  # MiB
_IMAGE = b"/Type/XObject/Subtype/Image/Width %d/Height %d/BitsPerComponent 8/ColorSpace/DeviceGray%s"
_SHOWN = {"resources": b"/XObject<</X 6 0 R>>", "content": b"q 99 0 0 99 0 0 cm /X Do Q"}


def _page_trees() -> dict[str, bytes]:
    tree = [b"<</Type/Pages/Count 1/Parent %d 0 R/Kids[%d 0 R]>>" % (max(2, n - 1), n + 1) for n in range(6, 6 + _DEEP)]
    huge = b"<</Type/Pages/Kids[3 0 R]/Count %d>>"
    boxes = {
        "huge": b"0 0 1e9 1e9",
        "negative": b"0 0 -200 -300",
        "empty": b"5 5 5 5",
        "infinite": b"-1e400 0 1e400 99999999999999999999",
        "short": b"0 0 9",
        "of names": b"/a /b /c /d",
    }
    return {
        "page tree in itself": pdf(pages=b"<</Type/Pages/Kids[2 0 R 3 0 R]/Count 2>>"),
        "page trees in each other": pdf(
            b"<</Type/Pages/Parent 2 0 R/Kids[2 0 R]/Count 1>>", pages=b"<</Type/Pages/Kids[6 0 R 3 0 R]/Count 2>>"
        ),
        "deep page tree": pdf(*tree, b"<</Type/Page/MediaBox[0 0 9 9]>>", pages=b"<</Type/Pages/Kids[6 0 R]/Count 1>>"),
        "huge count": pdf(pages=huge % ((1 << 31) - 1)),
        "negative count": pdf(pages=huge % -5),
        "huge number of pages": pdf(pages=huge % (1 << 70)),
        "kids of no kind": pdf(pages=b"<</Type/Pages/Kids[1 (a) /b null [3 0 R] 3 0 R 99 0 R 5 0 R]/Count 8>>"),
        "kids that are a name": pdf(pages=b"<</Type/Pages/Kids/None/Count 1>>"),
        "a page that is a stream": pdf(replaced_page=stream(b"x", b"/Type/Page/Parent 2 0 R/MediaBox[0 0 9 9]")),
        "parents in a circle": pdf(
            b"<</Type/Pages/Parent 7 0 R/Kids[3 0 R]/Count 1>>",
            b"<</Type/Pages/Parent 6 0 R/Kids[6 0 R]/Count 1>>",
            replaced_page=b"<</Type/Page/Parent 6 0 R/Contents 5 0 R>>",
        ),
        **{f"{name} box": pdf(page=b"/MediaBox[%s]/CropBox[%s]" % (box, box)) for name, box in boxes.items()},
        "huge unit": pdf(page=b"/UserUnit 1e12/Rotate 45"),
        "tiny unit": pdf(page=b"/UserUnit -1e-12/Rotate 9999999999"),
    }


def _indexes() -> dict[str, bytes]:
    plain = pdf()
    start = int(plain.rsplit(b"startxref\n", 1)[1].split()[0])
    deep = 2000
    return {
        "index before itself": pdf(trailer=b"/Prev %d" % start),
        "index streams in a circle": pdf(trailer=b"/XRefStm %d/Prev %d" % (start, start)),
        "object stream in itself": object_stream(b"1 0 "),
        "object stream extends itself": object_stream(b"1 0 ", b"/Extends 2 0 R"),
        "object stream of many objects": object_stream(b"1 0 ".ljust(30), b"/N 2147483647"),
        "index of many objects": plain.replace(b"xref\n0 6", b"xref\n0 2147483647"),
        "references in a circle": pdf(b"7 0 R", b"6 0 R", page=b"/Annots 6 0 R", root=b"/AcroForm 7 0 R"),
        "length is itself": pdf(stream(b"x", length=b"6 0 R"), page=b"/Contents 6 0 R"),
        "length too long": pdf(stream(b"x" * 50, length=b"1099511627776"), page=b"/Contents 6 0 R"),
        "negative length": pdf(stream(b"x" * 50, length=b"-7"), page=b"/Contents 6 0 R"),
        "no root": plain.replace(b"/Root 1 0 R", b"/Toor 1 0 R").replace(b"/Catalog", b"/Katalog"),
        "root is an array": assembled([b"[2 0 R]", PAGES, PAGE % (b"", b""), FONT, stream(TEXT)]),
        "no trailer": plain.partition(b"trailer")[0] + b"startxref\n%d\n%%%%EOF\n" % start,
        "false linearization": b"%PDF-1.7\n9 0 obj<</Linearized 1/L 5/H[9 9]/O 77/E 1/N 9999/T 1>>endobj\n" + plain[9:],
        "nested arrays": pdf(b"[" * deep * 10 + b"]" * deep * 10, page=b"/Annots 6 0 R"),
        "nested dictionaries": pdf(b"<</A" * deep + b" 1" + b">>" * deep, page=b"/Annots[6 0 R]/PieceInfo 6 0 R"),
        "nested without an end": pdf(b"<</A[" * deep, page=b"/Group 6 0 R"),
        "long name": pdf(page=b"/" + b"x" * (1 << 20) + b" 1"),
    }


def _outlines() -> dict[str, bytes]:
    """Outlines and names in circles and long chains."""
    items = chain(_DEEP, lambda n: b"<</Title(a)/Parent %d 0 R/First %d 0 R/Last %d 0 R/Count 1>>" % (n - 2, n, n))
    nexts = chain(_DEEP, lambda n: b"<</Title(a)/Parent 6 0 R/Next %d 0 R/Dest[3 0 R/Fit]>>" % n, b"<</Title(b)>>")
    names = chain(_DEEP, lambda n: b"<</Kids[%d 0 R]/Limits[(a)(b)]>>" % n, b"<</Names[(a)[3 0 R/Fit]]>>")
    link = b"/Annots[<</Subtype/Link/Rect[0 0 9 9]/A 6 0 R>>]"
    return {
        "outline item after itself": pdf(
            b"<</First 7 0 R/Last 7 0 R/Count 9>>",
            b"<</Title(a)/Parent 6 0 R/Next 7 0 R/Prev 7 0 R/First 7 0 R/Dest[3 0 R/Fit]>>",
            root=b"/Outlines 6 0 R",
        ),
        "outline in itself": pdf(b"<</First 6 0 R/Last 6 0 R/Next 6 0 R/Parent 6 0 R>>", root=b"/Outlines 6 0 R"),
        "deep outline": pdf(*items, root=b"/Outlines 6 0 R"),
        "long outline": pdf(b"<</First 7 0 R/Last 7 0 R>>", *nexts[1:], root=b"/Outlines 6 0 R"),
        "names in themselves": pdf(
            b"<</Kids[6 0 R]/Names[(a)[3 0 R/Fit](b)]>>",
            root=b"/Names<</Dests 6 0 R/EmbeddedFiles 6 0 R/JavaScript 6 0 R>>/Dests 6 0 R/PageLabels 6 0 R",
        ),
        "deep names": pdf(*names, root=b"/Names<</Dests 6 0 R/EmbeddedFiles 6 0 R>>/PageLabels 6 0 R"),
        "destination is itself": pdf(b"[6 0 R/XYZ]", root=b"/OpenAction 6 0 R/Dests<</a 6 0 R>>", page=link),
        "attachment is itself": pdf(
            b"<</Type/Filespec/F(a)/UF 6 0 R/EF<</F 6 0 R/UF 7 0 R>>/RF<</F[6 0 R]>>>>",
            stream(b"x", b"/Type/EmbeddedFile/Params 7 0 R"),
            root=b"/Names<</EmbeddedFiles<</Names[(a) 6 0 R(b) 7 0 R 5]>>>>/AF[6 0 R]",
        ),
        "thread in a circle": pdf(
            b"<</F 7 0 R/I 6 0 R>>",
            b"<</T 6 0 R/N 7 0 R/V 7 0 R/P 3 0 R/R[0 0 9 9]>>",
            root=b"/Threads[6 0 R]",
            page=b"/B[7 0 R]",
        ),
    }


def _fields() -> dict[str, bytes]:
    """Form fields and actions in circles and long chains."""
    fields = chain(_DEEP, lambda n: b"<</T(a)/Kids[%d 0 R]>>" % n, b"<</T(b)/FT/Tx>>")
    actions = chain(_DEEP, lambda n: b"<</S/GoTo/D[3 0 R/Fit]/Next %d 0 R>>" % n)
    link = b"/Annots[<</Subtype/Link/Rect[0 0 9 9]/A 6 0 R>>]"
    widget = b"<</Subtype/Widget/FT/Tx/T(a)/V(b)/DA(/F 9 Tf)/Rect[0 0 50 20]/Parent %d 0 R/Kids[%d 0 R]>>"
    return {
        "fields in a circle": pdf(
            widget % (7, 7), widget % (6, 6), root=b"/AcroForm<</Fields[6 0 R]>>", page=b"/Annots[6 0 R]"
        ),
        "deep fields": pdf(*fields, root=b"/AcroForm<</Fields[6 0 R]>>"),
        "form in itself": pdf(b"<</Fields[6 0 R 1 0 R 2 0 R 3 0 R]/DR 6 0 R/CO[6 0 R]>>", root=b"/AcroForm 6 0 R"),
        "signature of no kind": pdf(
            b"<</FT/Sig/T(a)/V 7 0 R/Subtype/Widget/Rect[0 0 0 0]>>",
            b"<</Type/Sig/ByteRange[0 99999999999 -5 7]/Contents 7 0 R/Reference[7 0 R]>>",
            root=b"/AcroForm<</Fields[6 0 R]/SigFlags 3>>/Perms<</DocMDP 7 0 R>>/DSS 7 0 R",
            page=b"/Annots[6 0 R]",
        ),
        "actions in a circle": pdf(b"<</S/GoTo/D[3 0 R/Fit]/Next[6 0 R 6 0 R]>>", root=b"/OpenAction 6 0 R", page=link),
        "long chain of actions": pdf(*actions, root=b"/OpenAction 6 0 R", page=link),
    }


def _structures() -> dict[str, bytes]:
    """Structure elements and layers in circles and long chains."""
    elements = chain(_DEEP, lambda n: b"<</S/P/K[%d 0 R]>>" % n, b"<</S/P/K 0/Pg 3 0 R>>")
    return {
        "structure in a circle": pdf(
            b"<</Type/StructTreeRoot/K 7 0 R/ParentTree<</Nums[0 7 0 R]/Kids[6 0 R]>>/RoleMap<</A/B/B/A>>>>",
            b"<</S/A/P 7 0 R/K[7 0 R 6 0 R 0<</Type/MCR/Pg 3 0 R/MCID 9>>]/Pg 3 0 R/Ref[7 0 R]>>",
            root=b"/StructTreeRoot 6 0 R/MarkInfo<</Marked true>>",
            page=b"/StructParents 0",
        ),
        "deep structure": pdf(*elements, root=b"/StructTreeRoot<</K 6 0 R>>"),
        "layers in a circle": pdf(
            b"<</Type/OCG/Name(a)>>",
            b"[6 0 R 7 0 R]",
            b"<</Type/OCMD/OCGs 8 0 R/VE 9 0 R>>",
            b"[/And 9 0 R 8 0 R]",
            root=b"/OCProperties<</OCGs[6 0 R]/D<</Order 7 0 R/ON 7 0 R>>>>",
            resources=b"/Properties<</L 8 0 R>>",
            content=b"/OC/L BDC " + TEXT + b" EMC",
        ),
    }


def _drawings() -> dict[str, bytes]:
    """Contents that draw themselves, or more than can be drawn."""
    form = b"/Type/XObject/Subtype/Form/BBox[0 0 200 300]/Resources<</XObject<</X %d 0 R>>>>"
    fan = [stream(b"/X Do " * 10, form % number) for number in range(7, 30)]
    glyph = (
        b"<</Type/Font/Subtype/Type3/FontBBox[0 0 9 9]/FontMatrix[1 0 0 1 0 0]/FirstChar 97/LastChar 97/Widths[9]"
        b"/Encoding<</Differences[97/a]>>/CharProcs<</a 6 0 R>>/Resources<</Font<</F 4 0 R>>>>>>"
    )
    pattern = (
        b"/Type/Pattern/PatternType 1/PaintType 1/TilingType 1/BBox[0 0 9 9]/XStep 0.001/YStep 0.001"
        b"/Resources<</Pattern<</P 6 0 R>>>>"
    )
    return {
        "form in itself drawn": pdf(stream(b"/X Do", form % 6), resources=b"/XObject<</X 6 0 R>>", content=b"/X Do"),
        "forms in each other": pdf(
            stream(b"/X Do", form % 7), stream(b"/X Do", form % 6), resources=b"/XObject<</X 6 0 R>>", content=b"/X Do"
        ),
        "forms by powers of ten": pdf(
            *fan, stream(b"0 0 9 9 re f", form % 6), resources=b"/XObject<</X 6 0 R>>", content=b"/X Do"
        ),
        "glyph in itself": pdf(stream(b"9 0 d0 BT /F 1 Tf (aa) Tj ET"), font=glyph),
        "pattern in itself": pdf(
            stream(b"/Pattern cs /P scn 0 0 9 9 re f", pattern),
            resources=b"/Pattern<</P 6 0 R>>",
            content=b"/Pattern cs /P scn 0 0 200 300 re f",
        ),
        "many states": pdf(content=b"q " * 200_000 + TEXT),
        "many restored states": pdf(content=b"Q EMC ET EI " * 50_000 + TEXT),
        "nested content": pdf(content=b"[" * 100_000 + b" TJ " + b"<<" * 100_000),
        "inline image without end": pdf(content=b"BI /W 999999999 /H 999999999 /BPC 16 /CS/RGB ID " + b"x" * 5000),
        "contents in a circle": pdf(b"[6 0 R 5 0 R]", page=b"/Contents 6 0 R"),
    }


def _resources() -> dict[str, bytes]:
    """Resources that refer to themselves."""
    group = b"/Type/XObject/Subtype/Form/BBox[0 0 99 99]/Group<</S/Transparency>>/Resources<</ExtGState<</G 7 0 R>>>>"
    look = b"/Type/XObject/Subtype/Form/BBox[0 0 9 9]/Resources<</XObject<</X 6 0 R>>>>"
    return {
        "mask in itself": pdf(
            stream(b"/G gs 0 0 9 9 re f", group),
            b"<</SMask<</S/Luminosity/G 6 0 R>>>>",
            resources=b"/ExtGState<</G 7 0 R>>",
            content=b"/G gs 0 0 99 99 re f",
        ),
        "look in itself": pdf(
            stream(b"/X Do", look),
            root=b"/AcroForm<</Fields[]/NeedAppearances true>>",
            page=b"/Annots[<</Subtype/Stamp/Rect[0 0 9 9]/AP<</N 6 0 R/D 6 0 R>>/F 4/Popup 3 0 R/Parent 3 0 R>>]",
        ),
        "color space in itself": pdf(
            b"[/Indexed 6 0 R 255 6 0 R]",
            b"[/Separation/a 7 0 R 8 0 R]",
            b"<</FunctionType 3/Domain[0 1]/Functions[8 0 R 8 0 R]/Bounds[0.5]/Encode[0 1 0 1]>>",
            resources=b"/ColorSpace<</A 6 0 R/B 7 0 R>>"
            b"/Shading<</S<</ShadingType 2/ColorSpace 7 0 R/Coords[0 0 9 9]/Function 8 0 R>>>>",
            content=b"/A cs 1 scn 0 0 9 9 re f /B cs 1 scn 9 9 9 9 re f /S sh",
        ),
        "resources in themselves": pdf(
            b"<</XObject 6 0 R/Font 6 0 R/Pattern 6 0 R/X 6 0 R/F 6 0 R>>",
            replaced_page=b"<</Type/Page/Parent 2 0 R/MediaBox[0 0 99 99]/Resources 6 0 R"
            b"/Contents[5 0 R 5 0 R 6 0 R 3 0 R]>>",
            content=b"/X Do " + TEXT,
        ),
    }


def _images() -> dict[str, bytes]:
    """Images whose size or compression is false."""
    once = bomb(_BOMB)
    twice = zlib.compress(once, 9)
    rows = b"/Filter/FlateDecode/DecodeParms<</Predictor %d/Columns %d/Colors %d/BitsPerComponent 16>>"
    made = {
        "picture bomb": _IMAGE % (12_000, 12_000, b"/Filter/FlateDecode"),
        "huge picture": _IMAGE % (1 << 30, 1 << 30, b"/Filter/FlateDecode"),
        "picture of negative size": _IMAGE % (-5, 7, b"/Filter/FlateDecode"),
        "huge columns of a predictor": _IMAGE % (9, 9, rows % (15, (1 << 31) - 1, 32)),
        "huge columns by TIFF": _IMAGE % (9, 9, rows % (2, 1 << 28, 16)),
        "filters of no kind": _IMAGE % (9, 9, b"/Filter[/LZWDecode/ASCII85Decode/NoDecode/Crypt]/DecodeParms[1 2]"),
        "many filters": _IMAGE % (9, 9, b"/Filter[%s]" % (b"/FlateDecode" * 5000)),
        "mask of itself": _IMAGE % (9, 9, b"/Filter/FlateDecode/SMask 6 0 R/Mask 6 0 R/Alternates[<</Image 6 0 R>>]"),
    }
    return {
        **{name: pdf(stream(once if "bomb" in name else twice, entries), **_SHOWN) for name, entries in made.items()},
        "content bomb": pdf(stream(twice, b"/Filter[/FlateDecode/FlateDecode]"), page=b"/Contents 6 0 R"),
    }


def _coded_images() -> dict[str, bytes]:
    """Small data of codecs that state huge sizes."""
    size = struct.pack(">II", 1 << 30, 1 << 30)
    page_segment = struct.pack(">IBBBI", 0, 48, 0, 1, 19) + size + bytes(11)
    region = struct.pack(">IBBBI", 1, 38, 0, 1, 26) + size + bytes(9) + b"\x00" * 9
    sizes = struct.pack(">HIIIIIIIIH", 0, 60_000, 60_000, 0, 0, 60_000, 60_000, 0, 0, 3) + b"\7\1\1" * 3
    jpx = b"\xff\x4f\xff\x51" + struct.pack(">H", len(sizes) + 2) + sizes
    jpeg = (
        b"\xff\xd8\xff\xc0\0\x11\x08\xff\xff\xff\xff\x03\x01\x22\0\x02\x11\x01\x03\x11\x01"
        b"\xff\xda\0\x0c\x03\x01\0\x02\x11\x03\x11\0\x3f\0"
    )
    group4 = b"/Filter/CCITTFaxDecode/DecodeParms<</K -1/Columns 60000/Rows 2147483647>>"
    jbig2 = page_segment + region
    coded = {
        "JBIG2 bomb": (jbig2, 1 << 15, b"/Filter/JBIG2Decode"),
        "JBIG2 with itself": (jbig2, 1 << 15, b"/Filter/JBIG2Decode/DecodeParms<</JBIG2Globals 6 0 R>>"),
        "JPEG 2000 bomb": (jpx, 60_000, b"/Filter/JPXDecode"),
        "JPEG bomb": (jpeg, 65_535, b"/Filter/DCTDecode"),
        "CCITT bomb": (b"\x80" * 99, 60_000, group4),
    }
    return {
        name: pdf(stream(data, _IMAGE % (side, side, entries)), **_SHOWN)
        for name, (data, side, entries) in coded.items()
    }


def _fonts_and_metadata() -> dict[str, bytes]:
    return {
        "font of no kind": pdf(
            b"<</Type/FontDescriptor/FontFile2 7 0 R/FontFile 7 0 R/FontFile3 7 0 R/Flags 4>>",
            stream(b"\0\1\0\0\xff\xff" + b"glyf" * 50, b"/Length1 2147483647/Subtype/Type1C"),
            stream(b"/X usecmap 1 begincodespacerange <00><ffffffff> endcodespacerange", b"/UseCMap 8 0 R/CMapName/X"),
            font=b"<</Type/Font/Subtype/Type0/BaseFont/A/Encoding 8 0 R/ToUnicode 8 0 R/DescendantFonts[4 0 R"
            b"<</Subtype/CIDFontType2/FontDescriptor 6 0 R/W[0 2147483647 9]/CIDToGIDMap 8 0 R>>]>>",
        ),
        "metadata of entities": pdf(
            stream(
                b'<?xml version="1.0"?><!DOCTYPE x [<!ENTITY a0 "aaaaaaaaaa">'
                + b"".join(b'<!ENTITY a%d "%s">' % (n, b"&a%d;" % (n - 1) * 10) for n in range(1, 12))
                + b']><x:xmpmeta xmlns:x="adobe:ns:meta/">&a11;</x:xmpmeta>',
                b"/Type/Metadata/Subtype/XML",
            ),
            root=b"/Metadata 6 0 R",
            trailer=b"/Info<</Title 6 0 R/Author[6 0 R]>>",
        ),
    }


def _encryptions() -> dict[str, bytes]:
    standard = b"/Encrypt<</Filter/Standard%s>>/ID[(0123456789abcdef)(0123456789abcdef)]"
    keys = b"/O(%s)/U(%s)/P -44" % (b"o" * 32, b"u" * 32)
    return {
        "encryption without keys": pdf(trailer=standard % b"/V 5/R 6"),
        "encryption of no version": pdf(trailer=standard % (b"/V 99/R -1/Length -8" + keys)),
        "encryption by short keys": pdf(trailer=standard % b"/V 5/R 6/O()/U(a)/OE()/UE()/Perms()/P 0/Length 256"),
        "encryption of itself": pdf(b"<</Filter 6 0 R/V 6 0 R/O 6 0 R>>", trailer=b"/Encrypt 6 0 R/ID 6 0 R"),
        "encryption by a filter of no kind": pdf(
            trailer=standard % (b"/V 4/R 4/StmF/A/StrF/A/CF<</A<</CFM/A>>>>" + keys)
        ),
    }


def _broken() -> dict[str, bytes]:
    sound = document("A", 3)
    return {
        "empty": b"%PDF-1.7\n",
        "no pages": saved(pikepdf.Pdf.new()),
        "cut": sound[:-700],
        "cut early": sound[:300],
        "no index": flat_pdf(3),
        "repeated": repeated_page(40),
        "wrong objects": sound.replace(b"/Resources <<", b"/Resources [<"),
        "no contents": sound.replace(b"/Contents", b"/Nontents"),
        "null kids": sound.replace(b"/MediaBox [", b"/MediaBox ("),
        "cycle": sound.replace(b"/Parent 2 0 R", b"/Parent 3 0 R"),
        "noise": b"%PDF-1.7\n" + bytes(range(256)) * 20 + b"startxref\n9\n%%EOF",
        "text": sound.replace(b"BT", b"(((").replace(b"ET", b"q q Q Q Q"),
        "boxes": sound.replace(b"0 0 20", b"0 0 -9"),
    }


_GROUPS = (
    *(_broken, _page_trees, _indexes, _outlines, _fields, _structures, _drawings, _resources),
    *(_images, _coded_images, _fonts_and_metadata, _encryptions),
)


@cache
def hostile_pdfs() -> dict[str, bytes]:
    """The files by what is wrong with them."""
    return {name: data for group in _GROUPS for name, data in group().items()}
