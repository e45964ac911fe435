"""Images as pages of PDF files."""

from engine import RASTER, Raster, conversion, lazy_imports
from engine.option_types import Quality
from plugins._jpeg.embedding import JPEG_QUALITY
from plugins._pixels import png_encoder
from plugins.formats.pdf import CAPABILITIES, PDF, to_bytes

with lazy_imports():
    from plugins._pdf.images import image_pages

MODULES = ("plugins._pdf.images.image_pages", *png_encoder.MODULES)
TEMPLATE = "documents"


@conversion(RASTER, PDF, cost=12, capabilities=CAPABILITIES)
def from_raster(raster: Raster, *, quality: Quality | None = None) -> bytes:
    """A PDF with a page per frame: as JPEG with a `quality` or if the pixels come from a lossy codec, otherwise
    lossless."""
    if quality is None and raster.source.lossy:
        quality = JPEG_QUALITY
    writer = image_pages.ImageWriter()
    for frame in raster.frames:
        writer.add_page(image_pages.encode_frame(frame, quality), frame.size, raster.dpi)
    if raster.metadata.xmp:
        writer.document.set_xml_metadata(raster.metadata.xmp.decode("utf-8", "replace"))
    return to_bytes(writer.document)
