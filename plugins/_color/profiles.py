"""ICC profiles by name, the conversion of images to profiles, and changes of images in a color space of their own."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from io import BytesIO
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from PIL import Image, ImageCms

from engine import (
    CorruptInput,
    DeepPixels,
    Format,
    Frame,
    Primaries,
    Raster,
    Requirement,
    Size,
    color,
    lazy_imports,
)
from plugins._color import cicp
from plugins._metadata import exif_data

with lazy_imports():
    import imagecodecs
    import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

MODULES = ("numpy", "imagecodecs._cms")

_SWOP = Path("/usr/share/color/icc/ghostscript/default_cmyk.icc")
_FILES = MappingProxyType({"fogra39": Path(__file__).parents[1] / "_icc" / "ISOcoated_v2_300_bas.icc", "swop": _SWOP})
_COLORS: Mapping[str, tuple[Primaries, cicp.Curve]] = MappingProxyType(
    {
        "srgb": (cicp.SRGB, cicp.CURVES[cicp.SRGB_TRANSFER]),
        "p3": cicp.P3_COLORS,
        "adobe-rgb": cicp.ADOBE_RGB_COLORS,
    }
)
NAMES = (*_COLORS, *(name for name, file in _FILES.items() if file.is_file()))
"""The names of profiles that are installed."""
SWOP = Requirement("libgs-common", "the profile swop", "apt-get install libgs-common", present="swop" in NAMES)
_MODES = MappingProxyType({"GRAY": "L", "RGB": "RGB", "CMYK": "CMYK"})
_SPACES = MappingProxyType({"L": "gray", "RGB": "rgb", "CMYK": "cmyk"})  # by mode, as LittleCMS names them
_BLACK_POINT = int(ImageCms.Flags.BLACKPOINTCOMPENSATION)


@dataclass(frozen=True)
class Profile:
    """An ICC profile, and the mode of the images whose colors it describes: L, RGB or CMYK."""

    data: bytes
    mode: str


PROFILE = Format("profile", Profile)


def read(data: bytes) -> Profile:
    """Reads a file. Raises CorruptInput if no image can be converted to its profile."""
    try:
        opened = ImageCms.ImageCmsProfile(BytesIO(data))
        mode = _MODES[opened.profile.xcolor_space.strip()]
        ImageCms.buildTransform(ImageCms.createProfile("sRGB"), opened, "RGB", mode)
    except (OSError, KeyError, ImageCms.PyCMSError) as error:
        raise CorruptInput("The file is no ICC profile for results in gray, RGB or CMYK.") from error
    return Profile(data, mode)


@cache
def named(name: str) -> Profile:
    """The profile with one of NAMES."""
    if name in _FILES:
        return Profile(_FILES[name].read_bytes(), "CMYK")
    return Profile(cicp.profile(*_COLORS[name], gray=False), "RGB")


def to_profile(frame: Frame, target: Profile, intent: ImageCms.Intent, background: tuple[int, int, int]) -> Frame:
    """The frame in the color space of a profile, which it then has. Inks have no alpha, but the background below."""
    frame = frame.on_white() if frame.padded and target.mode == "CMYK" else frame
    array, mode, source = _samples(frame, None if target.mode != "CMYK" else background)
    if source == target.data:
        converted = array
    else:
        colors, alpha = color.split_alpha(array, mode)
        converted = imagecodecs.cms_transform(
            colors,
            source or named("srgb").data,
            target.data,
            colorspace=_SPACES[mode.removesuffix("A")],
            outcolorspace=_SPACES[target.mode],
            intent=int(intent),
            flags=_BLACK_POINT if intent == ImageCms.Intent.RELATIVE_COLORIMETRIC else 0,
        )
        mode = target.mode
        if alpha is not None:
            converted = np.dstack((converted, alpha))
            mode = mode + "A"
    is_deep = isinstance(frame.pixels, DeepPixels)
    pixels = DeepPixels(converted, mode) if is_deep else Image.fromarray(converted, mode)
    return replace(frame, pixels=pixels, icc_profile=target.data)


def _samples(frame: Frame, background: tuple[int, int, int] | None) -> tuple[NDArray[Any], str, bytes | None]:
    """The samples of a frame on the background, if there is one, their mode, and their profile; None: sRGB."""
    pixels = frame.pixels
    if isinstance(pixels, Image.Image):
        image = color.standard_mode(pixels)
        profile = color.matching_profile(image.mode, frame.icc_profile)
        if profile is None or image.mode not in ("L", "LA", "RGB", "RGBA", "CMYK"):
            image, profile = color.to_srgb(image, profile), None
        if background is not None:
            image, profile = color.on_background(image, profile, (*background, 255))
        return np.asarray(image), image.mode, profile
    array, mode = pixels.array, pixels.mode
    profile = color.matching_profile(mode, frame.icc_profile)
    if profile is None and mode == "CMYK":
        deep = DeepPixels.from_image(color.to_srgb(pixels.as_image(), None))
        array, mode = deep.array, deep.mode
    elif profile is None:
        array, mode = color.deep_to_srgb(array, mode, None)
    if background is not None:
        array, mode, profile = color.deep_on_background(array, mode, profile, (*background, 255))
    return array, mode, profile


def converted(raster: Raster, *, gray: bool) -> Raster:
    """Converts each frame to sRGB or `gray` with its profile."""
    raster = raster.tone_mapped()
    raster = replace(raster, metadata=replace(raster.metadata, exif=exif_data.for_srgb(raster.metadata.exif)))
    background = raster.request.background
    if gray and background:
        luminance, _ = color.srgb_to_gray(np.array([[background[:3]]], np.uint8), "RGB")
        background = (*(int(luminance[0, 0]),) * 3, background[3])
        raster = replace(raster, request=replace(raster.request, background=background))
    return map_frames(raster, lambda frame: in_color_space(frame, gray=gray))


def in_color_space(frame: Frame, *, gray: bool) -> Frame:
    pixels = frame.pixels
    if isinstance(pixels, DeepPixels):
        array, mode = pixels.array, pixels.mode
        profile = color.matching_profile(mode, frame.icc_profile)
        if mode == "CMYK" and profile is None:
            return in_color_space(
                replace(frame, pixels=DeepPixels.from_image(color.to_srgb(pixels.as_image(), None))), gray=gray
            )
        if not gray or profile or mode not in ("L", "LA"):
            array, mode = color.deep_to_srgb(array, mode, profile)
            array, mode = color.srgb_to_gray(array, mode) if gray else (array, mode)
        return replace(frame, pixels=DeepPixels(array, mode), icc_profile=None)
    image = color.standard_mode(pixels)
    profile = color.matching_profile(image.mode, frame.icc_profile)
    if gray and profile is None and image.mode in ("1", "L", "LA"):
        return replace(frame, pixels=image, icc_profile=None)
    image = color.to_srgb(image, profile)
    if gray:
        array, mode = color.srgb_to_gray(np.asarray(image), image.mode)
        image = Image.fromarray(array, mode)
    return replace(frame, pixels=image, icc_profile=None)


def map_frames(
    raster: Raster, convert: Callable[[Frame], Frame], new_size: Callable[[Size], Size] | None = None
) -> Raster:
    """`raster` with converted frames, without the preview of the old ones in its EXIF block."""
    metadata = replace(raster.metadata, exif=exif_data.without_preview(raster.metadata.exif))
    return replace(raster.map(convert, new_size), metadata=metadata)
