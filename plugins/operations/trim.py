"""Removes borders of one color or of full transparency."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from PIL import Image

from engine import RASTER, DeepPixels, Frame, Raster, lazy_imports, transform
from engine.option_types import Trim
from plugins._color import profiles
from plugins._pixels import canvases, resampling
from plugins._pixels.sizes import Rectangle
from plugins.operations import animation

if TYPE_CHECKING:
    from numpy.typing import NDArray

with lazy_imports():
    import numpy as np

MODULES = ("numpy",)
_STRIP = 256  # rows compared at a time


@transform(RASTER, after=animation.frame_rate, memory=12)
def trim(raster: Raster, *, trim: Trim | None = None) -> Raster:
    """Cuts off the rows and columns at the edges that differ from the top left pixel by at most `trim` percent.

    A frame of one color stays as it is. All frames of an animation are cut to one box, which no content exceeds; each
    page has a border of its own, so that the sizes of all but the first are known only when they are decoded.
    """
    if trim is None:
        return raster
    if raster.count > 1 and not raster.animated:
        (first, *_), raster = raster.read_ahead(1)
        pages = profiles.map_frames(raster, lambda frame: canvases.cut(frame, _content([frame], trim)))
        return replace(pages, sizes=[_content([first], trim)[2:]], origin=None)
    frames, raster = raster.read_ahead()
    rectangle = _content(frames, trim)
    origin = raster.origin and raster.origin.cropped(*rectangle)
    del frames
    cut = profiles.map_frames(raster, lambda frame: canvases.cut(frame, rectangle), lambda _: rectangle[2:])
    return replace(cut, origin=origin)


def _content(frames: Iterable[Frame], threshold: float) -> Rectangle:
    """The smallest rectangle that holds everything but the borders of the frames, which have the same size."""
    found = [_differs(frame.pixels, threshold) for frame in frames]
    rows, columns = (np.any([np.any(one, axis=axis) for one in found], axis=0) for axis in (1, 0))
    if not rows.any():
        return 0, 0, len(columns), len(rows)
    (top, *_, bottom), (left, *_, right) = (np.flatnonzero(each)[[0, -1]] for each in (rows, columns))
    return int(left), int(top), int(right - left + 1), int(bottom - top + 1)


def _differs(pixels: Image.Image | DeepPixels, threshold: float) -> NDArray[Any]:
    """Where a band, multiplied with alpha, differs from the top left pixel by more than the threshold in percent."""
    if isinstance(pixels, Image.Image):
        pixels = resampling.continuous(pixels)
    array: NDArray[Any] = np.asarray(pixels) if isinstance(pixels, Image.Image) else pixels.array
    bands = array if array.ndim == 3 else array[..., None]
    unit = 1 if bands.dtype.kind == "f" else np.iinfo(bands.dtype).max
    found = np.empty(bands.shape[:2], bool)
    corner = _multiplied(bands[:1, :1], pixels.mode, unit)
    for top in range(0, len(bands), _STRIP):
        strip = _multiplied(bands[top : top + _STRIP], pixels.mode, unit)
        found[top : top + _STRIP] = (np.abs(strip - corner) * 100 > threshold * unit).any(axis=-1)
    return found


def _multiplied(bands: NDArray[Any], mode: str, unit: int) -> NDArray[Any]:
    values = bands.astype(np.float32)
    if mode in ("LA", "RGBA"):
        values[..., :-1] *= values[..., -1:] / unit
    return values
