"""Files of Office that refer to files and servers outside of them, in the ways that their formats have."""

import zlib
from base64 import b64encode
from collections.abc import Iterator, Mapping
from html import escape
from pathlib import Path
from typing import NamedTuple

from PIL import Image

from tests.support.samples.books import zipped
from tests.support.samples.hostile_documents import svg
from tests.support.samples.office_files import docx, opendocument

COLOR = (200, 30, 230)
"""The color of the pictures in the folder that the files refer to."""
SECRET = "Secretmarker"
"""The text of all other files there."""
_RELATIONS = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
_PICTURE = f"{_RELATIONS}/image"
_NAMES = " ".join(
    f'xmlns:{name}="{urn}"'
    for name, urn in (
        ("r", _RELATIONS),
        ("w", "http://schemas.openxmlformats.org/wordprocessingml/2006/main"),
        ("wp", "http://schemas.openxmlformats.org/drawingml/2006/wordprocessingDrawing"),
        ("a", "http://schemas.openxmlformats.org/drawingml/2006/main"),
        ("pic", "http://schemas.openxmlformats.org/drawingml/2006/picture"),
        ("asvg", "http://schemas.microsoft.com/office/drawing/2016/SVG/main"),
        ("p", "http://schemas.openxmlformats.org/presentationml/2006/main"),
        ("v", "urn:schemas-microsoft-com:vml"),
        ("o", "urn:schemas-microsoft-com:office:office"),
        ("xi", "http://www.w3.org/2001/XInclude"),
    )
)


class Relation(NamedTuple):
    """A relationship of a part of Office Open XML."""

    target: str
    kind: str = _PICTURE
    mode: str = "External"

    def __str__(self) -> str:
        return (
            f'<Relationships xmlns="http://schemas.openxmlformats.org/package/2006/relationships"><Relationship Id="x" '
            f'Type="{self.kind}" Target="{escape(self.target)}" TargetMode="{self.mode}"/></Relationships>'
        )


def write_secrets(folder: Path) -> None:
    """Writes the files that others refer to."""
    (folder / "secret.svg").write_bytes(picture())
    Image.new("RGB", (200, 100), COLOR).save(folder / "secret.png")
    for name in ("secret.txt", "secret.csv"):
        (folder / name).write_text(SECRET)


def picture() -> bytes:
    color = "#" + bytes(COLOR).hex()
    return svg(
        f'<rect width="200" height="100" fill="{color}"/><text y="50">{SECRET}</text>', 'width="200" height="100"'
    )


def _svgs(folder: str) -> dict[str, bytes]:
    image = f'<image width="200" height="100" xlink:href="file://{folder}/secret.png"/>'
    inner = svg(image, 'width="200" height="100"')
    nested = f'<image width="200" height="100" xlink:href="data:image/svg+xml;base64,{b64encode(inner).decode()}"/>'
    entity = f'<!DOCTYPE svg [<!ENTITY e SYSTEM "file://{folder}/secret.txt">]>'.encode()
    include = f'<xi:include xmlns:xi="http://www.w3.org/2001/XInclude" href="file://{folder}/secret.svg"/>'
    return {
        "svg": inner,
        "svg_of_svg": svg(image.replace(".png", ".svg")),
        "nested_svg": svg(nested),
        "svg_with_entity": entity + svg("<text y='50'>&e;</text>"),
        "svg_with_style": svg(
            f"<style>@import url(file://{folder}/secret.svg);</style><rect width='9' height='9' "
            f"fill='url(file://{folder}/secret.svg#a)'/>"
        ),
        "svg_with_include": svg(include),
    }


def _word(body: str, relation: Relation | None = None, /, **parts: bytes | str) -> bytes:
    relations = {"word/_rels/document.xml.rels": str(relation)} if relation else {}
    document = f"<w:document {_NAMES}><w:body>{body}<w:p><w:r><w:t>Text</w:t></w:r></w:p></w:body></w:document>"
    return docx(parts={"word/document.xml": document, **relations, **parts})


def _blip(attribute: str, content: str = "") -> str:
    extent = '<a:ext cx="1905000" cy="952500"/>'
    return (
        f'<w:p><w:r><w:drawing><wp:inline>{extent.replace("a:ext", "wp:extent")}<wp:docPr id="1" name="a"/><a:graphic>'
        '<a:graphicData uri="http://schemas.openxmlformats.org/drawingml/2006/picture"><pic:pic><pic:nvPicPr><pic:cNvPr '
        f'id="1" name="a"/><pic:cNvPicPr/></pic:nvPicPr><pic:blipFill><a:blip {attribute}>{content}</a:blip><a:stretch>'
        f'<a:fillRect/></a:stretch></pic:blipFill><pic:spPr><a:xfrm><a:off x="0" y="0"/>{extent}</a:xfrm><a:prstGeom '
        'prst="rect"/></pic:spPr></pic:pic></a:graphicData></a:graphic></wp:inline></w:drawing></w:r></w:p>'
    )


def _field(*instructions: str) -> str:
    texts = "".join(f'<w:r><w:instrText xml:space="preserve">{escape(one)}</w:instrText></w:r>' for one in instructions)
    marks = [f'<w:r><w:fldChar w:fldCharType="{kind}"/></w:r>' for kind in ("begin", "separate", "end")]
    return f"<w:p>{marks[0]}{texts}{marks[1]}<w:r><w:t>old</w:t></w:r>{marks[2]}</w:p>"


def _word_files(folder: str, port: int) -> Iterator[tuple[str, bytes]]:
    linked = _blip('r:link="x"')
    targets = {
        "svg": f"file://{folder}/secret.svg",
        "png": f"file://{folder}/secret.png",
        "path": f"{folder}/secret.svg",
        "relative": f"../../../../../../..{folder}/secret.svg",
        "share": f"\\\\127.0.0.1{folder}/secret.svg".replace("/", "\\"),
        "server": f"http://127.0.0.1:{port}/a.png",
        "archive": f"vnd.sun.star.zip://file:%2F%2F{folder.replace('/', '%2F')}%2Fa.zip/a.png",
        "expand": f"vnd.sun.star.expand:file://{folder}/secret.svg",
    }
    for name, target in targets.items():
        yield f"linked_{name}", _word(linked, Relation(target))
    yield "internal_mode", _word(_blip('r:embed="x"'), Relation(targets["png"], mode="Internal"))
    yield "internal_path", _word(_blip('r:embed="x"'), Relation(targets["relative"], mode="Internal"))
    yield "embedded_and_linked", _word(_blip('r:embed="x" r:link="x"'), Relation(targets["png"]))
    for field in (
        f'INCLUDEPICTURE "{folder}/secret.svg" \\d',
        f'INCLUDEPICTURE "file://{folder}/secret.png"',
        f'INCLUDETEXT "{folder}/secret.txt"',
        f'LINK Excel.Sheet.8 "{folder}/secret.csv" "A1" \\a \\t',
        f'DDEAUTO soffice "{folder}/secret.csv" "A1"',
        f'RD "{folder}/secret.txt"',
    ):
        yield f"field_{field.split()[0]}_{len(field) - len(folder)}", _word(_field(field))
    yield "field_in_parts", _word(_field(" INCLU", "DEPICTURE ", f'"{folder}/sec', 'ret.png"'))
    simple = f"INCLUDEPICTURE &quot;{folder}/secret.png&quot;"
    yield "field_simple", _word(f'<w:p><w:fldSimple w:instr="{simple}"><w:r><w:t>a</w:t></w:r></w:fldSimple></w:p>')
    shape = '<v:shape style="width:200pt;height:100pt"><v:imagedata {}/></v:shape>'
    for attribute in ('r:href="x"', 'r:id="x"', 'r:pict="x"', f'src="file://{folder}/secret.png"'):
        name = attribute.split("=")[0].replace(":", "_")
        yield (
            f"vml_{name}",
            _word(f"<w:p><w:r><w:pict>{shape.format(attribute)}</w:pict></w:r></w:p>", Relation(targets["png"])),
        )
    ole = '<o:OLEObject Type="Link" ProgID="Excel.Sheet.8" ShapeID="s" DrawAspect="Content" r:id="x" UpdateMode="Always"/>'
    link = shape.format("").replace("style", 'id="s" style') + ole
    yield (
        "ole_link",
        _word(
            f"<w:p><w:r><w:object>{link}</w:object></w:r></w:p>",
            Relation(f"file://{folder}/secret.csv", f"{_RELATIONS}/oleObject"),
        ),
    )
    template = f"{_RELATIONS}/attachedTemplate"
    yield (
        "template",
        _word(
            "",
            Relation("settings.xml", f"{_RELATIONS}/settings", "Internal"),
            **{
                "word/settings.xml": f'<w:settings {_NAMES}><w:attachedTemplate r:id="x"/></w:settings>',
                "word/_rels/settings.xml.rels": str(Relation(f"file://{folder}/secret.txt", template)),
            },
        ),
    )
    chunk = '<w:altChunk r:id="x"/>'
    kind = f"{_RELATIONS}/aFChunk"
    yield "chunk", _word(chunk, Relation(f"file://{folder}/secret.txt", kind))
    page = f'<html><body><img src="file://{folder}/secret.png" width="200" height="100"></body></html>'
    for name, text in (("html", page), ("rtf", _rtf_field(f'INCLUDEPICTURE "{folder}/secret.png"').decode())):
        yield f"chunk_{name}", _word(chunk, Relation(f"a.{name}", kind, "Internal"), **{f"word/a.{name}": text})
    yield (
        "subdocument",
        _word('<w:p><w:subDoc r:id="x"/></w:p>', Relation(f"file://{folder}/secret.txt", f"{_RELATIONS}/subDocument")),
    )
    entity = f'<!DOCTYPE a [<!ENTITY e SYSTEM "file://{folder}/secret.txt">]>'
    yield (
        "entity",
        docx(
            parts={
                "word/document.xml": f"{entity}<w:document {_NAMES}><w:body><w:p><w:r><w:t>&e;</w:t></w:r></w:p></w:body></w:document>"
            }
        ),
    )
    yield "include", _word(f'<xi:include href="file://{folder}/secret.txt" parse="text"/>')
    extension = (
        (
            '<a:extLst><a:ext uri="{{96DAC541-7B7A-43D3-8B79-37D633B846F1}}"><asvg:svgBlip r:embed="x"/></a:ext></a:extLst>'
        )
        .replace("{{", "{")
        .replace("}}", "}")
    )
    for name, data in _svgs(folder).items():
        for content in (extension, None):
            blip = _blip('r:embed="x"', extension if content else "")
            yield (
                f"{name}{'_extension' if content else ''}",
                _word(blip, Relation("media/a.svg", mode="Internal"), **{"word/media/a.svg": data}),
            )


def _rtf(body: str) -> bytes:
    return f"{{\\rtf1\\ansi {body}\\par Text\\par}}".encode()


def _rtf_field(instruction: str) -> bytes:
    escaped = instruction.replace("\\", "\\\\")
    return _rtf(f"{{\\field{{\\*\\fldinst {escaped}}}{{\\fldrslt old}}}}")


def _rtf_files(folder: str, port: int) -> Iterator[tuple[str, bytes]]:
    yield "picture", _rtf_field(f'INCLUDEPICTURE "{folder}/secret.svg" \\d')
    yield "picture_url", _rtf_field(f'INCLUDEPICTURE "file://{folder}/secret.png"')
    yield "picture_server", _rtf_field(f'INCLUDEPICTURE "http://127.0.0.1:{port}/a.png"')
    yield "text", _rtf_field(f'INCLUDETEXT "{folder}/secret.txt"')
    yield "link", _rtf_field(f'LINK Excel.Sheet.8 "{folder}/secret.csv" "A1"')
    yield "dde", _rtf_field(f'DDEAUTO soffice "{folder}/secret.csv" "A1"')
    yield (
        "escaped",
        _rtf(f'{{\\field{{\\*\\fldinst {{\\b \\\'49NCLU}}{{DE\\u80?ICTURE "{folder}/secret.png"}}}}{{\\fldrslt a}}}}'),
    )
    yield "template", _rtf(f"{{\\*\\template {folder}/secret.txt}}")
    yield "files", _rtf(f"{{\\*\\filetbl{{\\file\\fid1\\fnetwork {folder}/secret.txt;}}}}{{\\subdocument1 a}}")
    yield (
        "object",
        _rtf(
            f"{{\\object\\objlink\\objupdate{{\\*\\objclass Excel.Sheet.8}}{{\\*\\objdata {_link_object(folder)}}}{{\\result a}}}}"
        ),
    )
    for flags in (2, 6, 10, 14):
        yield (
            f"shape_{flags}",
            _rtf(
                "{\\shp{\\*\\shpinst\\shpleft0\\shptop0\\shpright3000\\shpbottom1500{\\sp{\\sn shapeType}{\\sv 75}}"
                f"{{\\sp{{\\sn pibName}}{{\\sv {folder}/secret.png}}}}{{\\sp{{\\sn pibFlags}}{{\\sv {flags}}}}}}}}}"
            ),
        )


def _link_object(folder: str) -> str:
    def text(value: str) -> bytes:
        return (len(value) + 1).to_bytes(4, "little") + value.encode() + b"\0"

    return (bytes.fromhex("0105000001000000") + text("Excel.Sheet.8") + text(f"{folder}/secret.csv") + text("A1")).hex()


def _opendocument_files(folder: str, port: int) -> Iterator[tuple[str, bytes]]:
    frame = '<text:p><draw:frame svg:width="50mm" svg:height="25mm" text:anchor-type="as-char">{}</draw:frame></text:p>'
    secret = f"file://{folder}/secret"
    up = "../" * 9
    bodies = {
        "picture": frame.format(f'<draw:image xlink:href="{secret}.svg"/>'),
        "picture_path": frame.format(f'<draw:image xlink:href="{folder}/secret.png"/>'),
        "picture_relative": frame.format(f'<draw:image xlink:href="{up}{folder[1:]}/secret.png"/>'),
        "picture_inside": frame.format(f'<draw:image xlink:href="Pictures/{up}{folder[1:]}/secret.png"/>'),
        "picture_server": frame.format(f'<draw:image xlink:href="http://127.0.0.1:{port}/a.png"/>'),
        "picture_package": frame.format(f'<draw:image xlink:href="vnd.sun.star.Package:{up}{folder[1:]}/secret.png"/>'),
        "object": frame.format(f'<draw:object xlink:href="{secret}.csv"/>'),
        "object_ole": frame.format(f'<draw:object-ole xlink:href="{secret}.csv"/>'),
        "plugin": frame.format(f'<draw:plugin xlink:href="{secret}.png" draw:mime-type="image/png"/>'),
        "media": frame.format(
            f'<draw:plugin xlink:href="{secret}.png" draw:mime-type="application/vnd.sun.star.media"/>'
        ),
        "floating": frame.format(f'<draw:floating-frame xlink:href="{secret}.txt"/>'),
        "applet": frame.format(f'<draw:applet xlink:href="{secret}.txt" draw:code="a"/>'),
        "section": f'<text:section text:name="s"><text:section-source xlink:href="{secret}.txt" '
        'text:filter-name="Text"/><text:p>old</text:p></text:section>',
        "section_relative": f'<text:section text:name="s"><text:section-source xlink:href="{up}{folder[1:]}/secret.txt" '
        'text:filter-name="Text"/><text:p>old</text:p></text:section>',
        "dde": f'<text:section text:name="s"><office:dde-source office:dde-application="soffice" office:dde-topic='
        f'"{folder}/secret.txt" office:dde-item="a" office:automatic-update="true"/><text:p>old</text:p></text:section>',
        "include": f'<xi:include href="{secret}.txt" parse="text"/>',
        "database": f'<text:p><text:database-display text:table-name="secret" text:column-name="a"><form:connection-resource '
        f'xlink:href="sdbc:flat:file://{folder}"/>old</text:database-display></text:p>',
        "form": f'<office:forms><form:form><form:image form:id="c" xml:id="c" form:image-data="{secret}.png"/></form:form></office:forms>'
        '<text:p><draw:control draw:control="c" svg:width="50mm" svg:height="25mm" text:anchor-type="as-char"/></text:p>',
    }
    for name, body in bodies.items():
        yield (
            f"{name}.odt",
            opendocument("text", f"<office:body><office:text>{body}<text:p>Text</text:p></office:text></office:body>"),
        )
    background = f'<style:background-image xlink:href="{secret}.png" xlink:actuate="onLoad"/>'
    styles = (
        f'<office:automatic-styles><style:style style:name="P" style:family="paragraph"><style:paragraph-properties>{background}'
        "</style:paragraph-properties></style:style></office:automatic-styles><office:body><office:text><text:p "
        'text:style-name="P">Text</text:p></office:text></office:body>'
    )
    yield "background.odt", opendocument("text", styles)
    bullet = (
        f'<office:automatic-styles><text:list-style style:name="L"><text:list-level-style-image text:level="1" xlink:href="{secret}.png">'
        '<style:list-level-properties fo:width="50mm" fo:height="25mm"/></text:list-level-style-image></text:list-style>'
        '</office:automatic-styles><office:body><office:text><text:list text:style-name="L"><text:list-item><text:p>Text</text:p>'
        "</text:list-item></text:list></office:text></office:body>"
    )
    yield "bullet.odt", opendocument("text", bullet)
    font = (
        f'<office:font-face-decls><style:font-face style:name="Secret" svg:font-family="Secret"><svg:font-face-src><svg:font-face-uri '
        f'xlink:href="{secret}.txt"/></svg:font-face-src></style:font-face></office:font-face-decls><office:body><office:text><text:p>Text'
        "</text:p></office:text></office:body>"
    )
    yield "font.odt", opendocument("text", font)
    yield (
        "manifest.odt",
        opendocument(
            "text",
            f"<office:body><office:text>{bodies['picture_relative']}</office:text></office:body>",
            {f"{up}{folder[1:]}/secret.png": ""},
        ),
    )
    for name, data in _svgs(folder).items():
        yield (
            f"{name}.odt",
            opendocument(
                "text",
                "<office:body><office:text>"
                + frame.format('<draw:image xlink:href="Pictures/a.svg"/>')
                + "</office:text></office:body>",
                {"Pictures/a.svg": data},
            ),
        )
    slide = (
        '<office:body><office:presentation><draw:page draw:name="p">{}</draw:page></office:presentation></office:body>'
    )
    flat = frame.removeprefix("<text:p>").removesuffix("</text:p>")
    for name, content in (
        ("picture", flat.format(f'<draw:image xlink:href="{secret}.png"/>')),
        (
            "video",
            flat.format(f'<draw:plugin xlink:href="{secret}.png" draw:mime-type="application/vnd.sun.star.media"/>'),
        ),
        (
            "sound",
            f'<draw:rect svg:width="9mm" svg:height="9mm"><office:event-listeners><presentation:event-listener script:event-name="dom:click" '
            f'presentation:action="sound"><presentation:sound xlink:href="{secret}.txt"/></presentation:event-listener></office:event-listeners></draw:rect>',
        ),
    ):
        yield f"{name}.odp", opendocument("presentation", slide.format(content))
    fill = f'<office:styles><draw:fill-image draw:name="f" xlink:href="{secret}.png"/></office:styles>'
    yield "fill.odp", opendocument("presentation", slide.format(""), {"styles.xml": opendocument_part("styles", fill)})
    cell = '<table:table-cell office:value-type="string"><text:p>{}</text:p></table:table-cell>'
    tables = {
        "table": f'<table:table table:name="a"><table:table-source xlink:href="{secret}.csv" table:filter-name="Text - txt - csv (StarCalc)" table:filter-options="44,34,76,1"/><table:table-row>{cell.format("old")}</table:table-row></table:table>',
        "range": f'<table:table table:name="a"><table:table-row><table:table-cell><table:cell-range-source xlink:href="{secret}.csv" table:name="A1" table:filter-name="Text - txt - csv (StarCalc)" table:last-column-spanned="1" table:last-row-spanned="1"/></table:table-cell></table:table-row></table:table>',
        "formula": f'<table:table table:name="a"><table:table-row><table:table-cell table:formula="of:=\'{secret}.csv\'#$secret.A1"/></table:table-row></table:table>',
        "webservice": f'<table:table table:name="a"><table:table-row><table:table-cell table:formula="of:=COM.MICROSOFT.WEBSERVICE(&quot;{secret}.txt&quot;)"/></table:table-row></table:table>',
        "webservice_server": f'<table:table table:name="a"><table:table-row><table:table-cell table:formula="of:=COM.MICROSOFT.WEBSERVICE(&quot;http://127.0.0.1:{port}/&quot;)"/></table:table-row></table:table>',
        "dde": f'<table:table table:name="a"><table:table-row><table:table-cell table:formula="of:=DDE(&quot;soffice&quot;;&quot;{folder}/secret.csv&quot;;&quot;a.A1&quot;)"/></table:table-row></table:table>',
    }
    for name, body in tables.items():
        yield (
            f"{name}.ods",
            opendocument("spreadsheet", f"<office:body><office:spreadsheet>{body}</office:spreadsheet></office:body>"),
        )


def opendocument_part(kind: str, body: str) -> str:
    names = " ".join(
        f'xmlns:{name}="urn:oasis:names:tc:opendocument:xmlns:{urn}:1.0"'
        for name, urn in (("office", "office"), ("draw", "drawing"))
    )
    return f'<office:document-{kind} {names} xmlns:xlink="http://www.w3.org/1999/xlink">{body}</office:document-{kind}>'


def _package(main: str, kind: str, relations: Mapping[str, str], parts: Mapping[str, bytes | str]) -> bytes:
    overrides = "".join(
        f'<Override PartName="/{name}" ContentType="application/vnd.openxmlformats-officedocument.{one}+xml"/>'
        for name, one in relations.items()
    )
    types = "http://schemas.openxmlformats.org/package/2006/content-types"
    return zipped(
        {
            "[Content_Types].xml": f'<Types xmlns="{types}"><Default Extension="rels" ContentType="application/vnd.openxmlformats-package.relationships+xml"/>'
            '<Default Extension="svg" ContentType="image/svg+xml"/><Default Extension="png" ContentType="image/png"/>'
            f"{overrides}</Types>",
            "_rels/.rels": str(Relation(main, f"{_RELATIONS}/officeDocument", "Internal")),
            **parts,
        }
    )


def _slides(shape: str, relation: Relation, **parts: bytes | str) -> bytes:
    tree = f'<p:cSld><p:spTree><p:nvGrpSpPr><p:cNvPr id="1" name=""/><p:cNvGrpSpPr/><p:nvPr/></p:nvGrpSpPr><p:grpSpPr/>{shape}</p:spTree></p:cSld>'
    return _package(
        "ppt/presentation.xml",
        "",
        {"ppt/presentation.xml": "presentationml.presentation.main", "ppt/slides/slide1.xml": "presentationml.slide"},
        {
            "ppt/presentation.xml": f'<p:presentation {_NAMES}><p:sldIdLst><p:sldId id="256" r:id="x"/></p:sldIdLst><p:sldSz cx="9144000" cy="6858000"/></p:presentation>',
            "ppt/_rels/presentation.xml.rels": str(Relation("slides/slide1.xml", f"{_RELATIONS}/slide", "Internal")),
            "ppt/slides/slide1.xml": f"<p:sld {_NAMES}>{tree}</p:sld>",
            "ppt/slides/_rels/slide1.xml.rels": str(relation),
            **parts,
        },
    )


def _slide_files(folder: str, port: int) -> Iterator[tuple[str, bytes]]:
    secret = f"file://{folder}/secret"
    xfrm = '<p:spPr><a:xfrm><a:off x="0" y="0"/><a:ext cx="1905000" cy="952500"/></a:xfrm><a:prstGeom prst="rect"/>{}</p:spPr>'
    pic = (
        '<p:pic><p:nvPicPr><p:cNvPr id="2" name="a"/><p:cNvPicPr/><p:nvPr>{}</p:nvPr></p:nvPicPr><p:blipFill><a:blip {}/><a:stretch><a:fillRect/></a:stretch></p:blipFill>'
        + xfrm.format("")
        + "</p:pic>"
    )
    yield "picture", _slides(pic.format("", 'r:link="x"'), Relation(f"{secret}.png"))
    yield (
        "video",
        _slides(pic.format('<a:videoFile r:link="x"/>', ""), Relation(f"{secret}.png", f"{_RELATIONS}/video")),
    )
    yield (
        "audio",
        _slides(pic.format('<a:audioFile r:link="x"/>', ""), Relation(f"{secret}.txt", f"{_RELATIONS}/audio")),
    )
    fill = (
        '<p:sp><p:nvSpPr><p:cNvPr id="2" name="a"/><p:cNvSpPr/><p:nvPr/></p:nvSpPr>'
        + xfrm.format('<a:blipFill><a:blip r:link="x"/><a:stretch/></a:blipFill>')
        + "</p:sp>"
    )
    yield "fill", _slides(fill, Relation(f"{secret}.png"))
    for name, data in _svgs(folder).items():
        yield (
            name,
            _slides(
                pic.format("", 'r:embed="x"'), Relation("../media/a.svg", mode="Internal"), **{"ppt/media/a.svg": data}
            ),
        )


def _sheets(
    formula: str,
    relation: Relation | None = None,
    workbook: str = "",
    rest: str = "",
    parts: Mapping[str, bytes | str] | None = None,
) -> bytes:
    ns = 'xmlns="http://schemas.openxmlformats.org/spreadsheetml/2006/main" ' + _NAMES
    return _package(
        "xl/workbook.xml",
        "",
        {
            "xl/workbook.xml": "spreadsheetml.sheet.main",
            "xl/worksheets/sheet1.xml": "spreadsheetml.worksheet",
            "xl/externalLinks/externalLink1.xml": "spreadsheetml.externalLink",
            "xl/connections.xml": "spreadsheetml.connections",
            "xl/queryTables/queryTable1.xml": "spreadsheetml.queryTable",
        },
        {
            "xl/workbook.xml": f'<workbook {ns}><sheets><sheet name="a" sheetId="1" r:id="x"/></sheets>{workbook}</workbook>',
            "xl/_rels/workbook.xml.rels": str(
                Relation("worksheets/sheet1.xml", f"{_RELATIONS}/worksheet", "Internal")
            ).replace(
                "</Relationships>",
                "".join(
                    f'<Relationship Id="{i}" Type="{_RELATIONS}/{k}" Target="{t}"/>'
                    for i, k, t in (
                        ("y", "externalLink", "externalLinks/externalLink1.xml"),
                        ("z", "connections", "connections.xml"),
                    )
                )
                + "</Relationships>",
            ),
            "xl/worksheets/sheet1.xml": f'<worksheet {ns}><sheetData><row r="1"><c r="A1">{formula}<v>1</v></c></row></sheetData>{rest}</worksheet>',
            **(parts or {}),
        },
    )


def _sheet_files(folder: str, port: int) -> Iterator[tuple[str, bytes]]:
    secret = f"file://{folder}/secret"
    ns = 'xmlns="http://schemas.openxmlformats.org/spreadsheetml/2006/main" ' + _NAMES
    book = f'<externalLink {ns}><externalBook r:id="x"><sheetNames><sheetName val="secret"/></sheetNames></externalBook></externalLink>'
    yield (
        "external_book",
        _sheets(
            "<f>[1]secret!A1</f>",
            workbook='<externalReferences><externalReference r:id="y"/></externalReferences>',
            parts={
                "xl/externalLinks/externalLink1.xml": book,
                "xl/externalLinks/_rels/externalLink1.xml.rels": str(
                    Relation(f"{secret}.csv", f"{_RELATIONS}/externalLinkPath")
                ),
            },
        ),
    )
    yield "webservice", _sheets(f'<f>_xlfn.WEBSERVICE("{secret}.txt")</f>')
    yield "webservice_server", _sheets(f'<f>_xlfn.WEBSERVICE("http://127.0.0.1:{port}/a")</f>')
    yield (
        "connection",
        _sheets(
            "",
            parts={
                "xl/connections.xml": f'<connections {ns}><connection id="1" name="c" type="6" refreshedVersion="4" refreshOnLoad="1"><textPr sourceFile="{folder}/secret.csv"/></connection></connections>'
            },
        ),
    )
    yield (
        "web_query",
        _sheets(
            "",
            parts={
                "xl/connections.xml": f'<connections {ns}><connection id="1" name="c" type="4" refreshedVersion="4" refreshOnLoad="1"><webPr url="http://127.0.0.1:{port}/a" sourceData="1"/></connection></connections>',
                "xl/worksheets/_rels/sheet1.xml.rels": str(
                    Relation("../queryTables/queryTable1.xml", f"{_RELATIONS}/queryTable", "Internal")
                ),
                "xl/queryTables/queryTable1.xml": f'<queryTable {ns} name="q" connectionId="1" refreshOnLoad="1"/>',
            },
        ),
    )
    xdr = 'xmlns:xdr="http://schemas.openxmlformats.org/drawingml/2006/spreadsheetDrawing"'
    drawing = (
        f'<xdr:wsDr {xdr} {_NAMES}><xdr:absoluteAnchor><xdr:pos x="0" y="0"/><xdr:ext cx="1905000" cy="952500"/><xdr:pic><xdr:nvPicPr><xdr:cNvPr id="2" name="a"/><xdr:cNvPicPr/></xdr:nvPicPr>'
        '<xdr:blipFill><a:blip {}/><a:stretch><a:fillRect/></a:stretch></xdr:blipFill><xdr:spPr><a:xfrm><a:off x="0" y="0"/><a:ext cx="1905000" cy="952500"/></a:xfrm><a:prstGeom prst="rect"/></xdr:spPr></xdr:pic><xdr:clientData/></xdr:absoluteAnchor></xdr:wsDr>'
    )
    for name, attribute, relation in (
        ("picture", 'r:link="x"', Relation(f"{secret}.png")),
        ("svg", 'r:embed="x"', Relation("../media/a.svg", mode="Internal")),
    ):
        yield (
            name,
            _sheets(
                "",
                rest='<drawing r:id="x"/>',
                parts={
                    "xl/worksheets/_rels/sheet1.xml.rels": str(
                        Relation("../drawings/drawing1.xml", f"{_RELATIONS}/drawing", "Internal")
                    ),
                    "xl/drawings/drawing1.xml": drawing.replace("{}", attribute),
                    "xl/drawings/_rels/drawing1.xml.rels": str(relation),
                    "xl/media/a.svg": _svgs(folder)["svg"],
                },
            ),
        )
    yield (
        "background",
        _sheets(
            "",
            rest='<picture r:id="x"/>',
            parts={"xl/worksheets/_rels/sheet1.xml.rels": str(Relation(f"{secret}.png"))},
        ),
    )


def _tables(folder: str, port: int) -> Iterator[tuple[str, bytes]]:
    secret = f"file://{folder}/secret"
    yield "formula", f'"=\'{secret}.csv\'#$secret.A1",=WEBSERVICE(""{secret}.txt"")\na,b\n'.encode()
    yield "page", f'<html><body><img src="{secret}.png"><table><tr><td>a,b</td></tr></table></body></html>\n'.encode()
    flat = (
        "<?xml version='1.0'?><office:document xmlns:office='urn:oasis:names:tc:opendocument:xmlns:office:1.0' xmlns:draw='urn:oasis:names:tc:opendocument:xmlns:drawing:1.0' xmlns:text='urn:oasis:names:tc:opendocument:xmlns:text:1.0' xmlns:svg='urn:oasis:names:tc:opendocument:xmlns:svg-compatible:1.0' xmlns:xlink='http://www.w3.org/1999/xlink' office:mimetype='application/vnd.oasis.opendocument.text'><office:body><office:text><text:p><draw:frame svg:width='50mm' svg:height='25mm'><draw:image xlink:href='%s.png'/></draw:frame></text:p></office:text></office:body></office:document>"
        % secret
    )
    yield "flat", flat.encode()
    yield "rtf", _rtf_field(f'INCLUDEPICTURE "{folder}/secret.png"')
    yield "svg", _svgs(folder)["svg"]


def files(folder: str, port: int) -> dict[str, bytes]:
    """The files by name. Those of servers refer to this port of the loopback interface."""
    made = {name: data for name, data in _opendocument_files(folder, port)}
    for extension, function in (
        ("docx", _word_files),
        ("rtf", _rtf_files),
        ("pptx", _slide_files),
        ("xlsx", _sheet_files),
        ("csv", _tables),
    ):
        made |= {f"{name}.{extension}": data for name, data in function(folder, port)}
    return made
