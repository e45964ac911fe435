"""Scans: pages of TIFF files in PDF without decoding, and pages of PDF files in TIFF without drawing."""

from engine import Raster, check_count, conversion
from engine.option_types import Metadata, Pages
from plugins import _pillow, tiff
from plugins import metadata as metadata_filter
from plugins.pdf import HOLDS, PDF, to_bytes
from plugins.tiff import TIFF

MODULES = ("plugins._pdf.pictures", "plugins._tiff_embedding", *tiff.MODULES)
_INCH = 2


@conversion(TIFF, PDF, terminal=True, cost=11)  # more than from a raster through a TIFF
def embed_tiff(data: bytes, *, pages: Pages | None = None, metadata: Metadata = "safe") -> bytes:
    """A PDF with the pages of a TIFF: those by Group 4 and JPEG as they are, others without loss."""
    from plugins import _tifffile
    from plugins._pdf.pictures import PictureWriter, encode_frame
    from plugins._tiff_embedding import embeddable

    writer = PictureWriter()
    with _tifffile.open_file(data) as file:
        found = _tifffile.pictures(file)
        order = _pillow.select(list(range(len(found))), pages)
        check_count(len(order), [_tifffile.upright_size(found[index]) for index in order], "pages")
        embedded = {index: embeddable(data, found[index]) for index in order}
        rest = [index for index in order if embedded[index] is None]
        raster = _decode(data, rest or order[:1], metadata)
        frames = iter(raster.converted_for(HOLDS).frames if rest else ())
        for index in order:
            page, picture = found[index], embedded[index]
            dpi, orientation = _pillow.plausible_dpi(page.get_resolution(unit=_INCH)), _tifffile.orientation(page)
            if picture is not None:
                writer.add_page(picture, (page.imagewidth, page.imagelength), dpi, orientation)
            else:
                frame = next(frames)
                writer.add_page(encode_frame(frame, None), frame.size, dpi[::-1] if dpi and orientation >= 5 else dpi)
                del frame  # frees its memory before the next one is decoded
    if raster.xmp:
        writer.document.set_xml_metadata(raster.xmp.decode("utf-8", "replace"))
    return to_bytes(writer.document)


def _decode(data: bytes, pages: list[int], metadata: Metadata) -> Raster:
    """The pages at these indexes, which are decoded when they are read, with the metadata of the file."""
    raster = tiff.decode(data, {"pages": ",".join(str(index + 1) for index in pages)})
    return metadata_filter.metadata(raster, {"metadata": metadata})
