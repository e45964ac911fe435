"""Colors described by code points (ITU-T H.273) or by a gamma: as ICC profiles, or as sRGB if they are HDR."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeAlias

from PIL import Image

from engine import DeepPixels, FidelityWarning, Frame, Raster, color

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

Primaries: TypeAlias = tuple[float, ...]
"""The x and y of white, red, green and blue."""

_D65, _C, _E = (0.3127, 0.3290), (0.310, 0.316), (1 / 3, 1 / 3)
SRGB: Primaries = (*_D65, 0.64, 0.33, 0.30, 0.60, 0.15, 0.06)
_SMPTE_170M: Primaries = (*_D65, 0.630, 0.340, 0.310, 0.595, 0.155, 0.070)
_BT2020: Primaries = (*_D65, 0.708, 0.292, 0.170, 0.797, 0.131, 0.046)
PRIMARIES: Mapping[int, Primaries] = MappingProxyType(
    {
        1: SRGB,
        4: (*_C, 0.67, 0.33, 0.21, 0.71, 0.14, 0.08),  # BT.470 M
        5: (*_D65, 0.64, 0.33, 0.29, 0.60, 0.15, 0.06),  # BT.470 B, G
        6: _SMPTE_170M,
        7: _SMPTE_170M,  # SMPTE 240M
        8: (*_C, 0.681, 0.319, 0.243, 0.692, 0.145, 0.049),  # film
        9: _BT2020,
        10: (*_E, 1, 0, 0, 1, 0, 0),  # XYZ
        11: (0.314, 0.351, 0.680, 0.320, 0.265, 0.690, 0.150, 0.060),  # DCI P3
        12: (*_D65, 0.680, 0.320, 0.265, 0.690, 0.150, 0.060),  # Display P3
        22: (*_D65, 0.630, 0.340, 0.295, 0.605, 0.155, 0.077),  # EBU 3213
    }
)

UNSPECIFIED = 2
SRGB_PRIMARIES, SRGB_TRANSFER, _PQ, _HLG = 1, 13, 16, 18
_HDR = (_PQ, _HLG)
_REFERENCE_WHITE = 203.0  # cd/m², of BT.2408
DEFAULT_PEAK = 1000.0
"""The brightness of the brightest color, in cd/m², where a file does not state it."""
_GRAY_MODES = ("1", "L", "LA", "I;16")
_MIN_AREA = 0.001  # twice the area of the triangle of primaries
_KNEE_SOFTNESS = 0.65
_CREATION_TIME, _TAG_TABLE = 24, 128  # offsets in an ICC profile
_STRIP = 64  # rows converted at a time


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
_SRGB_COLORS = (SRGB, CURVES[SRGB_TRANSFER])


def are_valid(primaries: Primaries) -> bool:
    """Whether white has a brightness, and the colors are no line."""
    x, y = primaries[2::2], primaries[3::2]
    area = (x[1] - x[0]) * (y[2] - y[0]) - (x[2] - x[0]) * (y[1] - y[0])
    return primaries[1] > 0 and abs(area) > _MIN_AREA


def are_known(primaries: int, transfer: int) -> bool:
    """Whether both code points describe colors."""
    return primaries in PRIMARIES and (transfer in _HDR or transfer in CURVES)


def with_colors(raster: Raster, primaries: int, transfer: int, peak: float) -> Raster:
    """The raster with the colors of these known code points: HDR becomes sRGB, other colors a profile, sRGB none.

    `peak` is the brightness of the brightest color of HDR in cd/m².
    """
    if transfer not in _HDR:
        colors = PRIMARIES[primaries], CURVES[transfer]
        return with_profile(raster, None if colors == _SRGB_COLORS else colors)
    mapped = raster.map(lambda frame: tone_map(frame, PRIMARIES[primaries], transfer, peak))
    if mapped.deep_frames is None:
        return mapped
    # From 16 bits, because 8 are few for HDR.
    return replace(mapped, frames=(replace(frame, pixels=frame.image) for frame in mapped.deep_frames))


def with_profile(raster: Raster, colors: tuple[Primaries, Curve] | None) -> Raster:
    """The raster with a profile of these primaries and this transfer function, or without profile."""

    def describe(frame: Frame) -> Frame:
        gray = frame.pixels.mode in _GRAY_MODES
        return replace(frame, icc_profile=profile(*colors, gray=gray) if colors else None)

    return raster.map(describe)


def profile(primaries: Primaries, curve: Curve, *, gray: bool) -> bytes:
    """An ICC profile (version 4) of RGB with these primaries, or of gray. Equal colors have equal profiles."""
    from imagecodecs import cms_profile

    white, colors = primaries[:2], None if gray else primaries[2:]
    data = bytearray(cms_profile("gray" if gray else "rgb", whitepoint=white, primaries=colors, gamma=1.0))
    # Parametric curves replace the gamma. LittleCMS itself would write tables of 24 KB.
    (tags,) = struct.unpack_from(">I", data, _TAG_TABLE)
    response = b"para\0\0\0\0\0\3\0\0" + struct.pack(">5i", *(round(value * 65536) for value in curve))
    for entry in range(_TAG_TABLE + 4, _TAG_TABLE + 4 + 12 * tags, 12):
        if data[entry + 1 : entry + 4] == b"TRC":
            struct.pack_into(">II", data, entry + 4, len(data), len(response))
    data += response
    struct.pack_into(">I", data, 0, len(data))
    struct.pack_into(">6H", data, _CREATION_TIME, 2000, 1, 1, 0, 0, 0)
    return bytes(data)


def tone_map(frame: Frame, primaries: Primaries, transfer: int, peak: float = DEFAULT_PEAK) -> Frame:
    """A frame of HDR in sRGB, as browsers show it on a screen without HDR: RGB, or RGBA if it has alpha.

    `transfer` is PQ or HLG, `peak` the brightness of the brightest color in cd/m². Warns of the loss.
    """
    import numpy as np

    FidelityWarning.issue("hdr_reduced", "High dynamic range was reduced to that of sRGB.")
    array, mode = _rgb_array(frame)
    maximum = np.iinfo(array.dtype).max
    light = _light(transfer, np.linspace(0, 1, maximum + 1)).astype(np.float32)
    to_bt2020 = np.linalg.solve(_to_xyz(_BT2020), _to_xyz(primaries)).astype(np.float32)
    to_srgb = np.linalg.solve(_to_xyz(SRGB), _to_xyz(_BT2020)).astype(np.float32)
    result = array.copy()
    for top in range(0, len(array), _STRIP):
        linear = light[array[top : top + _STRIP, :, :3]] @ to_bt2020.T
        if transfer == _HLG:
            linear = _display_light(linear)
        linear *= _gain(linear.max(axis=2), peak)[..., None]
        encoded = color.encode_srgb(np.clip(linear @ to_srgb.T, 0, 1))
        result[top : top + _STRIP, :, :3] = encoded * maximum + 0.5
    pixels = DeepPixels(result, mode) if isinstance(frame.pixels, DeepPixels) else Image.fromarray(result)
    return replace(frame, pixels=pixels, icc_profile=None)


def _rgb_array(frame: Frame) -> tuple[NDArray[Any], str]:
    """The samples of a frame as RGB or RGBA, and that mode."""
    import numpy as np

    if isinstance(frame.pixels, DeepPixels):
        array = frame.pixels.array if frame.pixels.array.ndim == 3 else frame.pixels.array[..., None]
        bands = {1: [0, 0, 0], 2: [0, 0, 0, 1], 3: [0, 1, 2], 4: [0, 1, 2, 3]}[array.shape[2]]
        return array[..., bands], "RGBA" if len(bands) == 4 else "RGB"
    image = color.standard_mode(frame.pixels)
    mode = "RGBA" if image.has_transparency_data else "RGB"
    return np.asarray(image.convert(mode)), mode


def _to_xyz(primaries: Primaries) -> NDArray[np.float64]:
    """The matrix from linear RGB to XYZ, where white has Y = 1."""
    import numpy as np

    xyz = np.array([(x, y, 1 - x - y) for x, y in zip(primaries[::2], primaries[1::2], strict=True)])
    white, colors = xyz[0] / xyz[0][1], xyz[1:].T
    matrix: NDArray[np.float64] = colors * np.linalg.solve(colors, white)
    return matrix


def _light(transfer: int, encoded: NDArray[np.float64]) -> NDArray[np.float64]:
    """Light (ITU-R BT.2100) relative to the reference white for PQ, of the scene for HLG."""
    import numpy as np

    if transfer == _PQ:
        power = encoded ** (32 / 2523)
        relative = np.maximum(power - 107 / 128, 0) / (2413 / 128 - 2392 / 128 * power)
        return 10_000 / _REFERENCE_WHITE * relative ** (8192 / 1305)
    a, b, c = 0.17883277, 0.28466892, 0.55991073
    return np.where(encoded <= 0.5, encoded**2 / 3, (np.exp((encoded - c) / a) + b) / 12)


def _display_light(linear: NDArray[np.float32]) -> NDArray[np.float32]:
    """Light of a scene as a screen with the default peak shows it, relative to the reference white."""
    import numpy as np

    luminance = linear @ np.array([0.2627, 0.6780, 0.0593], np.float32)
    gain = DEFAULT_PEAK / _REFERENCE_WHITE * np.maximum(luminance, 1e-9) ** 0.2
    light: NDArray[np.float32] = (linear * gain[..., None]).astype(np.float32)
    return light


def _gain(brightest: NDArray[np.float32], peak: float) -> NDArray[np.float32]:
    """The factor for a pixel with this largest component, by the reference white operator of SMPTE ST 2094-50.

    Up to the reference white, it is constant; from there to the peak, a Bézier curve leads to white.
    """
    import numpy as np

    headroom = max(peak / _REFERENCE_WHITE, 1.001)
    knee = 1 - 0.5 * min(np.log(headroom) / np.log(DEFAULT_PEAK / _REFERENCE_WHITE), 1)
    middle = 1 - _KNEE_SOFTNESS + _KNEE_SOFTNESS / knee
    target = (1 - _KNEE_SOFTNESS) * knee + _KNEE_SOFTNESS
    a, b = 1 - 2 * middle + headroom, 2 * (middle - 1)
    x = np.clip(brightest, 1, headroom)
    position = 2 * (x - 1) / (b + np.sqrt(b * b + 4 * a * (x - 1)))  # solves a p² + b p = x - 1
    y = knee * (1 - position) ** 2 + 2 * target * position * (1 - position) + position**2
    gain: NDArray[np.float32] = (y / np.maximum(brightest, 1)).astype(np.float32)
    return gain
