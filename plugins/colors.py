"""Background, color space and bit depth of pictures, applied in this order, after all that changes their pixels."""

from __future__ import annotations

from dataclasses import replace

from engine import RASTER, Raster, color, transform
from engine.option_types import Background, BitDepth
from plugins import _color_space, border

MODULES = _color_space.MODULES


@transform(RASTER, after=border.pad, memory=0)
def background(raster: Raster, *, background: Background | None = None) -> Raster:
    """Sets the color under the frames. The result has alpha only if the color is translucent."""
    return replace(raster, background=color.parse(background)) if background else raster


color_space = transform(RASTER, after=background, memory=8)(_color_space.color_space)


@transform(RASTER, after=color_space, memory=0)
def bit_depth(raster: Raster, *, bit_depth: BitDepth | None = None) -> Raster:
    """Requests a number of bits per sample. Encoders raise InvalidOption for one that their format does not have."""
    return replace(raster, bit_depth=bit_depth) if bit_depth else raster
