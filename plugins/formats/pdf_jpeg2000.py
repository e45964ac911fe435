"""JPEG 2000 as pages of PDF files, without decoding where readers of PDF decode it."""

from __future__ import annotations

from engine import AnyConversion, EncodedFile, conversion, hookimpl, lazy_imports
from engine.option_types import Dpi, Flip, Metadata, Rotate
from plugins._boxes import heif, jp2
from plugins.formats import pdf_images
from plugins.formats.jp2 import J2K, JP2, decode, mode_of
from plugins.formats.jp2 import MODULES as DECODERS
from plugins.formats.pdf import PDF

with lazy_imports():
    from plugins._pdf.images import image_pages

MODULES = (*DECODERS, *pdf_images.MODULES)
TEMPLATE = "documents"
_COLORS = (jp2.SRGB, jp2.GRAY, jp2.CMYK, None)  # None: of a profile or of a codestream
_DEPTHS = {(jp2.Depth(bits, signed=False),) * bands for bits in range(8, 17) for bands in (1, 3, 4)}
_CAPABILITIES = b"\xff\x50"  # the marker of extensions of the standard, such as high throughput


def embed(
    data: bytes, *, metadata: Metadata = "safe", rotate: Rotate = 0, flip: Flip | None = None, dpi: Dpi | None = None
) -> EncodedFile:
    """A PDF of one page that contains the image with unchanged pixels, and shows it turned.

    What some readers of PDF do not show is decoded, such as transparency.
    """
    image = pdf_images.Turned(decode(data), metadata, rotate, flip, dpi)
    header = jp2.read_header(data)
    mode = mode_of(header)
    box = heif.find(data, b"jp2c")
    codestream = data[box.content : box.end] if box else data
    has_extensions = codestream.startswith(_CAPABILITIES, 4 + int.from_bytes(codestream[4:6]))  # after the first marker
    is_plain = header.is_plain and not (header.subsampled or has_extensions or header.opacity is not None)
    is_known = header.depths in _DEPTHS and header.color_space in _COLORS and len(mode) == len(header.depths)
    if not (is_plain and is_known):
        return image.decoded()
    file = jp2.write(codestream, b"jp2 ", image.raster, mode, header.depths[0].bits, header.profile)
    stream = image_pages.Stream(file, header.size, mode, "JPXDecode", icc_profile=header.profile)
    return image.stored(stream, jp2.read_orientation(data))


@hookimpl
def conversions() -> list[AnyConversion]:
    return [conversion(source, PDF, terminal=True, cost=0.5, memory=40, isolated=True)(embed) for source in (JP2, J2K)]
