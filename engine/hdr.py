"""Colors of high dynamic range (ITU-R BT.2100), and their conversion to sRGB."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeAlias

from engine import color, linear_light
from engine.lazy import lazy_imports

if TYPE_CHECKING:
    from numpy.typing import NDArray

with lazy_imports():
    import numpy as np

Primaries: TypeAlias = tuple[float, ...]
"""The x and y of white, red, green and blue."""

_D65 = (0.3127, 0.3290)
_C = (0.310, 0.316)
_E = (1 / 3, 1 / 3)
_SRGB: Primaries = (*_D65, 0.64, 0.33, 0.30, 0.60, 0.15, 0.06)
_SMPTE_170M: Primaries = (*_D65, 0.630, 0.340, 0.310, 0.595, 0.155, 0.070)
_BT2020: Primaries = (*_D65, 0.708, 0.292, 0.170, 0.797, 0.131, 0.046)
PRIMARIES: Mapping[int, Primaries] = MappingProxyType(
    {
        1: _SRGB,
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
"""By code point of ITU-T H.273."""

_PQ = 16
_HLG = 18
HDR_TRANSFERS = (_PQ, _HLG)
"""Code points of ITU-T H.273."""

LINEAR = 8
"""The code point of linear light."""

_REFERENCE_WHITE = 203.0  # cd/m², of BT.2408
_DEFAULT_PEAK = 1000.0  # cd/m²
_LUMINANCE_UNITS = 10_000  # per cd/m², of a mastering display
_KNEE_SOFTNESS = 0.65
_STRIP = 64  # rows converted at a time


@dataclass(frozen=True, slots=True)
class HdrColors:
    """What the samples of an image of high dynamic range mean. `primaries` and `transfer` are code points of H.273.

    `light_levels` are the brightest pixel and the mean of the brightest image in cd/m² (CTA 861.3).
    `mastering_display` describes the screen on which the image was made (SMPTE ST 2086), in 24 bytes as in the chunk
    mDCV of PNG. Both are None if unknown.
    """

    primaries: int
    transfer: int
    light_levels: tuple[float, float] | None = None
    mastering_display: bytes | None = None

    @property
    def peak(self) -> float:
        """The brightness of the brightest color in cd/m²: of the content, or else of the screen, or a usual one."""
        content = self.light_levels[0] if self.light_levels else 0
        screen = int.from_bytes((self.mastering_display or b"")[16:20]) / _LUMINANCE_UNITS
        return content or screen or _DEFAULT_PEAK

    def to_srgb(self, array: NDArray[Any]) -> NDArray[Any]:
        """Samples of RGB or RGBA in sRGB, as browsers show them on a screen without HDR. Both have 8 or 16 bits.

        Linear light, as floats of any bands, becomes samples of 16 bits.
        """
        if self.transfer == LINEAR:
            return linear_light.to_srgb(array)
        maximum = np.iinfo(array.dtype).max
        light = _light(self.transfer, np.linspace(0, 1, maximum + 1)).astype(np.float32)
        to_bt2020 = np.linalg.solve(linear_to_xyz(_BT2020), linear_to_xyz(PRIMARIES[self.primaries])).astype(np.float32)
        to_srgb = np.linalg.solve(linear_to_xyz(_SRGB), linear_to_xyz(_BT2020)).astype(np.float32)
        result = array.copy()
        for top in range(0, len(array), _STRIP):
            linear = self._screen_light(light[array[top : top + _STRIP, :, :3]] @ to_bt2020.T)
            linear *= _gain(linear.max(axis=2), self.peak)[..., None]
            encoded = color.encode_srgb(np.clip(linear @ to_srgb.T, 0, 1))
            result[top : top + _STRIP, :, :3] = encoded * maximum + 0.5
        return result

    def to_linear(self, array: NDArray[Any]) -> NDArray[np.float32]:
        """Samples of any bands as linear light with the primaries of sRGB. 1 is the reference white.

        PQ and HLG become RGB or RGBA, linear light keeps its bands.
        """
        if self.transfer == LINEAR:
            return array
        maximum = np.iinfo(array.dtype).max
        array = array if array.ndim == 3 else array[..., None]
        result = np.empty((*array.shape[:2], 3 + (array.shape[2] in (2, 4))), np.float32)
        light = _light(self.transfer, np.linspace(0, 1, maximum + 1)).astype(np.float32)
        to_bt2020 = np.linalg.solve(linear_to_xyz(_BT2020), linear_to_xyz(PRIMARIES[self.primaries])).astype(np.float32)
        to_srgb = np.linalg.solve(linear_to_xyz(_SRGB), linear_to_xyz(_BT2020)).astype(np.float32)
        colors = array[..., :3] if array.shape[2] >= 3 else array[..., [0, 0, 0]]
        for top in range(0, len(array), _STRIP):
            linear = light[colors[top : top + _STRIP]] @ to_bt2020.T
            result[top : top + _STRIP, :, :3] = self._screen_light(linear) @ to_srgb.T
        if result.shape[2] == 4:
            result[..., 3] = array[..., -1] / np.float32(maximum)
        return result

    def _screen_light(self, linear: NDArray[np.float32]) -> NDArray[np.float32]:
        return _display_light(linear) if self.transfer == _HLG else linear


def linear_from(primaries: Primaries, array: NDArray[Any]) -> NDArray[np.float32]:
    """Converts linear RGB with these primaries, or XYZ, to linear sRGB. The last axis has at least three bands."""
    to_srgb = np.linalg.solve(linear_to_xyz(_SRGB), linear_to_xyz(primaries)).astype(np.float32)
    result = array.copy()
    for top in range(0, len(array), _STRIP):
        result[top : top + _STRIP, :, :3] = array[top : top + _STRIP, :, :3] @ to_srgb.T
    return result


def linear_to_xyz(primaries: Primaries) -> NDArray[np.float64]:
    """The matrix from linear RGB to XYZ, where white has Y = 1."""
    xyz = np.array([(x, y, 1 - x - y) for x, y in zip(primaries[::2], primaries[1::2], strict=True)])
    white = xyz[0] / xyz[0][1]
    colors = xyz[1:].T
    matrix: NDArray[np.float64] = colors * np.linalg.solve(colors, white)
    return matrix


def _light(transfer: int, encoded: NDArray[np.float64]) -> NDArray[np.float64]:
    """Light (ITU-R BT.2100) relative to the reference white for PQ, of the scene for HLG."""
    if transfer == _PQ:
        power = encoded ** (32 / 2523)
        relative = np.maximum(power - 107 / 128, 0) / (2413 / 128 - 2392 / 128 * power)
        return 10_000 / _REFERENCE_WHITE * relative ** (8192 / 1305)
    a = 0.17883277
    b = 0.28466892
    c = 0.55991073
    return np.where(encoded <= 0.5, encoded**2 / 3, (np.exp((encoded - c) / a) + b) / 12)


def _display_light(linear: NDArray[np.float32]) -> NDArray[np.float32]:
    """Light of a scene as a screen with the default peak shows it, relative to the reference white."""
    luminance = linear @ np.array([0.2627, 0.6780, 0.0593], np.float32)
    gain = _DEFAULT_PEAK / _REFERENCE_WHITE * np.maximum(luminance, 1e-9) ** 0.2
    light: NDArray[np.float32] = (linear * gain[..., None]).astype(np.float32)
    return light


def _gain(brightest: NDArray[np.float32], peak: float) -> NDArray[np.float32]:
    """The factor for a pixel with this largest component, by the reference white operator of SMPTE ST 2094-50.

    Up to the reference white, it is constant; from there to the peak, a Bézier curve leads to white.
    """
    headroom = max(peak / _REFERENCE_WHITE, 1.001)
    knee = 1 - 0.5 * min(np.log(headroom) / np.log(_DEFAULT_PEAK / _REFERENCE_WHITE), 1)
    middle = 1 - _KNEE_SOFTNESS + _KNEE_SOFTNESS / knee
    target = (1 - _KNEE_SOFTNESS) * knee + _KNEE_SOFTNESS
    a = 1 - 2 * middle + headroom
    b = 2 * (middle - 1)
    x = np.clip(brightest, 1, headroom)
    position = 2 * (x - 1) / (b + np.sqrt(b * b + 4 * a * (x - 1)))  # solves a p² + b p = x - 1
    y = knee * (1 - position) ** 2 + 2 * target * position * (1 - position) + position**2
    gain: NDArray[np.float32] = (y / np.maximum(brightest, 1)).astype(np.float32)
    return gain
