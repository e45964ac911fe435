"""Background, color space and bit depth of images, applied in this order, after all that changes their pixels."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from types import MappingProxyType
from typing import Annotated, Literal, TypeAlias

from PIL.ImageCms import Intent as _Intent
from pydantic import Field

from engine import RASTER, FidelityWarning, Frame, InputFile, InvalidOption, Raster, color, transform
from engine.option_types import Background, BitDepth
from plugins._color import profiles
from plugins._color.profiles import PROFILE, Profile
from plugins.operations import border

MODULES = profiles.MODULES

ColorSpace: TypeAlias = Annotated[
    Literal["keep", "srgb", "gray", "p3", "cmyk"],
    Field(
        description="Color space into which the pixels are converted: p3 is for current screens, cmyk uses "
        "`output_profile`, by default `fogra39`. `keep` leaves the colors as they are, CMYK too."
    ),
]
OutputProfile: TypeAlias = Annotated[
    Profile | str,
    InputFile(
        PROFILE,
        "ICC profile to which the colors are converted, and which the result has: srgb, p3, adobe-rgb, fogra39 (coated "
        "paper in Europe), swop (in America), or a file: a file of a form, elsewhere the `file_id` of a stored one.",
        profiles.NAMES,
    ),
]
Intent: TypeAlias = Annotated[
    Literal["perceptual", "relative", "saturation", "absolute"],
    Field(description="How colors that the new profile lacks are changed; relative keeps all others."),
]

SWOP = profiles.SWOP
_MODES = MappingProxyType({"srgb": "RGB", "p3": "RGB", "gray": "L", "cmyk": "CMYK"})
_DEFAULTS = MappingProxyType({"p3": "p3", "cmyk": "fogra39"})  # names of profiles
_INTENTS = MappingProxyType(
    {
        "perceptual": _Intent.PERCEPTUAL,
        "relative": _Intent.RELATIVE_COLORIMETRIC,
        "saturation": _Intent.SATURATION,
        "absolute": _Intent.ABSOLUTE_COLORIMETRIC,
    }
)


@transform(RASTER, after=border.pad, memory=0)
def background(raster: Raster, *, background: Background | None = None) -> Raster:
    """Sets the color under the frames. The result has alpha only if the color is translucent."""
    if not background:
        return raster
    return replace(raster, request=replace(raster.request, background=color.parse(background)))


@transform(RASTER, after=background, memory=8)
def color_space(
    raster: Raster,
    *,
    color_space: ColorSpace = "keep",
    output_profile: OutputProfile | None = None,
    intent: Intent = "relative",
) -> Raster:
    """Converts each frame, with its profile, to sRGB or gray, or to another profile, which it then has.

    Raises InvalidOption if the profile has another color space than the one requested.
    """
    profile = _profile_for(color_space, output_profile)
    if profile is None:
        _warn_unused(intent)
        return raster if color_space == "keep" else profiles.converted(raster, gray=color_space == "gray")
    below = raster.request.background[:3] if raster.request.background else color.WHITE
    convert = partial(profiles.to_profile, target=profile, intent=_INTENTS[intent], background=below)

    def change(frame: Frame) -> Frame:
        if output_profile is None and frame.pixels.mode == profile.mode == "CMYK":
            _warn_unused(intent)
            return frame  # has these inks
        return convert(frame)

    # The sample is a transparent pixel: its conversion to inks would warn of lost transparency.
    return profiles.map_frames(replace(raster.tone_mapped(), sample=None), change)


def _warn_unused(intent: Intent) -> None:
    """Warns of an intent that no conversion to a profile has."""
    if intent != "relative":
        FidelityWarning.issue("option_ignored", "Options without effect without another profile: intent.")


def _profile_for(space: str, given: Profile | str | None) -> Profile | None:
    """The profile of the result. None for sRGB and gray without one, and without a conversion."""
    name = _DEFAULTS.get(space) if given is None else given
    profile = profiles.named(name) if isinstance(name, str) else name
    is_other = name != space if space in ("srgb", "p3") else profile and profile.mode != _MODES.get(space, profile.mode)
    if given is not None and is_other:
        message = f"output_profile is not one of the color space {space}."
        raise InvalidOption(message, reason="exclusive", param="output_profile")
    return profile


@transform(RASTER, after=color_space, memory=0)
def bit_depth(raster: Raster, *, bit_depth: BitDepth | None = None) -> Raster:
    """Requests a number of bits per sample. Encoders raise InvalidOption for one that their format does not have."""
    return replace(raster, bit_depth=bit_depth) if bit_depth else raster
