"""Composites the layers of PSD files with psd-tools."""

from __future__ import annotations

from collections.abc import Iterator
from io import BytesIO
from warnings import warn

import psd_tools.composite  # noqa: F401  # otherwise imported in the job, where the sandbox may refuse it
from psd_tools import PSDImage
from psd_tools.api.adjustments import GradientFill
from psd_tools.api.layers import AdjustmentLayer, Layer
from psd_tools.constants import Resource, Tag

from engine import CorruptInput, FidelityWarning, Frame

# What psd-tools draws without SciPy.
_ADJUSTMENTS = frozenset({"exposure", "invert", "levels", "posterize", "threshold"})
_EFFECTS = frozenset({"ColorOverlay", "PatternOverlay"})
_EFFECT_BLOCKS = (
    Tag.OBJECT_BASED_EFFECTS_LAYER_INFO,
    Tag.OBJECT_BASED_EFFECTS_LAYER_INFO_V0,
    Tag.OBJECT_BASED_EFFECTS_LAYER_INFO_V1,
)


def composite(data: bytes) -> Iterator[Frame]:
    """A composite of the visible layers. Issues a FidelityWarning for layers and effects that cannot be drawn."""
    document = PSDImage.open(BytesIO(data))
    visible = [layer for layer in document.descendants() if layer.is_visible()]
    omitted = {layer.kind for layer in visible if not _is_drawn(layer)}
    omitted |= {name for layer in visible if _is_drawn(layer) for name in _remove_effects(layer)}
    if omitted:
        message = f"There is no merged picture, and layers were composited without {', '.join(sorted(omitted))}."
        warn(FidelityWarning("layers_dropped", message), stacklevel=2)
    try:
        image = document.composite(layer_filter=lambda layer: layer.is_visible() and _is_drawn(layer), apply_icc=False)
    except ImportError as error:
        raise CorruptInput("There is no merged picture, and the layers cannot be composited.") from error
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
