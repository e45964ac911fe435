"""A PDF tool: makes files smaller. Text stays text; pictures lose resolution and quality."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace
from io import BytesIO
from typing import Annotated, TypeAlias

from pydantic import Field

from engine import FidelityWarning, Format, conversion, tool
from engine.option_types import ColorSpace, Dpi, Password, Quality, Sanitize
from plugins import pdf_objects
from plugins.pdf import COMPRESSED_QUALITY, DPI, PDF

MODULES = (*pdf_objects.MODULES, "plugins._pdf.compression", "plugins._pdf.form_fields")
_COST = 20  # more than other ways from PDF to PDF, which are preferred without the tool

Linearize: TypeAlias = Annotated[
    bool, Field(description="Orders the file so that viewers show its first page before the rest has arrived.")
]


@dataclass(frozen=True)
class CompressibleFile:
    """A PDF as it was given, the bytes to work on, its password and number of pages, and how to write it.

    `losses` are warnings that apply if the result is another file than the original.
    """

    original: bytes
    data: bytes
    password: str
    pages: int
    color_space: ColorSpace = "keep"
    linearize: bool = False
    losses: tuple[FidelityWarning, ...] = ()


COMPRESSIBLE = Format("compressible pdf", CompressibleFile, lazy=True)


def _page_count(file: CompressibleFile) -> int:
    return file.pages


@conversion(PDF, COMPRESSIBLE, cost=_COST, isolated=True)
def read(data: bytes, *, password: Password | None = None) -> CompressibleFile:
    with pdf_objects.read(data, {} if password is None else {"password": password}) as document:
        return CompressibleFile(data, data, password or "", len(document.pages))


@tool("pdf-compress", COMPRESSIBLE, title="Compress a PDF", sources=(PDF,), count=_page_count)
def compress(
    file: CompressibleFile, *, color_space: ColorSpace = "keep", linearize: Linearize = False
) -> CompressibleFile:
    """Makes a PDF smaller: pictures are reduced and recompressed, fonts subset, and duplicates and unused parts go."""
    import pikepdf

    from plugins._pdf import compression
    from plugins._pdf.form_fields import remove_signatures

    with pikepdf.open(BytesIO(file.data), password=file.password) as document:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            remove_signatures(document)
        losses = tuple(one.message for one in caught if isinstance(one.message, FidelityWarning))
        data = compression.optimize(document, file.password)
    return replace(file, data=data, color_space=color_space, linearize=linearize, losses=losses)


@conversion(COMPRESSIBLE, PDF, cost=_COST)
def write(
    file: CompressibleFile, *, quality: Quality = COMPRESSED_QUALITY, dpi: Dpi = DPI, sanitize: Sanitize = False
) -> bytes:
    """The file with its pictures at a quality and resolution; the original if it is not larger."""
    import pikepdf

    from plugins._pdf import compression
    from plugins._pdf.active_content import check_active_content
    from plugins._pdf.recompression import PictureSettings, recompress

    with pikepdf.open(BytesIO(file.data), password=file.password) as document:
        is_active = check_active_content(document, sanitize=sanitize)
        recompress(document, PictureSettings.of(quality, dpi, file.color_space))
        data = compression.to_bytes(document, linearize=file.linearize)
    if len(data) >= len(file.original) and not (sanitize and is_active):
        FidelityWarning.issue(
            "kept_original", "The original is the result, because compressing does not make it smaller."
        )
        return file.original
    for loss in file.losses:
        warnings.warn(loss, stacklevel=1)
    return data
