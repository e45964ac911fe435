"""Colors described by code points (ITU-T H.273) or by a gamma: as ICC profiles, unless they are HDR."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import TypeAlias

from engine import HDR_TRANSFERS, PRIMARIES, Frame, HdrColors, Primaries, Raster, lazy_imports

with lazy_imports():
    import imagecodecs

UNSPECIFIED = 2
SRGB_PRIMARIES = 1
SRGB_TRANSFER = 13
_BT2020 = 9  # primaries, and the matrix for them
# Matrices.
_RGB = 0
_BT601 = 6
_GRAY_MODES = ("1", "L", "LA", "I;16")
_MIN_AREA = 0.001  # twice the area of the triangle of primaries
# Offsets in an ICC profile.
_CREATION_TIME = 24
_TAG_TABLE = 128

Curve: TypeAlias = tuple[float, float, float, float, float]
"""A transfer function as in ICC profiles, of g, a, b, c and d: light is (a v + b) ** g from v = d, below it c v."""


def _piecewise(end: float, slope: float, offset: float, power: float) -> Curve:
    """The curve that is linear up to `end`, and from there (v + offset) / (1 + offset) to a power."""
    return power, 1 / (1 + offset), offset / (1 + offset), 1 / slope, end


def gamma(exponent: float) -> Curve:
    """The curve of a power function."""
    return exponent, 1.0, 0.0, 0.0, 0.0


CURVES: Mapping[int, Curve] = MappingProxyType(
    {
        **dict.fromkeys((1, 6, 11, 14, 15), gamma(2.4)),  # video, on a screen (BT.1886) and not at the camera
        4: gamma(2.2),
        5: gamma(2.8),
        7: _piecewise(0.0913, 4.0, 0.1115, 1 / 0.45),  # SMPTE 240M
        8: gamma(1.0),
        SRGB_TRANSFER: _piecewise(0.04045, 12.92, 0.055, 2.4),
        17: (2.6, (52.37 / 48) ** (1 / 2.6), 0.0, 0.0, 0.0),  # SMPTE 428
    }
)
"""The transfer functions of SDR by code point."""
SRGB = PRIMARIES[SRGB_PRIMARIES]
_SRGB_COLORS = (SRGB, CURVES[SRGB_TRANSFER])
P3_COLORS = (PRIMARIES[12], CURVES[SRGB_TRANSFER])
ADOBE_RGB_COLORS: tuple[Primaries, Curve] = ((0.3127, 0.3290, 0.64, 0.33, 0.21, 0.71, 0.15, 0.06), gamma(563 / 256))
_NAMES: Mapping[tuple[Primaries, Curve], str] = MappingProxyType(
    {
        _SRGB_COLORS: "sRGB",
        P3_COLORS: "Display P3",
        ADOBE_RGB_COLORS: "Adobe RGB (1998)",
        (PRIMARIES[_BT2020], CURVES[14]): "BT.2020",
        (PRIMARIES[11], CURVES[17]): "DCI-P3",
    }
)


def are_valid(primaries: Primaries) -> bool:
    """Whether white has a brightness, and the colors are no line."""
    x, y = primaries[2::2], primaries[3::2]
    area = (x[1] - x[0]) * (y[2] - y[0]) - (x[2] - x[0]) * (y[1] - y[0])
    return primaries[1] > 0 and abs(area) > _MIN_AREA


def are_known(primaries: int, transfer: int) -> bool:
    """Whether both code points describe colors."""
    return primaries in PRIMARIES and (transfer in HDR_TRANSFERS or transfer in CURVES)


def code_points(hdr: HdrColors | None, *, lossless: bool) -> tuple[int, int, int]:
    """Primaries, transfer and matrix to write HDR, or sRGB: as RGB if `lossless`, otherwise as YCbCr."""
    primaries, transfer = (hdr.primaries, hdr.transfer) if hdr else (SRGB_PRIMARIES, SRGB_TRANSFER)
    return primaries, transfer, _RGB if lossless else _BT2020 if primaries == _BT2020 else _BT601


def with_colors(
    raster: Raster,
    primaries: int,
    transfer: int,
    light_levels: tuple[float, float] | None = None,
    mastering_display: bytes | None = None,
) -> Raster:
    """The raster with the colors of these known code points: HDR, otherwise a profile, which sRGB does not need.

    `HdrColors` documents `light_levels` and `mastering_display`.
    """
    if transfer in HDR_TRANSFERS:
        colors = HdrColors(primaries, transfer, light_levels, mastering_display)
        return replace(with_profile(raster, None), hdr=colors)
    described = PRIMARIES[primaries], CURVES[transfer]
    return with_profile(raster, None if described == _SRGB_COLORS else described)


def with_profile(raster: Raster, colors: tuple[Primaries, Curve] | None) -> Raster:
    """The raster with a profile of these primaries and this transfer function, or without profile."""

    def describe(frame: Frame) -> Frame:
        gray = frame.pixels.mode in _GRAY_MODES
        return replace(frame, icc_profile=profile(*colors, gray=gray) if colors else None)

    return raster.map(describe)


def profile(primaries: Primaries, curve: Curve, *, gray: bool) -> bytes:
    """An ICC profile (version 4) of RGB with these primaries, or of gray, with a name. Equal colors have equal ones."""
    white = primaries[:2]
    colors = None if gray else primaries[2:]
    data = bytearray(imagecodecs.cms_profile("gray" if gray else "rgb", whitepoint=white, primaries=colors, gamma=1.0))
    # Parametric curves replace the gamma, for which LittleCMS itself would write tables of 24 KB; and a name, its own.
    response = b"para\0\0\0\0\0\3\0\0" + struct.pack(">5i", *(round(value * 65536) for value in curve))
    response_name = "the curve of sRGB" if curve == CURVES[SRGB_TRANSFER] else f"gamma {curve[0]:.3g}"
    name = _NAMES.get((primaries, curve)) if not gray else None
    text = (name or f"{'Gray' if gray else 'RGB'} with {response_name}").encode("utf-16-be")
    description = b"mluc" + struct.pack(">3I4s2I", 0, 1, 12, b"enUS", len(text), 28) + text + bytes(-len(text) % 4)
    (tags,) = struct.unpack_from(">I", data, _TAG_TABLE)
    for content, kinds in ((response, (b"kTRC", b"rTRC", b"gTRC", b"bTRC")), (description, (b"desc",))):
        for entry in range(_TAG_TABLE + 4, _TAG_TABLE + 4 + 12 * tags, 12):
            if bytes(data[entry : entry + 4]) in kinds:
                struct.pack_into(">II", data, entry + 4, len(data), len(content))
        data += content
    struct.pack_into(">I", data, 0, len(data))
    struct.pack_into(">6H", data, _CREATION_TIME, 2000, 1, 1, 0, 0, 0)
    return bytes(data)
