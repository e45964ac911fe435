"""Reads SVG for rendering: decompresses, expands entities, limits sizes, and removes references to other files."""

import base64
import binascii
import codecs
import re
from collections.abc import Callable
from io import BytesIO
from types import MappingProxyType
from urllib.parse import unquote_to_bytes

from lxml import etree

from engine import CorruptInput, TooLarge, UnknownFormat
from plugins._pixels import pillow
from plugins._svg import GZIP, decompress

SVG = "{http://www.w3.org/2000/svg}"
HREFS = ("href", "{http://www.w3.org/1999/xlink}href")
TRANSFORMS = MappingProxyType(
    {
        **dict.fromkeys((f"{SVG}linearGradient", f"{SVG}radialGradient"), "gradientTransform"),
        f"{SVG}pattern": "patternTransform",
    }
)
"""The attributes that transform other elements than by `transform`."""

_MAX_BYTES = 32 * 1024 * 1024  # the size after decompression and expansion
_MAX_ELEMENTS = 20_000  # including repetitions by <use> and embedded SVGs
_MAX_NESTING = 200
_UNREADABLE_TEXT = (
    etree.ErrorTypes.ERR_INVALID_ENCODING,
    etree.ErrorTypes.ERR_UNKNOWN_ENCODING,
    etree.ErrorTypes.ERR_UNSUPPORTED_ENCODING,
)
_UTF_16_MARKS = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
_UTF_16_DECLARATION = re.compile(rb"""<\?xml[^>]*\sencoding\s*=\s*["']utf-16""", re.IGNORECASE)  # in ASCII
_MAX_EMBEDDED = 3  # SVGs in SVGs
_DECODERS = ("PNG", "JPEG", "GIF", "WEBP", "AVIF", "BMP", "TIFF")
_DRAWN = frozenset({"PNG", "JPEG", "GIF", "WEBP"})  # images that resvg decodes; others and CMYK become PNG
_JPEG_QUALITY = 95
_DOCTYPE = re.compile(rb"<!DOCTYPE[^\[>]*(?:\[(.*?)\]\s*)?>", re.DOTALL)
_ENTITY = re.compile(rb"""<!ENTITY\s+([\w.:-]+)\s+(?:"([^"]*)"|'([^']*)')\s*>""")
_EXTERNAL_ENTITY = re.compile(rb"<!ENTITY\s+([\w.:-]+)\s+(?:SYSTEM|PUBLIC)\s")
_REFERENCE = re.compile(rb"&([A-Za-z_][\w.:-]*);")
_PREDEFINED = frozenset({b"amp", b"lt", b"gt", b"quot", b"apos"})
_MAX_DEPTH = 8
_LINK = re.compile(r"#|https?:|mailto:", re.IGNORECASE)
_URL = re.compile(r"url\(\s*(?!['\"]?\s*#)[^)]*\)", re.IGNORECASE)


def parse(data: bytes, normalize: Callable[[etree._Element], None]) -> tuple[etree._Element, bool]:
    """Returns the root element of an SVG file, and whether references to other files were removed from it.

    Calls `normalize` with the root, and with the roots of SVGs that are embedded in it.

    Expands the internal entities that drawing programs declare, to a limited depth and size.
    Comments and processing instructions are left out. Raises TooLarge above the limits, CorruptInput for invalid XML,
    and UnknownFormat if an external entity is used or the text cannot be decoded.
    """
    reader = _Reader(normalize)
    return reader.read(data), reader.removed


class _Reader:
    """Reads an SVG with those embedded in it. The limit on elements applies to all of them together."""

    def __init__(self, normalize: Callable[[etree._Element], None]) -> None:
        self.removed = False
        self._normalize = normalize
        self._elements = 0
        self._depth = 0

    def read(self, data: bytes) -> etree._Element:
        svg = decompress(data, _MAX_BYTES + 1)
        _check_bytes(len(svg))
        root = _parse(_expand_entities(svg))
        _check_nesting(root)
        self._elements += _count_drawn(root, _MAX_ELEMENTS - self._elements)
        self.removed = self.removed or any("@import" in (style.text or "") for style in root.iter(f"{SVG}style"))
        self._normalize(root)
        # Afterwards, because attributes can come from style sheets.
        for element in root.iter(etree.Element):
            self._check_references(element)
        return root

    def _check_references(self, element: etree._Element) -> None:
        """Removes references to other files, and checks embedded ones."""
        for name, value in element.items():
            if name in HREFS:
                link = value.strip()
                if element.tag == f"{SVG}a":
                    if not _LINK.match(link):
                        del element.attrib[name]
                elif link[:5].lower() == "data:":
                    element.set(name, self._embedded(link))
                elif link[:1] != "#":
                    del element.attrib[name]
                    self.removed = True
            elif "url(" in value and _URL.search(value):
                self.removed = True
                element.set(name, _URL.sub("none", value))

    def _embedded(self, link: str) -> str:
        """The checked data URL. Images in formats that renderers do not read become PNG, and are turned upright."""
        header, _, body = link.partition(",")
        data = decode_body(header, body)
        media_type = header[5:].partition(";")[0].strip().lower()
        if data[:2] == GZIP or media_type == "image/svg+xml" or data.lstrip()[:5] in (b"<svg ", b"<?xml", b"<!DOC"):
            if self._depth == _MAX_EMBEDDED:
                raise CorruptInput(f"SVGs are embedded in each other deeper than {_MAX_EMBEDDED} levels.")
            self._depth += 1
            root = self.read(data)
            self._depth -= 1
            return f"data:image/svg+xml;base64,{base64.b64encode(etree.tostring(root)).decode()}"
        if media_type.startswith("image/") or not media_type:
            # Pillow alone would choose the decoder, which could be Ghostscript.
            image = pillow.open_image(data, *_DECODERS)
            kind = str(image.format)
            upright = pillow.upright(image, image)
            if kind == "JPEG" and upright is not image and image.mode != "CMYK":
                data = pillow.encode_jpeg(upright, quality=_JPEG_QUALITY, icc_profile=image.info.get("icc_profile"))
            elif kind not in _DRAWN or image.mode == "CMYK" or upright is not image:
                kind = "PNG"
                data = pillow.encode(upright.convert("RGB" if image.mode == "CMYK" else "RGBA"), "PNG")
            return f"data:image/{kind.lower()};base64,{base64.b64encode(data).decode()}"
        return link


def decode_body(header: str, body: str) -> bytes:
    """The data of a data URL, of which `header` is the part before the comma. Raises CorruptInput."""
    data = unquote_to_bytes(body)
    if not header.lower().replace(" ", "").endswith(";base64"):
        return data
    try:
        return base64.b64decode(data)
    except binascii.Error as error:
        raise CorruptInput("The SVG has a data URL that is not valid base64.") from error


def _parse(svg: bytes) -> etree._Element:
    parser = etree.XMLParser(
        resolve_entities=False, no_network=True, load_dtd=False, remove_comments=True, remove_pis=True, huge_tree=True
    )
    try:
        root = etree.parse(BytesIO(svg), parser).getroot()
    except etree.XMLSyntaxError as error:
        if error.code in _UNREADABLE_TEXT or not _is_in_its_encoding(svg):
            raise UnknownFormat("The text of the SVG is not in its encoding, or that is not supported.") from error
        # The parser reads deeper nesting than is allowed.
        if error.code == etree.ErrorTypes.ERR_RESOURCE_LIMIT:
            raise _nested_too_deeply() from error
        raise CorruptInput("The SVG is not well-formed XML.") from error
    if root.tag == "svg":  # without a namespace, as some programs write it
        namespaces = {**root.nsmap, None: SVG[1:-1]}
        for element in root.iter(etree.Element):
            element.tag = element.tag if str(element.tag)[:1] == "{" else f"{SVG}{element.tag}"
        # A root that declares the namespace: written without it, the names of elements would get a prefix.
        named = etree.Element(root.tag, root.attrib, nsmap=namespaces)
        named.text = root.text
        named.extend(root[:])
        return named
    return root


def _expand_entities(svg: bytes) -> bytes:
    # Matched at one position only: searching would take quadratic time on many unclosed DOCTYPEs.
    doctype = _DOCTYPE.match(svg, max(0, svg.find(b"<!DOCTYPE")))
    if doctype is None:
        return svg
    subset = doctype.group(1) or b""
    declared = _ENTITY.findall(subset)
    external = _EXTERNAL_ENTITY.findall(subset)
    texts = {name: double or single for name, double, single in declared if name not in _PREDEFINED}
    svg = svg[: doctype.start()] + svg[doctype.end() :]
    for _ in range(_MAX_DEPTH):
        expanded = _substitute(svg, texts)
        if expanded == svg:
            _check_entities(svg, external)
            return svg
        svg = expanded
    raise CorruptInput(f"The entities of the SVG are nested deeper than {_MAX_DEPTH} levels.")


def _substitute(svg: bytes, texts: dict[bytes, bytes]) -> bytes:
    references = [match.group(1) for match in _REFERENCE.finditer(svg)]
    _check_bytes(len(svg) + sum(len(texts.get(name, b"")) for name in references))
    return _REFERENCE.sub(lambda match: texts.get(match.group(1), match.group(0)), svg)


def _check_entities(svg: bytes, external: list[bytes]) -> None:
    """Raises UnknownFormat if the text of an external entity is part of the image."""
    for name in {match.group(1) for match in _REFERENCE.finditer(svg)}.intersection(external) - _PREDEFINED:
        raise UnknownFormat(
            f"The SVG includes another file, by the entity {name.decode('ascii', 'replace')}. "
            "External entities are not read: put their text into the file."
        )


def _check_bytes(size: int) -> None:
    if size > _MAX_BYTES:
        raise TooLarge(
            f"The SVG exceeds {_MAX_BYTES} bytes after decompression and expansion of entities.",
            reason="bytes",
            details={"max_bytes": _MAX_BYTES},
        )


def _check_nesting(root: etree._Element) -> None:
    nesting = 0
    for event, _ in etree.iterwalk(root, events=("start", "end")):
        nesting += 1 if event == "start" else -1
        if nesting > _MAX_NESTING:
            raise _nested_too_deeply()


def _is_in_its_encoding(svg: bytes) -> bool:
    """Whether the text can be UTF-16 if it is declared so. The parser does not report all errors of UTF-16."""
    if svg[:2] not in _UTF_16_MARKS:
        return not _UTF_16_DECLARATION.match(svg)
    try:
        svg.decode("utf-16")
    except UnicodeDecodeError:
        return False
    return True


def _nested_too_deeply() -> TooLarge:
    message = f"The SVG is nested deeper than {_MAX_NESTING} elements."
    return TooLarge(message, reason="elements", details={"max_nesting": _MAX_NESTING})


def _count_drawn(root: etree._Element, limit: int) -> int:
    """The number of elements with those that <use> repeats: a few nested ones can repeat billions. Raises TooLarge."""
    by_id: dict[str, etree._Element] = {}
    uses = []
    count = 0
    for element in root.iter(etree.Element):
        count += 1
        _check_count(count, limit)
        by_id.setdefault(element.get("id", ""), element)
        if element.tag == f"{SVG}use":
            uses.append(element)
    if not uses:
        return count
    drawn = 0
    pending = [root]
    while pending:
        element = pending.pop()
        drawn += 1
        _check_count(drawn, limit)
        pending += element
        if element.tag == f"{SVG}use":
            links = (element.get(name, "").strip() for name in HREFS)
            pending += [by_id[link[1:]] for link in links if link[:1] == "#" and link[1:] in by_id]
    return drawn


def _check_count(elements: int, limit: int) -> None:
    if elements > limit:
        raise TooLarge(
            f"The SVG draws more than {_MAX_ELEMENTS} elements.",
            reason="elements",
            details={"max_elements": _MAX_ELEMENTS},
        )
