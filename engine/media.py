"""The two forms where plugins meet: decoded pictures and open documents."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import TYPE_CHECKING
from warnings import warn

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from engine import color
from engine.conversions import FidelityWarning
from engine.decode_limits import MAX_FRAMES, MAX_PIXELS, Size, check_count, check_side, limit_pictures
from engine.formats import Format

if TYPE_CHECKING:
    from pymupdf import Document

Image.MAX_IMAGE_PIXELS = MAX_PIXELS // 2  # Pillow itself refuses above twice this figure

DOCUMENT: Format[Document] = Format("document", "pymupdf.Document")


@dataclass(frozen=True, slots=True)
class DeepPixels:
    """Pixels deeper than 8 bits, for which Pillow has no mode.

    `array` is height x width (x bands), 0 to 65535; `mode` names the bands as Pillow does (L, LA, RGB, …).
    """

    array: NDArray[np.uint16]
    mode: str

    @classmethod
    def scaled(cls, array: NDArray[np.uint16], bits: int, mode: str) -> DeepPixels:
        """Samples of `bits` bits each, stretched to the full 16."""
        if bits == 16:
            return cls(array, mode)
        top = (1 << bits) - 1
        return cls(((array.astype(np.uint32) * 65535 + top // 2) // top).astype(np.uint16), mode)

    @property
    def size(self) -> tuple[int, int]:
        """Width and height."""
        return self.array.shape[1], self.array.shape[0]

    def as_rgba(self) -> DeepPixels:
        """Grey with alpha as colour with alpha, for the many targets and readers that know no other alpha."""
        return DeepPixels(np.ascontiguousarray(self.array[..., [0, 0, 0, 1]]), "RGBA") if self.mode == "LA" else self

    def image(self) -> Image.Image:
        """The same at 8 bits, scaled (65535 becomes 255), never clipped."""
        return Image.fromarray(color.eight_bits(self.array), self.mode)


@dataclass(frozen=True, slots=True)
class Frame:
    """One picture, upright. `duration` is in milliseconds, for frames of an animation."""

    pixels: Image.Image | DeepPixels
    icc_profile: bytes | None = None
    duration: float = 0.0

    @property
    def size(self) -> tuple[int, int]:
        """Width and height."""
        return self.pixels.size

    @property
    def image(self) -> Image.Image:
        """The picture at 8 bits."""
        return self.pixels if isinstance(self.pixels, Image.Image) else self.pixels.image()


@dataclass(frozen=True)
class TargetCapabilities:
    """What a target can hold. `Raster.converted_for` makes a raster that needs no more than that.

    `modes` are Pillow's names of band layouts, and PA for a palette with transparency; `deep_modes` those that it
    holds with 16 bits a sample; `max_side` is the longest side in pixels.
    """

    modes: tuple[str, ...]
    deep_modes: tuple[str, ...] = ()
    icc: bool = False
    animation: bool = False
    pages: bool = False
    max_side: int | None = None


@dataclass
class Raster:
    """Decoded frames, decoded one at a time as they are asked for, and what travels with them.

    `frames` yields each frame at 8 bits; `deep_frames`, where the source has more, yields the same at 16: whoever
    consumes a raster iterates over one of the two, once. `sizes` are those of the frames as headers tell
    them, for limits to be checked before anything is decoded; `decoded_sizes` notes those that were decoded.
    `animated` tells an animation from a row of pages;
    `loop_count` is how often it runs, 0 for ever. `exif` starts with "Exif\\0\\0" and holds no orientation, `xmp`
    is the packet; `dpi` is horizontal and vertical. `lossy`: the pixels come from a lossy codec.
    """

    frames: Iterable[Frame]
    count: int = 1
    deep_frames: Iterable[Frame] | None = None
    animated: bool = False
    loop_count: int = 0
    exif: bytes | None = None
    xmp: bytes | None = None
    dpi: tuple[float, float] | None = None
    lossy: bool = False
    sizes: Sequence[Size] = ()
    decoded_sizes: list[Size] = field(default_factory=list, init=False)

    def __post_init__(self) -> None:
        self.frames = limit_pictures(self.frames, self.decoded_sizes, self.kind)
        self.deep_frames = (
            None if self.deep_frames is None else limit_pictures(self.deep_frames, self.decoded_sizes, self.kind)
        )

    @property
    def kind(self) -> str:
        """What its pictures are: frames or pages."""
        return "frames" if self.animated else "pages"

    @property
    def peak_pixels(self) -> int | None:
        """Pixels that are in memory at a time, those of all frames or of the largest page; None if not all are told."""
        if len(self.sizes) < self.count:
            return None
        areas = [width * height for width, height in self.sizes]
        return sum(areas) if self.animated else max(areas)

    def converted_for(self, target: TargetCapabilities) -> Raster:
        """The raster as `target` can hold it, with a FidelityWarning for whatever cannot be kept.

        Raises TooLarge where the frames that are left are more than a job may decode.
        """
        raster = self._shortened(target)
        check_count(raster.count, raster.sizes, self.kind)
        frames = raster.frames
        if raster.deep_frames is not None and target.deep_modes:
            frames = raster.deep_frames
        elif raster.deep_frames is not None:
            warn(FidelityWarning("depth_reduced", "The target holds 8 bits a sample."), stacklevel=2)
        return replace(raster, frames=(_fitted(frame, target) for frame in frames), deep_frames=None)

    def first_frame(self, target: TargetCapabilities) -> Frame:
        """The first frame, fitted, for targets that hold one."""
        return next(iter(self.converted_for(target).frames))

    def _shortened(self, target: TargetCapabilities) -> Raster:
        if self.count == 1 or target.pages or (self.animated and target.animation):
            if self.count > 1 and self.animated and not target.animation:
                warn(
                    FidelityWarning("timing_dropped", "Frames become pages; their timing is lost."),
                    stacklevel=3,
                )
            return self
        count = self.count if self.count <= MAX_FRAMES else f"more than {MAX_FRAMES}"
        message = f"The target holds the first of {count} {self.kind}."
        warn(FidelityWarning(f"{self.kind}_dropped", message), stacklevel=3)
        deep = None if self.deep_frames is None else islice(self.deep_frames, 1)
        return replace(
            self, frames=islice(self.frames, 1), deep_frames=deep, count=1, animated=False, sizes=self.sizes[:1]
        )


RASTER = Format("raster", Raster)


def _fitted(frame: Frame, target: TargetCapabilities) -> Frame:
    if target.max_side:
        check_side(frame.size, target.max_side)
    pixels = frame.pixels
    if isinstance(pixels, DeepPixels):
        pixels = pixels if pixels.mode in target.deep_modes else pixels.as_rgba()
        profile = color.matching_profile(pixels.mode, frame.icc_profile)
        if pixels.mode in target.deep_modes and (target.icc or profile is None):
            return replace(frame, pixels=pixels, icc_profile=profile)
        warn(
            FidelityWarning("depth_reduced", "The target holds these colours with 8 bits a sample."),
            stacklevel=3,
        )
    image, profile = color.convert_for(frame.image, frame.icc_profile, target.modes, keep_profile=target.icc)
    return replace(frame, pixels=image, icc_profile=profile)
