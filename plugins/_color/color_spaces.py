"""Conversion of images to sRGB and to gray."""

from collections.abc import Callable
from dataclasses import replace

from PIL import Image

from engine import DeepPixels, Frame, Raster, Size, color, lazy_imports
from plugins._metadata import exif_data

with lazy_imports():
    import numpy as np

MODULES = ("numpy", "imagecodecs._cms")


def converted(raster: Raster, *, gray: bool) -> Raster:
    """Converts each frame to sRGB or `gray` with its profile."""
    raster = raster.tone_mapped()
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
