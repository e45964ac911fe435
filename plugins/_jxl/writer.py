"""JPEG XL files written by libjxl, from pixels and from JPEG files, and their gain maps: the box jhgm (ISO 21496-1)."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from ctypes import byref, c_size_t, c_void_p
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from PIL import Image

from engine import CorruptInput, GainMap, HdrColors, Size, StepFailed, TooLarge, warn_gain_map_lost
from plugins._color import gain_maps
from plugins._jxl import library
from plugins._jxl.reader import LIBRARY, read_frames, read_header

if TYPE_CHECKING:
    from numpy.typing import NDArray

_SPACE = 1 << 20  # bytes of output at a time
# Code points of libjxl.
_D65 = 1
_SRGB = 1
_P3 = 11
_CODE_POINTS = {11: _P3, 12: _P3}  # primaries: libjxl's code points by the ones of H.273
_DCI = 11  # P3 with the white of cinemas in H.273, and this white in libjxl
_SRGB_TRANSFER = 13
_TICKS = 1000  # per second


@dataclass(frozen=True)
class Encoding:
    """How images are written: without loss, or with a `quality` of 1 to 100. `effort` is libjxl's, 1 to 9.

    `bits` is the number per sample. `profile` and `hdr` describe the samples; both are None for sRGB. `boxes` are
    types and contents of metadata.
    """

    quality: int
    lossless: bool
    effort: int
    bits: int = 8
    profile: bytes | None = None
    hdr: HdrColors | None = None
    loop_count: int = 0
    boxes: tuple[tuple[bytes, bytes], ...] = ()


def _check(status: int) -> None:
    if status != library.SUCCESS:
        raise StepFailed("libjxl refused the image.")


@contextmanager
def _encoder(effort: int) -> Iterator[tuple[Any, Any]]:
    """An encoder, and the settings of its frames."""
    handle = LIBRARY.JxlEncoderCreate(None)
    try:
        _check(LIBRARY.JxlEncoderUseContainer(handle, 1))  # its boxes show whether a file is complete
        settings = LIBRARY.JxlEncoderFrameSettingsCreate(handle, None)
        _check(LIBRARY.JxlEncoderFrameSettingsSetOption(settings, library.EFFORT, effort))
        yield handle, settings
    finally:
        LIBRARY.JxlEncoderDestroy(handle)


def write(frames: Sequence[NDArray[Any]], durations: Sequence[int], mode: str, encoding: Encoding) -> bytes:
    """Frames of height x width x bands with 8 bits per sample, or 16 that hold numbers of `encoding.bits` bits.

    `mode` names the bands as Pillow does; of inks, 0 is the most. `durations` are in milliseconds; a single frame has
    none.
    """
    height, width = frames[0].shape[:2]
    with _encoder(encoding.effort) as (handle, settings):
        info = library.BasicInfo()
        LIBRARY.JxlEncoderInitBasicInfo(byref(info))
        info.width = width
        info.height = height
        info.bits = encoding.bits
        info.uses_original_profile = encoding.lossless
        info.color_channels = 1 if mode in ("L", "LA") else 3
        extra = library.BLACK if mode == "CMYK" else library.ALPHA if mode.endswith("A") else None
        info.extra_channels = 0 if extra is None else 1
        info.alpha_bits = encoding.bits if extra == library.ALPHA else 0
        if durations:
            info.have_animation = 1
            info.animation = library.Animation(_TICKS, 1, encoding.loop_count, 0)
        if encoding.hdr and encoding.hdr.light_levels:
            info.intensity_target = max(encoding.hdr.light_levels[0], 0)
        _check(LIBRARY.JxlEncoderSetBasicInfo(handle, byref(info)))
        if extra is not None:
            channel = library.ExtraChannel()
            LIBRARY.JxlEncoderInitExtraChannelInfo(extra, byref(channel))
            channel.bits = encoding.bits
            _check(LIBRARY.JxlEncoderSetExtraChannelInfo(handle, 0, byref(channel)))
        _set_colors(handle, encoding, gray=info.color_channels == 1)
        for kind, content in _usable(handle, encoding.boxes):
            _check(LIBRARY.JxlEncoderAddBox(handle, kind, content, len(content), 0))
        _set_compression(settings, encoding, alpha=extra == library.ALPHA)
        for index, frame in enumerate(frames):
            if durations:
                header = library.FrameHeader()
                LIBRARY.JxlEncoderInitFrameHeader(byref(header))
                header.duration = max(1, durations[index])  # without a duration, the next frame would be laid on it
                _check(LIBRARY.JxlEncoderSetFrameHeader(settings, byref(header)))
            _add_frame(settings, frame, encoding.bits, inks=mode == "CMYK")
        return _finish(handle)


def _usable(handle: Any, boxes: Sequence[tuple[bytes, bytes]]) -> Sequence[tuple[bytes, bytes]]:
    """The boxes, for which the encoder is prepared if there are any."""
    if boxes:
        _check(LIBRARY.JxlEncoderUseBoxes(handle))
    return boxes


def _set_colors(handle: Any, encoding: Encoding, *, gray: bool) -> None:
    if encoding.profile:
        _check(LIBRARY.JxlEncoderSetICCProfile(handle, encoding.profile, len(encoding.profile)))
        return
    colors = library.Colors()
    colors.space = library.GRAY if gray else 0
    colors.rendering_intent = 1  # relative, which does not change colors
    colors.white_point = _D65
    colors.primaries = _SRGB
    colors.transfer = _SRGB_TRANSFER
    if encoding.hdr:
        colors.primaries = _CODE_POINTS.get(encoding.hdr.primaries, encoding.hdr.primaries)
        colors.white_point = _DCI if encoding.hdr.primaries == _DCI else _D65
        colors.transfer = encoding.hdr.transfer
    _check(LIBRARY.JxlEncoderSetColorEncoding(handle, byref(colors)))


def _set_compression(settings: Any, encoding: Encoding, *, alpha: bool) -> None:
    if encoding.lossless:
        _check(LIBRARY.JxlEncoderSetFrameLossless(settings, 1))
    else:
        distance = LIBRARY.JxlEncoderDistanceFromQuality(encoding.quality)
        _check(LIBRARY.JxlEncoderSetFrameDistance(settings, distance))
        if alpha:
            _check(LIBRARY.JxlEncoderSetExtraChannelDistance(settings, 0, 0))  # errors of its edges would be visible
    depth = library.BitDepth(library.DEPTH_OF_CODESTREAM, 0, 0)
    _check(LIBRARY.JxlEncoderSetFrameBitDepth(settings, byref(depth)))


def _add_frame(settings: Any, frame: NDArray[Any], bits: int, *, inks: bool) -> None:
    kind = library.UINT16 if bits > 8 else library.UINT8
    image = np.ascontiguousarray(frame[..., :3] if inks else frame)
    layout = library.PixelFormat(image.shape[2] if image.ndim == 3 else 1, kind, 0, 0)
    _check(LIBRARY.JxlEncoderAddImageFrame(settings, byref(layout), image.ctypes.data, image.nbytes))
    if inks:
        black = np.ascontiguousarray(frame[..., 3])
        layout = library.PixelFormat(1, kind, 0, 0)
        _check(LIBRARY.JxlEncoderSetExtraChannelBuffer(settings, byref(layout), black.ctypes.data, black.nbytes, 0))


def write_jpeg(
    data: bytes, size: Size, effort: int, boxes: Sequence[tuple[bytes, bytes]] = (), profile: bytes | None = None
) -> bytes | None:
    """A file with the coefficients of a JPEG, which can be restored from it byte for byte, and these boxes.

    `profile` is of an RGB file without one. None if that is impossible.
    """
    with _encoder(effort) as (handle, settings):
        if LIBRARY.JxlEncoderStoreJPEGMetadata(handle, 1) != library.SUCCESS:
            return None
        if profile:
            info = library.BasicInfo()
            LIBRARY.JxlEncoderInitBasicInfo(byref(info))
            info.width, info.height = size
            info.uses_original_profile = 1
            _check(LIBRARY.JxlEncoderSetBasicInfo(handle, byref(info)))
            _check(LIBRARY.JxlEncoderSetICCProfile(handle, profile, len(profile)))
        for kind, content in _usable(handle, boxes):
            _check(LIBRARY.JxlEncoderAddBox(handle, kind, content, len(content), 0))
        # Few readers of metadata decompress them.
        _check(LIBRARY.JxlEncoderFrameSettingsSetOption(settings, library.COMPRESS_BOXES, 0))
        if LIBRARY.JxlEncoderAddJPEGFrame(settings, data, len(data)) != library.SUCCESS:
            return None
        try:
            return _finish(handle)
        except StepFailed:
            return None


def _finish(handle: Any) -> bytes:
    LIBRARY.JxlEncoderCloseInput(handle)
    parts: list[bytes] = []
    space = ctypes.create_string_buffer(_SPACE)
    while True:
        position = c_void_p(ctypes.addressof(space))
        left = c_size_t(_SPACE)
        status = LIBRARY.JxlEncoderProcessOutput(handle, byref(position), byref(left))
        parts.append(space.raw[: _SPACE - left.value])
        if status != library.NEED_MORE_OUTPUT:
            _check(status)
            return b"".join(parts)


BOX = b"jhgm"
_QUALITY = 92
_EFFORT = 5
_HEADER = ">BH"  # version, bytes of the numbers


def write_box(gain_map: GainMap) -> tuple[bytes, bytes]:
    """The type and content of the box. The profile of the map, which few maps need, is left out."""
    image = gain_map.frame.image
    encoded = write([np.asarray(image)], [], image.mode, Encoding(_QUALITY, lossless=False, effort=_EFFORT))
    numbers = gain_maps.to_iso(gain_map)
    # After the numbers come the sizes of a color encoding and of a profile, of which there are none.
    return BOX, struct.pack(_HEADER, 0, len(numbers)) + numbers + bytes(1 + 4) + encoded


def read_box(content: bytes | None, size: Size) -> GainMap | None:
    """The gain map of an image of `size`. None without; issues a FidelityWarning for one that cannot be read."""
    if content is None:
        return None
    try:
        version, length = struct.unpack_from(_HEADER, content)
        end = struct.calcsize(_HEADER) + length
        end += 1 + content[end]  # a color encoding
        image = content[end + 4 + int.from_bytes(content[end : end + 4]) :]
        header = read_header(image)
        (array,) = read_frames(image, header, [0])
    except (struct.error, IndexError, ValueError, CorruptInput, TooLarge):
        version = 1
        header = None
        array = None
        length = 0
    numbers = gain_maps.from_iso(content[struct.calcsize(_HEADER) :][:length]) if not version else None
    if header is None or array is None or numbers is None or header.is_deep or header.mode not in ("L", "RGB"):
        warn_gain_map_lost()
        return None
    return gain_maps.made(Image.fromarray(array[..., 0] if header.mode == "L" else array), numbers, size)
