"""The C interface of libjxl, as the package imagecodecs contains it: its functions, structures and constants.

The Python functions of imagecodecs neither read nor write profiles, metadata, HDR, inks and the timing of animations.
"""

import ctypes
import re
from ctypes import (
    POINTER,
    Structure,
    c_char_p,
    c_double,
    c_float,
    c_int,
    c_int32,
    c_int64,
    c_size_t,
    c_uint32,
    c_void_p,
)
from importlib.util import find_spec
from pathlib import Path
from typing import Any

# The versions that have these structures (major * 1,000,000 + minor * 1000 + patch). Version 0.12 converts linear
# light, which it has decoded, a second time.
_VERSIONS = range(9_000, 12_000)

# Events of the decoder, and what its function `JxlDecoderProcessInput` returns besides.
SUCCESS = 0
ERROR = 1
NEED_MORE_INPUT = 2
NEED_IMAGE = 5
NEED_JPEG_SPACE = 6
NEED_BOX_SPACE = 7
BASIC_INFO = 0x40
COLORS = 0x100
FRAME = 0x400
FULL_IMAGE = 0x1000
JPEG_FOUND = 0x2000
BOX = 0x4000
ORIGINAL_COLORS = 0
DATA_COLORS = 1
"""The colors of the encoded image, and those that the decoder returns."""
NEED_MORE_OUTPUT = 2
"""What `JxlEncoderProcessOutput` returns if it has written all space."""
FLOAT = 0
UINT8 = 2
UINT16 = 3
"""Types of samples."""
ALPHA = 0
BLACK = 4
"""Types of extra channels."""
EFFORT = 0
COMPRESS_BOXES = 33
"""Settings of frames."""
DEPTH_OF_CODESTREAM = 1
"""Samples of 16 bits that hold numbers of the depth in the header."""
RGB = 0
GRAY = 1
"""Color spaces."""


class Animation(Structure):
    _fields_ = (
        ("ticks_numerator", c_uint32),
        ("ticks_denominator", c_uint32),
        ("loops", c_uint32),
        ("have_timecodes", c_int),
    )


class BasicInfo(Structure):
    _fields_ = (
        ("have_container", c_int), ("width", c_uint32), ("height", c_uint32),
        ("bits", c_uint32), ("exponent_bits", c_uint32),
        ("intensity_target", c_float), ("min_nits", c_float),
        ("relative_to_max_display", c_int), ("linear_below", c_float),
        ("uses_original_profile", c_int), ("have_preview", c_int), ("have_animation", c_int),
        ("orientation", c_int),
        ("color_channels", c_uint32), ("extra_channels", c_uint32),
        ("alpha_bits", c_uint32), ("alpha_exponent_bits", c_uint32), ("alpha_premultiplied", c_int),
        ("preview_width", c_uint32), ("preview_height", c_uint32),
        ("animation", Animation),
        ("intrinsic_width", c_uint32), ("intrinsic_height", c_uint32),
        ("padding", ctypes.c_uint8 * 100),
    )  # fmt: skip


class ExtraChannel(Structure):
    _fields_ = (
        ("kind", c_int), ("bits", c_uint32), ("exponent_bits", c_uint32), ("dim_shift", c_uint32),
        ("name_length", c_uint32), ("alpha_premultiplied", c_int),
        ("spot_color", c_float * 4), ("cfa_channel", c_uint32),
    )  # fmt: skip


class Colors(Structure):
    """White point, primaries and transfer have the code points of H.273 where it has them."""

    _fields_ = (
        ("space", c_int), ("white_point", c_int), ("white_xy", c_double * 2),
        ("primaries", c_int), ("red_xy", c_double * 2), ("green_xy", c_double * 2), ("blue_xy", c_double * 2),
        ("transfer", c_int), ("gamma", c_double), ("rendering_intent", c_int),
    )  # fmt: skip


def linear_colors(*, gray: bool) -> Colors:
    """Linear light with the white point and the primaries of sRGB."""
    return Colors(space=GRAY if gray else RGB, white_point=1, primaries=1, transfer=8, rendering_intent=1)


class _Blending(Structure):
    _fields_ = (("mode", c_int), ("source", c_uint32), ("alpha", c_uint32), ("clamp", c_int))


class FrameHeader(Structure):
    _fields_ = (
        ("duration", c_uint32), ("timecode", c_uint32), ("name_length", c_uint32), ("is_last", c_int),
        ("have_crop", c_int), ("left", c_int32), ("top", c_int32), ("width", c_uint32), ("height", c_uint32),
        ("blending", _Blending), ("save_as_reference", c_uint32),
    )  # fmt: skip


class PixelFormat(Structure):
    _fields_ = (("channels", c_uint32), ("type", c_int), ("endianness", c_int), ("align", c_size_t))


class BitDepth(Structure):
    _fields_ = (("type", c_int), ("bits", c_uint32), ("exponent_bits", c_uint32))


class ColorManagement(Structure):
    _fields_ = tuple((f"function_{index}", c_void_p) for index in range(8))


_POINTERS = ("JxlDecoderCreate", "JxlEncoderCreate", "JxlEncoderFrameSettingsCreate")
_ARGUMENTS = {
    "JxlDecoderCreate": (c_void_p,),
    "JxlDecoderDestroy": (c_void_p,),
    "JxlDecoderSubscribeEvents": (c_void_p, c_int),
    "JxlDecoderSetInput": (c_void_p, c_char_p, c_size_t),
    "JxlDecoderCloseInput": (c_void_p,),
    "JxlDecoderProcessInput": (c_void_p,),
    "JxlDecoderGetBasicInfo": (c_void_p, POINTER(BasicInfo)),
    "JxlDecoderGetExtraChannelInfo": (c_void_p, c_size_t, POINTER(ExtraChannel)),
    "JxlDecoderGetColorAsEncodedProfile": (c_void_p, c_int, POINTER(Colors)),
    "JxlDecoderGetICCProfileSize": (c_void_p, c_int, POINTER(c_size_t)),
    "JxlDecoderGetColorAsICCProfile": (c_void_p, c_int, c_void_p, c_size_t),
    "JxlDecoderSetOutputColorProfile": (c_void_p, POINTER(Colors), c_char_p, c_size_t),
    "JxlDecoderSetCms": (c_void_p, ColorManagement),
    "JxlDecoderSetUnpremultiplyAlpha": (c_void_p, c_int),
    "JxlDecoderSetKeepOrientation": (c_void_p, c_int),
    "JxlDecoderSetDecompressBoxes": (c_void_p, c_int),
    "JxlDecoderGetFrameHeader": (c_void_p, POINTER(FrameHeader)),
    "JxlDecoderSkipFrames": (c_void_p, c_size_t),
    "JxlDecoderSetImageOutBuffer": (c_void_p, POINTER(PixelFormat), c_void_p, c_size_t),
    "JxlDecoderSetExtraChannelBuffer": (c_void_p, POINTER(PixelFormat), c_void_p, c_size_t, c_uint32),
    "JxlDecoderSetJPEGBuffer": (c_void_p, c_void_p, c_size_t),
    "JxlDecoderReleaseJPEGBuffer": (c_void_p,),
    "JxlDecoderGetBoxType": (c_void_p, c_char_p, c_int),
    "JxlDecoderSetBoxBuffer": (c_void_p, c_void_p, c_size_t),
    "JxlDecoderReleaseBoxBuffer": (c_void_p,),
    "JxlEncoderCreate": (c_void_p,),
    "JxlEncoderDestroy": (c_void_p,),
    "JxlEncoderUseContainer": (c_void_p, c_int),
    "JxlEncoderStoreJPEGMetadata": (c_void_p, c_int),
    "JxlEncoderUseBoxes": (c_void_p,),
    "JxlEncoderAddBox": (c_void_p, c_char_p, c_char_p, c_size_t, c_int),
    "JxlEncoderCloseInput": (c_void_p,),
    "JxlEncoderInitBasicInfo": (POINTER(BasicInfo),),
    "JxlEncoderSetBasicInfo": (c_void_p, POINTER(BasicInfo)),
    "JxlEncoderSetColorEncoding": (c_void_p, POINTER(Colors)),
    "JxlEncoderSetICCProfile": (c_void_p, c_char_p, c_size_t),
    "JxlEncoderInitExtraChannelInfo": (c_int, POINTER(ExtraChannel)),
    "JxlEncoderSetExtraChannelInfo": (c_void_p, c_size_t, POINTER(ExtraChannel)),
    "JxlEncoderInitFrameHeader": (POINTER(FrameHeader),),
    "JxlEncoderFrameSettingsCreate": (c_void_p, c_void_p),
    "JxlEncoderFrameSettingsSetOption": (c_void_p, c_int, c_int64),
    "JxlEncoderSetFrameHeader": (c_void_p, POINTER(FrameHeader)),
    "JxlEncoderSetFrameLossless": (c_void_p, c_int),
    "JxlEncoderSetFrameDistance": (c_void_p, c_float),
    "JxlEncoderSetExtraChannelDistance": (c_void_p, c_size_t, c_float),
    "JxlEncoderDistanceFromQuality": (c_float,),
    "JxlEncoderSetFrameBitDepth": (c_void_p, POINTER(BitDepth)),
    "JxlEncoderAddImageFrame": (c_void_p, POINTER(PixelFormat), c_void_p, c_size_t),
    "JxlEncoderSetExtraChannelBuffer": (c_void_p, POINTER(PixelFormat), c_void_p, c_size_t, c_uint32),
    "JxlEncoderAddJPEGFrame": (c_void_p, c_char_p, c_size_t),
    "JxlEncoderProcessOutput": (c_void_p, POINTER(c_void_p), POINTER(c_size_t)),
}


def find() -> Path | None:
    """The file of the library in the package imagecodecs. None if the package has none, or one of another version."""
    package = find_spec("imagecodecs")
    folders = [Path(folder) for folder in package.submodule_search_locations or ()] if package else []
    found = [file for folder in folders for file in folder.parent.glob("imagecodecs.libs/libjxl[-.]*.so*")]
    return found[0] if found and _version(found[0]) in _VERSIONS else None


def _version(file: Path) -> int:
    """The version that the name of the library's file ends with, such as `libjxl-0a1b.so.0.11.2`; 0 without one."""
    found = re.search(r"\.so\.(\d+)\.(\d+)\.(\d+)$", file.name)
    major, minor, patch = map(int, found.groups()) if found else (0, 0, 0)
    return major * 1_000_000 + minor * 1000 + patch


def load() -> Any:
    """The library. Raises ImportError if it is missing or has another version."""
    import imagecodecs._jpegxl  # noqa: F401, PLC0415, loads the libraries that it needs

    file = find()
    if file is None:
        raise ImportError("libjxl is missing, or has another version than 0.9 to 0.11")
    library = ctypes.CDLL(str(file))
    for name, arguments in _ARGUMENTS.items():
        getattr(library, name).argtypes = arguments
    for name in _POINTERS:
        getattr(library, name).restype = c_void_p
    for name in ("JxlDecoderReleaseJPEGBuffer", "JxlDecoderReleaseBoxBuffer"):
        getattr(library, name).restype = c_size_t
    library.JxlEncoderDistanceFromQuality.restype = c_float
    return library


def color_management() -> ColorManagement:
    """The functions with which the decoder converts into profiles."""
    file = find()
    assert file is not None
    (name,) = file.parent.glob("libjxl_cms[-.]*.so*")
    library = ctypes.CDLL(str(name))
    library.JxlGetDefaultCms.restype = POINTER(ColorManagement)
    management: ColorManagement = library.JxlGetDefaultCms().contents
    return management
