"""Resampling of pictures with a Lanczos filter of three lobes."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, TypeAlias

from PIL import Image

from engine import DeepPixels, Size, color

if TYPE_CHECKING:
    from numpy.typing import NDArray

Box: TypeAlias = tuple[float, float, float, float]
"""Left, top, right and bottom in pixels."""

# Pillow resizes where this package has no wheel, such as on Linux on ARM.
MODULES = ("cykooz_resizer",) if find_spec("cykooz_resizer") else ()
_REDUCING_GAP = 3.0  # Pillow averages whole pixels down to this multiple of the size before it filters
_MAX_FAST_RATIO = 16  # Averaging first costs less than a filter that is wider.
_FAST_MODES = frozenset({"L", "RGB", "RGBA", "CMYK", "F"})


def resample(pixels: Image.Image | DeepPixels, size: Size, box: Box) -> Image.Image | DeepPixels:
    """Returns the part `box` of a picture at another size."""
    if pixels.size == size and box == (0, 0, *size):
        return pixels
    if isinstance(pixels, DeepPixels):
        return _resample_deep(pixels, size, box)
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
    from cykooz_resizer import CropBox, FilterType, ResizeAlg, ResizeOptions, Resizer

    result = Image.new(image.mode, size)
    lanczos = ResizeAlg.convolution(FilterType.lanczos3)
    Resizer().resize_pil(image, result, ResizeOptions(lanczos, crop_box=CropBox(left, top, right - left, bottom - top)))
    return result


def _resample_deep(pixels: DeepPixels, size: Size, box: Box) -> DeepPixels:
    """Filters band by band in floating point, colors multiplied with alpha."""
    import numpy as np

    bands = pixels.array if pixels.array.ndim == 3 else pixels.array[..., None]
    result = np.empty((size[1], size[0], bands.shape[2]), bands.dtype)
    unit, rounding = (1, 0) if bands.dtype.kind == "f" else (65535, 0.5)

    def scaled(values: NDArray[Any]) -> NDArray[Any]:
        return np.asarray(_filter(Image.fromarray(values.astype(np.float32, copy=False)), size, box))

    has_alpha = pixels.mode in ("LA", "RGBA")
    alpha = bands[..., -1].astype(np.float32) / unit if has_alpha else None
    new_alpha = scaled(alpha) if alpha is not None else None
    for band in range(bands.shape[2]):
        if alpha is None or new_alpha is None:
            values = scaled(bands[..., band])
        elif band == bands.shape[2] - 1:
            values = new_alpha * unit
        else:
            values = scaled(bands[..., band] * alpha) / np.maximum(new_alpha, 1 / 65535)
        # The lobes of the filter exceed the range of the samples; that of linear light is the one it has.
        low, high = (bands[..., band].min(), bands[..., band].max()) if unit == 1 else (0, unit)
        result[..., band] = np.clip(values + rounding, low, high)
    return DeepPixels(result if pixels.array.ndim == 3 else result[..., 0], pixels.mode)
