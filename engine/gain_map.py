"""Gain maps (ISO 21496-1), which make images brighter on screens with high dynamic range."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import prod, sqrt
from typing import Any, NamedTuple, Protocol, TypeVar

from engine.conversions import FidelityWarning
from engine.decode_limits import Size


class _Frame(Protocol):
    @property
    def image(self) -> Any: ...  # an image of Pillow

    @property
    def size(self) -> Size: ...

    @property
    def icc_profile(self) -> bytes | None: ...


class GainMapNumbers(NamedTuple):
    """How a gain map applies.

    Its samples are logarithms of factors, from `minimum` to `maximum` (of base 2), to the power of `gamma`. The offsets
    are added to the light before it is multiplied, and subtracted afterwards. These have a number per band of the map,
    or one for all bands. The headrooms are logarithms (of base 2) of the ratio of the brightest light of a screen to
    white: up to `base_headroom`, the image is shown as it is, from `other_headroom`, the map applies in full.
    `uses_base_colors`: it applies to colors with the image's primaries, otherwise with its own profile's.
    """

    minimum: tuple[float, ...]
    maximum: tuple[float, ...]
    gamma: tuple[float, ...]
    base_offset: tuple[float, ...]
    other_offset: tuple[float, ...]
    base_headroom: float
    other_headroom: float
    uses_base_colors: bool = True


@dataclass(frozen=True)
class GainMap:
    """What makes an image brighter on a screen with high dynamic range.

    `frame` is a Frame with the mode L or RGB, 8 bits per sample, and the size of the image as `full_size`.
    """

    frame: _Frame
    numbers: GainMapNumbers

    def map(self, convert: Callable[[Any], Any]) -> GainMap:
        """The map of an image whose frame was converted. It has no more pixels than before."""
        frame = convert(self.frame)
        pixels = prod(self.frame.size)
        if prod(frame.size) > pixels:
            scale = sqrt(pixels / prod(frame.size))
            width, height = (max(1, round(side * scale)) for side in frame.size)
            frame = replace(frame, pixels=frame.image.resize((width, height)), full_size=frame.size)
        return replace(self, frame=frame)

    def with_image(self, image: Any) -> GainMap:
        """The map with another image of Pillow for the same frame."""
        frame: Any = self.frame
        return replace(self, frame=replace(frame, pixels=image))


class _Raster(Protocol):
    gain_map: GainMap | None


R = TypeVar("R", bound=_Raster)


def without_gain_map(raster: R) -> R:
    """The raster without its gain map, with a FidelityWarning if it has one."""
    if raster.gain_map is None:
        return raster
    warn_gain_map_lost()
    changed: Any = raster
    without: R = replace(changed, gain_map=None)
    return without


def warn_gain_map_lost() -> None:
    """Issues the warning for a gain map that is lost."""
    FidelityWarning.issue("hdr_reduced", "The gain map, which makes the image brighter on HDR screens, was lost.")
