"""GIF, still and animated."""

from __future__ import annotations

from dataclasses import replace
from warnings import warn

import numpy as np
from PIL import Image

from engine import (
    RASTER,
    AnyConversion,
    FidelityWarning,
    FileFormat,
    Loss,
    Raster,
    Signature,
    TargetCapabilities,
    any_of,
    conversion,
    ends_with,
    hookimpl,
)
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
_KEEP, _CLEAR = 1, 2  # disposal methods: keep the frame, or clear to transparency


@conversion(GIF, RASTER)
def decode(data: bytes) -> Raster:
    raster = _pillow.decode(data, "GIF", animated=True)
    return replace(raster, loop_count=_loop_count(data))


def _loop_count(data: bytes) -> int:
    """How often the animation plays: 1 without the looping extension, which counts repetitions; 0: forever."""
    offset = data.find(_LOOPING)
    if offset < 0:
        return 1
    repeats = int.from_bytes(data[offset + len(_LOOPING) :][:2], "little")
    return repeats + 1 if repeats else 0


@conversion(RASTER, GIF, loss=Loss.DETAIL, cost=2, memory=16)
def encode(raster: Raster) -> bytes:
    frames = list(
        raster.converted_for(
            TargetCapabilities(("L", "P", "PA", "RGB", "RGBA"), animation=True, max_side=65_535)
        ).frames
    )
    images = [_to_palette(frame.image, still=len(frames) == 1) for frame in frames]
    transparent = any("transparency" in image.info for image in images)
    reduced = [replace(frame, pixels=image) for frame, image in zip(frames, images, strict=True)]
    parameters = _pillow.animation_parameters(raster, reduced)
    if raster.loop_count:
        # GIF counts repetitions after the first play; no value means none.
        parameters["loop"] = raster.loop_count - 1 or None
    return _pillow.encode(images[0], "GIF", disposal=_CLEAR if transparent else _KEEP, **parameters)


def _to_palette(image: Image.Image, *, still: bool) -> Image.Image:
    """`image` with at most 256 colours. Stills are dithered if colours are lost."""
    if image.mode in ("L", "P"):
        return image
    transparent = np.asarray(image.getchannel("A")) < 128 if image.mode == "RGBA" else None
    colours = 256 if transparent is None or not transparent.any() else 255
    opaque = image.convert("RGB")
    paletted = opaque.quantize(colours, method=Image.Quantize.MEDIANCUT)
    if opaque.getcolors(colours) is None:
        warn(FidelityWarning("colors_reduced", "The target supports 256 colours."), stacklevel=2)
        if still:
            paletted = opaque.quantize(palette=paletted, dither=Image.Dither.FLOYDSTEINBERG)
    if transparent is not None and colours == 255:
        paletted.paste(255, mask=Image.fromarray(transparent))
        paletted.info["transparency"] = 255
    return paletted


@hookimpl
def conversions() -> list[AnyConversion]:
    return [decode, encode]
