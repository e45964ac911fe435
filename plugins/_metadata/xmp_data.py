"""XMP packets: what is safe to publish, positions, and properties that are added to them."""

import html
import re
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from xml.dom.expatbuilder import parseString
from xml.dom.minicompat import NodeList
from xml.dom.minidom import Attr, Element
from xml.parsers.expat import ExpatError

from PIL import ExifTags

from plugins._metadata import exif_data

# Lists of what stays: new tags and namespaces are removed until they are known to be safe.
_EXIF_NAMES = frozenset(ExifTags.TAGS[tag] for tag in exif_data.SAFE_EXPOSURE if tag in ExifTags.TAGS) | {
    "FlashpixVersion", "PhotographicSensitivity", "ImageTitle", "Photographer"
}  # fmt: skip
_ANY = frozenset({"*"})
_DC = "http://purl.org/dc/elements/1.1/"
_PHOTOSHOP = "http://ns.adobe.com/photoshop/1.0/"
_BASIC = "http://ns.adobe.com/xap/1.0/"
_CORE = "http://iptc.org/std/Iptc4xmpCore/1.0/xmlns/"
_EXIF = "http://ns.adobe.com/exif/1.0/"
_PDF = "http://ns.adobe.com/pdf/1.3/"
_SAFE_NAMES: Mapping[str, frozenset[str]] = {
    _DC: _ANY,
    "http://ns.adobe.com/xap/1.0/rights/": _ANY,
    "http://creativecommons.org/ns#": _ANY,
    "http://ns.useplus.org/ldf/xmp/1.0/": _ANY,
    _PDF: _ANY,
    "http://www.aiim.org/pdfa/ns/id/": _ANY,
    "http://www.aiim.org/pdfua/ns/id/": _ANY,
    _EXIF: _EXIF_NAMES,
    "http://cipa.jp/exif/1.0/": _EXIF_NAMES,
    "http://ns.adobe.com/exif/1.0/aux/": frozenset({"Lens", "LensInfo", "LensID", "Firmware", "FlashCompensation"}),
    "http://ns.adobe.com/tiff/1.0/": frozenset(
        {"Make", "Model", "Artist", "Copyright", "DateTime", "Software", "ImageDescription", "Orientation"}
    ),
    _BASIC: frozenset({"CreateDate", "ModifyDate", "MetadataDate", "CreatorTool", "Rating", "Label"}),
    _PHOTOSHOP: frozenset({"DateCreated", "Credit", "Source", "AuthorsPosition", "Headline", "CaptionWriter"}),
    "http://iptc.org/std/Iptc4xmpExt/2008-02-29/": frozenset({"DigitalSourceType"}),
}
# Names of elements and attributes, such as exif:GPSLatitude and photoshop:City.
_POSITION = re.compile(
    r"[<\s][\w.-]+:(?:gps(?!versionid)|\w*(?:latitude|longitude)\b|(?:city|state|country\w*|(?:sub)?location\w*)\b)",
    re.IGNORECASE,
)
# Properties that describe the file and not the image.
_TECHNICAL = re.compile(
    r"(?:(?:xmp|xap):(?:CreatorTool|CreateDate|ModifyDate|MetadataDate)|tiff:(?:Orientation|Software|DateTime)|dc:format"
    r"|exif:(?:ColorSpace|PixelXDimension|PixelYDimension|ExifVersion|FlashpixVersion)|pdf:Producer|rdf:\w+|xmlns:\w+|xml:\w+|x:\w+)$"
)
_NAME = re.compile(r"[<\s]([A-Za-z][\w.-]*:[\w.-]+)")

_RDF = "http://www.w3.org/1999/02/22-rdf-syntax-ns#"
_NAMESPACES = "http://www.w3.org/2000/xmlns/"
# Larger packets take too long to parse.
_MAX_CHARACTERS = 4 << 20
_MAX_TAGS = 20_000
_PACKET = '<?xpacket begin="\ufeff" id="W5M0MpCehiHzreSzNTczkc9d"?>{}<?xpacket end="w"?>'
_EMPTY = f'<x:xmpmeta xmlns:x="adobe:ns:meta/"><rdf:RDF xmlns:rdf="{_RDF}"></rdf:RDF></x:xmpmeta>'
_END = re.compile(r"</[\w.-]+:RDF\s*>")
_INVALID_CHARACTERS = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_PREFIXES: Mapping[str, str] = MappingProxyType(
    {"dc": _DC, "photoshop": _PHOTOSHOP, "xmp": _BASIC, "Iptc4xmpCore": _CORE, "exif": _EXIF, "pdf": _PDF}
)
_ITEM = "<rdf:li>"
_DEFAULT_ITEM = '<rdf:li xml:lang="x-default">'
# Properties with a list of values: its type, and how an item begins.
_LISTS: Mapping[str, tuple[str, str]] = MappingProxyType(
    {
        "dc:creator": ("Seq", _ITEM),
        "dc:subject": ("Bag", _ITEM),
        "photoshop:SupplementalCategories": ("Bag", _ITEM),
        "dc:title": ("Alt", _DEFAULT_ITEM),
        "dc:description": ("Alt", _DEFAULT_ITEM),
        "dc:rights": ("Alt", _DEFAULT_ITEM),
        "exif:UserComment": ("Alt", _DEFAULT_ITEM),
    }
)


def has_position(packet: bytes) -> bool:
    """Whether a packet names a place or coordinates."""
    return _POSITION.search(_decode(packet)) is not None


def describes(packet: bytes) -> bool:
    """Whether a packet has more than facts about the file: the program, dates of the file, format and sizes."""
    return any(not _TECHNICAL.match(name) for name in _NAME.findall(_decode(packet)[:_MAX_CHARACTERS]))


def safe_part(packet: bytes) -> bytes | None:
    """The properties of a packet that are safe to publish. None if there are none, or it cannot be parsed."""
    # Decoded here, so that the packet cannot declare an encoding in which a DOCTYPE is not found.
    text = _decode(packet)
    # Entities can expand to any size.
    if len(text) > _MAX_CHARACTERS or text.count("<") > _MAX_TAGS or "<!DOCTYPE" in text:
        return None
    try:
        with parseString(text) as document:
            root = document.documentElement
            if root is None or not _remove_private(root):
                return None
            return _PACKET.format(root.toxml()).encode()
    except (ExpatError, ValueError, RecursionError):
        return None


def with_properties(packet: bytes | None, properties: Mapping[str, Sequence[str]]) -> bytes | None:
    """A packet, or a new one, with further properties by prefix and name. The packet's own values have precedence."""
    text = _decode(packet or _PACKET.format(_EMPTY).encode())
    present = set(_NAME.findall(text))
    added = "".join(_element(name, values) for name, values in properties.items() if name not in present)
    ends = list(_END.finditer(text))
    if not added or not ends:
        return packet
    namespaces = "".join(f' xmlns:{prefix}="{uri}"' for prefix, uri in (("rdf", _RDF), *_PREFIXES.items()))
    description = f'<rdf:Description rdf:about=""{namespaces}>{added}</rdf:Description>'
    position = ends[-1].start()
    return (text[:position] + description + text[position:]).encode()


def missing(packet: bytes | None, properties: Mapping[str, Sequence[str]]) -> list[str]:
    """The names of the properties with a value that a packet does not contain."""
    text = _normalize(html.unescape(_decode(packet or b"")))
    return [name for name, values in properties.items() if any(_normalize(value) not in text for value in values)]


def _normalize(text: str) -> str:
    return " ".join(_INVALID_CHARACTERS.sub("", text).split())


def _element(name: str, values: Sequence[str]) -> str:
    texts = [html.escape(_INVALID_CHARACTERS.sub("", value), quote=False) for value in values]
    if name not in _LISTS:
        return f"<{name}>{texts[0]}</{name}>"
    kind, item = _LISTS[name]
    shown = texts if item == _ITEM else ["\n".join(texts)]  # further items would have other languages
    items = "".join(f"{item}{text}</rdf:li>" for text in shown)
    return f"<{name}><rdf:{kind}>{items}</rdf:{kind}></{name}>"


def _decode(packet: bytes) -> str:
    return packet.decode("utf-8", "replace").strip("\ufeff\0 \r\n\t")


def _remove_private(root: Element) -> bool:
    """Removes all but the properties that stay. Returns whether there are any."""
    rdf = root if _is_rdf(root, "RDF") else next((node for node in _elements(root) if _is_rdf(node, "RDF")), None)
    if rdf is None:
        return False
    if rdf is not root:
        _set_children(root, [rdf])
    descriptions = [node for node in _elements(rdf) if _is_rdf(node, "Description")]
    _set_children(rdf, descriptions)
    kept = 0
    for description in descriptions:
        properties = [node for node in _elements(description) if _is_safe(node)]
        _set_children(description, properties)
        attributes = [attribute for attribute in _attributes(description) if not _is_structure(attribute)]
        for attribute in attributes:
            if not _is_safe(attribute):
                description.removeAttributeNode(attribute)
        kept += len(properties) + sum(map(_is_safe, attributes))
    return kept > 0


def _elements(parent: Element) -> list[Element]:
    return [node for node in parent.childNodes if isinstance(node, Element)]


def _set_children(parent: Element, children: list[Element]) -> None:
    parent.childNodes = NodeList(children)


def _attributes(element: Element) -> list[Attr]:
    attributes = element.attributes
    return list(attributes.values()) if attributes else []


def _is_rdf(element: Element, name: str) -> bool:
    return (element.namespaceURI, element.localName) == (_RDF, name)


def _is_safe(node: Element | Attr) -> bool:
    names = _SAFE_NAMES.get(node.namespaceURI or "", frozenset())
    return names is _ANY or node.localName in names


def _is_structure(attribute: Attr) -> bool:
    """Whether an attribute is a namespace declaration or part of RDF itself, such as rdf:about."""
    return attribute.namespaceURI in (_RDF, _NAMESPACES)
