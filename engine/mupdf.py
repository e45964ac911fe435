"""Imports PyMuPDF without its optional neural network, which takes 0.5 s, 90 MB and threads in every process."""

import sys

_HIDDEN = ("pymupdf.layout", "pymupdf4llm")

sys.modules.update(dict.fromkeys(_HIDDEN))  # type: ignore[arg-type]
import pymupdf as pymupdf  # noqa: E402

for _name in _HIDDEN:
    del sys.modules[_name]

pymupdf.TOOLS.mupdf_display_errors(False)
pymupdf.TOOLS.mupdf_display_warnings(False)

_SIDE = 16  # points


def warm_up() -> None:
    """Draws and reads a page: MuPDF prepares its conversions of colors for 60 ms, once in each process."""
    document = pymupdf.open()
    page = document.new_page(width=_SIDE, height=_SIDE)
    for space in (pymupdf.csGRAY, pymupdf.csRGB, pymupdf.csCMYK):
        page.draw_rect(page.rect, fill=[0.5] * space.n)
        page.insert_image(page.rect, pixmap=pymupdf.Pixmap(space, pymupdf.IRect(page.rect), False))
    page.insert_text(page.rect.bl, "a")
    page.get_pixmap()
    page.get_text()
