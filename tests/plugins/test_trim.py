"""Borders that are removed, compared with find_trim of libvips."""

from typing import Any

import numpy as np
import pytest
import pyvips
from PIL import Image

from engine import DeepPixels
from plugins.operations import trim
from tests.support.results.conversions import codes, convert, opened
from tests.support.samples.generated import saved
from tests.support.samples.rasters import only, photo, raster_of, with_16_bits


def _framed(mode: str = "RGB", noise: int = 0) -> Image.Image:
    """A photo of 60 x 40 pixels at 20, 10 on a border of one color, with noise."""
    image = Image.new("RGB", (120, 80), (240, 230, 220))
    image.paste(photo((60, 40)), (20, 10))
    samples = np.asarray(image).astype(int)
    border = np.ones(samples.shape[:2], bool)
    border[10:50, 20:80] = False
    samples[border] += np.random.default_rng(3).integers(-noise, noise + 1, (int(border.sum()), 3))
    return Image.fromarray(samples.astype(np.uint8)).convert(mode)


@pytest.mark.parametrize("mode", ["RGB", "L", "CMYK"])
@pytest.mark.parametrize("noise", [0, 3])
@pytest.mark.parametrize("threshold", [0, 2.5, 10, 30, 100])
@pytest.mark.parametrize("deep", [False, True])
def test_the_border_is_that_of_libvips(mode: str, noise: int, threshold: float, deep: bool) -> None:
    image = _framed(mode, noise)
    corner = np.atleast_1d(np.asarray(image)[0, 0]).tolist()
    original = pyvips.Image.new_from_array(np.asarray(image))
    # `line_art` keeps single pixels, which a median filter would remove before.
    left, top, width, height = original.find_trim(threshold=threshold * 2.55, background=corner, line_art=True)
    expected = (left, top, left + width, top + height) if width and height else (0, 0, *image.size)

    trimmed = trim.trim(raster_of(DeepPixels.from_image(image) if deep else image), {"trim": threshold})

    seen = only(trimmed)
    assert trimmed.sizes == [seen.size]
    np.testing.assert_array_equal(np.asarray(seen.image), np.asarray(image.crop(expected)))


@pytest.mark.parametrize("deep", [False, True])
def test_a_transparent_border_is_removed_whatever_its_colors(deep: bool) -> None:
    image = photo((60, 40)).convert("RGBA")
    canvas = np.random.default_rng(4).integers(0, 255, (80, 120, 4), np.uint8)
    canvas[..., 3] = 0
    canvas[10:50, 20:80] = np.asarray(image)
    original = Image.fromarray(canvas)

    seen = only(trim.trim(raster_of(with_16_bits(original) if deep else original), {"trim": 1}))

    assert seen.size == (60, 40)
    if not deep:
        np.testing.assert_array_equal(np.asarray(seen.image), np.asarray(image))


@pytest.mark.parametrize("mode", ["1", "L", "P", "RGB", "RGBA"])
def test_a_image_of_one_color_stays(mode: str) -> None:
    image = Image.new(mode, (30, 20))

    seen = only(trim.trim(raster_of(image), {"trim": 0}))

    assert (seen.size, seen.pixels.mode) == ((30, 20), mode)


def test_a_palette_stays() -> None:
    image = Image.new("P", (30, 20), 1)
    image.putpalette([255, 0, 0, 0, 0, 255])
    image.paste(0, (3, 4, 13, 9))

    seen = only(trim.trim(raster_of(image), {"trim": 5}))

    assert (seen.size, seen.pixels.mode) == ((10, 5), "P")


def test_animations_lose_what_no_frame_shows_and_pages_their_own_border() -> None:
    images = [Image.new("RGB", (60, 40), "white") for _ in range(3)]
    images[0].paste("red", (10, 10, 20, 20))
    images[1].paste("red", (30, 15, 50, 18))

    animated = trim.trim(raster_of(*images, animated=True), {"trim": 10})
    pages = trim.trim(raster_of(*images), {"trim": 10})

    assert animated.sizes == [(40, 10)] * 3
    assert [frame.size for frame in animated.frames] == [(40, 10)] * 3
    assert [frame.size for frame in pages.frames] == [(10, 10), (20, 3), (60, 40)]


@pytest.mark.parametrize(
    ("options", "size"),
    [
        ({}, (60, 40)),
        ({"width": 30}, (30, 20)),
        ({"crop": "0,0,30,40"}, (30, 40)),
        ({"crop": "0,0,30,40", "rotate": 90, "width": 20}, (20, 15)),
        ({"crop": "1:1", "gravity": "west", "pad": "5"}, (50, 50)),
    ],
    ids=str,
)
@pytest.mark.parametrize("source", ["PNG", "JPEG", "svg"])
def test_what_comes_after_refers_to_the_trimmed_image(source: str, options: dict[str, Any], size: Any) -> None:
    """Decoders that draw at the requested size must not do so before the border is known."""
    drawing = (
        b'<svg xmlns="http://www.w3.org/2000/svg" width="120" height="80"><rect width="120" height="80" fill="#eee"/>'
        b'<rect x="20" y="10" width="60" height="40" fill="#c33"/></svg>'
    )
    data = drawing if source == "svg" else saved(_framed(), source, **({"quality": 98} if source == "JPEG" else {}))

    result = convert(data, "png", trim=8, **options)

    assert opened(result.data).size == pytest.approx(size, abs=2 if source == "JPEG" else 0)
    assert not codes(result)


def test_a_trimmed_jpeg_on_the_borders_of_blocks_keeps_its_coefficients() -> None:
    image = Image.new("RGB", (128, 96), "white")
    image.paste(Image.effect_noise((64, 64), 60).convert("RGB"), (16, 16))
    data = saved(image, "JPEG", quality=100, subsampling="4:2:0")

    result = convert(data, "jpeg", trim=3)
    cropped = convert(data, "jpeg", crop="16,16,64,64")

    assert opened(result.data).size == (64, 64)
    assert result.data == cropped.data
