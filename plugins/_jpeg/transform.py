"""Turns and cuts JPEG files without decoding their pixels, by the library TurboJPEG of libjpeg-turbo."""

import ctypes
from collections.abc import Mapping
from ctypes import POINTER, Structure, byref, c_char_p, c_int, c_ulong, c_void_p
from types import MappingProxyType
from typing import Any

from engine import Requirement

_OPERATIONS: Mapping[int, int] = MappingProxyType({1: 0, 2: 1, 3: 6, 4: 2, 5: 3, 6: 5, 7: 4, 8: 7})
"""TurboJPEG's operation by EXIF orientation."""

# Options of a transform. Version 2 of the library has no optimal tables for baseline files, and ignores the option.
_PERFECT = 1
_CROP = 4
_PROGRESSIVE = 32
_NO_METADATA = 64
_OPTIMAL = 256


class _Region(Structure):
    _fields_ = (("x", c_int), ("y", c_int), ("width", c_int), ("height", c_int))


class _Transform(Structure):
    _fields_ = (
        ("region", _Region),
        ("operation", c_int),
        ("options", c_int),
        ("data", c_void_p),
        ("filter", c_void_p),
    )


def _load() -> Any:
    """The library; None if it is not installed."""
    try:
        library = ctypes.CDLL("libturbojpeg.so.0")
    except OSError:
        return None
    library.tjInitTransform.restype = c_void_p
    library.tjTransform.argtypes = (
        c_void_p, c_char_p, c_ulong, c_int,
        POINTER(c_void_p), POINTER(c_ulong), POINTER(_Transform), c_int,
    )  # fmt: skip
    library.tjFree.argtypes = (c_void_p,)
    library.tjFree.restype = None
    library.tjDestroy.argtypes = (c_void_p,)
    return library


_LIBRARY = _load()
TURBOJPEG = Requirement(
    "TurboJPEG",
    "turning and cutting JPEG without loss",
    "apt-get install libturbojpeg0",
    present=_LIBRARY is not None,
)


def transform(
    data: bytes, *, orientation: int = 1, box: tuple[int, int, int, int] | None = None, progressive: bool
) -> bytes | None:
    """The JPEG with its coefficients, cut to `box` (left, top, right and bottom) and then turned, without metadata.

    None if that is impossible: the left and top of the box are not on borders of blocks, blocks are incomplete at an
    edge that becomes the left or top one, the file is damaged, or the library is not installed.
    """
    coding = _PROGRESSIVE if progressive else 0
    if box is not None:
        left, top, right, bottom = box
        cut = _run(data, 1, coding | _CROP, _Region(left, top, right - left, bottom - top))
        # The library would check the edges of the whole image if it cut and turned at once.
        return cut if cut is None or orientation == 1 else _run(cut, orientation, coding, _Region())
    return _run(data, orientation, coding, _Region())


def _run(data: bytes, orientation: int, options: int, region: _Region) -> bytes | None:
    if _LIBRARY is None:
        return None
    options |= _PERFECT | _NO_METADATA | _OPTIMAL
    wanted = _Transform(region, _OPERATIONS[orientation], options, None, None)
    handle = _LIBRARY.tjInitTransform()
    result = c_void_p()
    size = c_ulong()
    try:
        # It fails for warnings of the decoder too, such as a missing end.
        failed = _LIBRARY.tjTransform(handle, data, len(data), 1, byref(result), byref(size), byref(wanted), 0)
        return None if failed else ctypes.string_at(result.value or 0, size.value)
    finally:
        _LIBRARY.tjFree(result)
        _LIBRARY.tjDestroy(handle)
