"""Makes a PDF smaller."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from engine import ConversionError, EncodedFile, tool
from engine.option_types import ColorSpace, Password, Sanitize
from plugins.pdf import PDF

if TYPE_CHECKING:
    from plugins._pdf.compression import Compressor

MODULES = ("plugins._pdf.compression", "plugins._pdf.documents")

_LADDER = (1.0, 0.8, 0.65, 0.5, 0.4, 0.3, 0.22, 0.15)  # of dpi and quality, to find a size
PictureDpi = Annotated[
    int, Field(ge=18, le=1200, description="Pictures of more than 1.5 times this resolution are reduced to it.")
]
PictureQuality = Annotated[int, Field(ge=1, le=100, description="Quality of pictures that become JPEG.")]
Linearize = Annotated[bool, Field(description="Lets viewers show the first page before the file is complete.")]
MaxSize = Annotated[
    int,
    Field(
        ge=1000, examples=[1_000_000], description="Size limit in bytes; `dpi` and `quality` are lowered to reach it."
    ),
]


@tool("pdf-compress", PDF, title="Compress a PDF", sources=(PDF,), isolated=True, encodes=True)
def compress(
    data: bytes,
    *,
    dpi: PictureDpi = 150,
    quality: PictureQuality = 75,
    color_space: ColorSpace = "keep",
    linearize: Linearize = False,
    max_bytes: MaxSize | None = None,
    password: Password | None = None,
    sanitize: Sanitize = False,
) -> EncodedFile:
    """Makes a PDF smaller: reduces and compresses pictures, drops what is there twice or not used; text stays text."""
    from plugins._pdf.compression import Compressor
    from plugins._pdf.documents import keep_original

    compressor = Compressor(data, password, color_space, linearize=linearize, sanitize=sanitize)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        result, used = compressor.compress(dpi, quality), quality
        if max_bytes is not None and min(len(result), len(data)) > max_bytes:
            result, used = _search(compressor, dpi, quality, max_bytes)
    if len(result) >= len(data) and not sanitize:
        result = keep_original(data, result, "compressing it makes it larger")
    if result is not data:
        for one in caught:
            warnings.warn(one.message, stacklevel=1)
    return EncodedFile(result, pages=compressor.pages, quality=None if max_bytes is None else used)


def _search(compressor: Compressor, dpi: int, quality: int, max_bytes: int) -> tuple[bytes, int]:
    """The file of the best quality with at most `max_bytes`, and its quality. Raises ConversionError."""
    best: tuple[bytes, int] | None = None
    low, high, smallest = 1, len(_LADDER), 0
    while low < high:
        middle = (low + high) // 2
        used = max(1, round(quality * _LADDER[middle]))
        data = compressor.compress(max(18, round(dpi * _LADDER[middle])), used)
        if len(data) <= max_bytes:
            best, high = (data, used), middle
        else:
            low, smallest = middle + 1, len(data)
    if best is None:
        raise ConversionError(
            f"No quality results in a file of at most {max_bytes} bytes; the smallest has {smallest}.",
            reason="target_unreachable",
            param="max_bytes",
            details={"max_bytes": max_bytes, "smallest": smallest},
        )
    return best
