"""The parts of EXIF, XMP and IPTC that the option `metadata` allows."""

from engine import FidelityWarning
from engine.option_types import Metadata
from plugins._metadata import exif_data, iptc_data, xmp_data


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
