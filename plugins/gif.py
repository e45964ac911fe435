"""GIF, still and animated."""

from dataclasses import replace

from PIL import Image

from engine import (
    RASTER,
    FidelityWarning,
    FileFormat,
    Frame,
    Loss,
    Raster,
    Signature,
    TargetCapabilities,
    any_of,
    conversion,
    ends_with,
)
from engine.option_types import Pages
from plugins import _metadata_writing, _pillow

GIF = FileFormat(
    "gif",
    media_type="image/gif",
    extensions=("gif",),
    sniff=any_of(Signature((0, b"GIF89a")), Signature((0, b"GIF87a"))),
    animated=True,
    is_complete=ends_with(b";"),
)

_MODES = ("L", "P", "PA", "RGB", "RGBA")
_HOLDS = TargetCapabilities(_MODES, animation_modes=_MODES, max_side=65_535, metadata=frozenset({"text"}))
_LOOPING = b"NETSCAPE2.0\x03\x01"
_OPAQUE = 128  # the least alpha of an opaque pixel; GIF has one bit of it
_TRANSPARENT = [255] * _OPAQUE + [0] * (256 - _OPAQUE)  # a mask value for each alpha
_KEEP, _CLEAR = 1, 2  # disposal methods: keep the frame, or clear to transparency
_UNIT = 10  # milliseconds; browsers play frames of at most one unit, of any format, as ten
_SHORTEST = 2  # units of a frame that browsers play in time
_TOLERANCE = 0.01  # milliseconds; sources store fractions


@conversion(GIF, RASTER)
def decode(data: bytes, *, pages: Pages | None = None) -> Raster:
    raster = _pillow.decode(data, "GIF", animated=True, pages=pages)
    return replace(raster, loop_count=_loop_count(data))


def _loop_count(data: bytes) -> int:
    """How often the animation plays: 1 without the looping extension, which counts repetitions; 0: forever."""
    offset = data.find(_LOOPING)
    if offset < 0:
        return 1
    repeats = int.from_bytes(data[offset + len(_LOOPING) :][:2], "little")
    return repeats + 1 if repeats else 0


@conversion(RASTER, GIF, loss=Loss.DETAIL, cost=2, memory=16, holds=_HOLDS)
def encode(raster: Raster) -> bytes:
    frames = list(raster.frames)
    if len(frames) > 1:
        frames = _with_whole_durations(frames)
    images = [_to_palette(frame.image, still=len(frames) == 1) for frame in frames]
    transparent = any("transparency" in image.info for image in images)
    reduced = [replace(frame, pixels=image) for frame, image in zip(frames, images, strict=True)]
    parameters = _pillow.animation_parameters(raster, reduced)
    parameters["comment"] = b"\n".join(_metadata_writing.comments(raster)) or None
    if raster.loop_count:
        # GIF counts repetitions after the first play; no value means none.
        parameters["loop"] = raster.loop_count - 1 or None
    return _pillow.encode(images[0], "GIF", disposal=_CLEAR if transparent else _KEEP, **parameters)


def _with_whole_durations(frames: list[Frame]) -> list[Frame]:
    """The frames with durations in hundredths of a second; the end of each is at most one hundredth off.

    Leaves out frames that would be too short for browsers, which would play them in a tenth of a second.
    """
    timed: list[Frame] = []
    ends = rounded = 0.0
    for frame in frames:
        ends += frame.duration / _UNIT
        units = round(ends - rounded)
        if frame.duration > _UNIT:
            if ends - rounded < 1:
                timed[-1] = replace(frame, duration=timed[-1].duration)
                continue
            units = max(units, _SHORTEST)
        rounded += units
        timed.append(replace(frame, duration=float(units * _UNIT)))
    changes = [abs(after.duration - before.duration) for before, after in zip(frames, timed, strict=False)]
    if len(timed) < len(frames) or max(changes) > _TOLERANCE:
        FidelityWarning.issue("timing_rounded", "GIF stores durations in hundredths of a second.")
    return timed


def _to_palette(image: Image.Image, *, still: bool) -> Image.Image:
    """`image` with at most 256 colors. Stills are dithered if colors are lost."""
    if image.mode in ("L", "P"):
        return _with_one_transparent_color(image)
    transparent = image.getchannel("A").point(_TRANSPARENT, "1") if image.mode == "RGBA" else None
    colors = 256 if transparent is None or not transparent.getbbox() else 255
    opaque = image.convert("RGB")
    paletted = opaque.quantize(colors, method=Image.Quantize.MEDIANCUT)
    if opaque.getcolors(colors) is None:
        FidelityWarning.issue("colors_reduced", "The target supports 256 colors.")
        if still:
            paletted = opaque.quantize(palette=paletted, dither=Image.Dither.FLOYDSTEINBERG)
    if transparent is not None and colors == 255:
        paletted.paste(255, mask=transparent)
        paletted.info["transparency"] = 255
    return paletted


def _with_one_transparent_color(image: Image.Image) -> Image.Image:
    """A picture whose palette may have an alpha per color, with at most one color that is transparent."""
    alphas = image.info.get("transparency")
    if not isinstance(alphas, bytes):
        return image
    transparent = [color for color, alpha in enumerate(alphas) if alpha < _OPAQUE]
    merged = image.point([transparent[0] if color in transparent else color for color in range(256)])
    del merged.info["transparency"]
    if transparent:
        merged.info["transparency"] = transparent[0]
    return merged
