"""EXIF, XMP, IPTC and texts of results: all, what is safe to publish, or none; the resolution. Profiles stay."""

from dataclasses import replace
from functools import partial

from engine import RASTER, ImageMetadata, Raster, transform
from engine.option_types import Dpi, Metadata
from plugins._metadata import exif_data, writing, xmp_data
from plugins._metadata.writing import filter_exif, filter_iptc, filter_xmp


@transform(RASTER, always=True, memory=0)
def metadata(raster: Raster, *, metadata: Metadata = "safe", dpi: Dpi | None = None) -> Raster:
    """Filters EXIF, XMP, IPTC and texts. `safe` keeps dates, camera, lens, exposure, captions, author and copyright.

    `dpi` becomes the resolution of images; vectors are drawn at it before.
    """
    blocks = raster.metadata
    exif = filter_exif(blocks.exif, metadata)
    if dpi and not raster.source.scalable:
        raster = _with_resolution(raster, dpi)
        exif = exif and exif_data.with_resolution(exif, dpi)
    xmp = filter_xmp(blocks.xmp, metadata)
    iptc = filter_iptc(blocks.iptc, metadata)
    text = blocks.text if metadata == "all" else ()
    block = exif_data.parse(exif)
    everything = metadata == "all"
    contents = {
        "exif": block and exif_data.describes(block, program=everything),
        "xmp": xmp and (everything or xmp_data.describes(xmp)),
        "iptc": iptc,
        "text": text,
        "resolution": dpi and not raster.source.scalable,
    }
    wanted = frozenset(name for name, content in contents.items() if content)
    adapt = partial(writing.adapt, wanted=wanted)
    return replace(raster, metadata=ImageMetadata(exif, xmp, iptc, text, adapt))


def _with_resolution(raster: Raster, dpi: int) -> Raster:
    if raster.count > 1:  # pages can have one each
        raster = raster.map(lambda frame: replace(frame, dpi=None))
    return replace(raster, dpi=(dpi, dpi))
