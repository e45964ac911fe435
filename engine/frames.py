"""Decoded images: their pixels, and the conversion of these to what a target holds."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeAlias
from warnings import catch_warnings, simplefilter

from PIL import Image

from engine import color, linear_light
from engine.capabilities import TargetCapabilities
from engine.conversions import FidelityWarning
from engine.decode_limits import Size, check_side
from engine.hdr import LINEAR, HdrColors
from engine.lazy import lazy_imports

if TYPE_CHECKING:
    from numpy.typing import NDArray

with lazy_imports():
    import numpy as np


Background: TypeAlias = tuple[int, int, int, int]
"""Red, green, blue and alpha of a color in sRGB."""


@dataclass(frozen=True, slots=True)
class DeepPixels:
    """Pixels with more than 8 bits per sample, for which Pillow has no mode.

    `array` is height x width (x bands) of 16-bit integers, 0 to 65535, or of linear light as 32-bit floats, of which 1
    is white, with sRGB's primaries and alpha from 0 to 1. `mode` names the bands as Pillow does (L, LA, RGB, …).
    """

    array: NDArray[Any]
    mode: str

    @classmethod
    def from_bits(cls, array: NDArray[np.uint16], bits: int, mode: str) -> DeepPixels:
        """Scales samples of `bits` bits to the full 16-bit range."""
        return cls(array if bits == 16 else color.scale(array, (1 << bits) - 1, 65535), mode)

    def to_bits(self, bits: int) -> NDArray[np.uint16]:
        """The samples scaled to `bits` bits, right-aligned. Reverses `from_bits`."""
        return self.array if bits == 16 else color.scale(self.array, 65535, (1 << bits) - 1)

    @classmethod
    def from_image(cls, image: Image.Image) -> DeepPixels:
        """Widens the samples of an L, LA, RGB, RGBA or CMYK image to 16 bits."""
        return cls.from_bits(np.asarray(image, np.uint16), 8, image.mode)

    @property
    def size(self) -> Size:
        """Width and height."""
        return self.array.shape[1], self.array.shape[0]

    def as_image(self) -> Image.Image:
        """The pixels scaled to 8 bits per sample."""
        return Image.fromarray(color.to_8_bits(self.array), self.mode)


@dataclass(frozen=True, slots=True)
class Frame:
    """One upright image. `duration` is in milliseconds, for frames of an animation.

    `full_size` is the size to which the options of crop and resize refer, if the decoder produced another one.
    `cropped`: the decoder has drawn the part that the option crop selects. `dpi` is the resolution of this frame, if it
    has another one than the raster. `padded`: only a canvas around the image is transparent, which is white without a
    warning where a target has no transparency.
    """

    pixels: Image.Image | DeepPixels
    icc_profile: bytes | None = None
    duration: float = 0.0
    full_size: Size | None = None
    cropped: bool = False
    dpi: tuple[float, float] | None = None
    padded: bool = False

    @property
    def size(self) -> Size:
        """Width and height."""
        return self.pixels.size

    @property
    def image(self) -> Image.Image:
        """The image with 8 bits per sample."""
        return self.pixels if isinstance(self.pixels, Image.Image) else self.pixels.as_image()

    def on_white(self) -> Frame:
        """The frame on a white canvas, without a warning."""
        with catch_warnings():
            simplefilter("ignore")
            return replace(_on_background(self, (*color.WHITE, 255)), padded=False)


def convert_frame(
    frame: Frame, target: TargetCapabilities, depth: int, *, background: Background | None, widen: bool = False
) -> Frame:
    """The frame on the background, reduced to what `target` supports, with a FidelityWarning for each loss.

    `depth` is the maximum number of bits per sample; with `widen`, frames that have fewer get as many.
    """
    if target.max_side:
        check_side(target.stored_size(frame.size), target.max_side)
    if background:
        frame = _on_background(frame, background)
    elif frame.padded and "RGBA" not in (*target.modes, *target.deep_modes):
        frame = frame.on_white()
    pixels = frame.pixels
    if depth > 8 and isinstance(pixels, DeepPixels):
        profile = color.matching_profile(pixels.mode, frame.icc_profile)
        held = pixels.mode in target.deep_modes and (target.icc or profile is None)
        if not held and (profile or pixels.mode != "CMYK"):
            gray = "RGB" not in target.deep_modes
            array, mode = color.deep_reduced(pixels.array, pixels.mode, profile, gray=gray)
            pixels = DeepPixels(array, mode)
            profile = None
            held = mode in target.deep_modes
        if held:
            return replace(frame, pixels=pixels, icc_profile=profile)
        FidelityWarning.issue("depth_reduced", "The target supports 8 bits per sample for these colors.")
    image, profile = color.convert_for(
        frame.image,
        frame.icc_profile,
        target.deep_modes if widen else target.modes,
        keep_profile=target.icc,
    )
    return replace(frame, pixels=DeepPixels.from_image(image) if widen else image, icc_profile=profile)


def to_linear_light(
    frame: Frame, target: TargetCapabilities, colors: HdrColors | None, *, background: Background | None
) -> Frame:
    """The frame as linear light, in a mode of `target`. `colors` describe its samples; None: its profile does."""
    if colors is None:
        encoded = replace(target, linear=False, deep_modes=target.modes, deep_bits=(16,))
        pixels = convert_frame(frame, encoded, 16, background=background).pixels
        array = np.asarray(pixels) if isinstance(pixels, Image.Image) else pixels.array
        mode = pixels.mode
        maximum = np.float32(np.iinfo(array.dtype).max)
        array = linear_light.decode(array / maximum, mode)
        return replace(frame, pixels=DeepPixels(array, mode), icc_profile=None)
    if target.max_side:
        check_side(target.stored_size(frame.size), target.max_side)
    pixels = frame.pixels if isinstance(frame.pixels, DeepPixels) else DeepPixels.from_image(frame.image)
    array, mode = linear_light.in_mode(colors.to_linear(pixels.array), pixels.mode, target.modes)
    return replace(frame, pixels=DeepPixels(array, mode), icc_profile=None)


def _on_background(frame: Frame, background: Background) -> Frame:
    """The frame laid on a color in sRGB with alpha. It has no alpha if it or the color is opaque."""
    pixels = frame.pixels
    if isinstance(pixels, DeepPixels):
        profile = color.matching_profile(pixels.mode, frame.icc_profile)
        array, mode, profile = color.deep_on_background(pixels.array, pixels.mode, profile, background)
        return replace(frame, pixels=DeepPixels(array, mode), icc_profile=profile)
    image = color.standard_mode(pixels)
    image, profile = color.on_background(image, color.matching_profile(image.mode, frame.icc_profile), background)
    return replace(frame, pixels=image, icc_profile=profile)


def tone_map(pixels: Image.Image | DeepPixels, hdr: HdrColors) -> Image.Image | DeepPixels:
    """Pixels of HDR in sRGB: RGB, or RGBA if they have alpha. Gray linear light stays gray."""
    if isinstance(pixels, DeepPixels) and hdr.transfer == LINEAR:
        return replace(pixels, array=hdr.to_srgb(pixels.array))
    if isinstance(pixels, DeepPixels):
        array = pixels.array if pixels.array.ndim == 3 else pixels.array[..., None]
        bands = {1: [0, 0, 0], 2: [0, 0, 0, 1], 3: [0, 1, 2], 4: [0, 1, 2, 3]}[array.shape[2]]
        return DeepPixels(hdr.to_srgb(array[..., bands]), "RGBA" if len(bands) == 4 else "RGB")
    image = color.standard_mode(pixels)
    image = image.convert("RGBA" if image.has_transparency_data else "RGB")
    return Image.fromarray(hdr.to_srgb(np.asarray(image)))
