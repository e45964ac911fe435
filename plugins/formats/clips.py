"""Short clips: MP4, WebM and MOV, read, and MP4 and WebM written, by PyAV, which contains FFmpeg."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping
from fractions import Fraction
from importlib.util import find_spec
from io import BytesIO
from math import ceil
from typing import Annotated, Any, NamedTuple

from PIL import Image
from pydantic import Field

from engine import (
    MAX_FRAMES,
    MAX_TOTAL_PIXELS,
    RASTER,
    AnyConversion,
    Content,
    CorruptInput,
    FidelityWarning,
    FileFormat,
    Frame,
    ImageSource,
    Loss,
    PageRanges,
    Raster,
    Requirement,
    Signature,
    Size,
    Sniffer,
    TargetCapabilities,
    TooLarge,
    boxes_are_complete,
    conversion,
    hookimpl,
    lazy_imports,
)
from engine.option_types import Pages, Quality
from plugins._pixels import pillow

with lazy_imports():
    import av
    import numpy as np

PYAV = Requirement(
    "PyAV",
    "reading and writing clips",
    "sh config/setup.sh video, or pip install av",
    present=find_spec("av") is not None,
)

MODULES = ("av", "av.subtitles.stream", "numpy") if PYAV.present else ()
TEMPLATE = "clips"

_MP4_BRANDS = (
    b"isom", b"iso2", b"iso4", b"iso5", b"iso6", b"mp41", b"mp42",
    b"avc1", b"M4V ", b"M4VP", b"mp4v", b"dash", b"MSNV",
)  # fmt: skip
_EBML = b"\x1a\x45\xdf\xa3"
_SEGMENT = b"\x18\x53\x80\x67"
_HEAD = 4096
_MAX_SECONDS = 60
_MAX_SIDE = 1920
_MILLISECOND = Fraction(1, 1000)
# Milliseconds for which an image without duration is shown, and a frame of an animation, as browsers do.
_STILL = 1000
_FRAME = 100
# Transfer characteristics of high dynamic range.
_PQ = 16
_HLG = 18
# Matrix coefficients. A file that names none has BT.709 from 720 rows on, BT.601 with fewer.
_BT709 = 1
_UNSPECIFIED = 2
_BT601 = 5
_HD = 720
_REPRODUCIBLE = {"fflags": "+bitexact"}  # writes no random number
_SAMPLES = {"RGB": "rgb24", "RGBA": "rgba"}  # FFmpeg's names by mode
_WITH_ALPHA = {"vp8": "libvpx", "vp9": "libvpx-vp9"}  # decoders by FFmpeg's own ones
_TURNS = {
    90: Image.Transpose.ROTATE_90,
    180: Image.Transpose.ROTATE_180,
    270: Image.Transpose.ROTATE_270,
}
_CAPABILITIES = TargetCapabilities(("RGB",), animation_modes=("RGB",), max_side=_MAX_SIDE)

At = Annotated[
    float, Field(ge=0, le=_MAX_SECONDS, examples=[2.5], description="Seconds into a clip: the frame shown then.")
]


def _sniff_brand(*brands: bytes) -> Sniffer:
    return Signature((4, b"ftyp"), (8, brands))


def _sniff_webm(content: Content) -> int:
    return 8 if b"\x42\x82\x84webm" in content[:_HEAD] else 0


def _is_complete_webm(content: Content) -> bool:
    """Whether the segment, if its size is known, ends with the file."""
    start = content[:_HEAD].find(_SEGMENT)
    if start < 0:
        return False
    first = content[start + 4 : start + 5]
    if not first or not first[0]:
        return False
    length = 9 - first[0].bit_length()
    size = int.from_bytes(content[start + 4 : start + 4 + length], "big") & ((1 << 7 * length) - 1)
    return size == (1 << 7 * length) - 1 or start + 4 + length + size <= len(content)


MP4 = FileFormat(
    "mp4",
    media_type="video/mp4",
    extensions=("mp4", "m4v"),
    sniff=_sniff_brand(*_MP4_BRANDS),
    lossy=True,
    animated=True,
    bytes_per_pixel=0.01,
    is_complete=boxes_are_complete,
    must_be_complete=True,
)
MOV = FileFormat(
    "mov",
    media_type="video/quicktime",
    extensions=("mov", "qt"),
    sniff=_sniff_brand(b"qt  "),
    bytes_per_pixel=0.01,
    is_complete=boxes_are_complete,
    must_be_complete=True,
)
WEBM = FileFormat(
    "webm",
    media_type="video/webm",
    extensions=("webm",),
    sniff=Signature((0, _EBML), then=_sniff_webm),
    lossy=True,
    animated=True,
    bytes_per_pixel=0.01,
    is_complete=_is_complete_webm,
    must_be_complete=True,
)


class _Clip(NamedTuple):
    """The bounds of the frames in seconds, one more than frames, their size when upright, and their turn in degrees.

    `mode` is RGB, or RGBA for frames with transparency.
    """

    bounds: list[float]
    size: Size
    rotation: int
    mode: str


def _decoder(source: FileFormat, demuxer: str) -> AnyConversion:
    @conversion(source, RASTER, loss=Loss.DETAIL, cost=6, memory=8, isolated=True)
    def decode(data: bytes, *, pages: Pages | None = None, at: At | None = None) -> Raster:
        clip = _inspect(data, demuxer)
        count = len(clip.bounds) - 1
        step = 1
        if at is not None:
            chosen = [max(0, bisect_right(clip.bounds, at, hi=count) - 1)]
        elif pages is not None:
            chosen = PageRanges.parse(pages).indexes(count)
        else:
            step = _step(count, clip.size)
            chosen = list(range(0, count, step))
        durations = {index: clip.bounds[min(index + step, count)] - clip.bounds[index] for index in chosen}
        return Raster(
            pillow.in_order(chosen, lambda _: _frames(data, demuxer, clip, durations)),
            count=len(chosen),
            animated=len(chosen) > 1,
            source=ImageSource(lossy=True),
            sample=Frame(Image.new(clip.mode, (1, 1))),
            sizes=[clip.size] * len(chosen),
        )

    return decode


def _step(count: int, size: Size) -> int:
    """Of how many frames one is taken, so that they are within the limits on animations."""
    step = max(1, ceil(count / MAX_FRAMES), ceil(count * size[0] * size[1] / MAX_TOTAL_PIXELS))
    if step > 1:
        FidelityWarning.issue("timing_rounded", f"Of {step} frames of the clip, one was taken: it has {count}.")
    return step


def _open(data: bytes, demuxer: str) -> av.container.InputContainer:
    """Opens a clip. Raises CorruptInput for one without images."""
    container = av.open(BytesIO(data), "r", format=demuxer)
    if not container.streams.video:
        container.close()
        raise CorruptInput("The file has no images.")
    container.streams.video[0].codec_context.thread_count = 1  # each thread has frames of its own in memory
    return container


def _inspect(data: bytes, demuxer: str) -> _Clip:
    """Finds the times of the frames without decoding them. Raises CorruptInput, and TooLarge above the limits."""
    with _open(data, demuxer) as container:
        stream = container.streams.video[0]
        _check(max(stream.codec_context.width, stream.codec_context.height), _MAX_SIDE, "pixels", "side")
        shown = (one for one in container.demux(stream) if not one.is_discard)
        times = sorted({float(one.pts * one.time_base) for one in shown if one.pts is not None})
        if not times:
            raise CorruptInput("The file has no frames.")
        last = _end(container) - times[-1]
        if last <= 0:  # not stated
            last = (times[-1] - times[0]) / (len(times) - 1) if len(times) > 1 else _STILL / 1000
        _check(times[-1] + last - times[0], _MAX_SECONDS, "frames", "seconds")
        if container.streams.audio:
            FidelityWarning.issue("sound_dropped", "The clip has sound, which was dropped.")
    with _open(data, demuxer) as container:
        stream = container.streams.video[0]
        first = next(_decode(container))
        ratio = stream.sample_aspect_ratio or 1
        size = max(1, round(first.width * ratio)), first.height
        _check(max(size), _MAX_SIDE, "pixels", "side")
        if first.color_trc in (_PQ, _HLG):
            FidelityWarning.issue("hdr_reduced", "High dynamic range of the clip was cut to the range of sRGB.")
        rotation = first.rotation % 360
        mode = "RGBA" if any(component.is_alpha for component in first.format.components) else "RGB"
    bounds = [time - times[0] for time in (*times, times[-1] + last)]
    return _Clip(bounds, size[::-1] if rotation in (90, 270) else size, rotation, mode)


def _decode(container: av.container.InputContainer) -> Iterator[av.VideoFrame]:
    """The frames of a clip. Transparency of VP8 and VP9 is beside their frames, where only libvpx looks for it."""
    stream = container.streams.video[0]
    name = _WITH_ALPHA.get(stream.codec_context.name) if stream.metadata.get("alpha_mode") == "1" else None
    if name is None:
        yield from container.decode(stream)
        return
    decoder = av.CodecContext.create(name, "r")
    assert isinstance(decoder, av.VideoCodecContext)
    decoder.thread_count = 1
    for packet in container.demux(stream):
        yield from decoder.decode(packet)


def _end(container: av.container.InputContainer) -> float:
    """The time in seconds at which the last frame ends; 0 if the file does not state it."""
    stream = container.streams.video[0]
    if stream.duration is not None and stream.time_base is not None:
        return float(((stream.start_time or 0) + stream.duration) * stream.time_base)
    if container.duration is None or container.streams.audio:  # The sound may be longer.
        return 0.0
    return ((container.start_time or 0) + container.duration) / av.time_base


def _check(value: float, limit: int, reason: str, quantity: str) -> None:
    if value > limit:
        message = f"A clip can have at most {_MAX_SECONDS} s and {_MAX_SIDE} pixels per side."
        raise TooLarge(message, reason=reason, details={f"max_{quantity}": limit, quantity: round(value, 3)})


def _frames(data: bytes, demuxer: str, clip: _Clip, durations: dict[int, float]) -> Iterator[Frame]:
    """Decodes the frames up to the last one with a duration, and yields those that have one."""
    last = max(durations)
    found = 0
    with _open(data, demuxer) as container:
        for index, decoded in enumerate(_decode(container)):
            if index in durations:
                found += 1
                yield Frame(_image(decoded, clip), duration=durations[index] * 1000)
            if index == last:
                break
    if found < len(durations):
        raise CorruptInput("The clip has fewer frames than its index.")


def _image(decoded: av.VideoFrame, clip: _Clip) -> Image.Image:
    """The frame in RGB or RGBA, upright, with square pixels."""
    width, height = clip.size if clip.rotation in (0, 180) else clip.size[::-1]
    named = decoded.colorspace not in (0, _UNSPECIFIED)
    matrix = decoded.colorspace if named else _BT709 if decoded.height >= _HD else _BT601
    image = Image.fromarray(decoded.reformat(width, height, _SAMPLES[clip.mode], src_colorspace=matrix).to_ndarray())
    return image.transpose(_TURNS[clip.rotation]) if clip.rotation in _TURNS else image


def _describe(stream: Any, size: Size) -> None:
    """Sets the size, the unit of time and the colors of a stream to be written."""
    stream.width, stream.height = size
    # With fewer samples of color, H.264 holds even sizes only.
    odd = stream.codec_context.name == "libx264" and any(side % 2 for side in size)
    stream.pix_fmt = "yuv444p" if odd else "yuv420p"
    stream.time_base = stream.codec_context.time_base = _MILLISECOND
    stream.codec_context.colorspace = stream.codec_context.color_primaries = _BT709
    stream.codec_context.color_trc = _BT709


def _mux(container: av.container.OutputContainer, packets: Iterable[Any], durations: Mapping[int, int]) -> None:
    """Writes packets with these durations, because encoders set the duration of a fixed rate."""
    for packet in packets:
        packet.duration = durations[packet.pts]
        container.mux(packet)


def _encoder(target: FileFormat, muxer: str, codec: str, crf: Callable[[int], int], **options: str) -> AnyConversion:
    @conversion(RASTER, target, loss=Loss.DETAIL, cost=8, memory=8, capabilities=_CAPABILITIES, without=("loop",))
    def encode(raster: Raster, *, quality: Quality = 75) -> bytes:
        file = BytesIO()
        with av.open(file, "w", format=muxer, options=_REPRODUCIBLE) as container:
            stream: Any = None
            elapsed = 0.0
            durations: dict[int, int] = {}  # in milliseconds, by the time at which a frame begins
            for frame in raster.frames:
                if stream is None:
                    stream = container.add_stream(codec, options={**options, "crf": str(crf(quality))})
                    _describe(stream, frame.size)
                converted = av.VideoFrame.from_ndarray(np.asarray(frame.image), "rgb24")
                converted = converted.reformat(format=stream.pix_fmt, dst_colorspace=_BT709)
                converted.pts = round(elapsed)
                converted.time_base = _MILLISECOND
                elapsed += frame.duration or (_FRAME if raster.animated else _STILL)
                durations[converted.pts] = round(elapsed) - converted.pts
                _mux(container, stream.encode(converted), durations)
            _mux(container, stream.encode(None), durations)
        return file.getvalue()

    return encode


_DECODERS = tuple(_decoder(source, demuxer) for source, demuxer in ((MP4, "mov"), (MOV, "mov"), (WEBM, "matroska")))
_ENCODERS = (
    _encoder(MP4, "mp4", "libx264", lambda quality: round(46 - 0.36 * quality), bf="0", movflags="+faststart"),
    _encoder(WEBM, "webm", "libvpx-vp9", lambda quality: round(60 - 0.45 * quality), **{"b:v": "0", "cpu-used": "4"}),
)


@hookimpl
def conversions() -> list[AnyConversion]:
    return [*_DECODERS, *_ENCODERS] if PYAV.present else []
