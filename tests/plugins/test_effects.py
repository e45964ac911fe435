"""Changes of colors and filters, compared with libvips in 8 and 16 bits."""

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import pyvips
from PIL import Image

from engine import DeepPixels, Frame, OptionValues, Raster
from plugins.operations import effects
from tests.support.results.conversions import codes, convert, opened
from tests.support.samples.generated import sample, saved
from tests.support.samples.profiles import swapped_profile
from tests.support.samples.rasters import only, photo, raster_of, vips_image, with_16_bits

_LUMINANCE = np.array([[0.213, 0.715, 0.072]] * 3)


def _saturated(image: Any, factor: float) -> Any:
    matrix = factor * np.eye(3) + (1 - factor) * _LUMINANCE
    return image.recomb(pyvips.Image.new_from_array(matrix.tolist()))


def _blurred(image: Any, sigma: float) -> Any:
    return image.gaussblur(sigma, precision="float", min_ampl=0.005)


def _pixelated(image: Any, side: int) -> Any:
    return image.shrink(side, side).zoom(side, side)


_STEPS: list[tuple[Any, OptionValues, Callable[[Any, float], Any]]] = [
    (effects.adjust, {"brightness": 1.3}, lambda image, _: image.linear(1.3, 0)),
    (effects.adjust, {"brightness": 0}, lambda image, _: image.linear(0, 0)),
    (effects.adjust, {"contrast": 1.6}, lambda image, unit: image.linear(1.6, -0.3 * unit)),
    (effects.adjust, {"contrast": 0}, lambda image, unit: image.linear(0, 0.5 * unit)),
    (effects.adjust, {"gamma": 2.2}, lambda image, unit: image.linear(1 / unit, 0) ** (1 / 2.2) * unit),
    (effects.adjust, {"gamma": 0.1}, lambda image, unit: image.linear(1 / unit, 0) ** 10 * unit),
    (effects.adjust, {"saturation": 2.5}, lambda image, _: _saturated(image, 2.5)),
    (effects.adjust, {"saturation": 0}, lambda image, _: _saturated(image, 0)),
    (effects.blur, {"blur": 0.5}, lambda image, _: _blurred(image, 0.5)),
    (effects.blur, {"blur": 4}, lambda image, _: _blurred(image, 4)),
    (effects.blur, {"blur": 40}, lambda image, _: _blurred(image, 40)),
    (effects.sharpen, {"sharpen": 1.5}, lambda image, _: image * 2 - _blurred(image, 1.5)),
    (effects.pixelate, {"pixelate": 8}, lambda image, _: _pixelated(image, 8)),
]


@pytest.mark.parametrize(("step", "options", "oracle"), _STEPS, ids=[str(options) for _, options, _ in _STEPS])
@pytest.mark.parametrize("mode", ["RGB", "RGBA"])
@pytest.mark.parametrize("deep", [False, True])
def test_effects_are_those_of_libvips(
    step: Any, options: OptionValues, oracle: Callable[[Any, float], Any], mode: str, deep: bool
) -> None:
    image: Any = photo(mode=mode)
    image = with_16_bits(image) if deep else image
    unit = 65535 if deep else 255
    original = vips_image(image).cast("float")
    filters = step != effects.adjust
    if mode == "RGBA" and filters:
        expected = oracle(original.premultiply(max_alpha=unit), unit).unpremultiply(max_alpha=unit).numpy()
    elif mode == "RGBA":
        expected = oracle(original[:3], unit).bandjoin(original[3]).numpy()
    else:
        expected = oracle(original, unit).numpy()
    expected = np.clip(expected, 0, unit)

    seen = only(step(raster_of(image), options)).pixels

    samples = seen.array if isinstance(seen, DeepPixels) else np.asarray(seen)
    assert (seen.mode, isinstance(seen, DeepPixels)) == (mode, deep)
    difference = (samples - expected) / unit
    if mode == "RGBA":  # the color of transparent pixels is not visible
        difference[..., :3] *= expected[..., 3:] / unit
    assert np.sqrt((difference**2).mean()) < 0.01  # 40 dB
    assert not deep or len(np.unique(samples)) > 256 or not any(options.values())


def test_changes_of_colors_are_made_in_their_order() -> None:
    options: OptionValues = {"brightness": 1.2, "contrast": 0.8, "saturation": 1.5, "gamma": 1.4}
    samples = np.asarray(photo()) / 255
    lit = (np.clip(samples * 1.2, 0, 1) - 0.5) * 0.8 + 0.5
    expected = np.clip(lit @ (1.5 * np.eye(3) - 0.5 * _LUMINANCE).T, 0, 1) ** (1 / 1.4)

    seen = np.asarray(only(effects.adjust(raster_of(photo()), options)).image) / 255

    assert np.sqrt(((seen - expected) ** 2).mean()) < 0.01


@pytest.mark.parametrize(("mode", "kept"), [("1", "L"), ("L", "L"), ("LA", "LA"), ("P", "RGB"), ("CMYK", "CMYK")])
@pytest.mark.parametrize("step", [effects.blur, effects.sharpen, effects.pixelate])
def test_filters_of_every_mode(step: Any, mode: str, kept: str) -> None:
    image = photo(mode="RGB").convert(mode)
    seen = only(step(raster_of(image), {str(step): 3}))

    assert (seen.pixels.mode, seen.size) == (kept, image.size)
    before, after = (np.asarray(each, float) for each in (image.convert(kept), seen.image))
    assert after.mean() == pytest.approx(before.mean(), abs=8)
    assert np.abs(after - before).max() > 3 or (step, mode) == (effects.sharpen, "1")  # which has no more contrast


@pytest.mark.parametrize(("mode", "made"), [("1", "L"), ("L", "L"), ("P", "RGB"), ("CMYK", "RGB")])
@pytest.mark.parametrize("deep", [False, True])
def test_changes_of_colors_of_every_mode(mode: str, made: str, deep: bool) -> None:
    image = photo(mode="RGB").convert(mode)
    deep = deep and mode in ("L", "CMYK")
    source = raster_of(DeepPixels.from_image(image) if deep else image)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        seen = only(effects.adjust(source, {"brightness": 0.5}))
    assert seen.pixels.mode == made
    assert any("color_converted" in str(one.message) for one in caught) == (mode == "CMYK")
    assert np.asarray(seen.image).max() <= 128


def test_effects_keep_the_profile_and_the_size() -> None:
    profile = swapped_profile()
    source = Raster([Frame(photo(), profile)], sizes=[(240, 160)])

    seen = effects.blur(effects.adjust(source, {"gamma": 2}), {"blur": 2})

    assert seen.sizes == [(240, 160)]
    assert only(seen).icc_profile == profile


def test_all_frames_have_the_effect() -> None:
    source = raster_of(*(Image.new("RGB", (40, 20), (60 * index, 10, 0)) for index in range(4)), animated=True)

    frames = list(effects.pixelate(effects.adjust(source, {"saturation": 0}), {"pixelate": 7}).frames)

    assert [frame.duration for frame in frames] == [40.0] * 4
    assert all(frame.image.getpixel((0, 0)) == frame.image.getpixel((39, 19)) for frame in frames)
    assert len({frame.image.getpixel((0, 0)) for frame in frames}) == 4


@pytest.mark.parametrize("target", ["jpeg", "jxl", "pdf"])
def test_coefficients_of_a_jpeg_are_not_kept_under_an_effect(target: str) -> None:
    """JPEG as JPEG, in JPEG XL and in a PDF is not decoded without one."""
    data = saved(Image.new("RGB", (64, 64), (200, 40, 40)), "JPEG")

    result = convert(data, target, saturation=0)

    image = opened(convert(result.data, "png").data).convert("RGB")
    red, green, blue = image.getpixel((5, 5))  # type: ignore[misc]
    assert max(red, green, blue) - min(red, green, blue) < 6
    assert not codes(result) & {"option_ignored", "kept_original"}


@pytest.mark.parametrize("source", ["exr", "hdr"])
def test_linear_light_stays_linear_in_a_filter(source: str) -> None:
    result = convert(sample(source), source, blur=1)

    assert not codes(result)
