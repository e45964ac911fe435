"""Makes PDF files smaller. Text stays text; images lose resolution and quality."""

from __future__ import annotations

from typing import Annotated, TypeAlias

from pydantic import Field

from engine import EncodedFile, FidelityWarning, MaxBytes, ToolResult, best_within, lazy_imports, tool
from engine.option_types import ColorSpace, Dpi, Password, Quality, Sanitize
from plugins.formats.pdf import COMPRESSED_QUALITY, DPI, PDF

with lazy_imports():
    from plugins._pdf import active_content, compression, documents, form_fields
    from plugins._pdf.images import recompression

MODULES = ("imagecodecs._deflate", "plugins._pdf.documents", "plugins._pdf.compression", "plugins._pdf.form_fields")
TEMPLATE = "documents"

Linearize: TypeAlias = Annotated[
    bool, Field(description="Orders the file so that viewers show its first page before the rest has arrived.")
]


@tool(
    "pdf-compress",
    PDF,
    title="Compress a PDF",
    words="make smaller reduce size shrink optimize email",
    sources=(PDF,),
    isolated=True,
    encodes=True,
    memory=12,
)
def compress(
    data: bytes,
    *,
    quality: Quality = COMPRESSED_QUALITY,
    dpi: Dpi = DPI,
    max_bytes: MaxBytes | None = None,
    color_space: ColorSpace = "keep",
    linearize: Linearize = False,
    password: Password | None = None,
    sanitize: Sanitize = False,
) -> ToolResult[bytes]:
    """Makes a PDF smaller: images are reduced and recompressed, fonts subset, and duplicates and unused parts go."""
    document = documents.open_document(data, password)
    count = len(document.pages)
    active_content.check_active_content(document, sanitize=sanitize)
    # The original can have active content that nothing refers to.
    must_change = sanitize or documents.needs_repair(data)
    form_fields.remove_signatures(document)
    opening = password or ""
    optimized = None if max_bytes is None else compression.optimize(document, opening)[0]

    def encode(quality: int) -> EncodedFile:
        settings = recompression.ImageSettings.of(quality, dpi, color_space)
        if optimized is None:
            made, _ = compression.optimize(document, opening, settings, linearize=linearize)
        else:
            made, _ = compression.with_images(optimized, opening, settings, linearize=linearize)
        return EncodedFile(made if must_change or len(made) < len(data) else data, pages=count)

    file = encode(quality) if max_bytes is None else best_within(encode, max_bytes, quality)
    if file.data is data:
        message = "The original is the result, because compressing does not make it smaller."
        FidelityWarning.issue("kept_original", message, of_original=True)
    return ToolResult(file, facts={"original_page_count": count})
