"""Files of Office, written without LibreOffice."""

from collections.abc import Mapping

from tests.support.samples.books import zipped

TEXT = "Harbor report"
FONT = "No Such Font"
_PACKAGE = "http://schemas.openxmlformats.org/package/2006"
_OFFICE = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
_WORD = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"
_ODF = "urn:oasis:names:tc:opendocument:xmlns"


def docx(text: str = TEXT, *, font: str = "Liberation Sans", parts: Mapping[str, str | bytes] | None = None) -> bytes:
    """A document with one line of text in the font, and additional parts."""
    main = "application/vnd.openxmlformats-officedocument.wordprocessingml.document.main+xml"
    return zipped(
        {
            "[Content_Types].xml": f'<Types xmlns="{_PACKAGE}/content-types"><Default Extension="rels" '
            'ContentType="application/vnd.openxmlformats-package.relationships+xml"/>'
            f'<Override PartName="/word/document.xml" ContentType="{main}"/></Types>',
            "_rels/.rels": f'<Relationships xmlns="{_PACKAGE}/relationships"><Relationship Id="r1" '
            f'Type="{_OFFICE}/officeDocument" Target="word/document.xml"/></Relationships>',
            "word/document.xml": f'<w:document xmlns:w="{_WORD}"><w:body><w:p><w:r><w:rPr><w:rFonts w:ascii="{font}" '
            f'w:hAnsi="{font}"/></w:rPr><w:t>{text}</w:t></w:r></w:p></w:body></w:document>',
            **(parts or {}),
        }
    )


def opendocument(kind: str, body: str, parts: Mapping[str, str | bytes] | None = None) -> bytes:
    """A file of OpenDocument with this body, and additional parts."""
    media_type = f"application/vnd.oasis.opendocument.{kind}"
    names = " ".join(
        f'xmlns:{name}="{_ODF}:{urn}:1.0"'
        for name, urn in (
            *((name, name) for name in ("office", "text", "script", "table", "style", "form", "presentation")),
            *(("draw", "drawing"), ("number", "datastyle"), ("svg", "svg-compatible"), ("fo", "xsl-fo-compatible")),
        )
    )
    listed = "".join(
        f'<manifest:file-entry manifest:full-path="{name}" manifest:media-type="text/xml"/>'
        for name in ("content.xml", *(parts or {}))
    )
    return zipped(
        {
            "mimetype": media_type,
            "content.xml": f'<office:document-content {names} xmlns:xlink="http://www.w3.org/1999/xlink" '
            f'office:version="1.2">{body}</office:document-content>',
            "META-INF/manifest.xml": f'<manifest:manifest xmlns:manifest="{_ODF}:manifest:1.0" manifest:version="1.2">'
            f'<manifest:file-entry manifest:full-path="/" manifest:media-type="{media_type}"/>{listed}'
            "</manifest:manifest>",
            **(parts or {}),
        }
    )


def odt(text: str = TEXT) -> bytes:
    return opendocument("text", f"<office:body><office:text><text:p>{text}</text:p></office:text></office:body>")


def odt_with_macro(text: str = TEXT) -> bytes:
    """A document whose macro replaces the text when the document is opened."""
    library = "http://openoffice.org/2000/library"
    script = "vnd.sun.star.script:Standard.Main.Main?language=Basic&amp;location=document"
    body = (
        f'<office:scripts><office:event-listeners><script:event-listener script:language="ooo:script" '
        f'script:event-name="dom:load" xlink:href="{script}" xlink:type="simple"/></office:event-listeners>'
        f"</office:scripts><office:body><office:text><text:p>{text}</text:p></office:text></office:body>"
    )
    return opendocument(
        "text",
        body,
        {
            "Basic/script-lc.xml": f'<library:libraries xmlns:library="{library}"><library:library '
            'library:name="Standard" library:link="false"/></library:libraries>',
            "Basic/Standard/script-lb.xml": f'<library:library xmlns:library="{library}" library:name="Standard" '
            'library:readonly="false"><library:element library:name="Main"/></library:library>',
            "Basic/Standard/Main.xml": '<script:module xmlns:script="http://openoffice.org/2000/script" '
            'script:name="Main" script:language="StarBasic">Sub Main\nThisComponent.Text.String = "replaced"\nEnd Sub\n'
            "</script:module>",
        },
    )


def encrypted_odt() -> bytes:
    """A document that says to be encrypted, with random data as its content."""
    manifest = (
        f'<manifest:manifest xmlns:manifest="{_ODF}:manifest:1.0"><manifest:file-entry manifest:full-path="/" '
        'manifest:media-type="application/vnd.oasis.opendocument.text"/><manifest:file-entry '
        'manifest:full-path="content.xml" manifest:media-type="text/xml" manifest:size="100"><manifest:encryption-data '
        'manifest:checksum-type="SHA1/1K" manifest:checksum="AAAA"/></manifest:file-entry></manifest:manifest>'
    )
    return opendocument("text", "", {"META-INF/manifest.xml": manifest, "content.xml": "\x01\x02" * 50})


def dxf(*entities: Mapping[int, object], ending: str = "  0\nEOF\n") -> bytes:
    """A drawing of CAD with a line and a text, and additional entities by their codes."""
    shapes: tuple[Mapping[int, object], ...] = (
        {0: "LINE", 8: 0, 10: 0, 20: 0, 11: 100, 21: 50},
        {0: "TEXT", 8: 0, 10: 10, 20: 30, 40: 5, 1: TEXT},
        *entities,
    )
    lines = [f"{code:>3}\n{value}\n" for shape in shapes for code, value in shape.items()]
    return f"  0\nSECTION\n  2\nENTITIES\n{''.join(lines)}  0\nENDSEC\n{ending}".encode()


def vdx() -> bytes:
    """A drawing of Visio 2003 with a text."""
    box = "<PinX>4</PinX><PinY>8</PinY><Width>3</Width><Height>1</Height><LocPinX>1.5</LocPinX><LocPinY>0.5</LocPinY>"
    size = "<PageSheet><PageProps><PageWidth>8.5</PageWidth><PageHeight>11</PageHeight></PageProps></PageSheet>"
    shape = f'<Shape ID="1" Type="Shape"><XForm>{box}</XForm><Text>{TEXT}</Text></Shape>'
    page = f'<Pages><Page ID="0" NameU="Page-1">{size}<Shapes>{shape}</Shapes></Page></Pages>'
    return f'<VisioDocument xmlns="http://schemas.microsoft.com/visio/2003/core">{page}</VisioDocument>'.encode()
