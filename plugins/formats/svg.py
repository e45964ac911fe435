"""SVG, plain or gzipped, drawn by resvg."""

from __future__ import annotations

import zlib

from engine import (
    RASTER,
    Content,
    FileFormat,
    Frame,
    ImageMetadata,
    ImageSource,
    Loss,
    Origin,
    Raster,
    Signature,
    Size,
    any_of,
    check_size,
    conversion,
    ends_with,
    lazy_imports,
)
from engine.option_types import Dpi
from plugins._fonts import COLOR_EMOJI as COLOR_EMOJI
from plugins._fonts import FONTS as FONTS
from plugins._pixels import pillow, png_encoder
from plugins._pixels.sizes import Drawing, scaled_size
from plugins._svg import GZIP, decompress
from plugins._text.markup import in_markup, root_name
from plugins.formats import jpeg, webp
from plugins.formats.png import PNG

with lazy_imports():
    from plugins._fonts import choice
    from plugins._svg import coordinates, document

MODULES = ("plugins._svg.document", *png_encoder.MODULES, *jpeg.MODULES, *webp.MODULES)  # and for common targets
TEMPLATE = "svg"
_HEAD = 65_536  # bytes within which the root element must begin


def _sniff(content: Content) -> int:
    """4 if the root element, after declarations and comments, is svg; otherwise 0."""
    try:
        head = decompress(content[:_HEAD], _HEAD)
    except zlib.error:
        return 0
    return 4 if root_name(head) == "svg" else 0


SVG = FileFormat(
    "svg",
    media_type="image/svg+xml",
    extensions=("svg", "svgz"),
    sniff=any_of(in_markup(_sniff), Signature((0, GZIP), then=_sniff)),
    is_complete=ends_with(b"</svg>"),
)


@conversion(SVG, RASTER, loss=Loss.STRUCTURE, cost=4, isolated=True, without=("enlarge",))
def render(
    data: bytes,
    *,
    drawing: Drawing,
    dpi: Dpi = 96,
) -> Raster:
    """Draws at `dpi`, or at the requested size. A crop is in pixels at `dpi`."""
    chooser = choice.FontChooser()
    root = document.read(data, chooser)
    across, down = coordinates.size(root)
    full: Size = (max(1, round(across * dpi / 96)), max(1, round(down * dpi / 96)))
    wanted = drawing.needed_size(full, enlarge=True)
    part = drawing.needed_box(full, wanted)
    left, top, right, bottom = box = part or (0, 0, *wanted)
    drawn = right - left, bottom - top
    check_size(*drawn)
    scaled = coordinates.scale_to(root, wanted)
    png = document.render(scaled, chooser, box)

    def redraw(side: int) -> Frame:
        size = scaled_size(full, side, side, fit="inside", enlarge=True)
        drawn = document.render(coordinates.scale_to(root, size), chooser, (0, 0, *size))
        return Frame(pillow.open_image(drawn, "PNG"))

    frame = Frame(
        pillow.open_image(png, "PNG"), full_size=full if part or full != wanted else None, cropped=part is not None
    )
    return Raster(
        [frame],
        dpi=(dpi * wanted[0] / full[0], dpi * wanted[1] / full[1]),
        source=ImageSource(scalable=True),
        redraw=None if part or full != wanted else redraw,
        metadata=ImageMetadata(text=document.texts(root)),
        sizes=[full],
        drawn_sizes=[drawn],
        origin=Origin(PNG, png, (0, 0, *drawn)),
    )
