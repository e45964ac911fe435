"""Metadata as encoders write it: the size of the result in EXIF; IPTC and texts as XMP where a format lacks them."""

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType

from engine import FidelityWarning, Raster, Size, TargetCapabilities
from plugins import _exif, _iptc, _xmp

COMMENT = "Comment"
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


def for_target(raster: Raster, target: TargetCapabilities, size: Size, max_size: int | None = None) -> Raster:
    """The raster with the metadata to write in a file of `size`; `max_size` is the largest block in bytes.

    Issues a FidelityWarning for texts that XMP cannot hold or has otherwise, and for larger blocks, which are left out.
    """
    properties: dict[str, list[str]] = {}
    if raster.iptc and "iptc" not in target.metadata:
        properties = _iptc.properties(raster.iptc)
    if raster.text and "text" not in target.metadata:
        for keyword, text in raster.text:
            properties.setdefault(_PROPERTIES.get(keyword.lower(), ""), []).append(text)
    others = properties.pop("", [])
    xmp = _xmp.with_properties(raster.xmp, properties) if properties else raster.xmp
    if others or (properties and _xmp.missing(xmp, properties)):
        FidelityWarning.issue("metadata_dropped", "The target holds IPTC and texts as XMP, which lacks some of them.")
    blocks = {"exif": _exif.with_size(raster.exif, size), "xmp": xmp, "iptc": raster.iptc}
    for name, block in blocks.items():
        if block and max_size is not None and len(block) > max_size:
            blocks[name] = None
            FidelityWarning.issue("metadata_dropped", f"The {name.upper()} is too large for the target.")
    return replace(raster, exif=blocks["exif"], xmp=blocks["xmp"], iptc=blocks["iptc"])


def comments(raster: Raster) -> list[bytes]:
    """The texts as comments, for formats that have no keywords."""
    texts = (text if keyword == COMMENT else f"{keyword}: {text}" for keyword, text in raster.text)
    return [text.encode() for text in texts]
