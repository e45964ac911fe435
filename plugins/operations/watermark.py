"""An image or a text that is drawn on images, in 8 or 16 bits and with the profile that they have."""

from __future__ import annotations

import warnings
from dataclasses import replace
from functools import lru_cache
from typing import Annotated, TypeAlias

from pydantic import Field

from engine import (
    RASTER,
    FidelityWarning,
    Frame,
    InputFile,
    InvalidOption,
    Raster,
    TargetCapabilities,
    color,
    transform,
)
from engine.option_types import SHARE
from plugins._color import profiles
from plugins._pixels import canvases, overlay
from plugins._pixels.overlay import ImageMark, Layout, Mark, TextMark
from plugins.operations import effects

Watermark: TypeAlias = Annotated[
    Raster,
    InputFile(
        RASTER,
        "An image to draw on the result, before `radius` and `pad`; of several pages or frames the first. A file of a "
        "form, elsewhere the `file_id` of a stored file.",
    ),
]
WatermarkText: TypeAlias = Annotated[
    str,
    Field(
        max_length=200,
        pattern=r"^[^\x00-\x1f\x7f]*[^\x00-\x20\x7f][^\x00-\x1f\x7f]*$",
        examples=["© 2026 Example"],
        description="A text to draw on the result instead of an image, in one line and in any script.",
    ),
]
WatermarkPosition: TypeAlias = Annotated[
    str,
    Field(
        pattern=rf"^(tile|center|(north|south)(east|west)?|east|west|\s*{SHARE}\s*,\s*{SHARE}\s*)$",
        examples=["southeast", "tile", "0.5,0.9"],
        description="Where the watermark is: center, north, northeast and so on; around the point x,y (0 to 1) as far "
        "as the edges allow; tile repeats it.",
    ),
]
WatermarkOpacity: TypeAlias = Annotated[
    float, Field(ge=0, le=1, examples=[0.8], description="Opacity of the watermark; 1 hides what is below.")
]
WatermarkSize: TypeAlias = Annotated[
    float,
    Field(
        ge=0.1,
        le=100,
        examples=[40],
        description="Width of the watermark, before it is turned, in percent of the width of the image; less where "
        "it would not fit.",
    ),
]
WatermarkMargin: TypeAlias = Annotated[
    float,
    Field(
        ge=0,
        le=45,
        examples=[5],
        description="Distance of the watermark to the edges, in a tile to the next one, in percent of the width.",
    ),
]
WatermarkAngle: TypeAlias = Annotated[
    float, Field(ge=-360, le=360, examples=[30], description="Degrees counterclockwise by which the watermark turns.")
]
WatermarkColor: TypeAlias = Annotated[
    str,
    Field(
        pattern=r"^(#[0-9a-fA-F]{3}|#[0-9a-fA-F]{6}|#[0-9a-fA-F]{8}|[A-Za-z]{3,30})$",
        examples=["#ffffff"],
        description="CSS color of `watermark_text`, which has a thin outline in black or white.",
    ),
]

MODULES = (*overlay.MODULES, *overlay.MODULES)
_IMAGE = TargetCapabilities(("RGBA",))
_KEPT_SIZES = 2  # The mark is kept for so many sizes of frames.


@transform(RASTER, after=effects.pixelate, memory=16)
def watermark(
    raster: Raster,
    *,
    watermark: Watermark | None = None,
    watermark_text: WatermarkText | None = None,
    watermark_position: WatermarkPosition = "southeast",
    watermark_opacity: WatermarkOpacity = 0.5,
    watermark_size: WatermarkSize = 25,
    watermark_margin: WatermarkMargin = 2,
    watermark_angle: WatermarkAngle = 0,
    watermark_color: WatermarkColor = "white",
) -> Raster:
    """Draws an image or a text on each frame. High dynamic range becomes sRGB, which the mark is in.

    Raises InvalidOption if both are given, or if no font has a character of the text.
    """
    mark = _mark(watermark, watermark_text, watermark_color)
    if mark is None:
        message = "Options without effect without watermark or watermark_text: those whose names begin so."
        FidelityWarning.issue("option_ignored", message)
        return raster
    layout = Layout(watermark_position, watermark_size / 100, watermark_margin / 100, watermark_angle)
    place = lru_cache(_KEPT_SIZES)(lambda size: layout.place(mark, size))

    def prepared(frame: Frame) -> Frame:
        frame = canvases.continuous(frame)
        is_gray = frame.pixels.mode in ("L", "LA")
        return frame if mark.is_gray or not is_gray else profiles.in_color_space(frame, gray=False)

    def marked(frame: Frame) -> Frame:
        return overlay.draw_on(prepared(frame), *place(frame.size), watermark_opacity)

    raster = raster.tone_mapped()
    sample = raster.sample and prepared(raster.sample)
    return replace(profiles.map_frames(replace(raster, sample=None), marked), sample=sample)


def _mark(image: Raster | None, text: str | None, color_name: str) -> Mark | None:
    if image is not None and text is not None:
        message = "watermark and watermark_text cannot be given together."
        raise InvalidOption(message, reason="exclusive", param="watermark_text")
    if image is None:
        return None if text is None else TextMark.of(text, color.parse(color_name))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # they are about the watermark's image, not about the result
        return ImageMark(image.first_frame(_IMAGE).image)
