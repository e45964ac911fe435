"""Resampling of images with a Lanczos filter of three lobes, and other filters of their bands."""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from math import ceil, exp, sqrt
from typing import TYPE_CHECKING, Any, TypeAlias

from PIL import Image

from engine import DeepPixels, Size, color, lazy_imports

with lazy_imports():
    import cykooz_resizer as resizer
    import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

Box: TypeAlias = tuple[float, float, float, float]
"""Left, top, right and bottom in pixels."""

# Pillow resizes where this package has no wheel, such as on Linux on ARM.
_RESIZER = ("cykooz_resizer",) if find_spec("cykooz_resizer") else ()
MODULES = ("numpy", *_RESIZER)
_REDUCING_GAP = 3.0  # Pillow averages whole pixels down to this multiple of the size before it filters
_MAX_FAST_RATIO = 16  # Averaging first costs less than a filter that is wider.
_FAST_MODES = frozenset({"L", "RGB", "RGBA", "CMYK", "F"})


def resample(pixels: Image.Image | DeepPixels, size: Size, box: Box) -> Image.Image | DeepPixels:
    """Returns the part `box` of an image at another size."""
    if pixels.size == size and box == (0, 0, *size):
        return pixels
    if isinstance(pixels, DeepPixels):
        resampled: DeepPixels = filter_bands(
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
    if not _RESIZER or image.mode not in _FAST_MODES or ratio > _MAX_FAST_RATIO:
        return image.resize(size, Image.Resampling.LANCZOS, box, reducing_gap=_REDUCING_GAP)
    result = Image.new(image.mode, size)
    lanczos = resizer.ResizeAlg.convolution(resizer.FilterType.lanczos3)
    part = resizer.CropBox(left, top, right - left, bottom - top)
    resizer.Resizer().resize_pil(image, result, resizer.ResizeOptions(lanczos, crop_box=part))
    return result


_STRIP = 64  # rows filtered at a time, which the caches of a processor hold
_REACH = 3.5  # standard deviations that a filter spans to each side
_LARGE_SIGMA = 8  # Images that are blurred more can be reduced before, by this part of sigma.


def filter_bands(pixels: Image.Image | DeepPixels, change: Callable[[NDArray[Any]], NDArray[Any]]) -> Any:
    """The image, of 8 bits, 16 bits or linear light, after `change` of each band, of the same type.

    `change` receives height x width floats, and may return another size. Colors are multiplied with alpha before.
    """
    is_image = isinstance(pixels, Image.Image)
    array: NDArray[Any] = np.asarray(pixels) if isinstance(pixels, Image.Image) else pixels.array
    bands = array if array.ndim == 3 else array[..., None]
    integers = bands.dtype.kind != "f"
    unit, rounding = (np.iinfo(bands.dtype).max, 0.5) if integers else (1, 0)
    alpha = bands[..., -1].astype(np.float32) / unit if pixels.mode in ("LA", "RGBA") else None
    new_alpha = None if alpha is None else change(alpha)
    result: NDArray[Any] | None = None
    for band in range(bands.shape[2]):
        values = bands[..., band].astype(np.float32)
        if alpha is None or new_alpha is None:
            values = change(values)
        elif band == bands.shape[2] - 1:
            values = new_alpha * unit
        else:
            values *= alpha
            values = change(values) / np.maximum(new_alpha, 1 / 65535)
        if result is None:
            result = np.empty((*values.shape, bands.shape[2]), bands.dtype)
        # Filters with lobes exceed the range of the samples. Linear light has no fixed one: it keeps the band's own.
        low, high = (0, unit) if integers else (bands[..., band].min(), bands[..., band].max())
        result[..., band] = np.clip(values + rounding, low, high)
    assert result is not None  # an image has a band
    result = result if array.ndim == 3 else result[..., 0]
    return Image.fromarray(result, pixels.mode) if is_image else DeepPixels(result, pixels.mode)


def gaussian(values: NDArray[Any], sigma: float) -> NDArray[Any]:
    """Blurs by a Gaussian with the standard deviation `sigma` in pixels. Pixels at the edges continue outside."""
    factor = int(sigma // _LARGE_SIGMA)
    if factor <= 1:
        return np.ascontiguousarray(_along_rows(_along_rows(values, sigma).T, sigma).T)
    height, width = values.shape
    # A margin, in which pixels at the edges continue, makes the sides multiples of the factor.
    padded = np.pad(values, ((0, -height % factor), (0, -width % factor)), mode="edge")
    small = np.asarray(Image.fromarray(padded).reduce(factor))
    small = gaussian(small, sqrt(sigma**2 - (factor**2 - 1) / 12) / factor)
    enlarged = Image.fromarray(small).resize(padded.shape[::-1], Image.Resampling.BICUBIC)
    return np.asarray(enlarged)[:height, :width]


def _along_rows(values: NDArray[Any], sigma: float) -> NDArray[Any]:
    """Blurs each row."""
    reach = ceil(_REACH * sigma)
    weights = [exp(-0.5 * (distance / sigma) ** 2) for distance in range(reach + 1)]
    total = 2 * sum(weights) - weights[0]
    result = np.empty(values.shape, np.float32)
    width = values.shape[1]
    for top in range(0, len(values), _STRIP):
        padded = np.pad(values[top : top + _STRIP], ((0, 0), (reach, reach)), mode="edge")
        strip = padded[:, reach : reach + width] * np.float32(weights[0] / total)
        for distance in range(1, reach + 1):
            pair = padded[:, reach - distance : reach - distance + width] + padded[:, reach + distance :][:, :width]
            strip += pair * np.float32(weights[distance] / total)
        result[top : top + _STRIP] = strip
    return result
