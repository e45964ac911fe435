"""JPEG XL files read by libjxl: the header, the frames, and the JPEG inside."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from ctypes import byref, c_size_t
from dataclasses import dataclass, field
from itertools import accumulate
from typing import TYPE_CHECKING, Any

from engine import HDR_TRANSFERS, MAX_FRAMES, CorruptInput, HdrColors, Size, TooLarge, check_size, lazy_imports
from plugins._jxl import library

if TYPE_CHECKING:
    from numpy.typing import NDArray

with lazy_imports():
    import numpy as np

LIBRARY = library.load()

_CONTENTS = (b"Exif", b"xml ", b"jhgm")  # types of boxes that are read: EXIF, XMP, gain map
_MAX_BOX = 32 << 20  # bytes of one of them after decompression
_FIRST_SPACE = 1 << 20  # bytes
# Code points of libjxl.
_D65 = 1
_SRGB = 1
_P3 = 11
_SRGB_TRANSFER = 13
_BRIGHTEST_WHITE = 1.02  # more is not a result of rounding or compression
_DISPLAY_P3 = 12  # code point of H.273
_DEFAULT_INTENSITY = 10_000.0  # cd/m², the brightest value of PQ, does not describe the image


@dataclass
class Header:
    """The header of a file. `size` is the size of the upright image.

    `bits` is the number per sample, which is a float if `is_float`; decoded integers have 8 or, if `is_deep`, 16.
    `mode` names the bands as Pillow does; with `inks`, the image is CMYK, and `mode` describes its first three
    bands. `profile` and `hdr` describe the samples that the decoder returns; both are None for sRGB. `converts`: the
    decoder has to be asked for them. `durations` of the frames are in milliseconds. `boxes` are contents by type, most
    of them empty.
    """

    size: Size = (0, 0)
    orientation: int = 1
    bits: int = 8
    is_float: bool = False
    mode: str = "RGB"
    inks: int | None = None
    lossy: bool = False
    profile: bytes | None = None
    converts: bool = False
    hdr: HdrColors | None = None
    animated: bool = False
    loop_count: int = 0
    durations: list[float] = field(default_factory=list)
    boxes: dict[bytes, bytes] = field(default_factory=dict)

    @property
    def is_deep(self) -> bool:
        """Whether a sample has more than 8 bits."""
        return self.bits > 8


@contextmanager
def _decoder(data: bytes, events: int) -> Iterator[Any]:
    handle = LIBRARY.JxlDecoderCreate(None)
    try:
        LIBRARY.JxlDecoderSubscribeEvents(handle, events)
        LIBRARY.JxlDecoderSetUnpremultiplyAlpha(handle, 1)
        LIBRARY.JxlDecoderSetDecompressBoxes(handle, 1)
        LIBRARY.JxlDecoderSetInput(handle, data, len(data))
        LIBRARY.JxlDecoderCloseInput(handle)
        yield handle
    finally:
        LIBRARY.JxlDecoderDestroy(handle)


def _next_event(handle: Any) -> int:
    """The next event of the decoder. Raises CorruptInput."""
    event: int = LIBRARY.JxlDecoderProcessInput(handle)
    if event == library.ERROR:
        raise CorruptInput("The JPEG XL file is damaged.")
    if event == library.NEED_MORE_INPUT:
        raise CorruptInput("The JPEG XL file is truncated.")
    return event


def _check(status: int) -> None:
    if status != library.SUCCESS:
        raise CorruptInput("The JPEG XL file is damaged.")


def read_header(data: bytes) -> Header:
    """Reads everything but the pixels. Raises CorruptInput, and TooLarge for an image with too many pixels."""
    header = Header()
    info = library.BasicInfo()
    ticks: list[int] = []
    box: _Space | None = None
    with _decoder(data, library.BASIC_INFO | library.COLORS | library.FRAME | library.BOX) as handle:
        LIBRARY.JxlDecoderSetKeepOrientation(handle, 1)  # Otherwise libjxl hides the orientation.
        while True:
            event = _next_event(handle)
            if box is not None and event != library.NEED_BOX_SPACE:
                header.boxes.setdefault(box.name, box.content(LIBRARY.JxlDecoderReleaseBoxBuffer(handle)))
                box = None
            if event == library.BASIC_INFO:
                _check(LIBRARY.JxlDecoderGetBasicInfo(handle, byref(info)))
                _read_info(handle, header, info)
            elif event == library.COLORS:
                _read_colors(handle, header, info)
            elif event == library.FRAME and len(ticks) <= MAX_FRAMES:  # one more than the limit is enough to refuse
                frame = library.FrameHeader()
                _check(LIBRARY.JxlDecoderGetFrameHeader(handle, byref(frame)))
                ticks.append(frame.duration)
            elif event == library.BOX:
                name = ctypes.create_string_buffer(4)
                LIBRARY.JxlDecoderGetBoxType(handle, name, 1)
                if name.raw in _CONTENTS:
                    box = _Space(name.raw)
                    LIBRARY.JxlDecoderSetBoxBuffer(handle, *box.grow(0))
                else:
                    header.boxes.setdefault(name.raw, b"")
            elif event == library.NEED_BOX_SPACE and box is not None:
                LIBRARY.JxlDecoderSetBoxBuffer(handle, *box.grow(LIBRARY.JxlDecoderReleaseBoxBuffer(handle)))
            elif event == library.SUCCESS:
                break
    if not ticks:
        raise CorruptInput("The JPEG XL file has no image.")
    header.animated = bool(info.have_animation) and len(ticks) > 1
    header.durations = _milliseconds(ticks, info.animation) if header.animated else [0.0] * len(ticks)
    header.lossy = not info.uses_original_profile or b"jbrd" in header.boxes
    return header


class _Space:
    """Memory that grows while the decoder writes bytes of an unknown number into it."""

    def __init__(self, name: bytes = b"") -> None:
        self.name = name
        self._buffer = bytearray()

    def grow(self, unused: int) -> tuple[Any, int]:
        """The address and size of more memory, of which `unused` bytes were there before. Raises TooLarge."""
        used = len(self._buffer) - unused
        size = max(_FIRST_SPACE, 2 * len(self._buffer))
        if self.name and size > 2 * _MAX_BOX:
            message = f"The metadata of the file exceeds {_MAX_BOX} bytes after decompression."
            raise TooLarge(message, reason="bytes", details={"max_bytes": _MAX_BOX})
        self._buffer = self._buffer[:used] + bytearray(size - used)
        return (ctypes.c_uint8 * (size - used)).from_buffer(self._buffer, used), size - used

    def content(self, unused: int) -> bytes:
        """The bytes that were written: all but the last `unused` ones."""
        return bytes(self._buffer[: len(self._buffer) - unused])


def _read_info(handle: Any, header: Header, info: library.BasicInfo) -> None:
    check_size(info.width, info.height)
    header.orientation = info.orientation
    header.size = (info.height, info.width) if info.orientation >= 5 else (info.width, info.height)
    header.is_float = bool(info.exponent_bits)
    header.bits = max(16, info.bits) if header.is_float else info.bits
    header.mode = ("L" if info.color_channels == 1 else "RGB") + ("A" if info.alpha_bits else "")
    header.loop_count = info.animation.loops if info.have_animation else 0
    for index in range(info.extra_channels):
        channel = library.ExtraChannel()
        _check(LIBRARY.JxlDecoderGetExtraChannelInfo(handle, index, byref(channel)))
        if channel.kind == library.BLACK and info.color_channels == 3:
            header.inks = index


def _milliseconds(ticks: Sequence[int], animation: library.Animation) -> list[float]:
    factor = 1000 * animation.ticks_denominator / max(1, animation.ticks_numerator)
    return [duration * factor for duration in ticks]


def _read_colors(handle: Any, header: Header, info: library.BasicInfo) -> None:
    colors = library.Colors()
    original = library.ORIGINAL_COLORS
    if LIBRARY.JxlDecoderGetColorAsEncodedProfile(handle, original, byref(colors)) != library.SUCCESS:
        header.profile = _profile(handle, original)
        header.converts = not info.uses_original_profile
        return
    primaries = _primaries(colors)
    if colors.transfer in HDR_TRANSFERS and primaries:
        levels = None if info.intensity_target >= _DEFAULT_INTENSITY else (float(info.intensity_target), 0.0)
        header.hdr = HdrColors(primaries, colors.transfer, levels)
    elif (primaries, colors.transfer) != (_SRGB, _SRGB_TRANSFER):
        header.profile = _profile(handle, library.DATA_COLORS)


def _primaries(colors: library.Colors) -> int | None:
    """The code point of H.273 for primaries and white point. None without."""
    if colors.white_point != _D65:
        return None
    if colors.space == library.GRAY:
        return _SRGB
    return {_SRGB: _SRGB, _P3: _DISPLAY_P3, 9: 9}.get(int(colors.primaries))


def _profile(handle: Any, target: int) -> bytes | None:
    size = c_size_t()
    if LIBRARY.JxlDecoderGetICCProfileSize(handle, target, byref(size)) != library.SUCCESS or not size.value:
        return None
    profile = ctypes.create_string_buffer(size.value)
    _check(LIBRARY.JxlDecoderGetColorAsICCProfile(handle, target, profile, size))
    return profile.raw


def read_frames(data: bytes, header: Header, indexes: Sequence[int]) -> Iterator[NDArray[Any]]:
    """Yields the frames at ascending `indexes`: arrays of height x width x bands, with 8 or 16 bits per sample.

    The last band of CMYK is black; of all inks, 0 is the most.
    """
    with _decoder(data, library.COLORS | library.FULL_IMAGE) as handle:
        steps = accumulate(indexes, lambda _, index: index)
        position = 0
        for index in steps:
            LIBRARY.JxlDecoderSkipFrames(handle, index - position)
            position = index + 1
            yield _read_frame(handle, header)


def read_light(data: bytes, header: Header) -> NDArray[Any] | None:
    """The image as linear light in floats, if it has some that is brighter than white."""
    width, height = header.size
    pixels = np.empty((height, width, len(header.mode)), np.float32)
    colors = library.linear_colors(gray=header.mode.startswith("L"))
    layout = library.PixelFormat(pixels.shape[2], library.FLOAT, 0, 0)
    with _decoder(data, library.COLORS | library.FULL_IMAGE) as handle:
        while (event := _next_event(handle)) != library.FULL_IMAGE:
            if event == library.COLORS:
                LIBRARY.JxlDecoderSetCms(handle, library.color_management())
                _check(LIBRARY.JxlDecoderSetOutputColorProfile(handle, byref(colors), None, 0))
            elif event == library.NEED_IMAGE:
                _check(LIBRARY.JxlDecoderSetImageOutBuffer(handle, byref(layout), pixels.ctypes.data, pixels.nbytes))
            elif event == library.SUCCESS:
                raise CorruptInput("The JPEG XL file has no image.")
    brightest = np.max(pixels[..., : len(header.mode.removesuffix("A"))], initial=0)
    return pixels if brightest > _BRIGHTEST_WHITE else None


def _read_frame(handle: Any, header: Header) -> NDArray[Any]:
    width, height = header.size
    kind, number = (library.UINT16, np.uint16) if header.is_deep else (library.UINT8, np.uint8)
    pixels: NDArray[np.uint8 | np.uint16] = np.empty((height, width, len(header.mode)), number)
    black = np.empty((height, width, 1 if header.inks is not None else 0), number)
    while (event := _next_event(handle)) != library.FULL_IMAGE:
        if event == library.COLORS and header.converts:
            LIBRARY.JxlDecoderSetCms(handle, library.color_management())
            LIBRARY.JxlDecoderSetOutputColorProfile(handle, None, header.profile, len(header.profile or b""))
        elif event == library.NEED_IMAGE:
            layout = library.PixelFormat(pixels.shape[2], kind, 0, 0)
            _check(LIBRARY.JxlDecoderSetImageOutBuffer(handle, byref(layout), pixels.ctypes.data, pixels.nbytes))
            if header.inks is not None:
                layout = library.PixelFormat(1, kind, 0, 0)
                _check(
                    LIBRARY.JxlDecoderSetExtraChannelBuffer(
                        handle, byref(layout), black.ctypes.data, black.nbytes, header.inks
                    )
                )
        elif event == library.SUCCESS:
            raise CorruptInput("The JPEG XL file has fewer frames than its header states.")
    return np.concatenate((pixels, black), axis=2) if header.inks is not None else pixels


def read_jpeg(data: bytes) -> bytes | None:
    """The JPEG file from which the file was made, with all its bytes. None if it was made from none."""
    space = _Space()
    with _decoder(data, library.JPEG_FOUND | library.FULL_IMAGE) as handle:
        event = _next_event(handle)
        if event != library.JPEG_FOUND:
            return None
        LIBRARY.JxlDecoderSetJPEGBuffer(handle, *space.grow(0))
        while (event := _next_event(handle)) == library.NEED_JPEG_SPACE:
            LIBRARY.JxlDecoderSetJPEGBuffer(handle, *space.grow(LIBRARY.JxlDecoderReleaseJPEGBuffer(handle)))
        if event != library.FULL_IMAGE:
            raise CorruptInput("The JPEG in the JPEG XL file is damaged.")
        return space.content(LIBRARY.JxlDecoderReleaseJPEGBuffer(handle))
