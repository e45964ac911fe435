"""Resampling of images with a Lanczos filter of three lobes."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TypeAlias

from PIL import Image

from engine import DeepPixels, Size, color, lazy_imports
from plugins._pixels import band_filters

with lazy_imports():
    import cykooz_resizer as resizer
    import numpy as np

Box: TypeAlias = tuple[float, float, float, float]
"""Left, top, right and bottom in pixels."""

# Pillow resizes where this package has no wheel, such as on Linux on ARM.
MODULES = ("cykooz_resizer",) if find_spec("cykooz_resizer") else ()
_REDUCING_GAP = 3.0  # Pillow averages whole pixels down to this multiple of the size before it filters
_MAX_FAST_RATIO = 16  # Averaging first costs less than a filter that is wider.
_FAST_MODES = frozenset({"L", "RGB", "RGBA", "CMYK", "F"})


def resample(pixels: Image.Image | DeepPixels, size: Size, box: Box) -> Image.Image | DeepPixels:
    """Returns the part `box` of an image at another size."""
    if pixels.size == size and box == (0, 0, *size):
        return pixels
    if isinstance(pixels, DeepPixels):
        resampled: DeepPixels = band_filters.filter_bands(
            pixels, lambda values: np.asarray(_filter(Image.fromarray(values), size, box))
        )
        return resampled
    return _filter(continuous(pixels), size, box)


def continuous(image: Image.Image) -> Image.Image:
    """`image` in a mode whose samples can be averaged: without palette, not 1 bit per sample."""
    image = color.standard_mode(image)
    if image.mode == "LAB":
        return color.reduced_to_srgb(image, None)
    if image.mode == "P":
        return image.convert("RGBA" if "transparency" in image.info else "RGB")
    return image.convert("L") if image.mode == "1" else image


def _filter(image: Image.Image, size: Size, box: Box) -> Image.Image:
    """Both libraries multiply colors with alpha before they filter. Their results differ by rounding."""
    left, top, right, bottom = box
    ratio = max((right - left) / size[0], (bottom - top) / size[1])
    if not MODULES or image.mode not in _FAST_MODES or ratio > _MAX_FAST_RATIO:
        return image.resize(size, Image.Resampling.LANCZOS, box, reducing_gap=_REDUCING_GAP)
    result = Image.new(image.mode, size)
    lanczos = resizer.ResizeAlg.convolution(resizer.FilterType.lanczos3)
    part = resizer.CropBox(left, top, right - left, bottom - top)
    resizer.Resizer().resize_pil(image, result, resizer.ResizeOptions(lanczos, crop_box=part))
    return result
