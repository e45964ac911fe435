"""PSD with layers: those that are composited without a merged image, and what is told of them."""

from io import BytesIO
from typing import Literal

import numpy as np
import pytest
from PIL import Image
from psd_tools import PSDImage
from psd_tools.constants import Resource, Tag
from psd_tools.psd.descriptor import Bool, Descriptor, DescriptorBlock2

from tests.support.results.conversions import codes, convert
from tests.support.samples.psd_files import RGB, build, planes, samples


def _layered(adjustment: Tag, *, merged: bool) -> bytes:
    """A green image below an adjustment, with or without a merged image."""
    document = PSDImage.new("RGB", (16, 12))
    document.create_pixel_layer(Image.new("RGB", (16, 12), (10, 200, 30)))
    document.create_pixel_layer(Image.new("RGB", (1, 1))).tagged_blocks.set_data(adjustment)
    document.image_resources.get_data(Resource.VERSION_INFO).has_composite = merged
    file = BytesIO()
    document.save(file)
    return file.getvalue()


@pytest.mark.parametrize(
    ("adjustment", "merged", "expected", "warnings"),
    [
        (Tag.INVERT, False, (245, 55, 225), set()),
        (Tag.VIBRANCE, False, (10, 200, 30), {"layers_dropped"}),
        (Tag.VIBRANCE, True, (10, 200, 30), set()),
        (Tag.GRADIENT_FILL_SETTING, False, (10, 200, 30), {"layers_dropped"}),
    ],
)
def test_adjustments_that_cannot_be_drawn_are_reported(
    adjustment: Tag, merged: bool, expected: tuple[int, int, int], warnings: set[str]
) -> None:
    result = convert(_layered(adjustment, merged=merged), "png")

    assert tuple(np.asarray(Image.open(BytesIO(result.data)).convert("RGB"))[5, 5]) == pytest.approx(expected, abs=1)
    assert codes(result) == {"layers_flattened", *warnings}


@pytest.mark.parametrize(("depth", "told"), [(8, set()), (16, {"depth_reduced"}), (32, {"depth_reduced"})])
def test_a_composite_has_8_bits(depth: Literal[8, 16, 32], told: set[str]) -> None:
    document = PSDImage.new("RGB", (16, 12), depth=depth)
    document.create_pixel_layer(Image.new("RGB", (16, 12), (10, 200, 30)))
    document.image_resources.get_data(Resource.VERSION_INFO).has_composite = False
    file = BytesIO()
    document.save(file)

    assert codes(convert(file.getvalue(), "png")) == told


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("depth", [8, 16])
@pytest.mark.parametrize(
    ("layers", "block", "told"),
    [(0, b"", False), (1, b"", False), (-1, b"", False), (2, b"", True), (-3, b"", True)]
    + [(1, b"8BIM" + key + b"\0\0\0\2??", told) for key, told in ((b"lfx2", True), (b"lrFX", True), (b"luni", False))]
    + [(1, b"8BIMluni\xff\xff\xff\xff????8BIMlfx2\0\0\0\0", False)],
)
def test_layers_that_become_one_image_are_told(layers: int, block: bytes, told: bool, depth: int, version: int) -> None:
    array = planes(samples(4, depth))

    result = convert(build(array, RGB, layers=layers, version=version, layer_blocks=block), "png")

    assert codes(result) == ({"layers_flattened"} if told else set())


def test_effects_that_cannot_be_drawn_are_reported() -> None:
    document = PSDImage.new("RGB", (16, 12))
    layer = document.create_pixel_layer(Image.new("RGB", (8, 6), (10, 200, 30)))
    stroke, effects = Descriptor(classID=b"FrFX"), DescriptorBlock2(classID=b"null")
    stroke[b"enab"], stroke[b"present"] = Bool(True), Bool(True)
    effects[b"masterFXSwitch"], effects[b"FrFX"] = Bool(True), stroke
    layer.tagged_blocks.set_data(Tag.OBJECT_BASED_EFFECTS_LAYER_INFO)
    layer.tagged_blocks[Tag.OBJECT_BASED_EFFECTS_LAYER_INFO].data = effects
    document.image_resources.get_data(Resource.VERSION_INFO).has_composite = False
    file = BytesIO()
    document.save(file)

    result = convert(file.getvalue(), "png")

    assert codes(result) == {"layers_flattened", "layers_dropped"}
    assert any(str(warned.message).endswith("without Stroke.") for warned in result.outcome.warnings)
    assert Image.open(BytesIO(result.data)).convert("RGBA").getpixel((3, 3)) == (10, 200, 30, 255)
