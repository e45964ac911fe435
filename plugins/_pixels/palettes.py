"""Reduces images to a palette with libimagequant, for files that take a third of the size."""

from __future__ import annotations

from PIL import Image

from engine import lazy_imports

with lazy_imports():
    import imagequant
    import numpy as np

MODULES = ("imagequant",)
_FULL_QUALITY = 100


def with_palette(image: Image.Image, colors: int, dither: float, quality: int | None) -> Image.Image:
    """The image with at most this number of colors, each with an alpha of its own.

    `dither` is from 0, without, to 1. With a `quality` of 1 to 100, there are no more colors than it needs. An image
    that has so few colors keeps them exactly, unless a quality is given.
    """
    rgba = image.convert("RGBA")
    data, entries = imagequant.quantize_raw_rgba_bytes(
        rgba.tobytes(), *rgba.size, dithering_level=dither, max_colors=colors, max_quality=quality or _FULL_QUALITY
    )
    indexes = np.frombuffer(data, np.uint8).reshape(rgba.size[::-1])
    palette = np.array(entries, np.uint8).reshape(-1, 4)
    used = np.flatnonzero(np.bincount(indexes.ravel(), minlength=len(palette)))
    used = used[np.argsort(palette[used, 3], kind="stable")]  # Opaque colors last: tRNS ends before them.
    places = np.zeros(len(palette), np.uint8)
    places[used] = np.arange(len(used))
    result = Image.fromarray(places[indexes])
    result.putpalette(palette[used, :3].tobytes())
    alpha = palette[used, 3]
    if (alpha < 255).any():
        result.info["transparency"] = alpha[alpha < 255].tobytes()
    return result
