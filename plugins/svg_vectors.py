"""SVG as vectors, drawn by CairoSVG."""

import ctypes

from engine import AnyConversion, Loss, Requirement, conversion, hookimpl
from engine.option_types import Metadata
from plugins.pdf import OPTIONS_OF_DOCUMENTS, PDF
from plugins.svg import SVG

MODULES = ("plugins._svg.vectors", "PIL.AvifImagePlugin", "PIL.WebPImagePlugin")


def _has_cairo() -> bool:
    try:
        ctypes.CDLL("libcairo.so.2")
    except OSError:
        return False
    return True


CAIRO = Requirement("cairo", "vectors from SVG", "apt-get install libcairo2", present=_has_cairo())


@conversion(SVG, PDF, cost=4, isolated=True, without=OPTIONS_OF_DOCUMENTS)
def to_pdf(data: bytes) -> bytes:
    from plugins._svg import vectors

    return vectors.to_pdf(data)


@conversion(SVG, SVG, loss=Loss.DETAIL, cost=4, isolated=True)
def redraw(data: bytes, *, metadata: Metadata = "safe") -> bytes:
    """The result contains no metadata, for any value of the option."""
    from plugins._svg import vectors

    return vectors.to_svg(data)


@hookimpl
def conversions() -> list[AnyConversion]:
    return [to_pdf, redraw] if CAIRO.present else []
