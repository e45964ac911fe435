"""tifffile through imageio, with the codecs that it would otherwise load during a job."""

from __future__ import annotations

from io import BytesIO
from typing import Any, Literal

import imagecodecs
import imageio.plugins.tifffile_v3  # noqa: F401
import imageio.v3 as iio

# Loaded at import: the sandbox of a job may refuse to load them.
_COMPRESSIONS = ("deflate", "jpeg", "jpeg2k", "lerc", "ljpeg", "lzma", "lzw", "packbits", "png", "webp", "zlib", "zstd")
_CODECS = [getattr(imagecodecs, f"{name}_decode") for name in _COMPRESSIONS]


def open_tiff(stream: BytesIO, mode: Literal["r", "w"]) -> Any:
    """An imageio handle for reading or writing TIFF."""
    return iio.imopen(stream, mode, plugin="tifffile")
