"""Metadata as targets hold it: the size of the result in EXIF; IPTC and texts as XMP where a format lacks them.

It is reduced to what is safe to publish if the client wants that.
"""

from collections.abc import Mapping, Set
from dataclasses import replace
from types import MappingProxyType

from engine import FidelityWarning, ImageMetadata, Raster, TargetCapabilities
from engine.option_types import Metadata
from plugins._metadata import exif_data, iptc_data, xmp_data

COMMENT = "Comment"
_WRITTEN_AS_XMP = frozenset({"iptc", "text"})
# XMP's equivalents of the keywords of PNG and of the fields of PDF, in lower case.
_PROPERTIES: Mapping[str, str] = MappingProxyType(
    {
        "title": "dc:title",
        "author": "dc:creator",
        "description": "dc:description",
        "subject": "dc:description",
        "copyright": "dc:rights",
        "keywords": "pdf:Keywords",
        "software": "xmp:CreatorTool",
        "comment": "exif:UserComment",
    }
)


def adapt(raster: Raster, target: TargetCapabilities, *, wanted: Set[str]) -> Raster:
    """The raster with the metadata that the target holds, for pixels of its size: IPTC and texts as XMP if need be.

    A resolution that is requested is in EXIF where the target has no other place for it.
    Issues a FidelityWarning for `wanted` kinds of metadata that the target lacks, for texts that XMP cannot hold or
    has with another value, and for blocks that are too large.
    """
    metadata = raster.metadata
    written_as_xmp = _WRITTEN_AS_XMP - target.metadata if "xmp" in target.metadata else frozenset()
    exif = exif_data.with_size(metadata.exif, raster.sizes[0]) if raster.sizes else metadata.exif
    if "resolution" in wanted - target.metadata and "exif" in target.metadata and raster.dpi:
        exif = exif_data.with_resolution(exif, raster.dpi[0])
        wanted = wanted - {"resolution"}
    if lost := wanted - target.metadata - written_as_xmp:
        names = sorted("resolution (dpi)" if kind == "resolution" else kind for kind in lost)
        _warn(f"The target cannot hold this metadata: {', '.join(names)}.")
    xmp = _with_captions(metadata, written_as_xmp) if written_as_xmp else metadata.xmp
    blocks = {"exif": exif, "xmp": xmp, "iptc": metadata.iptc}
    for name, block in blocks.items():
        if block and target.max_metadata is not None and len(block) > target.max_metadata:
            blocks[name] = None
            _warn(f"This metadata is too large for the target: {name}.")
    held = replace(metadata, exif=blocks["exif"], xmp=blocks["xmp"], iptc=blocks["iptc"])
    return replace(raster, metadata=held)


def _with_captions(metadata: ImageMetadata, kinds: Set[str]) -> bytes | None:
    """The XMP with the values of these kinds of metadata, as far as it has properties for them."""
    properties = iptc_data.properties(metadata.iptc) if metadata.iptc and "iptc" in kinds else {}
    for keyword, text in metadata.text if "text" in kinds else ():
        properties.setdefault(_PROPERTIES.get(keyword.lower(), ""), []).append(text)
    others = properties.pop("", [])
    xmp = xmp_data.with_properties(metadata.xmp, properties) if properties else metadata.xmp
    if others or (properties and xmp_data.missing(xmp, properties)):
        _warn("The target holds IPTC and texts as XMP, which lacks some of them.")
    return xmp


def _warn(message: str) -> None:
    FidelityWarning.issue("metadata_dropped", message)


def comments(raster: Raster) -> list[bytes]:
    """The texts as comments, for formats that have no keywords."""
    texts = (text if keyword == COMMENT else f"{keyword}: {text}" for keyword, text in raster.metadata.text)
    return [text.encode() for text in texts]


def filter_exif(exif: bytes | None, metadata: Metadata) -> bytes | None:
    """The part of an EXIF block that the option allows. Removes a damaged block, and issues a FidelityWarning.

    Issues one if `safe` removes a position, too.
    """
    if exif is None or metadata == "none":
        return None
    block = exif_data.parse(exif)
    if block is None:
        FidelityWarning.issue("metadata_damaged", "The EXIF of the file is damaged. It was removed.")
        return None
    if metadata == "all":
        return exif
    if exif_data.has_position(block):
        _warn_location_removed()
    return exif_data.safe_part(block)


def filter_xmp(packet: bytes | None, metadata: Metadata) -> bytes | None:
    """The part of an XMP packet that the option allows. `safe` removes a packet that cannot be parsed.

    Issues a FidelityWarning if `safe` removes a position.
    """
    if packet is None or metadata == "all":
        return packet
    if metadata == "none":
        return None
    if xmp_data.has_position(packet):
        _warn_location_removed()
    return xmp_data.safe_part(packet)


def filter_iptc(iptc: bytes | None, metadata: Metadata) -> bytes | None:
    """The part of IPTC that the option allows. Issues a FidelityWarning if `safe` removes the name of a place."""
    if iptc is None or metadata == "all":
        return iptc
    if metadata == "none":
        return None
    if iptc_data.has_position(iptc):
        _warn_location_removed()
    return iptc_data.safe_part(iptc)


def _warn_location_removed() -> None:
    FidelityWarning.issue("location_removed", "The position was removed from the metadata.")
