"""What the format of a file can store. Encoders declare it, and receive images that are reduced to it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal

from pydantic import Field

from engine.decode_limits import Size
from engine.options import Option


@dataclass(frozen=True)
class TargetCapabilities:
    """What a target format can store. An encoder that declares it as `holds` receives a raster reduced to it.

    `modes` are the supported modes with 8 bits per sample, by Pillow's names; PA is a palette with transparency.
    `deep_modes` are the supported modes with more than 8 bits per sample, `deep_bits` these numbers of bits.
    `animation_modes` are the modes of animations; none if the format has no animations.
    `hdr`: stills can have colors in PQ or HLG, with `gain_map` a GainMap. `linear`: the encoder receives linear light
    as floats, of which `deep_bits` are the numbers of bits. `max_side` is the longest side in pixels. `fit` returns the
    size at which the encoder stores an image, if it scales larger ones itself. `drawn_side` is the longer side that it
    needs of vectors without a requested size, if they are smaller. `encoding`: a file of the same format
    keeps the encoding of the `origin` of its raster, or stays lossless, unless an option of ENCODING_OPTIONS replaces
    it. `without` are options of the encoder that have no effect beside the others. `metadata` are the kinds of
    metadata (exif, xmp, iptc, text, and resolution outside of EXIF), and `max_metadata` the largest size of a block of
    them in bytes.
    """

    modes: tuple[str, ...]
    deep_modes: tuple[str, ...] = ()
    deep_bits: tuple[int, ...] = (16,)
    icc: bool = False
    hdr: bool = False
    gain_map: bool = False
    linear: bool = False
    animation_modes: tuple[str, ...] = ()
    pages: bool = False
    max_side: int | None = None
    fit: Callable[[Size], Size] | None = None
    drawn_side: int | None = None
    encoding: bool = False
    without: frozenset[str] = frozenset()
    metadata: frozenset[str] = frozenset()
    max_metadata: int | None = None

    def limit(self, options: Mapping[str, Option]) -> dict[str, Option]:
        """Limits `bit_depth`, `color_space`, `width` and `height` to what the format supports.

        Without profiles and inks, there is no `output_profile`.
        """
        limits = self._limits
        left_out = () if {"p3", "cmyk"} & {*self.color_spaces} else ("output_profile", "intent")
        return {
            name: one.limited(limits[name]) if name in limits else one
            for name, one in options.items()
            if name not in left_out
        }

    @cached_property
    def _limits(self) -> dict[str, Any]:
        """The limits by the names of the options."""
        limits: dict[str, Any] = {"bit_depth": Literal[self.bit_depths], "color_space": Literal[self.color_spaces]}
        if self.max_side:
            limits |= dict.fromkeys(("width", "height"), Field(le=self.max_side))
        return limits

    def stored_size(self, size: Size) -> Size:
        """The size at which an image of this size is stored."""
        return self.fit(size) if self.fit else size

    @property
    def color_spaces(self) -> tuple[str, ...]:
        """The values of the option `color_space` that the format can store."""
        inks = "CMYK" in (*self.modes, *self.deep_modes)
        return ("keep", "srgb", "gray", *(["p3"] if self.icc else []), *(["cmyk"] if inks else []))

    @property
    def bit_depths(self) -> tuple[int, ...]:
        """The supported numbers of bits per sample, in ascending order."""
        if self.linear:
            return self.deep_bits
        return (8, *self.deep_bits) if self.deep_modes else (8,)

    def for_animation(self) -> TargetCapabilities:
        """What the format can store in the frames of an animation."""
        return replace(self, modes=self.animation_modes, deep_modes=(), hdr=False, gain_map=False)
