"""tifffile, through imageio's door to it: its own options go beyond what imageio declares for all formats."""

from __future__ import annotations

from io import BytesIO
from typing import Any, Literal

import imagecodecs
import imageio.plugins.tifffile_v3  # noqa: F401  # as the codecs below
import imageio.v3 as iio

# Loaded here: tifffile would load them in a job, whose sandbox may not let it.
_COMPRESSIONS = ("deflate", "jpeg", "jpeg2k", "lerc", "ljpeg", "lzma", "lzw", "packbits", "png", "webp", "zlib", "zstd")
_CODECS = [getattr(imagecodecs, f"{name}_decode") for name in _COMPRESSIONS]


def opened(stream: BytesIO, mode: Literal["r", "w"]) -> Any:
    """The file in the stream, to read or to write."""
    return iio.imopen(stream, mode, plugin="tifffile")
