"""The two forms where plugins meet: decoded pictures and open documents."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import islice
from typing import TypeAlias
from warnings import warn

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from engine import color
from engine.conversions import FidelityWarning
from engine.errors import ConversionError, CorruptInput, OutOfMemory, TooLarge
from engine.formats import Format
from engine.mupdf import pymupdf

MAX_PIXELS = 100_000_000
MAX_FRAMES = 500
MAX_TOTAL_PIXELS = 400_000_000
Image.MAX_IMAGE_PIXELS = MAX_PIXELS // 2  # Pillow itself refuses above twice this figure

Document: TypeAlias = pymupdf.Document
DOCUMENT: Format[Document] = Format("document", Document)


@dataclass(frozen=True, slots=True)
class Samples:
    """Pixels deeper than 8 bits, for which Pillow has no mode.

    `array` is height x width (x bands), 0 to 65535; `mode` names the bands as Pillow does (L, LA, RGB, …).
    """

    array: NDArray[np.uint16]
    mode: str

    @classmethod
    def scaled(cls, array: NDArray[np.uint16], bits: int, mode: str) -> Samples:
        """Samples of `bits` bits each, stretched to the full 16."""
        if bits == 16:
            return cls(array, mode)
        top = (1 << bits) - 1
        return cls(((array.astype(np.uint32) * 65535 + top // 2) // top).astype(np.uint16), mode)

    @property
    def size(self) -> tuple[int, int]:
        """Width and height."""
        return self.array.shape[1], self.array.shape[0]

    def as_rgba(self) -> Samples:
        """Grey with alpha as colour with alpha, for the many targets and readers that know no other alpha."""
        return Samples(np.ascontiguousarray(self.array[..., [0, 0, 0, 1]]), "RGBA") if self.mode == "LA" else self

    def image(self) -> Image.Image:
        """The same at 8 bits, scaled (65535 becomes 255), never clipped."""
        return Image.fromarray(color.eight_bits(self.array), self.mode)


@dataclass(frozen=True, slots=True)
class Frame:
    """One picture, upright. `duration` is in milliseconds, for frames of an animation."""

    pixels: Image.Image | Samples
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
class Holds:
    """What a target can hold. `Raster.fitted` makes a raster that needs no more than that.

    `modes` are Pillow's names of band layouts, and PA for a palette with transparency; `deep` those that it
    holds with 16 bits a sample.
    """

    modes: tuple[str, ...]
    deep: tuple[str, ...] = ()
    icc: bool = False
    animation: bool = False
    pages: bool = False


@dataclass
class Raster:
    """Decoded frames, decoded one at a time as they are asked for, and what travels with them.

    `frames` yields each frame at 8 bits; `deep`, where the source has more, yields the same at 16: whoever
    consumes a raster iterates over one of the two, once. `timed` tells an animation from a row of pages;
    `plays` is how often it runs, 0 for ever. `exif` starts with "Exif\\0\\0" and holds no orientation, `xmp`
    is the packet; `dpi` is horizontal and vertical. `lossy`: the pixels come from a lossy codec.
    """

    frames: Iterable[Frame]
    count: int = 1
    deep: Iterable[Frame] | None = None
    timed: bool = False
    plays: int = 0
    exif: bytes | None = None
    xmp: bytes | None = None
    dpi: tuple[float, float] | None = None
    lossy: bool = False

    def __post_init__(self) -> None:
        self.frames = _guarded(self.frames)
        self.deep = None if self.deep is None else _guarded(self.deep)

    def fitted(self, holds: Holds) -> Raster:
        """The raster as `holds` can hold it, with a FidelityWarning for whatever cannot be kept."""
        raster = self._shortened(holds)
        frames = raster.frames
        if raster.deep is not None and holds.deep:
            frames = raster.deep
        elif raster.deep is not None:
            warn(FidelityWarning("depth_reduced", "The target holds 8 bits a sample."), stacklevel=2)
        return replace(raster, frames=(_fitted(frame, holds) for frame in frames), deep=None)

    def single(self, holds: Holds) -> Frame:
        """The first frame, fitted, for targets that hold one."""
        return next(iter(self.fitted(holds).frames))

    def _shortened(self, holds: Holds) -> Raster:
        if self.count == 1 or holds.pages or (self.timed and holds.animation):
            if self.count > 1 and self.timed and not holds.animation:
                warn(
                    FidelityWarning("timing_dropped", "Frames become pages; their timing is lost."),
                    stacklevel=3,
                )
            return self
        kind = "frames" if self.timed else "pages"
        warn(
            FidelityWarning(f"{kind}_dropped", f"The target holds the first of {self.count} {kind}."),
            stacklevel=3,
        )
        deep = None if self.deep is None else islice(self.deep, 1)
        return replace(self, frames=islice(self.frames, 1), deep=deep, count=1, timed=False)


RASTER = Format("raster", Raster)


def check_size(width: int, height: int) -> None:
    """Raises TooLarge where a picture of that size may not be decoded or rendered, in pixels."""
    if width * height > MAX_PIXELS:
        raise TooLarge(
            f"{width} x {height} pixels exceed the limit of {MAX_PIXELS}.",
            reason="pixels",
            details={"max_pixels": MAX_PIXELS, "width": width, "height": height},
        )


def _guarded(frames: Iterable[Frame]) -> Iterator[Frame]:
    """The frames within the limits of a job; a decoder that fails on the way found a corrupt file."""
    pixels = 0
    try:
        for number, frame in enumerate(frames, start=1):
            width, height = frame.size
            check_size(width, height)
            pixels += width * height
            if number > MAX_FRAMES or pixels > MAX_TOTAL_PIXELS:
                raise TooLarge(
                    f"More than {MAX_FRAMES} frames, or {MAX_TOTAL_PIXELS} pixels in all of them.",
                    reason="frames",
                    details={"max_frames": MAX_FRAMES, "max_total_pixels": MAX_TOTAL_PIXELS},
                )
            yield frame
    except (ConversionError, GeneratorExit):
        raise
    except MemoryError as error:
        raise OutOfMemory("The picture needs more memory than a job may have.") from error
    except Exception as error:
        raise CorruptInput("The picture data cannot be decoded.") from error


def _fitted(frame: Frame, holds: Holds) -> Frame:
    pixels = frame.pixels
    if isinstance(pixels, Samples):
        pixels = pixels if pixels.mode in holds.deep else pixels.as_rgba()
        profile = color.matching_profile(pixels.mode, frame.icc_profile)
        if pixels.mode in holds.deep and (holds.icc or profile is None):
            return replace(frame, pixels=pixels, icc_profile=profile)
        warn(
            FidelityWarning("depth_reduced", "The target holds these colours with 8 bits a sample."),
            stacklevel=3,
        )
    image, profile = color.fitted(frame.image, frame.icc_profile, holds.modes, keep_profile=holds.icc)
    return replace(frame, pixels=image, icc_profile=profile)
