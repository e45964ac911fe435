"""Rasters of decoders that read samples into arrays, and samples at any bits of pixels."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from PIL import Image

from engine import CorruptInput, DeepPixels, Frame, ImageSource, Raster, Size, lazy_imports
from plugins._pixels import pillow

if TYPE_CHECKING:
    from numpy.typing import NDArray

with lazy_imports():
    import numpy as np

_MAX_TABLE = 16  # bits per sample that are converted by a table


def to_raster(
    read: Callable[[], Image.Image | DeepPixels], size: Size, mode: str, *, deep: bool = False, **fields: Any
) -> Raster:
    """The raster of one image, which `read` returns when it is decoded: DeepPixels if it is `deep`.

    `mode` is the image's mode with 8 bits per sample; `fields` are further ones of Raster. Raises CorruptInput for a
    image without pixels.
    """
    if not size[0] * size[1]:
        raise CorruptInput("The image has no pixels.")
    fields = {"sample": pillow.sample(mode), "source": ImageSource(bare=True), **fields}
    return Raster(
        (replace(frame, pixels=frame.image) for frame in _frames(read)),
        deep_frames=_frames(read) if deep else None,
        sizes=[size],
        **fields,
    )


def _frames(read: Callable[[], Image.Image | DeepPixels]) -> Iterator[Frame]:
    yield Frame(read())


def from_buffer(data: bytes, kind: str, count: int, offset: int = 0) -> NDArray[Any]:
    """`count` numbers of the type `kind` of NumPy. Raises CorruptInput if the data ends before."""
    if len(data) - offset < count * np.dtype(kind).itemsize:
        raise CorruptInput("The file is truncated.")
    return np.frombuffer(data, kind, count, offset)


def at_mask(pixels: NDArray[np.unsignedinteger], mask: int) -> NDArray[np.uint8]:
    """The samples at the bits of the mask, scaled to 8 bits; 0 without bits. Raises CorruptInput for separate bits."""
    if not mask:
        return np.zeros(pixels.shape, np.uint8)
    shift = (mask & -mask).bit_length() - 1
    maximum = mask >> shift
    if maximum & (maximum + 1):
        raise CorruptInput("The bits of a sample are not adjacent.")
    excess = max(0, maximum.bit_length() - _MAX_TABLE)
    maximum >>= excess
    table = ((np.arange(maximum + 1, dtype=np.uint32) * 255 + maximum // 2) // maximum).astype(np.uint8)
    scaled: NDArray[np.uint8] = table[(pixels >> (shift + excess)) & maximum]
    return scaled
