"""EXIF, XMP, IPTC and texts of results: all, what is safe to publish, or none; the resolution. Profiles stay."""

from dataclasses import replace
from functools import partial

from engine import RASTER, FidelityWarning, Raster, transform
from engine.option_types import Dpi, Metadata
from plugins import _exif, _iptc, _metadata_writing, _xmp


@transform(RASTER, always=True, memory=0)
def metadata(raster: Raster, *, metadata: Metadata = "safe", dpi: Dpi | None = None) -> Raster:
    """Filters EXIF, XMP, IPTC and texts. `safe` keeps dates, camera, lens, exposure, captions, author and copyright.

    `dpi` becomes the resolution of pictures; vectors are drawn at it before.
    """
    exif = filter_exif(raster.exif, metadata)
    if dpi and not raster.scalable:
        raster = _with_resolution(raster, dpi)
        exif = exif and _exif.with_resolution(exif, dpi)
    xmp, iptc = filter_xmp(raster.xmp, metadata), filter_iptc(raster.iptc, metadata)
    text = raster.text if metadata == "all" else ()
    block = _exif.parse(exif)
    everything = metadata == "all"
    contents = {
        "exif": block and _exif.describes(block, program=everything),
        "xmp": xmp and (everything or _xmp.describes(xmp)),
        "iptc": iptc,
        "text": text,
        "resolution": dpi and not raster.scalable,
    }
    wanted = frozenset(name for name, content in contents.items() if content)
    adapt = partial(_metadata_writing.adapt, wanted=wanted)
    return replace(raster, exif=exif, xmp=xmp, iptc=iptc, text=text, adapt_metadata=adapt)


def _with_resolution(raster: Raster, dpi: int) -> Raster:
    if raster.count > 1:  # pages can have one each
        raster = raster.map(lambda frame: replace(frame, dpi=None))
    return replace(raster, dpi=(dpi, dpi))


def filter_exif(exif: bytes | None, metadata: Metadata) -> bytes | None:
    """The part of an EXIF block that the option allows. Removes a damaged block, and issues a FidelityWarning.

    Issues one if `safe` removes a position, too.
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
    if _xmp.has_position(packet):
        _warn_location_removed()
    return _xmp.safe_part(packet)


def filter_iptc(iptc: bytes | None, metadata: Metadata) -> bytes | None:
    """The part of IPTC that the option allows. Issues a FidelityWarning if `safe` removes the name of a place."""
    if iptc is None or metadata == "all":
        return iptc
    if metadata == "none":
        return None
    if _iptc.has_position(iptc):
        _warn_location_removed()
    return _iptc.safe_part(iptc)


def _warn_location_removed() -> None:
    FidelityWarning.issue("location_removed", "The position was removed from the metadata.")
