"""Linear light as 32-bit floats, of which 1 is white: from and to sRGB, with the tone curve for what is brighter."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from engine import color
from engine.conversions import FidelityWarning
from engine.lazy import lazy_imports

if TYPE_CHECKING:
    from numpy.typing import NDArray

with lazy_imports():
    import numpy as np

_MIDDLE_GRAY = 0.18
_WHITE_TOLERANCE = 0.001  # The largest rounding error of white in floats of 16 bits.
_STRIP = 64  # rows converted at a time


def to_srgb(array: NDArray[np.float32]) -> NDArray[np.uint16]:
    """Linear light of sRGB's primaries as samples of 16 bits, tone mapped if a pixel is brighter than white."""
    bands = array if array.ndim == 3 else array[..., None]
    colors = 1 if bands.shape[2] < 3 else 3
    light = bands[..., :colors]
    peak = 1.0
    for top in range(0, len(light), _STRIP):
        strip = light[top : top + _STRIP]
        peak = max(peak, float(strip.max(initial=1, where=np.isfinite(strip))))
    if peak > 1 + _WHITE_TOLERANCE:
        FidelityWarning.issue("tone_mapped", f"Light up to {peak:.3g} times as bright as white was made darker.")
    result = np.empty(bands.shape, np.uint16)
    for top in range(0, len(bands), _STRIP):
        strip = np.nan_to_num(bands[top : top + _STRIP], nan=0, posinf=peak, neginf=0)
        gain = _roll_off(strip[..., :colors].max(axis=2), peak)[..., None]
        strip[..., :colors] = color.encode_srgb(np.clip(strip[..., :colors] * gain, 0, 1))
        result[top : top + _STRIP] = np.clip(strip, 0, 1) * 65535 + 0.5
    return result.reshape(array.shape)


def _roll_off(brightest: NDArray[np.float32], peak: float) -> NDArray[np.float32]:
    """The factor for a pixel with this largest component, of light that is at most `peak`.

    Up to middle gray, 18 % of white, light stays as it is. From there, with x as the distance to middle gray in units
    of that from middle gray to white, and p as x of the peak, the curve of Reinhard, x (1 + x / p²) / (1 + x), leads to
    white at the peak. It is the identity if the peak is white.
    """
    span = 1 - _MIDDLE_GRAY
    x = np.maximum(brightest - _MIDDLE_GRAY, 0) / span
    end = (peak - _MIDDLE_GRAY) / span
    y = _MIDDLE_GRAY + span * x * (1 + x / end / end) / (1 + x)
    gain: NDArray[np.float32] = np.where(x > 0, y / np.maximum(brightest, _MIDDLE_GRAY), 1).astype(np.float32)
    return gain


def decode(array: NDArray[Any], mode: str) -> NDArray[np.float32]:
    """Linear light of samples of `mode`, from 0 to 1, in sRGB. Alpha stays as it is."""
    colors, alpha = color.split_alpha(array, mode)
    linear = color.decode_srgb(colors).astype(np.float32)
    return linear if alpha is None else np.dstack((linear, alpha))


def in_mode(array: NDArray[np.float32], mode: str, modes: tuple[str, ...]) -> tuple[NDArray[np.float32], str]:
    """Linear light in one of `modes`, and that mode. Transparency that none of them has is flattened onto white."""
    if mode in modes:
        return array, mode
    colors, alpha = color.split_alpha(array, mode)
    colors = np.repeat(colors[..., None], 3, axis=2) if colors.ndim == 2 and "L" not in modes else colors
    if alpha is None:
        return colors, "RGB" if colors.ndim == 3 else "L"
    if "RGBA" in modes:
        return np.dstack((colors, alpha) if colors.ndim == 3 else (colors, colors, colors, alpha)), "RGBA"
    if alpha.min() < 1:
        color.warn_flattened()
    share = np.clip(alpha, 0, 1) if colors.ndim == 2 else np.clip(alpha, 0, 1)[..., None]
    return colors * share + (1 - share), "RGB" if colors.ndim == 3 else "L"
