"""Files of Office that refer to files and servers outside of them, in the ways that their formats have."""

import gzip
from base64 import b64encode
from collections.abc import Iterator, Mapping
from html import escape
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pypdfium2
from PIL import Image

from tests.support.samples.books import zipped
from tests.support.samples.hostile_documents import svg
from tests.support.samples.office_files import docx, opendocument

COLOR = (200, 30, 230)
"""The color of the images that the files refer to."""
SECRET = "Secretmarker"
"""The text of all other files that they refer to."""
NOT_FOLLOWED = (
    *("formula.ods", "webservice.ods", "webservice.xlsx", "connection.xlsx", "formula.csv", "page.csv"),
    *("style.odt", "style.docx", "style.pptx", "object.rtf"),
)
"""References that stay in the file, because LibreOffice does not follow them: stored values are shown."""
TEMPLATES = ("template.docx",)
"""References of which nothing is missing on the pages."""

_RELATIONS = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
_DRAWING = "http://schemas.openxmlformats.org/drawingml/2006"
_CONTENT = "application/vnd.openxmlformats-officedocument"
_NAMES = " ".join(
    f'xmlns:{name}="{urn}"'
    for name, urn in (
        *(("r", _RELATIONS), ("w", "http://schemas.openxmlformats.org/wordprocessingml/2006/main")),
        *(("wp", f"{_DRAWING}/wordprocessingDrawing"), ("a", f"{_DRAWING}/main"), ("pic", f"{_DRAWING}/picture")),
        *(("xdr", f"{_DRAWING}/spreadsheetDrawing"), ("v", "urn:schemas-microsoft-com:vml")),
        *(("o", "urn:schemas-microsoft-com:office:office"), ("xi", "http://www.w3.org/2001/XInclude")),
        ("p", "http://schemas.openxmlformats.org/presentationml/2006/main"),
    )
)
_SHEET = f'xmlns="http://schemas.openxmlformats.org/spreadsheetml/2006/main" {_NAMES}'
_SIZE = 'cx="1905000" cy="952500"'
_SHAPE = f'<a:xfrm><a:off x="0" y="0"/><a:ext {_SIZE}/></a:xfrm><a:prstGeom prst="rect"/>'
_FILLED = "<a:stretch><a:fillRect/></a:stretch>"


class _Relation(NamedTuple):
    """A part of Office Open XML with one relationship, "x"."""

    target: str
    kind: str = "image"
    mode: str = "External"

    def __str__(self) -> str:
        return (
            f'<Relationships xmlns="http://schemas.openxmlformats.org/package/2006/relationships"><Relationship Id="x" '
            f'Type="{_RELATIONS}/{self.kind}" Target="{escape(self.target)}" TargetMode="{self.mode}"/></Relationships>'
        )


def write_secrets(folder: Path) -> None:
    """Writes the files that others refer to."""
    image = f'<rect width="200" height="100" fill="#{bytes(COLOR).hex()}"/><text y="50">{SECRET}</text>'
    (folder / "secret.svg").write_bytes(svg(image, 'width="200" height="100"'))
    Image.new("RGB", (200, 100), COLOR).save(folder / "secret.png")
    for name in ("secret.txt", "secret.csv"):
        (folder / name).write_text(SECRET)


def files(folder: Path, port: int) -> dict[str, bytes]:
    """Files that refer to those in the folder, and to a port of the loopback interface, by their names."""
    kinds = {
        "docx": (*_linked_in_word(folder, port), *_fields_in_word(folder), *_parts_of_word(folder)),
        "rtf": _rich_texts(folder, port),
        "odt": (*_texts(folder, port), *_styled_texts(folder)),
        "odp": _presentations(folder),
        "ods": _tables(folder),
        "pptx": _slides(folder),
        "xlsx": _sheets(folder),
        "csv": _csv(folder),
    }
    return {f"{name}.{extension}": data for extension, made in kinds.items() for name, data in made}


def shown(pdf: bytes) -> bool:
    """Whether text or color of the files that others refer to is on a page."""
    for page in pypdfium2.PdfDocument(pdf):
        pixels = np.asarray(page.render().to_pil().convert("RGB"), int)
        if SECRET in page.get_textpage().get_text_bounded() or np.any(np.abs(pixels - COLOR).max(axis=2) < 12):
            return True
    return False


def svgs(folder: Path) -> dict[str, bytes]:
    """SVGs that refer to the files in the folder, by the way that they do."""
    url = folder.as_uri()
    image = f'<image width="200" height="100" xlink:href="{url}/secret.png"/>'
    nested = b64encode(svg(image)).decode()
    doctype = "<!DOCTYPE svg [<!ENTITY e {}>]>"
    external = doctype.format(f'SYSTEM "{url}/secret.txt"')
    declared = doctype.format(f'"{image.replace(chr(34), chr(39))}"')
    return {
        "picture": svg(image),
        "svg": svg(image.replace(".png", ".svg")),
        "nested": svg(f'<image width="200" height="100" xlink:href="data:image/svg+xml;base64,{nested}"/>'),
        "entity": external.encode() + svg("<text y='50'>&e;</text>"),
        "declared": declared.encode() + svg("&e;"),
        "compressed": gzip.compress(svg(image), mtime=0),
        "encoded": '<?xml version="1.0" encoding="UTF-16"?>'.encode("utf-16") + svg(image).decode().encode("utf-16-le"),
        "include": svg(f'<include xmlns="http://www.w3.org/2001/XInclude" href="{url}/secret.svg"/>'),
        "style": svg(f"<style>@import url({url}/secret.svg);</style><rect fill='url({url}/secret.svg#a)'/>"),
    }


def _word(body: str, relation: _Relation | None = None, parts: Mapping[str, str | bytes] | None = None) -> bytes:
    document = f"<w:document {_NAMES}><w:body>{body}<w:p><w:r><w:t>Text</w:t></w:r></w:p></w:body></w:document>"
    made: dict[str, str | bytes] = {"word/document.xml": document, **(parts or {})}
    return docx(parts={**made, "word/_rels/document.xml.rels": str(relation)} if relation else made)


def _image(attribute: str) -> str:
    return (
        f'<w:p><w:r><w:drawing><wp:inline><wp:extent {_SIZE}/><wp:docPr id="1" name="a"/><a:graphic><a:graphicData '
        f'uri="{_DRAWING}/picture"><pic:pic><pic:nvPicPr><pic:cNvPr id="1" name="a"/><pic:cNvPicPr/></pic:nvPicPr>'
        f"<pic:blipFill><a:blip {attribute}/>{_FILLED}</pic:blipFill><pic:spPr>{_SHAPE}</pic:spPr></pic:pic>"
        "</a:graphicData></a:graphic></wp:inline></w:drawing></w:r></w:p>"
    )


def _linked_in_word(folder: Path, port: int) -> Iterator[tuple[str, bytes]]:
    url, up = folder.as_uri(), "../" * 9
    for name, target in {
        "linked": f"{url}/secret.png",
        "linked_path": f"{folder}/secret.svg",
        "linked_from_above": f"{up}{folder}/secret.svg",
        "linked_share": f"//127.0.0.1{folder}/secret.svg".replace("/", "\\"),
        "linked_server": f"http://127.0.0.1:{port}/secret.png",
        "linked_macro": f"vnd.sun.star.expand:{url}/secret.svg",
    }.items():
        yield name, _word(_image('r:link="x"'), _Relation(target))
    yield "linked_as_hyperlink", _word(_image('r:link="x"'), _Relation(f"{url}/secret.png", "hyperlink"))
    shape = '<v:shape id="s" style="width:200pt;height:100pt"><v:imagedata {}/></v:shape>'
    for name, attribute in {"drawn": 'r:href="x"', "drawn_by_id": 'r:id="x"', "src": f'src="{url}/secret.png"'}.items():
        drawn = f"<w:p><w:r><w:pict>{shape.format(attribute)}</w:pict></w:r></w:p>"
        yield name, _word(drawn, _Relation(f"{url}/secret.png"))
    link = '<o:OLEObject Type="Link" ProgID="Excel.Sheet.8" ShapeID="s" DrawAspect="Content" r:id="x"/>'
    linked = f"<w:p><w:r><w:object>{shape.format('')}{link}</w:object></w:r></w:p>"
    yield "object", _word(linked, _Relation(f"{url}/secret.csv", "oleObject"))


def _fields_in_word(folder: Path) -> Iterator[tuple[str, bytes]]:
    mark = '<w:r><w:fldChar w:fldCharType="{}"/></w:r>'
    instructions = {
        "field": f'INCLUDEPICTURE "{folder.as_uri()}/secret.png" \\d',
        "field_of_text": f'INCLUDETEXT "{folder}/secret.txt"',
        "field_of_sheet": f'LINK Excel.Sheet.8 "{folder}/secret.csv" "A1"',
        "field_of_program": f'DDEAUTO soffice "{folder}/secret.csv" "A1"',
    }
    for name, instruction in instructions.items():
        text = f'<w:r><w:instrText xml:space="preserve"> {escape(instruction)}</w:instrText></w:r>'
        yield name, _word(f"<w:p>{mark.format('begin')}{text}{mark.format('separate')}{mark.format('end')}</w:p>")
    yield "simple_field", _word(f'<w:p><w:fldSimple w:instr="{escape(instructions["field"])}"/></w:p>')


def _parts_of_word(folder: Path) -> Iterator[tuple[str, bytes]]:
    url, settings = folder.as_uri(), _Relation("settings.xml", "settings", "Internal")
    template = {
        "word/settings.xml": f'<w:settings {_NAMES}><w:attachedTemplate r:id="x"/></w:settings>',
        "word/_rels/settings.xml.rels": str(_Relation(f"{url}/secret.txt", "attachedTemplate")),
    }
    yield "template", _word("", settings, template)
    chunk = '<w:altChunk r:id="x"/>'
    yield "chunk", _word(chunk, _Relation(f"{url}/secret.txt", "aFChunk"))
    page = f'<html><body><img src="{url}/secret.png" width="200"></body></html>'
    yield "page", _word(chunk, _Relation("a.html", "aFChunk", "Internal"), {"word/a.html": page})
    yield "document", _word('<w:p><w:subDoc r:id="x"/></w:p>', _Relation(f"{url}/secret.txt", "subDocument"))
    yield "include", _word(f'<xi:include href="{url}/secret.txt" parse="text"/>')
    for name, data in svgs(folder).items():
        relation = _Relation("media/a.svg", mode="Internal")
        document = _word(_image('r:embed="x"'), relation, {"word/media/a.svg": data})
        yield (f"{name}_of_svg" if name == "include" else name), document


def _rich_texts(folder: Path, port: int) -> Iterator[tuple[str, bytes]]:
    field = r"{\rtf1\ansi {\field{\*\fldinst %s}{\fldrslt old}}\par Text\par}"
    image = f'INCLUDEPICTURE "{folder.as_uri()}/secret.png"'
    instructions = {
        "picture": image,
        "formatted": rf"{{\rtlch\f0 INCLUDE}}{{\b PICTURE {image[14:]}}}",
        "server": f'INCLUDEPICTURE "http://127.0.0.1:{port}/a.png"',
        "text": f'INCLUDETEXT "{folder}/secret.txt"',
        "program": f'DDEAUTO soffice "{folder}/secret.csv" "A1"',
        "escaped": rf"\'49NCLUDE\u80?ICTURE{image[14:]}",
        "hidden": rf"{{\info a}}{image}",
    }
    for name, instruction in instructions.items():
        yield name, (field % instruction).encode()
    values = ("Excel.Sheet.8", f"{folder}/secret.csv", "A1")
    data = b"".join((len(value) + 1).to_bytes(4, "little") + value.encode() + b"\0" for value in values)
    linked = rf"{{\rtf1 {{\object\objlink{{\*\objclass {values[0]}}}{{\*\objdata 0105000001000000{data.hex()}}}}}}}"
    yield "object", linked.encode()


def _frame(content: str) -> str:
    size = 'svg:width="50mm" svg:height="25mm" text:anchor-type="as-char"'
    return f"<text:p><draw:frame {size}>{content}</draw:frame></text:p>"


def _text(body: str, before: str = "", parts: Mapping[str, str | bytes] | None = None) -> bytes:
    body = f"{before}<office:body><office:text>{body}<text:p>Text</text:p></office:text></office:body>"
    return opendocument("text", body, parts)


def _texts(folder: Path, port: int) -> Iterator[tuple[str, bytes]]:
    url, up = f"{folder.as_uri()}/secret", "../" * 9
    image = '<draw:image xlink:href="{}"/>'
    source = f'<text:section-source xlink:href="{url}.txt" text:filter-name="Text"/>'
    for name, content in {
        "linked": image.format(f"{url}.svg"),
        "path": image.format(f"{folder}/secret.png"),
        "above": image.format(f"{up}{folder}/secret.png"),
        "inside": image.format(f"Pictures/{'%2e%2e/' * 9}{folder}/secret.png"),
        "package": image.format(f"vnd.sun.star.Package:{up}{folder}/secret.png"),
        "server": image.format(f"http://127.0.0.1:{port}/a.png"),
        "object": f'<draw:object xlink:href="{url}.csv"/>',
        "ole": f'<draw:object-ole xlink:href="{url}.csv"/>',
        "media": f'<draw:plugin xlink:href="{url}.png" draw:mime-type="application/vnd.sun.star.media"/>',
        "window": f'<draw:floating-frame xlink:href="{url}.txt"/>',
        "applet": f'<draw:applet xlink:href="{url}.txt" draw:code="a"/>',
    }.items():
        yield name, _text(_frame(content))
    yield "section", _text(f'<text:section text:name="s">{source}<text:p>old</text:p></text:section>')
    connection = f'<form:connection-resource xlink:href="sdbc:flat:{folder.as_uri()}"/>'
    column = 'text:table-name="secret" text:column-name="a"'
    yield "database", _text(f"<text:p><text:database-display {column}>{connection}</text:database-display></text:p>")
    form = f'<office:forms><form:form><form:image xml:id="c" form:image-data="{url}.png"/></form:form></office:forms>'
    control = '<text:p><draw:control draw:control="c" svg:width="50mm" svg:height="25mm"/></text:p>'
    yield "form", _text(form + control)
    above = f"{up}{folder}/secret.png"
    yield "manifest", _text(_frame(image.format(above)), parts={above: ""})
    for name, data in svgs(folder).items():
        yield name, _text(_frame(image.format("Pictures/a.svg")), parts={"Pictures/a.svg": data})


def _styled_texts(folder: Path) -> Iterator[tuple[str, bytes]]:
    url = f"{folder.as_uri()}/secret"
    style = '<office:automatic-styles><style:style style:name="P" style:family="paragraph"><style:paragraph-properties>'
    background = f'{style}<style:background-image xlink:href="{url}.png"/></style:paragraph-properties></style:style>'
    yield "background", _text('<text:p text:style-name="P">a</text:p>', f"{background}</office:automatic-styles>")
    bullet = (
        '<office:automatic-styles><text:list-style style:name="L"><text:list-level-style-image text:level="1" '
        f'xlink:href="{url}.png"><style:list-level-properties fo:width="50mm" fo:height="25mm"/>'
        "</text:list-level-style-image></text:list-style></office:automatic-styles>"
    )
    listed = '<text:list text:style-name="L"><text:list-item><text:p>a</text:p></text:list-item></text:list>'
    yield "bullet", _text(listed, bullet)
    source = f'<svg:font-face-src><svg:font-face-uri xlink:href="{url}.txt"/></svg:font-face-src>'
    fonts = f'<style:font-face style:name="F" svg:font-family="F">{source}</style:font-face>'
    yield "font", _text("", f"<office:font-face-decls>{fonts}</office:font-face-decls>")


def _presentations(folder: Path) -> Iterator[tuple[str, bytes]]:
    url = f"{folder.as_uri()}/secret"
    sound = f'<presentation:sound xlink:href="{url}.txt"/>'
    event = f'<presentation:event-listener script:event-name="dom:click" presentation:action="sound">{sound}'
    for name, content in {
        "picture": f'<draw:image xlink:href="{url}.png"/>',
        "video": f'<draw:plugin xlink:href="{url}.png" draw:mime-type="application/vnd.sun.star.media"/>',
        "sound": f"<office:event-listeners>{event}</presentation:event-listener></office:event-listeners>",
    }.items():
        shape = _frame(content).removeprefix("<text:p>").removesuffix("</text:p>")
        page = f'<draw:page draw:name="p">{shape}</draw:page>'
        body = f"<office:body><office:presentation>{page}</office:presentation></office:body>"
        yield name, opendocument("presentation", body)


def _tables(folder: Path) -> Iterator[tuple[str, bytes]]:
    url = f"{folder.as_uri()}/secret"
    filter_ = 'table:filter-name="Text - txt - csv (StarCalc)"'
    row = "<table:table-row>{}</table:table-row>"
    cell = '<table:table-cell table:formula="{}"/>'
    source = f'<table:cell-range-source xlink:href="{url}.csv" table:name="A1" {filter_}/>'
    for name, content in {
        "sheet": f'<table:table-source xlink:href="{url}.csv" {filter_}/>{row.format("<table:table-cell/>")}',
        "range": row.format(f"<table:table-cell>{source}</table:table-cell>"),
        "formula": row.format(cell.format(f"of:='{url}.csv'#$secret.A1")),
        "webservice": row.format(cell.format(f"of:=COM.MICROSOFT.WEBSERVICE(&quot;{url}.txt&quot;)")),
    }.items():
        table = f'<table:table table:name="a">{content}</table:table>'
        body = f"<office:body><office:spreadsheet>{table}</office:spreadsheet></office:body>"
        yield name, opendocument("spreadsheet", body)


def _package(main: str, kinds: Mapping[str, str], parts: Mapping[str, str | bytes]) -> bytes:
    relations = "application/vnd.openxmlformats-package.relationships+xml"
    types = f'<Default Extension="rels" ContentType="{relations}"/>' + "".join(
        f'<Override PartName="/{name}" ContentType="{_CONTENT}.{kind}+xml"/>' for name, kind in kinds.items()
    )
    names = 'xmlns="http://schemas.openxmlformats.org/package/2006/content-types"'
    return zipped(
        {
            "[Content_Types].xml": f"<Types {names}>{types}</Types>",
            "_rels/.rels": str(_Relation(main, "officeDocument", "Internal")),
            **parts,
        }
    )


def _slides(folder: Path) -> Iterator[tuple[str, bytes]]:
    url = f"{folder.as_uri()}/secret"
    main, slide = "ppt/presentation.xml", "ppt/slides/slide1.xml"
    named = '<p:cNvPr id="2" name="a"/>'
    image = (
        f"<p:pic><p:nvPicPr>{named}<p:cNvPicPr/><p:nvPr>{{}}</p:nvPr></p:nvPicPr><p:blipFill><a:blip {{}}/>{_FILLED}"
    )
    image += f"</p:blipFill><p:spPr>{_SHAPE}</p:spPr></p:pic>"
    fill = f'<a:blipFill><a:blip r:link="x"/>{_FILLED}</a:blipFill>'
    filled = f"<p:sp><p:nvSpPr>{named}<p:cNvSpPr/><p:nvPr/></p:nvSpPr><p:spPr>{_SHAPE}{fill}</p:spPr></p:sp>"
    shapes = {
        "linked": (image.format("", 'r:link="x"'), _Relation(f"{url}.png"), b""),
        "video": (image.format('<a:videoFile r:link="x"/>', ""), _Relation(f"{url}.png", "video"), b""),
        "fill": (filled, _Relation(f"{url}.png"), b""),
        "fill_as_hyperlink": (filled, _Relation(f"{url}.png", "hyperlink"), b""),
    }
    embedded, relation = image.format("", 'r:embed="x"'), _Relation("../media/a.svg", mode="Internal")
    shapes |= {name: (embedded, relation, data) for name, data in svgs(folder).items()}
    for name, (shape, relation, data) in shapes.items():
        tree = f'<p:nvGrpSpPr><p:cNvPr id="1" name=""/><p:cNvGrpSpPr/><p:nvPr/></p:nvGrpSpPr><p:grpSpPr/>{shape}'
        parts: dict[str, str | bytes] = {
            main: f'<p:presentation {_NAMES}><p:sldIdLst><p:sldId id="256" r:id="x"/></p:sldIdLst>'
            '<p:sldSz cx="9144000" cy="6858000"/></p:presentation>',
            "ppt/_rels/presentation.xml.rels": str(_Relation("slides/slide1.xml", "slide", "Internal")),
            slide: f"<p:sld {_NAMES}><p:cSld><p:spTree>{tree}</p:spTree></p:cSld></p:sld>",
            "ppt/slides/_rels/slide1.xml.rels": str(relation),
            "ppt/media/a.svg": data,
        }
        yield name, _package(main, {main: "presentationml.presentation.main", slide: "presentationml.slide"}, parts)


def _sheets(folder: Path) -> Iterator[tuple[str, bytes]]:
    url = f"{folder.as_uri()}/secret"
    book, sheet, link = "xl/workbook.xml", "xl/worksheets/sheet1.xml", "xl/externalLinks/externalLink1.xml"
    connections, relations = "xl/connections.xml", "xl/worksheets/_rels/sheet1.xml.rels"
    image = '<xdr:nvPicPr><xdr:cNvPr id="2" name="a"/><xdr:cNvPicPr/></xdr:nvPicPr><xdr:blipFill><a:blip r:link="x"/>'
    drawing = (
        f'<xdr:wsDr {_NAMES}><xdr:absoluteAnchor><xdr:pos x="0" y="0"/><xdr:ext {_SIZE}/><xdr:pic>{image}{_FILLED}'
        f"</xdr:blipFill><xdr:spPr>{_SHAPE}</xdr:spPr></xdr:pic><xdr:clientData/></xdr:absoluteAnchor></xdr:wsDr>"
    )
    names = '<externalBook r:id="x"><sheetNames><sheetName val="secret"/></sheetNames></externalBook>'
    source = f'<connection id="1" name="c" type="6" refreshOnLoad="1"><textPr sourceFile="{folder}/secret.csv"/>'
    kinds = {book: "spreadsheetml.sheet.main", sheet: "spreadsheetml.worksheet", link: "spreadsheetml.externalLink"}
    made: dict[str, tuple[str, str, dict[str, str]]] = {
        "book": (
            "<f>[1]secret!A1</f>",
            "",
            {
                link: f"<externalLink {_SHEET}>{names}</externalLink>",
                "xl/externalLinks/_rels/externalLink1.xml.rels": str(_Relation(f"{url}.csv", "externalLinkPath")),
            },
        ),
        "webservice": (f'<f>_xlfn.WEBSERVICE("{url}.txt")</f>', "", {}),
        "connection": ("", "", {connections: f"<connections {_SHEET}>{source}</connection></connections>"}),
        "background": ("", '<picture r:id="x"/>', {relations: str(_Relation(f"{url}.png"))}),
        "linked": (
            "",
            '<drawing r:id="x"/>',
            {
                relations: str(_Relation("../drawings/drawing1.xml", "drawing", "Internal")),
                "xl/drawings/drawing1.xml": drawing,
                "xl/drawings/_rels/drawing1.xml.rels": str(_Relation(f"{url}.png")),
            },
        ),
    }
    for name, (formula, rest, parts) in made.items():
        yield name, _package(book, kinds, {**_workbook(formula, rest, external=link in parts), **parts})


def _workbook(formula: str, rest: str, *, external: bool) -> dict[str, str]:
    """The parts of a workbook with one cell, and a reference to another book if there is an `external` one."""
    cells = f'<sheetData><row r="1"><c r="A1">{formula}<v>1</v></c></row></sheetData>'
    named = '<externalReferences><externalReference r:id="y"/></externalReferences>' if external else ""
    linked = f'<Relationship Id="y" Type="{_RELATIONS}/externalLink" Target="externalLinks/externalLink1.xml"/>'
    first = str(_Relation("worksheets/sheet1.xml", "worksheet", "Internal"))
    return {
        "xl/workbook.xml": f'<workbook {_SHEET}><sheets><sheet name="a" sheetId="1" r:id="x"/></sheets>'
        f"{named}</workbook>",
        "xl/_rels/workbook.xml.rels": first.replace("</", f"{linked if external else ''}</"),
        "xl/worksheets/sheet1.xml": f"<worksheet {_SHEET}>{cells}{rest}</worksheet>",
    }


def _csv(folder: Path) -> Iterator[tuple[str, bytes]]:
    url = f"{folder.as_uri()}/secret"
    yield "formula", f'"=\'{url}.csv\'#$secret.A1","=WEBSERVICE(""{url}.txt"")"\na,b\n'.encode()
    yield "page", f'Page,<img src="{url}.png">\n<table>,b\n'.encode()
