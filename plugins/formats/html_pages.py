"""Pages of HTML and Markdown as a browser shows them: printed, or as an image."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from http import HTTPStatus
from typing import Any

from engine import (
    DOCUMENT,
    RASTER,
    AnyConversion,
    FidelityWarning,
    FileFormat,
    InvalidOption,
    Loss,
    Network,
    Raster,
    Requirement,
    conversion,
    hookimpl,
    lazy_imports,
)
from engine.option_types import Encoding
from plugins._browser.chromium import CHROMIUM, PROGRAMS, Chromium
from plugins._browser.options import Browsing, Picturing, Printing
from plugins._text.markup import encoding as charset_of
from plugins._text.markup import read_archive
from plugins._text.paper import MARGIN, Paper
from plugins.formats import md
from plugins.formats.html import HTML
from plugins.formats.md import MD

with lazy_imports():
    from engine.mupdf import pymupdf
    from plugins._browser import pages as browser
    from plugins._pdf.pages import reading
    from plugins._pixels import pillow

MODULES = ("plugins._browser.chromium", "plugins._browser.pages", "plugins._pdf.pages.reading", *md.MODULES)
TEMPLATE = f"{md.TEMPLATE}/browser"
_COSTS = {HTML: 7, MD: 8}  # less than without a browser
_COST_OF_IMAGES = 7  # added; less than to draw pages, but too much for other texts to become HTML before
_MEMORY = 8.0  # bytes per pixel; of a page with photos a fourth of it, of large tables much more
_INCH = 25.4  # mm
_MARGIN_BOX = '<div style="font-size: 9px; width: 100%; margin: 0 {}mm">{}</div>'  # without, the text has no size
_PLACES = {"page": "pageNumber", "pages": "totalPages"}  # classes of elements that the browser fills
_CLASS = re.compile(r"""(class\s*=\s*["']?)(page|pages)(?![\w-])""")

_declare = partial(
    conversion,
    programs=PROGRAMS,
    memory=_MEMORY,
    isolated=True,
    chosen_by=("renderer=browser",),
)


def _steps(format: FileFormat, prepare: Callable[[bytes, str | None], tuple[bytes, str | None]]) -> list[AnyConversion]:
    """The steps from a format. Of a file and its encoding, `prepare` makes HTML and its encoding, as far as given."""

    @_declare(format, DOCUMENT, cost=_COSTS[format])
    def print_page(
        data: bytes,
        *,
        browsing: Browsing,
        printing: Printing,
        encoding: Encoding | None = None,
        network: Network | None = None,
        program: Chromium | None = None,
    ) -> pymupdf.Document:
        return _print(_content(*prepare(data, encoding), network, program), browsing, printing)

    @_declare(format, RASTER, loss=Loss.STRUCTURE, cost=_COSTS[format] + _COST_OF_IMAGES)
    def picture_page(
        data: bytes,
        *,
        browsing: Browsing,
        picturing: Picturing,
        encoding: Encoding | None = None,
        network: Network | None = None,
        program: Chromium | None = None,
    ) -> Raster:
        content = _content(*prepare(data, encoding), network, program)
        with browser.shown(content, browsing, "screen", device_scale=picturing.device_scale) as page:
            data = page.picture(full_page=picturing.full_page, selector=picturing.selector)
        image = pillow.open_image(data, "PNG")
        extremes: Any = image.getextrema()  # the least and the greatest value of each channel
        _warn_if_blank(all(low == high for low, high in extremes))
        return pillow.to_raster(image, [0])

    return [print_page, picture_page]


def _content(data: bytes, charset: str | None, network: Network | None, program: Chromium | None) -> browser.Content:
    markup, archive = read_archive(data)
    network = None if archive else network
    if network and network.page and network.page.status >= HTTPStatus.BAD_REQUEST:
        FidelityWarning.issue("http_status", f"The page has the status {network.page.status}.")
    return browser.Content(markup, archive, charset or charset_of(markup), network, program)


def _print(content: browser.Content, browsing: Browsing, printing: Printing) -> pymupdf.Document:
    """Pages of A4 with margins of 20 mm, unless the options or the document have others. Options precede."""
    margin = MARGIN if printing.margin is None else printing.margin
    paper = Paper.of(printing.page_size or "a4", bool(printing.landscape), margin)
    rules = [f"size: {paper.width}mm {paper.height}mm !important"] * (
        printing.page_size is not None or printing.landscape is not None
    )
    rules += [f"margin: {paper.margin}mm !important"] * (printing.margin is not None)
    style = f"@page {{ {'; '.join(rules)} }}" if rules else ""
    templates = (printing.header_html or "") + (printing.footer_html or "")
    with browser.shown(content, browsing, "print", style=style, templates=templates) as page:
        data = page.print(
            **{f"margin{side}": paper.margin / _INCH for side in ("Top", "Right", "Bottom", "Left")},
            paperWidth=paper.width / _INCH,
            paperHeight=paper.height / _INCH,
            scale=_scale(printing.scale),
            printBackground=printing.print_background,
            preferCSSPageSize=True,
            generateTaggedPDF=True,
            generateDocumentOutline=printing.bookmarks,
            displayHeaderFooter=not (printing.header_html is None and printing.footer_html is None),
            headerTemplate=_template(printing.header_html, paper.margin),
            footerTemplate=_template(printing.footer_html, paper.margin),
        )
    document = reading.read_pages(data, pages=printing.pages)
    _warn_if_blank(not any(page.get_text().strip() or page.get_images() or page.get_drawings() for page in document))
    return document


def _scale(percent: str | None) -> float:
    """The factor of a percentage. Raises InvalidOption beyond what the browser prints."""
    factor = 1.0 if percent is None else float(percent.strip().removesuffix("%")) / 100
    if not 0.1 <= factor <= 2:
        message = "scale must be from 10% to 200% for pages of HTML."
        raise InvalidOption(message, reason="out_of_range", param="scale", details={"min": 10, "max": 200})
    return factor


def _template(markup: str | None, margin: float) -> str:
    filled = _CLASS.sub(lambda found: f"{found[1]}{_PLACES[found[2]]}", markup or "")
    return _MARGIN_BOX.format(margin, filled)


def _warn_if_blank(is_blank: bool) -> None:
    if is_blank:
        FidelityWarning.issue("blank_page", "The browser has drawn nothing.")


@hookimpl
def conversions() -> list[AnyConversion]:
    if not CHROMIUM.present:
        return []
    return [
        *_steps(HTML, lambda data, encoding: (data, encoding)),
        *_steps(MD, lambda data, encoding: (md.to_html.run(data, encoding=encoding), "utf-8")),
    ]


@hookimpl
def requirements() -> list[Requirement]:
    return [CHROMIUM]
