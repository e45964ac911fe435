"""Sizes of lossy files at the default quality, and effort by size."""

import numpy as np
import pytest
from PIL import Image

from benchmarks import samples
from engine import pipeline
from engine.registry import load_registry
from plugins.formats import webp
from tests.support.samples.generated import saved
from tests.support.samples.rasters import photo, raster_of

_REGISTRY = load_registry()


def _with_detail(size: tuple[int, int]) -> Image.Image:
    """A plain image with a photo in its corner."""
    image = Image.new("RGB", size, "gray")
    image.paste(photo())
    return image


def _webp(image: Image.Image, method: int) -> bytes:
    return saved(image, "WEBP", quality=80, method=method)


@pytest.mark.parametrize(
    ("height", "effort", "method"),
    [
        pytest.param(1000, 5, 4, id="small"),
        pytest.param(5001, 1, 2, id="large-fast", marks=pytest.mark.long),
        pytest.param(5001, 5, 2, id="large"),
    ],
)
def test_large_images_have_the_webp_method_that_needs_one_pass(height: int, effort: int, method: int) -> None:
    image = _with_detail((5200, height))

    made = webp.encode(raster_of(image), {"effort": effort, "quality": 80})

    assert made == _webp(image, method)
    assert len({_webp(photo(), used) for used in (0, 2, 4)}) == 3


@pytest.mark.parametrize(("target", "quality"), [("jpeg", 88), ("webp", 88), ("avif", 75), ("heic", 75)])
def test_a_jpeg_does_not_grow_at_the_default_quality(target: str, quality: int) -> None:
    original = saved(samples.photo((870, 578)), "JPEG", quality=quality)
    plan = _REGISTRY.plan([_REGISTRY.formats["jpeg"]], target)

    assert len(pipeline.run(plan, [original]).data) <= len(original)


@pytest.mark.parametrize("effort", [5, 9])
@pytest.mark.parametrize("progressive", [False, True])
def test_noise_is_written_as_jpeg_of_the_best_quality(effort: int, progressive: bool) -> None:
    noise = Image.fromarray(np.random.default_rng(1).integers(0, 256, (256, 256, 3), np.uint8))
    options = {"quality": 100, "effort": effort, "progressive": progressive}
    plan = _REGISTRY.plan([_REGISTRY.formats["png"]], "jpeg", options=options)

    assert pipeline.run(plan, [saved(noise, "PNG")], options).data
