"""Background, color space and bit depth."""

import warnings
from io import BytesIO
from typing import Any, Literal

import imagecodecs
import numpy as np
import pillow_heif
import pytest
from PIL import Image

from engine import DeepPixels, FidelityWarning, Frame, ImageSource, InvalidOption, Raster, TargetCapabilities, pipeline
from engine.registry import load_registry
from plugins.operations import colors, geometry
from tests.support.results import readers
from tests.support.results.conversions import codes, convert, opened
from tests.support.samples.generated import saved
from tests.support.samples.profiles import swapped_profile
from tests.support.samples.rasters import only, photo, raster_of, resize, vips_image, with_8_bits, with_16_bits

_ALL = TargetCapabilities(("L", "LA", "RGB", "RGBA"), deep_modes=("L", "LA", "RGB", "RGBA"), icc=True)


def _on_background(image: Image.Image, background: str, *, deep: bool) -> Frame:
    source = raster_of(DeepPixels.from_image(image) if deep else image)
    return colors.background.run(source, background=background).first_frame(_ALL)


@pytest.mark.parametrize("deep", [False, True])
@pytest.mark.parametrize(
    ("mode", "background", "expected"),
    [
        ("RGBA", "#00f", ("RGB", (128, 0, 127))),
        ("RGBA", "Lime", ("RGB", (128, 127, 0))),
        ("RGBA", "#0000ff80", ("RGBA", (170, 0, 85, 192))),
        ("RGBA", "transparent", ("RGBA", (255, 0, 0, 128))),
        ("LA", "white", ("L", (165,))),
        ("LA", "#ffffff80", ("LA", (136, 192))),
        ("LA", "#00f", ("RGB", (38, 38, 165))),
        ("RGB", "#00f", ("RGB", (255, 0, 0))),
    ],
)
def test_a_background_is_laid_under_the_image(mode: str, background: str, expected: Any, deep: bool) -> None:
    image = Image.new("RGBA", (8, 8), (255, 0, 0, 128)).convert(mode)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        frame = _on_background(image, background, deep=deep)

    seen = np.atleast_1d(np.asarray(frame.image)[4, 4]).tolist()
    assert (frame.pixels.mode, seen) == (expected[0], pytest.approx(expected[1], abs=1))
    assert bool(caught) == (frame.pixels.mode != mode)


@pytest.mark.parametrize("deep", [False, True])
def test_an_opaque_image_loses_nothing_on_a_background(deep: bool) -> None:
    image = photo(mode="RGB")

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        frame = _on_background(image.convert("RGBA"), "#00f", deep=deep)

    np.testing.assert_array_equal(np.asarray(frame.image), np.asarray(image))


@pytest.mark.parametrize("target", ["png", "jpeg", "gif", "tiff"])
def test_an_opaque_file_has_no_warning_of_a_background(target: str) -> None:
    data = saved(Image.new("RGBA", (8, 8), (255, 0, 0, 255)), "PNG")

    assert not codes(convert(data, target, background="#00f"))


@pytest.mark.parametrize("deep", [False, True])
def test_a_background_is_in_the_color_space_of_the_profile(deep: bool) -> None:
    image = Image.new("RGBA", (8, 8))
    pixels = DeepPixels.from_image(image) if deep else image
    source = Raster([Frame(image, swapped_profile())], deep_frames=[Frame(pixels, swapped_profile())] if deep else None)

    with pytest.warns(FidelityWarning, match="alpha_flattened"):
        frame = colors.background.run(source, background="#f00").first_frame(_ALL)

    red, green, blue = np.asarray(frame.image)[4, 4]
    assert green > 200
    assert max(red, blue) < 60


@pytest.mark.parametrize("background", ["#00f", "#0000ff80"])
def test_a_gray_image_has_a_gray_background(background: str) -> None:
    data = saved(Image.new("RGBA", (8, 8), (255, 0, 0, 0)), "PNG")

    image = opened(convert(data, "png", background=background, color_space="gray").data)

    assert image.mode == ("L" if background == "#00f" else "LA")
    assert image.convert("L").getpixel((4, 4)) == pytest.approx(76, abs=10)


@pytest.mark.parametrize("target", ["png", "webp", "gif", "tiff", "psd", "avif", "heic", "jpeg", "bmp", "pdf", "eps"])
@pytest.mark.parametrize("depth", [8, 16])
def test_every_target_has_the_background(target: str, depth: int) -> None:
    image = Image.new("RGBA", (16, 16), (255, 0, 0, 128))
    samples = np.asarray(image).astype(np.uint16) * 257
    data = saved(image, "PNG") if depth == 8 else bytes(imagecodecs.png_encode(samples))

    result = convert(data, target, background="#00f")

    assert "alpha_flattened" in codes(result)
    assert readers.read(target, result.data).pixels[8, 8].tolist() == pytest.approx((128, 0, 127), abs=6)
    if target in ("png", "webp", "gif", "tiff", "avif"):
        assert not opened(result.data).has_transparency_data


@pytest.mark.parametrize(("background", "outside"), [("#0000ff80", (0, 0, 255, 128)), ("#00f", (0, 0, 255, 255))])
@pytest.mark.parametrize("mode", ["RGB", "RGBA"])
def test_contain_pads_with_the_background_once(mode: str, background: str, outside: tuple[int, ...]) -> None:
    image = Image.new(mode, (16, 8), "red")

    result = opened(convert(saved(image, "PNG"), "png", width=16, height=16, fit="contain", background=background).data)

    assert result.convert("RGBA").getpixel((8, 1)) == outside
    assert result.convert("RGBA").getpixel((8, 8)) == (255, 0, 0, 255)


@pytest.mark.parametrize("deep", [False, True])
@pytest.mark.parametrize("mode", ["RGB", "RGBA"])
def test_color_spaces_are_converted_with_the_profile(deep: bool, mode: str) -> None:
    image = photo(mode=mode)
    frame = Frame(with_16_bits(image) if deep else image, swapped_profile())
    source = [frame] if deep else None

    def converted(space: Literal["srgb", "gray"]) -> Frame:
        raster = Raster([with_8_bits(frame)], deep_frames=source)
        return only(colors.color_space.run(raster, color_space=space))

    srgb, gray = converted("srgb"), converted("gray")

    expected = np.asarray(image)[..., [1, 0, 2]]
    assert np.abs(np.asarray(srgb.image).astype(float)[..., :3] - expected).max() <= 2
    assert (srgb.icc_profile, gray.icc_profile) == (None, None)
    assert srgb.pixels.mode == mode
    assert gray.pixels.mode == ("LA" if mode == "RGBA" else "L")
    luminance = vips_image(Image.fromarray(expected)).copy(interpretation="srgb").colourspace("b-w").numpy()
    seen = np.asarray(gray.image.convert("L"), float)
    assert np.abs(seen - luminance.reshape(seen.shape)).max() < 8
    assert isinstance(gray.pixels, DeepPixels) == deep


_DEEP_TARGET = TargetCapabilities(("L", "RGB", "RGBA"), deep_modes=("L", "RGB", "RGBA"), deep_bits=(10, 12), icc=True)


def test_the_bit_depth_is_that_requested() -> None:
    eight, deep = photo(), with_16_bits(photo())

    for bits in (8, 10, 12):
        for pixels in (eight, deep):
            raster = colors.bit_depth.run(raster_of(pixels), bit_depth=bits).converted_for(_DEEP_TARGET)
            assert raster.bit_depth == bits
            assert isinstance(next(iter(raster.frames)).pixels, DeepPixels) == (bits > 8)


def test_widened_samples_keep_their_values() -> None:
    image = photo().convert("P")
    raster = colors.bit_depth.run(raster_of(image), bit_depth=12).converted_for(_DEEP_TARGET)

    pixels = next(iter(raster.frames)).pixels

    assert isinstance(pixels, DeepPixels)
    np.testing.assert_array_equal(pixels.array, np.asarray(image.convert("RGB"), np.uint16) * 257)


def test_without_a_request_the_bit_depth_is_the_deepest_of_both() -> None:
    def depth(target: TargetCapabilities, source_bit_depth: int) -> int | None:
        return (
            raster_of(with_16_bits(photo()), source=ImageSource(bit_depth=source_bit_depth))
            .converted_for(target)
            .bit_depth
        )

    assert raster_of(photo()).converted_for(_DEEP_TARGET).bit_depth == 8
    assert depth(_DEEP_TARGET, 10) == 10
    assert depth(TargetCapabilities(("RGB",), deep_modes=("RGB",)), 10) == 16
    with pytest.warns(FidelityWarning, match="depth_reduced"):
        assert depth(_DEEP_TARGET, 16) == 12
    with pytest.warns(FidelityWarning, match="depth_reduced"):
        assert depth(TargetCapabilities(("RGB",)), 16) == 8


def test_a_bit_depth_that_the_target_does_not_have_is_refused() -> None:
    raster = colors.bit_depth.run(raster_of(photo()), bit_depth=16)

    with pytest.raises(InvalidOption) as caught:
        raster.converted_for(_DEEP_TARGET)

    error = caught.value
    assert (error.param, error.reason, error.details) == ("bit_depth", "out_of_range", {"available": [8, 10, 12]})


def test_sixteen_bits_and_the_profile_survive_geometry() -> None:
    profile = swapped_profile()
    frame = Frame(with_16_bits(photo()), profile)
    source = Raster([with_8_bits(frame)], deep_frames=[frame])

    raster = resize(geometry.flip.run(geometry.crop.run(source, crop="0,0,100,100"), flip="vertical"), width=50)

    seen = only(raster)
    assert isinstance(seen.pixels, DeepPixels)
    assert seen.icc_profile == profile
    assert len(np.unique(seen.pixels.array)) > 1000


@pytest.mark.parametrize("source", ["png", "tiff"])
@pytest.mark.parametrize("bands", [1, 3, 4])
def test_heic_has_ten_bits_of_a_deeper_source(source: str, bands: int) -> None:
    mode = {1: "L", 3: "RGB", 4: "RGBA"}[bands]
    ramp = with_16_bits(photo((256, 64), mode))
    registry = load_registry()
    source_raster = Raster([Frame(ramp.as_image())], deep_frames=[Frame(ramp)])
    encode = {plan.target.name: plan.steps[-1] for plan in registry.catalogue() if plan.source.name == "png"}
    data = encode[source](source_raster)

    result = pipeline.run(registry.plan([registry.formats[source]], "heic"), [data], {"quality": 95}).data

    image = pillow_heif.open_heif(BytesIO(result), convert_hdr_to_8bit=False)
    assert image.info["bit_depth"] == 10
    seen = np.asarray(image).astype(float).reshape(64, 256, -1)
    assert np.abs(seen[..., 0] - ramp.array.astype(float).reshape(64, 256, -1)[..., 0]).mean() < 1500
