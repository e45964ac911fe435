"""GIF, still and animated."""

from __future__ import annotations

from dataclasses import replace
from warnings import warn

import numpy as np
from PIL import Image

from engine import (
    RASTER,
    FidelityWarning,
    FileFormat,
    Loss,
    Options,
    Raster,
    Signature,
    TargetCapabilities,
    any_of,
    conversion,
    hookimpl,
)
from engine.conversions import AnyConversion
from engine.formats import ends_with
from plugins import _pillow

GIF = FileFormat(
    "gif",
    media_type="image/gif",
    extensions=("gif",),
    sniff=any_of(Signature((0, b"GIF89a")), Signature((0, b"GIF87a"))),
    animated=True,
    is_complete=ends_with(b";"),
)

_LOOPING = b"NETSCAPE2.0\x03\x01"
_KEEP, _CLEAR = 1, 2  # what happens to a frame before the next one: nothing, or transparency


@conversion(GIF, RASTER)
def decode(data: bytes, _options: Options) -> Raster:
    raster = _pillow.decode(data, "GIF", animated=True)
    return replace(raster, loop_count=_plays(data))


def _plays(data: bytes) -> int:
    """How often it runs: once without the looping extension, which counts repeats; 0 is for ever."""
    at = data.find(_LOOPING)
    if at < 0:
        return 1
    repeats = int.from_bytes(data[at + len(_LOOPING) :][:2], "little")
    return repeats + 1 if repeats else 0


@conversion(RASTER, GIF, loss=Loss.DETAIL, cost=2, memory=16)
def encode(raster: Raster, _options: Options) -> bytes:
    frames = list(
        raster.converted_for(
            TargetCapabilities(("L", "P", "PA", "RGB", "RGBA"), animation=True, max_side=65_535)
        ).frames
    )
    images = [_paletted(frame.image, still=len(frames) == 1) for frame in frames]
    clear = any("transparency" in image.info for image in images)
    parameters = _pillow.animation(raster, [replace(f, pixels=i) for f, i in zip(frames, images, strict=True)])
    if raster.loop_count:
        # One run is the default; more are counted as repeats.
        parameters["loop"] = raster.loop_count - 1 or None
    return _pillow.saved(images[0], "GIF", disposal=_CLEAR if clear else _KEEP, **parameters)


def _paletted(image: Image.Image, *, still: bool) -> Image.Image:
    """`image` with at most 256 colours: its own where it has no more, else the best, dithered in a still."""
    if image.mode in ("L", "P"):
        return image
    clear = np.asarray(image.getchannel("A")) < 128 if image.mode == "RGBA" else None
    colours = 256 if clear is None or not clear.any() else 255
    opaque = image.convert("RGB")
    paletted = opaque.quantize(colours, method=Image.Quantize.MEDIANCUT)
    if opaque.getcolors(colours) is None:
        warn(FidelityWarning("colors_reduced", "The target holds 256 colours."), stacklevel=2)
        if still:
            paletted = opaque.quantize(palette=paletted, dither=Image.Dither.FLOYDSTEINBERG)
    if clear is not None and colours == 255:
        paletted.paste(255, mask=Image.fromarray(clear))
        paletted.info["transparency"] = 255
    return paletted


@hookimpl
def conversions() -> list[AnyConversion]:
    return [decode, encode]
