"""The merged image of a PSD file as frames with 8 or 16 bits per sample, or a composite of its layers."""

from collections.abc import Iterator
from dataclasses import replace
from io import BytesIO
from typing import Any

import numpy as np
import psd_tools.composite  # noqa: F401  # otherwise imported in the job, where the sandbox may refuse it
from numpy.typing import NDArray
from PIL import Image
from psd_tools import PSDImage
from psd_tools.api.adjustments import GradientFill
from psd_tools.api.layers import AdjustmentLayer, Layer
from psd_tools.constants import Resource, Tag

from engine import CorruptInput, DeepPixels, FidelityWarning, Frame, color
from plugins._psd.files import BITMAP, CMYK, DUOTONE, GRAY, INDEXED, LAB, MULTICHANNEL, RGB, PsdFile

# Resources.
_ICC_PROFILE = 1039
_TRANSPARENT_INDEX = 1047
_MODES = {BITMAP: "1", GRAY: "L", INDEXED: "P", RGB: "RGB", CMYK: "CMYK", DUOTONE: "L", LAB: "LAB"}
_PALETTE_SIZE = 768
_BLEND_TOLERANCE = 3 / 255  # rounding of blended samples

# What psd-tools draws without SciPy.
_ADJUSTMENTS = frozenset({"exposure", "invert", "levels", "posterize", "threshold"})
_EFFECTS = frozenset({"ColorOverlay", "PatternOverlay"})
_EFFECT_BLOCKS = (
    Tag.OBJECT_BASED_EFFECTS_LAYER_INFO,
    Tag.OBJECT_BASED_EFFECTS_LAYER_INFO_V0,
    Tag.OBJECT_BASED_EFFECTS_LAYER_INFO_V1,
)


def is_deep(file: PsdFile) -> bool:
    """Whether `deep_frames` supports the file. Raises CorruptInput for unknown colors."""
    mode = _color_mode(file)
    return file.depth > 8 and (mode in ("L", "RGB") or (mode == "CMYK" and not _has_alpha(file, mode)))


def frames(file: PsdFile) -> Iterator[Frame]:
    """The image with 8 bits per sample. Raises CorruptInput."""
    if is_deep(file):
        yield from (replace(frame, pixels=frame.image) for frame in deep_frames(file))
        return
    mode = _color_mode(file)
    profile = color.matching_profile(mode, file.resources.get(_ICC_PROFILE))
    planes = _read_planes(file, mode)
    has_alpha = _has_alpha(file, mode)
    if mode in ("L", "RGB"):
        yield Frame(_merge(mode + "A" * has_alpha, planes), profile)
        return
    if mode == "1":
        image = Image.frombytes("1", (file.width, file.height), planes[0].tobytes(), "raw", "1;I")
    elif mode == "P":
        image = _merge("L", planes[:1])
        image.putpalette(file.palette[:_PALETTE_SIZE], "RGB;L")
        image.info.update(_transparent_index(file))
    else:
        image = _merge(mode, planes[: _band_count(mode)])
    if has_alpha:
        image, profile = color.reduced_to_srgb(image, profile), None
        image.putalpha(_merge("L", planes[-1:]))
    yield Frame(image, profile)


def _merge(mode: str, planes: NDArray[Any]) -> Image.Image:
    planes = planes if planes.dtype == np.uint8 else color.to_8_bits(_to_16_bits(planes))
    return Image.merge(mode, [Image.fromarray(plane) for plane in planes])


def _transparent_index(file: PsdFile) -> dict[str | tuple[int, int], int]:
    index = int.from_bytes(file.resources.get(_TRANSPARENT_INDEX, b"\xff\xff"), "big")
    return {"transparency": index} if index <= 255 else {}


def deep_frames(file: PsdFile) -> Iterator[Frame]:
    """The image with 16 bits per sample. Raises CorruptInput."""
    mode = _color_mode(file)
    profile = color.matching_profile(mode, file.resources.get(_ICC_PROFILE))
    planes = _read_planes(file, mode)
    is_linear = file.depth == 32 and mode != "CMYK"
    if is_linear and profile is None:
        for plane in planes[: len(mode)]:
            plane[:] = color.encode_srgb(plane)
    # Unlike ascontiguousarray, a copy has the usual strides even for a side of one pixel, which encoders require.
    array = np.moveaxis(_to_16_bits(planes), 0, -1).copy()
    array = array[..., 0] if len(planes) == 1 else array
    mode += "A" * _has_alpha(file, mode)
    if is_linear and profile:
        # With the linear profile, 8 bits would be too few for dark colors.
        (array, mode) = color.deep_to_srgb(array, mode, profile)
        profile = None
    yield Frame(DeepPixels(array, mode), profile)


def _color_mode(file: PsdFile) -> str:
    """The mode of the colors by Pillow's names. Raises CorruptInput."""
    if file.mode == MULTICHANNEL:  # inks, usually the process colors first
        mode = {1: "L", 2: "L", 3: "RGB"}.get(file.channels, "CMYK")
    else:
        mode = _MODES.get(file.mode, "")
    if not mode or file.channels < _band_count(mode) or (file.depth == 1) != (mode == "1"):
        raise CorruptInput("The colors of the file are unknown.")
    if mode == "P" and (file.depth > 8 or len(file.palette) < _PALETTE_SIZE):
        raise CorruptInput("The file has no palette.")
    return mode


def _band_count(mode: str) -> int:
    return 3 if mode == "LAB" else len(mode)


def _has_alpha(file: PsdFile, mode: str) -> bool:
    return mode != "1" and file.layers.has_alpha and file.channels > _band_count(mode)


def _read_planes(file: PsdFile, mode: str) -> NDArray[Any]:
    """The channels of the colors and of the transparency: bits, 8 or 16 bits per sample, or floats from 0 to 1.

    Inks are not inverted, and colors not blended with the white background.
    """
    has_alpha = _has_alpha(file, mode)
    planes = file.planes(_band_count(mode) + has_alpha)
    if file.depth == 32:
        planes = np.nan_to_num(planes.astype(np.float32), copy=False)
        planes.clip(0, 1, out=planes)
    elif file.depth == 16:
        planes = planes.astype(np.uint16)
    maximum = 1 if file.depth == 32 else np.iinfo(planes.dtype).max
    if has_alpha and mode != "P":
        planes = _remove_white(planes, maximum)
    if mode == "CMYK":
        planes = np.concatenate((maximum - planes[:4], planes[4:]))
    return planes


def _remove_white(planes: NDArray[Any], maximum: int) -> NDArray[Any]:
    """Reverses blending of the colors with white by the last plane.

    Some programs do not blend them, which shows where colors are darker than their share of white.
    """
    partial = (planes[-1] > 0) & (planes[-1] < maximum)
    alpha = planes[-1][partial].astype(np.float32)
    least = maximum * (1 - _BLEND_TOLERANCE) - alpha
    if any((plane[partial] < least).any() for plane in planes[:-1]):
        return planes
    planes = planes.copy()
    rounding = 0 if maximum == 1 else 0.5
    for plane in planes[:-1]:
        plane[partial] = np.clip(maximum - (maximum - plane[partial]) * (maximum / alpha) + rounding, 0, maximum)
    return planes


def _to_16_bits(planes: NDArray[Any]) -> NDArray[np.uint16]:
    if planes.dtype == np.uint16:
        return planes
    return np.stack([(plane * 65535 + 0.5).astype(np.uint16) for plane in planes])


def composite(data: bytes) -> Iterator[Frame]:
    """A composite of the visible layers. Issues a FidelityWarning for layers and effects that cannot be drawn."""
    document = PSDImage.open(BytesIO(data))
    visible = [layer for layer in document.descendants() if layer.is_visible()]
    omitted = {layer.kind for layer in visible if not _is_drawn(layer)}
    omitted |= {name for layer in visible if _is_drawn(layer) for name in _remove_effects(layer)}
    if omitted:
        message = f"There is no merged image, and layers were composited without {', '.join(sorted(omitted))}."
        FidelityWarning.issue("layers_dropped", message)
    try:
        image = document.composite(layer_filter=lambda layer: layer.is_visible() and _is_drawn(layer), apply_icc=False)
    except ImportError as error:
        raise CorruptInput("There is no merged image, and the layers cannot be composited.") from error
    profile = document.image_resources.get_data(Resource.ICC_PROFILE)
    yield Frame(image, profile if isinstance(profile, bytes) else None)


def _is_drawn(layer: Layer) -> bool:
    if isinstance(layer, AdjustmentLayer):
        return layer.kind in _ADJUSTMENTS
    return not isinstance(layer, GradientFill)


def _remove_effects(layer: Layer) -> set[str]:
    """Removes the effects of the layer if some of them cannot be drawn. Returns the names of these."""
    names = {effect.name for effect in layer.effects if effect.enabled} if layer.has_effects() else set()
    if omitted := names - _EFFECTS:
        for tag in _EFFECT_BLOCKS:
            layer.tagged_blocks.pop(tag, None)
    return omitted
