"""SVG as vectors: PDF by Typst, and SVG without what is not drawn."""

from engine import Loss, Requirement, conversion
from engine.option_types import Metadata
from plugins import _programs
from plugins.pdf import OPTIONS_OF_DOCUMENTS, PDF
from plugins.svg import SVG

CAIRO = Requirement(
    "cairo",
    "vectors of SVG that Typst refuses",
    "apt-get install libcairo2",
    present=_programs.has_library("libcairo.so.2"),
)
MODULES = (
    *("plugins._svg.vectors", "PIL.AvifImagePlugin", "PIL.WebPImagePlugin"),
    *(("cairosvg",) if CAIRO.present else ()),
)


@conversion(SVG, PDF, cost=4, isolated=True, without=OPTIONS_OF_DOCUMENTS)
def to_pdf(data: bytes) -> bytes:
    from plugins._svg import vectors

    return vectors.to_pdf(data)


@conversion(SVG, SVG, loss=Loss.DETAIL, cost=4, isolated=True)
def redraw(data: bytes, *, metadata: Metadata = "safe") -> bytes:
    """The result contains the title and the description only with `metadata=all`, and no other metadata."""
    from plugins._svg import vectors

    return vectors.to_svg(data, keep_texts=metadata == "all")
