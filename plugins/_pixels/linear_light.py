"""Rasters of linear light, for formats that store it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from engine import (
    LINEAR,
    CorruptInput,
    DeepPixels,
    FidelityWarning,
    Frame,
    HdrColors,
    ImageSource,
    Primaries,
    Raster,
    Size,
    lazy_imports,
    linear_from,
    linear_to_xyz,
)
from plugins._color import cicp

if TYPE_CHECKING:
    from numpy.typing import NDArray

with lazy_imports():
    import numpy as np

_SRGB = 1  # primaries
_ROUNDING = 0.001
_BANDS = {"L": (), "RGB": (3,), "RGBA": (4,)}


def raster(read: Callable[[], NDArray[Any]], mode: str, size: Size, *, bits: int, exposure: float) -> Raster:
    """A raster of one image that `read` decodes: linear light of sRGB's primaries as 32-bit floats, straight alpha.

    `bits` is the number per sample in the file. `exposure` is in stops, positive to make the image brighter. Raises
    CorruptInput for an image without pixels.
    """
    if not size[0] * size[1]:
        raise CorruptInput("The image has no pixels.")
    sample = Frame(DeepPixels(np.zeros((1, 1, *_BANDS[mode]), np.float32), mode))
    return Raster(
        _frames(read, mode, exposure),
        deep_frames=_frames(read, mode, exposure),
        source=ImageSource(bit_depth=bits),
        hdr=HdrColors(_SRGB, LINEAR),
        sample=sample,
        sizes=[size],
    )


def _frames(read: Callable[[], NDArray[Any]], mode: str, exposure: float) -> Iterator[Frame]:
    array = read()
    if exposure:
        colors = array if mode == "L" else array[..., :3]
        colors *= 2.0**exposure
    yield Frame(DeepPixels(array, mode))


def ignore_exposure(exposure: float) -> None:
    """Issues a FidelityWarning if the option is given for an image that is not linear light."""
    if exposure:
        FidelityWarning.issue("option_ignored", "exposure has an effect only on linear light.")


def from_primaries(primaries: Primaries, array: NDArray[Any]) -> NDArray[Any]:
    """Converts linear RGB with these primaries to sRGB's. Returns it as it is if they differ only by rounding."""
    differs = any(abs(one - other) > _ROUNDING for one, other in zip(primaries, cicp.SRGB, strict=True))
    return linear_from(primaries, array) if differs else array


def luminances(primaries: Primaries) -> NDArray[Any]:
    """The shares of red, green and blue in the luminance of white."""
    shares: NDArray[Any] = linear_to_xyz(primaries)[1]
    return shares
