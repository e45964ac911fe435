"""Generated e-books, comics and XPS: one chapter or page with a title, texts and an image."""

import struct
import zipfile
from base64 import b64encode
from collections.abc import Mapping
from io import BytesIO

CHAPTERS = ("First chapter", "Second chapter")
TITLE = "The title of a book"
_CONTAINER = (
    '<container version="1.0" xmlns="urn:oasis:names:tc:opendocument:xmlns:container"><rootfiles>'
    '<rootfile full-path="book.opf" media-type="application/oebps-package+xml"/></rootfiles></container>'
)
_XPS = "http://schemas.microsoft.com/xps/2005/06"
_RELATIONS = "http://schemas.openxmlformats.org/package/2006/relationships"


def zipped(files: Mapping[str, str | bytes], compression: int = zipfile.ZIP_DEFLATED) -> bytes:
    """An archive of files with their contents by name: the same bytes each time, without the date."""
    file = BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        for name, content in files.items():
            method = zipfile.ZIP_STORED if name == "mimetype" else compression
            archive.writestr(zipfile.ZipInfo(name), content, method)
    return file.getvalue()


def chapter(title: str, body: str = "") -> str:
    """A chapter as XHTML."""
    return (
        f'<html xmlns="http://www.w3.org/1999/xhtml"><head><title>{title}</title></head>'
        f"<body><h1>{title}</h1><p>The text of the {title.lower()}.</p>{body}</body></html>"
    )


def epub(image: bytes, **files: str | bytes) -> bytes:
    """A book of two chapters, the first with a PNG and a link to the second. `files` replace those of a name."""
    numbers = range(1, len(CHAPTERS) + 1)
    items = "".join(f'<item id="c{n}" href="c{n}.xhtml" media-type="application/xhtml+xml"/>' for n in numbers)
    points = "".join(
        f'<navPoint id="n{n}"><navLabel><text>{CHAPTERS[n - 1]}</text></navLabel><content src="c{n}.xhtml"/></navPoint>'
        for n in numbers
    )
    contents: dict[str, str | bytes] = {
        "mimetype": "application/epub+zip",
        "META-INF/container.xml": _CONTAINER,
        "book.opf": (
            '<package xmlns="http://www.idpf.org/2007/opf" version="2.0">'
            f'<metadata xmlns:dc="http://purl.org/dc/elements/1.1/"><dc:title>{TITLE}</dc:title></metadata>'
            f'<manifest>{items}<item id="toc" href="toc.ncx" media-type="application/x-dtbncx+xml"/></manifest>'
            f'<spine toc="toc">{"".join(f"""<itemref idref="c{n}"/>""" for n in numbers)}</spine></package>'
        ),
        "toc.ncx": f'<ncx xmlns="http://www.daisy.org/z3986/2005/ncx/"><navMap>{points}</navMap></ncx>',
        "c1.xhtml": chapter(CHAPTERS[0], '<p><a href="c2.xhtml">next</a></p><p><img src="p.png" alt=""/></p>'),
        "c2.xhtml": chapter(CHAPTERS[1]),
        "p.png": image,
    }
    return zipped(contents | {name.replace("_", "."): content for name, content in files.items()})


def fb2(image: bytes) -> bytes:
    """A book of two chapters with a PNG."""
    sections = "".join(
        f"<section><title><p>{title}</p></title><p>The text of the {title.lower()}.</p></section>" for title in CHAPTERS
    )
    return (
        '<?xml version="1.0" encoding="utf-8"?>\n'
        '<FictionBook xmlns="http://www.gribuser.ru/xml/fictionbook/2.0" xmlns:l="http://www.w3.org/1999/xlink">'
        f"<description><title-info><book-title>{TITLE}</book-title></title-info></description>"
        f'<body>{sections}<p><image l:href="#p.png"/></p></body>'
        f'<binary id="p.png" content-type="image/png">{b64encode(image).decode()}</binary></FictionBook>'
    ).encode()


def mobi() -> bytes:
    """A book of two chapters, not compressed."""
    text = "".join(f"<h1>{title}</h1><p>The text of the {title.lower()}.</p><mbp:pagebreak/>" for title in CHAPTERS)
    content = f"<html><body>{text}</body></html>".encode()
    header = struct.pack(">HHIHHHH", 1, 0, len(content), 1, 4096, 0, 0)
    header += b"MOBI" + struct.pack(">IIII", 232, 2, 65001, 1) + b"\0" * 212
    records = (header, content)
    start = 78 + 8 * len(records) + 2
    offsets = (start, start + len(header))
    listed = b"".join(struct.pack(">II", offset, index) for index, offset in enumerate(offsets))
    name = TITLE.encode()[:31].ljust(32, b"\0")
    return name + b"\0" * 28 + b"BOOKMOBI" + b"\0" * 8 + struct.pack(">H", 2) + listed + b"\0\0" + b"".join(records)


def cbz(*images: bytes, extension: str = "png") -> bytes:
    """A comic with a page for each image."""
    files = {f"{number}.{extension}": image for number, image in enumerate(images, 1)}
    return zipped({**files, "ComicInfo.xml": f"<ComicInfo><Title>{TITLE}</Title></ComicInfo>"}, zipfile.ZIP_STORED)


def xps(size: tuple[int, int], boxes: list[tuple[int, int, tuple[int, int, int]]]) -> bytes:
    """A page of `size` points with a box of half its sides at each position, in points, in a color."""
    scale = 96 / 72
    width, height = (side * scale for side in size)
    paths = "".join(
        f'<Path Fill="#{"".join(f"{value:02x}" for value in color)}" '
        f'Data="M {x * scale},{y * scale} h {width / 2} v {height / 2} h -{width / 2} z"/>'
        for x, y, color in boxes
    )
    return zipped(
        {
            "[Content_Types].xml": "<Types/>",
            "_rels/.rels": (
                f'<Relationships xmlns="{_RELATIONS}">'
                f'<Relationship Id="R" Type="{_XPS}/fixedrepresentation" Target="/all.fdseq"/></Relationships>'
            ),
            "all.fdseq": (
                f'<FixedDocumentSequence xmlns="{_XPS}"><DocumentReference Source="/one.fdoc"/></FixedDocumentSequence>'
            ),
            "one.fdoc": f'<FixedDocument xmlns="{_XPS}"><PageContent Source="/one.fpage"/></FixedDocument>',
            "one.fpage": f'<FixedPage xmlns="{_XPS}" Width="{width}" Height="{height}">{paths}</FixedPage>',
        }
    )
