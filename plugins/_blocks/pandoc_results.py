"""What Pandoc's styles lack in DOCX and ODT: grids of tables, page breaks, and properties that are not visible."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from io import BytesIO
from types import MappingProxyType
from typing import TypeAlias
from zipfile import ZipFile

from engine import Blocks

_Edits: TypeAlias = Sequence[tuple[re.Pattern[bytes], bytes]]

_SIDES = ("top", "left", "bottom", "right", "insideH", "insideV")
_GRID = "".join(f'<w:{side} w:val="single" w:sz="4" w:space="0" w:color="auto"/>' for side in _SIDES)
_PAGE_BREAK = "Break"  # the name of the style
_PAGE_STYLE = (
    f'<style:style style:name="{_PAGE_BREAK}" style:family="paragraph" style:parent-style-name="Standard">'
    '<style:paragraph-properties fo:break-before="page"/></style:style>'
)
_ABOVE = MappingProxyType(
    {
        "docx": rb'(<w:body>)(<w:p><w:pPr><w:pStyle w:val="Title" ?/></w:pPr>(?:(?!</w:p>).)*</w:p>)?'
        rb'(?:<w:p><w:pPr><w:pStyle w:val="(?:Author|Date)" ?/></w:pPr>(?:(?!</w:p>).)*</w:p>)*',
        "odt": rb'(<office:text>)\s*(<text:p text:style-name="Title">(?:(?!</text:p>).)*</text:p>)?\s*'
        rb'(?:<text:p text:style-name="(?:Author|Date)">(?:(?!</text:p>).)*</text:p>\s*)*',
    }
)
"""What Pandoc shows of the properties before the text. The second group is the title."""
_EDITS: Mapping[str, Mapping[str, _Edits]] = MappingProxyType(
    {
        "docx": {
            "word/styles.xml": (
                (
                    re.compile(rb'(w:styleId="Table".*?<w:tblInd [^>]*/>)', re.DOTALL),
                    rb"\1<w:tblBorders>%s</w:tblBorders>" % _GRID.encode(),
                ),
            )
        },
        "odt": {
            "content.xml": (
                (re.compile(rb'fo:border="none"'), b'fo:border="0.5pt solid #000000" fo:padding="0.1cm"'),
                (re.compile(rb"(?=</office:automatic-styles>)"), _PAGE_STYLE.encode()),
            )
        },
    }
)
_TWIPS = 20  # in a point
_FONT_SIZE = 12  # points, of Pandoc
_SECTION = re.compile(rb"<w:sectPr ?/>")
_USUAL_SIZE = re.compile(rb'(<w:rPrDefault>(?:(?!</w:rPrDefault>).)*?<)w:sz w:val="\d+"', re.DOTALL)
_TEXTS = MappingProxyType({"docx": "word/document.xml", "odt": "content.xml"})

PAGE_BREAKS = MappingProxyType(
    {
        "docx": ("openxml", '<w:p><w:r><w:br w:type="page"/></w:r></w:p>'),
        "odt": ("opendocument", f'<text:p text:style-name="{_PAGE_BREAK}"/>'),
        "epub3": ("html", '<div style="page-break-after: always"></div>'),
    }
)
"""The markup that ends a page, and its language, by Pandoc's name of the format."""


def edit(data: bytes, writer: str, document: Blocks, *, has_title: bool) -> bytes:
    """The file of a document with what it lacks. A title stays visible if the text has it."""
    if writer not in _TEXTS:
        return data
    above = re.compile(_ABOVE[writer], re.DOTALL)
    text = _TEXTS[writer]
    edits = {**_EDITS[writer]}
    edits[text] = (*edits.get(text, ()), (above, rb"\1\2" if has_title else rb"\1"))
    if writer == "docx":
        edits[text] = (*edits[text], (_SECTION, _section(document)))
        size = b'w:sz w:val="%d"' % round(2 * (document.font_size or _FONT_SIZE))
        edits["word/styles.xml"] = (*edits["word/styles.xml"], (_USUAL_SIZE, rb"\1" + size))
    result = BytesIO()
    with ZipFile(BytesIO(data)) as archive, ZipFile(result, "w") as made:
        for entry in archive.infolist():
            content = archive.read(entry)
            for pattern, replacement in edits.get(entry.filename, ()):
                content = pattern.sub(replacement, content)
            made.writestr(entry, content)
    return result.getvalue()


def _section(document: Blocks) -> bytes:
    """The size and the margins of the pages, as the document has them."""
    size = margins = ""
    if document.page_size:
        width, height = (round(_TWIPS * side) for side in document.page_size)
        wide = ' w:orient="landscape"' if width > height else ""
        size = f'<w:pgSz w:w="{width}" w:h="{height}"{wide}/>'
    if document.margins:
        sides = zip(("left", "top", "right", "bottom"), document.margins, strict=True)
        values = "".join(f' w:{side}="{round(_TWIPS * margin)}"' for side, margin in sides)
        margins = f'<w:pgMar{values} w:header="0" w:footer="0" w:gutter="0"/>'
    return f"<w:sectPr>{size}{margins}</w:sectPr>".encode()
