"""Repairs fonts for PDF/A.

The standard fonts of PDF, which files need not hold, are embedded as MuPDF has them: with the same widths.
"""

from io import BytesIO
from typing import Any

from fontTools import agl, cffLib, ttLib
from fontTools.encodings import MacRoman, StandardEncoding
from fontTools.pens.basePen import NullPen
from pikepdf import Array, Dictionary, Name, NamePath, Object, Pdf, Stream

from engine import FidelityWarning
from engine.mupdf import pymupdf
from plugins._pdf.name_trees import as_list
from plugins._pdf.objects import walk

_FILES = frozenset({"/FontFile", "/FontFile2", "/FontFile3"})
_SYMBOLS = ("Symbol", "ZapfDingbats")
_STEM = 80  # the width of stems, which only a substitute of the font would use
_SYMBOLIC, _NOT_SYMBOLIC = 4, 32  # flags of a descriptor
_WINDOWS = [agl.UV2AGL.get(ord(bytes([code]).decode("cp1252", "replace")), "bullet") for code in range(256)]


def embed_standard(document: Pdf) -> None:
    """Embeds the standard fonts, and those with their widths, such as Arial. Issues a warning that names them."""
    names: dict[str, None] = {}
    for _, _, font in list(walk(document)):
        if not isinstance(font, Dictionary) or font.get("/Subtype") not in (Name.Type1, Name.TrueType):
            continue
        descriptor: Any = font.get("/FontDescriptor")
        is_embedded = isinstance(descriptor, Dictionary) and not _FILES.isdisjoint(descriptor.keys())
        asked = str(font.get("/BaseFont"))[1:]
        name = pymupdf.mupdf.pdf_clean_font_name(asked)
        if not is_embedded and name in pymupdf.Base14_fontdict.values():
            _embed(document, font, name)
            names[asked] = None
    if names:
        message = f"Fonts that the PDF does not hold were embedded: {', '.join(names)}."
        FidelityWarning.issue("font_substituted", message)


def _embed(document: Pdf, font: Object, name: str) -> None:
    program = pymupdf.Font(name)
    fonts = cffLib.CFFFontSet()
    fonts.decompile(BytesIO(program.buffer), None)
    top = fonts[0]
    ascent = round(1000 * program.ascender)
    descriptor: Any = Dictionary(Type=Name.FontDescriptor, FontName=font.BaseFont, Ascent=ascent, CapHeight=ascent)
    descriptor.StemV = _STEM
    descriptor.Flags = _SYMBOLIC if name in _SYMBOLS else _NOT_SYMBOLIC
    descriptor.FontBBox = Array(map(round, top.FontBBox))
    descriptor.ItalicAngle = round(getattr(top, "ItalicAngle", 0))
    descriptor.Descent = round(1000 * program.descender)
    descriptor.FontFile3 = document.make_stream(program.buffer, Subtype=Name.Type1C)
    font.Subtype = Name.Type1
    font.FontDescriptor = document.make_indirect(descriptor)
    builtin = top.Encoding if name in _SYMBOLS else StandardEncoding.StandardEncoding
    widths = [_width(top.CharStrings, glyph) for glyph in _glyphs(font.get("/Encoding"), builtin)]
    first: Any = font.get("/FirstChar", 0)
    given = as_list(font.get("/Widths"))
    if all(not one or abs(one - width) <= 1 for one, width in zip(given, widths[first:], strict=False)):
        font.FirstChar, font.LastChar = 0, 255
        font.Widths = Array(widths)


def _glyphs(encoding: Any, builtin: list[str]) -> list[str]:
    """The names of glyphs by code."""
    details = encoding if isinstance(encoding, Dictionary) else Dictionary(BaseEncoding=encoding)
    known = {"/WinAnsiEncoding": _WINDOWS, "/MacRomanEncoding": MacRoman.MacRoman}
    glyphs = [*known.get(str(details.get("/BaseEncoding")), builtin)]
    code = 0
    for item in as_list(details.get("/Differences")):
        if isinstance(item, int):
            code = item
        else:
            glyphs[code] = str(item)[1:]
            code += 1
    return glyphs


def key_by_cid(document: Pdf) -> None:
    """Writes fonts whose CIDs are indexes of glyphs as the validator knows them: with CIDs as names of glyphs."""
    for _, _, font in list(walk(document)):
        if not isinstance(font, Dictionary) or font.get("/Subtype") != Name.CIDFontType0:
            continue
        program = font.get(NamePath.FontDescriptor.FontFile3)
        if not isinstance(program, Stream) or program.get("/Subtype") != Name.CIDFontType0C:
            continue
        fonts = cffLib.CFFFontSet()
        fonts.decompile(BytesIO(program.read_bytes()), None)
        if not hasattr(fonts[0], "ROS"):
            _key(fonts[0])
            file = BytesIO()
            fonts.compile(file, ttLib.TTFont(recalcBBoxes=False))
            program.write(file.getvalue())


def _key(top: Any) -> None:
    outlines = top.CharStrings
    names = {name: f"cid{index:05}" if index else ".notdef" for index, name in enumerate(top.charset)}
    drawn = {names[name]: outlines[name] for name in top.charset}
    for outline in drawn.values():
        outline.decompile()
    outlines.charStrings = drawn
    outlines.charStringsAreIndexed = 0
    top.charset = [*names.values()]
    top.ROS = ("Adobe", "Identity", 0)
    part = cffLib.FontDict()
    part.Private = top.Private
    top.FDArray = cffLib.FDArrayIndex()
    top.FDArray.append(part)
    top.FDSelect = cffLib.FDSelect()
    top.FDSelect.gidArray = [0] * len(names)
    outlines.fdArray, outlines.fdSelect = top.FDArray, top.FDSelect
    for key in ("Private", "Encoding"):
        top.rawDict.pop(key, None)
        top.__dict__.pop(key, None)


def _width(outlines: Any, glyph: str) -> int:
    outline = outlines[glyph if glyph in outlines else ".notdef"]
    outline.draw(NullPen())
    width: float = outline.width
    return round(width)
