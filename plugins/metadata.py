"""EXIF and XMP of results: all of it, what is safe to publish, or none. Profiles are not affected."""

import re
from collections.abc import Mapping
from dataclasses import replace
from xml.dom.expatbuilder import parseString
from xml.dom.minicompat import NodeList
from xml.dom.minidom import Attr, Element
from xml.parsers.expat import ExpatError

from PIL import ExifTags

from engine import RASTER, FidelityWarning, Raster, transform
from engine.option_types import Metadata
from plugins import _exif

# Lists of what stays: new tags and namespaces are removed until they are known to be safe.
_EXIF_NAMES = frozenset(ExifTags.TAGS[tag] for tag in _exif.SAFE_EXPOSURE if tag in ExifTags.TAGS) | {
    *("FlashpixVersion", "PhotographicSensitivity", "ImageTitle", "Photographer")
}
_ANY = frozenset({"*"})
_XMP_NAMES: Mapping[str, frozenset[str]] = {
    "http://purl.org/dc/elements/1.1/": _ANY,
    "http://ns.adobe.com/xap/1.0/rights/": _ANY,
    "http://creativecommons.org/ns#": _ANY,
    "http://ns.useplus.org/ldf/xmp/1.0/": _ANY,
    "http://ns.adobe.com/pdf/1.3/": _ANY,
    "http://www.aiim.org/pdfa/ns/id/": _ANY,
    "http://www.aiim.org/pdfua/ns/id/": _ANY,
    "http://ns.adobe.com/exif/1.0/": _EXIF_NAMES,
    "http://cipa.jp/exif/1.0/": _EXIF_NAMES,
    "http://ns.adobe.com/exif/1.0/aux/": frozenset({"Lens", "LensInfo", "LensID", "Firmware", "FlashCompensation"}),
    "http://ns.adobe.com/tiff/1.0/": frozenset(
        {"Make", "Model", "Artist", "Copyright", "DateTime", "Software", "ImageDescription", "Orientation"}
    ),
    "http://ns.adobe.com/xap/1.0/": frozenset(
        {"CreateDate", "ModifyDate", "MetadataDate", "CreatorTool", "Rating", "Label"}
    ),
    "http://ns.adobe.com/photoshop/1.0/": frozenset(
        {"DateCreated", "Credit", "Source", "AuthorsPosition", "Headline", "CaptionWriter"}
    ),
    "http://iptc.org/std/Iptc4xmpExt/2008-02-29/": frozenset({"DigitalSourceType"}),
}
# Names of elements and attributes, such as exif:GPSLatitude and photoshop:City.
_POSITION = re.compile(
    r"[<\s][\w.-]+:(?:gps(?!versionid)|\w*(?:latitude|longitude)\b|(?:city|state|country\w*|(?:sub)?location\w*)\b)",
    re.IGNORECASE,
)

_RDF = "http://www.w3.org/1999/02/22-rdf-syntax-ns#"
_NAMESPACES = "http://www.w3.org/2000/xmlns/"
_MAX_CHARACTERS, _MAX_TAGS = 4 << 20, 20_000  # larger packets take too long to parse
_PACKET = '<?xpacket begin="\ufeff" id="W5M0MpCehiHzreSzNTczkc9d"?>{}<?xpacket end="w"?>'


@transform(RASTER, always=True, memory=0)
def metadata(raster: Raster, *, metadata: Metadata = "safe") -> Raster:
    """Filters EXIF and XMP. `safe` keeps dates, camera, lens, exposure, author and copyright."""
    return replace(raster, exif=filter_exif(raster.exif, metadata), xmp=filter_xmp(raster.xmp, metadata))


def filter_exif(exif: bytes | None, metadata: Metadata) -> bytes | None:
    """The part of an EXIF block that the option allows. `safe` removes an invalid block.

    Issues a FidelityWarning if `safe` removes a position.
    """
    if exif is None or metadata == "none":
        return None
    block = _exif.parse(exif)
    if block is None:
        FidelityWarning.issue("metadata_damaged", "The EXIF of the file is damaged. It was removed.")
        return None
    if metadata == "all":
        return exif
    if _exif.has_position(block):
        _warn_location_removed()
    return _exif.safe_part(block)


def filter_xmp(packet: bytes | None, metadata: Metadata) -> bytes | None:
    """The part of an XMP packet that the option allows. `safe` removes a packet that cannot be parsed.

    Issues a FidelityWarning if `safe` removes a position.
    """
    if packet is None or metadata == "all":
        return packet
    if metadata == "none":
        return None
    # Decoded here, so that the packet cannot declare an encoding in which a DOCTYPE is not found.
    text = packet.decode("utf-8", "replace").strip("\ufeff\0 \r\n\t")
    if _POSITION.search(text):
        _warn_location_removed()
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


def _warn_location_removed() -> None:
    FidelityWarning.issue("location_removed", "The position was removed from the metadata.")


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
    names = _XMP_NAMES.get(node.namespaceURI or "", frozenset())
    return names is _ANY or node.localName in names


def _is_structure(attribute: Attr) -> bool:
    """Whether an attribute is a namespace declaration or part of RDF itself, such as rdf:about."""
    return attribute.namespaceURI in (_RDF, _NAMESPACES)
