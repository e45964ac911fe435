"""Images as pages of PDF files."""

from __future__ import annotations

from engine import RASTER, EncodedFile, OptionValue, Raster, conversion, lazy_imports
from engine.option_types import Dpi, Flip, Metadata, Quality, Rotate
from plugins._jpeg.embedding import JPEG_QUALITY
from plugins._metadata import exif_data
from plugins._pixels import png_chunks
from plugins.formats.pdf import CAPABILITIES, PDF, to_bytes
from plugins.operations import geometry
from plugins.operations import metadata as metadata_filter

with lazy_imports():
    from plugins._pdf.images import image_pages

MODULES = ("plugins._pdf.images.image_pages", *png_chunks.MODULES)
TEMPLATE = "documents"
_EXCHANGED = 5  # the first EXIF orientation that exchanges width and height


@conversion(RASTER, PDF, cost=12, capabilities=CAPABILITIES)
def from_raster(raster: Raster, *, quality: Quality | None = None) -> bytes:
    """A PDF with a page per frame: as JPEG with a `quality` or if the pixels come from a lossy codec, otherwise
    lossless."""
    if quality is None and raster.source.lossy:
        quality = JPEG_QUALITY
    writer = image_pages.ImageWriter()
    for frame in raster.frames:
        writer.add_page(image_pages.encode_frame(frame, quality), frame.size, raster.dpi)
    return _finish(writer, raster.metadata.xmp)


def _finish(writer: image_pages.ImageWriter, xmp: bytes | None) -> bytes:
    if xmp:
        writer.document.set_xml_metadata(xmp.decode("utf-8", "replace"))
    return to_bytes(writer.document)


class Turned:
    """A still image that becomes a PDF as it is stored, with the options for this that change no pixels."""

    def __init__(self, raster: Raster, metadata: Metadata, rotate: Rotate, flip: Flip | None, dpi: Dpi | None) -> None:
        given = {"metadata": metadata, "rotate": rotate, "flip": flip, "dpi": dpi}
        self._options: dict[str, OptionValue] = {name: value for name, value in given.items() if value is not None}
        self._rotate: Rotate = rotate
        self._flip = flip
        self.raster = metadata_filter.metadata(raster, self._options)

    def decoded(self) -> EncodedFile:
        """The PDF with decoded pixels."""
        data = from_raster(geometry.flip(geometry.rotate(self.raster, self._options), self._options))
        return EncodedFile(data, pages=self.raster.count)

    def stored(self, stream: image_pages.Stream, orientation: int, xmp: bytes | None = None) -> EncodedFile:
        """The PDF with this stream, which an EXIF orientation turns upright."""
        dots = self.raster.dpi
        dots = dots[::-1] if dots and orientation >= _EXCHANGED else dots
        turned = exif_data.orientation_after(orientation, rotate=self._rotate, flip=self._flip)
        writer = image_pages.ImageWriter()
        writer.add_page(stream, stream.size, dots, turned)
        return EncodedFile(_finish(writer, xmp), pages=1)
