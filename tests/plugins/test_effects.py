"""Changes of colors, filters, borders, corners and padding, and trimmed borders, compared with libvips and Pillow."""

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import pyvips
from PIL import Image, ImageDraw

from engine import DeepPixels, Frame, InvalidOption, OptionValues, Raster
from plugins.operations import border, effects, trim
from tests.support.results.conversions import codes, convert, opened
from tests.support.samples.generated import quadrants, sample, saved
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
    assert not codes(convert(sample(source), source, blur=1))


def _mask(width: int, height: int, radius: float) -> Any:
    """The share of each pixel that is inside, of 16 x 16 points."""
    large = Image.new("L", (16 * width, 16 * height))
    box = (0, 0, 16 * width - 1, 16 * height - 1)
    ImageDraw.Draw(large).rounded_rectangle(box, round(16 * radius), fill=255)
    return np.asarray(large.reduce(16)).astype(float)


@pytest.mark.parametrize(
    ("size", "radius", "pixels"),
    [
        ((80, 60), "20", 20),
        ((60, 80), "50%", 30),
        ((61, 61), "50%", 30.5),
        ((80, 60), "999", 30),
        ((80, 61), "12.5%", 7.625),
    ],
)
@pytest.mark.parametrize("mode", ["RGB", "L", "RGBA", "P", "CMYK"])
@pytest.mark.parametrize("deep", [False, True])
def test_corners_are_those_of_a_drawing(size: Any, radius: str, pixels: float, mode: str, deep: bool) -> None:
    image = photo(size, "RGBA" if mode == "RGBA" else "RGB").convert(mode)
    deep = deep and mode != "P"

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        seen = only(border.radius(raster_of(DeepPixels.from_image(image) if deep else image), {"radius": radius}))
        alpha = np.asarray(seen.image)[..., -1].astype(float)

    assert [str(one.message).count("color_converted") for one in caught] == ([1] if mode == "CMYK" else [])
    before = np.asarray(image)[..., -1] if mode == "RGBA" else np.full(alpha.shape, 255)
    expected = _mask(size[0], size[1], pixels) * before / 255
    assert seen.pixels.mode == ("LA" if mode == "L" else "RGBA")
    assert isinstance(seen.pixels, DeepPixels) == deep
    assert np.abs(alpha - expected).max() < 16  # both approximate the share
    assert np.sqrt(((alpha - expected) ** 2).mean()) < 2.55  # 40 dB
    if mode in ("RGB", "L"):
        bands = 1 if mode == "L" else 3
        np.testing.assert_array_equal(
            np.asarray(seen.image)[..., :bands].reshape(*alpha.shape, -1), np.asarray(image).reshape(*alpha.shape, -1)
        )


@pytest.mark.parametrize("options", [{"radius": "0"}, {"radius": "0%"}, {"pad": "0"}, {"pad": "0%,0,0,0"}], ids=str)
def test_nothing_changes_by_zero(options: dict[str, str]) -> None:
    data = saved(photo((40, 30)), "PNG")

    assert convert(data, "webp", **options).data == convert(data, "webp").data


@pytest.mark.parametrize(
    ("pad", "widths"),
    [("10", (10, 10, 10, 10)), ("1,2,3,4", (1, 2, 3, 4)), ("10%", (4, 6, 4, 6)), ("50%,5,0, 10%", (20, 5, 0, 6))],
)
@pytest.mark.parametrize(
    ("mode", "background", "expected"),
    [
        ("RGB", None, ("RGB", (255, 255, 255))),
        ("RGBA", None, ("RGBA", (255, 255, 255, 0))),
        ("RGB", "#11223344", ("RGBA", (17, 34, 51, 0))),
        ("L", "red", ("RGB", (255, 0, 0))),
        ("CMYK", None, ("CMYK", (0, 0, 0, 0))),
        ("P", "red", ("RGB", (255, 0, 0))),
    ],
)
@pytest.mark.parametrize("deep", [False, True])
def test_padding(pad: str, widths: Any, mode: str, background: str | None, expected: Any, deep: bool) -> None:
    image = quadrants((60, 40)).convert(mode)
    source = raster_of(DeepPixels.from_image(image) if deep and mode != "P" else image)

    padded = border.pad(source, {"pad": pad} | ({"background": background} if background else {}))

    top, right, bottom, left = widths
    seen = only(padded)
    samples = np.asarray(seen.image)
    assert padded.sizes == [seen.size] == [(60 + left + right, 40 + top + bottom)]
    outside = np.ones(samples.shape[:2], bool)
    outside[top : top + 40, left : left + 60] = False
    colors = set(map(tuple, samples[outside].reshape(int(outside.sum()), -1).tolist()))
    assert (seen.pixels.mode, colors) == (expected[0], {expected[1]})
    inside = Image.fromarray(samples, seen.pixels.mode).crop((left, top, left + 60, top + 40)).convert("RGB")
    assert np.abs(np.asarray(inside, int) - np.asarray(image.convert("RGB"), int)).max() <= 3


def test_a_padded_image_is_limited() -> None:
    with pytest.raises(InvalidOption) as caught:
        border.pad(raster_of(photo()), {"pad": "60000"})

    assert (caught.value.param, caught.value.reason) == ("pad", "out_of_range")


def test_all_frames_are_rounded_and_padded() -> None:
    source = raster_of(*(Image.new("RGB", (40, 20), (60 * index, 0, 0)) for index in range(3)), animated=True)

    frames = list(border.pad(border.radius(source, {"radius": "50%"}), {"pad": "2"}).frames)

    assert [(frame.size, frame.duration) for frame in frames] == [((44, 24), 40.0)] * 3
    assert [frame.image.getpixel((22, 12)) for frame in frames] == [(60 * index, 0, 0, 255) for index in range(3)]
    assert all(frame.image.getchannel("A").getpixel((2, 2)) == 0 for frame in frames)


@pytest.mark.parametrize("source", ["PNG", "JPEG"])
def test_corners_and_padding_are_transparent_or_on_the_background(source: str) -> None:
    data = saved(Image.new("RGB", (40, 40), (200, 0, 0)), source)

    transparent = convert(data, "png", radius="50%", pad="4")
    white = convert(data, "jpeg", radius="50%", pad="4", subsampling="4:4:4", quality=95)
    blue = convert(data, "jpeg", radius="50%", pad="4", subsampling="4:4:4", quality=95, background="#0000ff")

    image = opened(transparent.data).convert("RGBA")
    assert image.size == (48, 48)
    alpha = image.getchannel("A")
    assert [alpha.getpixel(place) for place in ((0, 0), (5, 5), (24, 24))] == [0, 0, 255]
    assert codes(white) == codes(blue) == {"alpha_flattened"}
    for place in ((0, 0), (5, 5)):
        assert opened(white.data).getpixel(place) == pytest.approx((255, 255, 255), abs=12)
        assert opened(blue.data).getpixel(place) == pytest.approx((0, 0, 255), abs=12)
    assert opened(white.data).getpixel((24, 24)) == pytest.approx((200, 0, 0), abs=6)


def test_padding_counts_towards_the_side_that_a_target_holds() -> None:
    with pytest.raises(InvalidOption):
        convert(saved(Image.new("RGB", (10, 10)), "PNG"), "webp", pad="0,17000,0,0")


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
