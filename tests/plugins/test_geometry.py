"""Crop, rotation, resizing, background, color space and bit depth: exact sizes, and pixels compared with libvips."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Literal, TypeAlias

import numpy as np
import pytest
import pyvips
from numpy.typing import NDArray
from PIL import Image, ImageCms

from engine import DeepPixels, FidelityWarning, Frame, InvalidOption, Raster, Size, TargetCapabilities
from plugins import geometry
from tests.support.samples import quadrants

Fit: TypeAlias = Literal["inside", "outside", "cover", "contain", "fill"]

_FITS: tuple[Fit, ...] = ("inside", "outside", "cover", "contain", "fill")


def _with_8_bits(frame: Frame) -> Frame:
    return replace(frame, pixels=frame.image)


def _raster(*images: Image.Image | DeepPixels, **fields: Any) -> Raster:
    frames = [Frame(image, duration=40.0) for image in images]
    deep = isinstance(images[0], DeepPixels)
    sizes = [image.size for image in images]
    eight = [_with_8_bits(frame) for frame in frames]
    return Raster(eight, count=len(images), deep_frames=frames if deep else None, sizes=sizes, **fields)


def _only(raster: Raster) -> Frame:
    (frame,) = raster.frames if raster.deep_frames is None else raster.deep_frames
    return frame


def _photo(size: Size = (240, 160), mode: str = "RGB") -> Image.Image:
    """Smooth gradients, edges and some noise."""
    x, y = np.meshgrid(np.linspace(0, 1, size[0]), np.linspace(0, 1, size[1]))
    noise = np.random.default_rng(1).normal(0, 0.03, (size[1], size[0]))
    bands = (x, y, 0.5 + 0.5 * np.sin(12 * x * y) + noise, np.where((x - 0.5) ** 2 + (y - 0.5) ** 2 < 0.2, 1.0, 0.0))
    samples = np.clip(np.dstack(bands) * 255, 0, 255).astype(np.uint8)
    return Image.fromarray(samples, "RGBA").convert(mode)


def _deep(image: Image.Image) -> DeepPixels:
    rng = np.random.default_rng(2)
    widened = DeepPixels.from_image(image)
    low = rng.integers(0, 256, widened.array.shape, np.uint16)
    return DeepPixels(widened.array // 256 * 256 + low, widened.mode)


@pytest.mark.parametrize(
    ("width", "height", "fit", "enlarge", "expected"),
    [
        (100, None, "inside", False, (100, 67)),  # 66.7 is rounded
        (None, 100, "inside", False, (150, 100)),
        (100, 100, "inside", False, (100, 67)),
        (100, 100, "outside", False, (150, 100)),
        (100, 100, "cover", False, (100, 100)),
        (100, 100, "contain", False, (100, 100)),
        (100, 100, "fill", False, (100, 100)),
        (100, None, "cover", False, (100, 67)),
        (None, 50, "fill", False, (75, 50)),
        (1, None, "inside", False, (1, 1)),
        (900, None, "inside", False, (300, 200)),
        (900, 900, "outside", False, (300, 200)),
        (400, 100, "cover", False, (300, 100)),
        (400, 300, "cover", False, (300, 200)),
        (400, 400, "contain", False, (400, 400)),
        (400, 100, "fill", False, (300, 100)),
        (900, None, "inside", True, (900, 600)),
        (400, 100, "cover", True, (400, 100)),
        (400, 400, "contain", True, (400, 400)),
        (400, 100, "fill", True, (400, 100)),
    ],
)
def test_sizes_are_exact(width: int | None, height: int | None, fit: Fit, enlarge: bool, expected: Size) -> None:
    source = _raster(_photo((300, 200)))

    resized = geometry.resize(source, width=width, height=height, fit=fit, enlarge=enlarge)

    assert resized.sizes == [expected]
    assert _only(resized).size == expected


@pytest.mark.parametrize("fit", ["inside", "outside", "cover"])
@pytest.mark.parametrize("size", [(301, 203), (7, 5000), (5000, 7), (1, 1)])
def test_sizes_fit_their_box(size: Size, fit: Fit) -> None:
    for box in [(1, 1), (64, 48), (48, 64), (333, 17), (6000, 6000)]:
        scaled = geometry.scaled_size(size, *box, fit=fit, enlarge=True)

        assert box[0] == scaled[0] or box[1] == scaled[1]
        compare: Callable[[int, int], bool] = int.__le__ if fit == "inside" else int.__ge__
        assert all(compare(side, limit) for side, limit in zip(scaled, box, strict=True))


@pytest.mark.parametrize("fit", _FITS)
def test_a_size_beyond_the_limit_is_refused(fit: Fit) -> None:
    with pytest.raises(InvalidOption) as caught:
        _only(geometry.resize(_raster(_photo()), width=60_000, height=60_000, fit=fit, enlarge=True))

    assert (caught.value.param, caught.value.reason) == ("width", "out_of_range")


def _vips(image: Image.Image | DeepPixels) -> Any:
    array = image.array if isinstance(image, DeepPixels) else np.asarray(image)
    return pyvips.Image.new_from_array(array)


def _vips_resized(image: Image.Image | DeepPixels, size: Size) -> NDArray[Any]:
    source = _vips(image)
    has_alpha = image.mode in ("LA", "RGBA")
    maximum = 65535 if isinstance(image, DeepPixels) else 255
    source = source.premultiply(max_alpha=maximum) if has_alpha else source
    scaled = source.resize(size[0] / source.width, vscale=size[1] / source.height, kernel="lanczos3")
    scaled = scaled.unpremultiply(max_alpha=maximum) if has_alpha else scaled
    return np.asarray(scaled.rint().cast("ushort" if maximum > 255 else "uchar").numpy())


@pytest.mark.parametrize("mode", ["L", "LA", "RGB", "RGBA", "CMYK"])
@pytest.mark.parametrize("size", [(120, 80), (77, 51), (480, 320), (30, 100)])
@pytest.mark.parametrize("deep", [False, True])
def test_resized_pixels_match_libvips(mode: str, size: Size, deep: bool) -> None:
    image: Image.Image | DeepPixels = _photo(mode="RGB").convert(mode) if mode == "CMYK" else _photo(mode=mode)
    image = _deep(image) if isinstance(image, Image.Image) and deep else image
    resized = _only(geometry.resize(_raster(image), width=size[0], height=size[1], fit="fill", enlarge=True)).pixels

    seen = resized.array if isinstance(resized, DeepPixels) else np.asarray(resized)
    expected = _vips_resized(image, size)

    difference = np.abs(seen.astype(float) - expected.reshape(seen.shape).astype(float)) / (257 if deep else 1)
    if mode in ("LA", "RGBA"):  # the color of transparent pixels is not visible
        difference[..., :-1] *= expected[..., -1:] / (65535 if deep else 255)
    assert resized.mode == mode
    assert difference.mean() < 1.5
    assert np.percentile(difference, 99) < 12


@pytest.mark.parametrize("gravity", ["center", "north", "southeast", "west"])
def test_cover_keeps_the_part_of_the_gravity(gravity: Any) -> None:
    image = _photo((300, 200))
    covered = _only(geometry.resize(_raster(image), width=60, height=100, fit="cover", gravity=gravity)).image

    whole = _vips(image).resize(0.5, kernel="lanczos3")
    left = {"southeast": 90, "west": 0}.get(gravity, 45)
    expected = whole.crop(left, 0, 60, 100).numpy()

    assert np.abs(np.asarray(covered, float) - expected).mean() < 1.5


@pytest.mark.parametrize(("gravity", "box"), [("center", (0, 20)), ("north", (0, 0)), ("southwest", (0, 40))])
def test_contain_pads_with_the_background(gravity: Any, box: tuple[int, int]) -> None:
    source = _raster(quadrants((120, 80)))
    padded = _only(geometry.resize(source, width=120, height=120, fit="contain", gravity=gravity, background="#f80"))

    pixels = np.asarray(padded.image)
    top = box[1]

    assert padded.size == (120, 120)
    np.testing.assert_array_equal(pixels[top : top + 80], np.asarray(quadrants((120, 80))))
    outside = np.delete(pixels, np.s_[top : top + 80], axis=0)
    assert (outside == (255, 136, 0)).all()


@pytest.mark.parametrize(
    ("mode", "background", "expected"),
    [
        ("RGB", None, ("RGB", (255, 255, 255))),
        ("RGBA", None, ("RGBA", (255, 255, 255, 0))),
        ("RGB", "#11223344", ("RGBA", (17, 34, 51, 68))),
        ("RGB", "transparent", ("RGBA", (0, 0, 0, 0))),
        ("L", "gray", ("L", (128,))),
        ("L", "red", ("RGB", (255, 0, 0))),
        ("LA", None, ("LA", (255, 0))),
        ("CMYK", None, ("CMYK", (0, 0, 0, 0))),
        ("P", "red", ("RGB", (255, 0, 0))),
        ("1", "white", ("L", (255,))),
    ],
)
@pytest.mark.parametrize("deep", [False, True])
def test_padding_of_every_mode(mode: str, background: str | None, expected: Any, deep: bool) -> None:
    image = quadrants((40, 20)).convert(mode)
    if deep and mode in ("P", "1"):
        deep = False
    source = _raster(DeepPixels.from_image(image) if deep else image)
    padded = _only(geometry.resize(source, width=40, height=40, fit="contain", background=background))

    pixels = padded.pixels.array if isinstance(padded.pixels, DeepPixels) else np.asarray(padded.pixels)
    corner = tuple(np.atleast_1d(pixels[0, 0]).tolist())

    assert (padded.pixels.mode, tuple(value // 257 if deep else value for value in corner)) == expected
    assert padded.image.convert("L").getpixel((1, 11)) == pytest.approx(
        image.convert("RGB").convert("L").getpixel((1, 1)), abs=3
    )


def test_padding_is_in_the_color_space_of_the_profile() -> None:
    profile = _swapped_profile()
    source = Raster([Frame(quadrants((40, 20)), profile)])

    padded = _only(geometry.resize(source, width=40, height=40, fit="contain", background="#f00"))

    red, green, blue = np.asarray(padded.pixels)[0, 0]
    assert green > 200
    assert max(red, blue) < 60


def test_palettes_are_resized_in_full_color() -> None:
    image = Image.new("P", (64, 64))
    image.putpalette([255, 0, 0, 0, 0, 255])
    image.putdata([(x + y) % 2 for y in range(64) for x in range(64)])

    red, green, blue = np.asarray(_only(geometry.resize(_raster(image), width=16)).image)[8, 8]

    assert (red, green, blue) == pytest.approx((128, 0, 128), abs=4)


def test_colors_of_transparent_pixels_do_not_bleed() -> None:
    image = Image.new("RGBA", (64, 64), (0, 255, 0, 0))
    image.paste((255, 0, 0, 255), (0, 0, 32, 64))

    for pixels in (image, DeepPixels.from_image(image)):
        resized = np.asarray(_only(geometry.resize(_raster(pixels), width=20)).image)
        visible = resized[..., 3] > 8
        assert (resized[visible][:, 1] <= 2).all()


@pytest.mark.parametrize("deep", [False, True])
def test_crop_and_turns_move_pixels_exactly(deep: bool) -> None:
    image = _photo((50, 30))
    pixels = _deep(image) if deep else image
    array = pixels.array if isinstance(pixels, DeepPixels) else np.asarray(pixels)

    def seen(raster: Raster) -> NDArray[Any]:
        frame = _only(raster)
        assert raster.sizes == [frame.size]
        return frame.pixels.array if isinstance(frame.pixels, DeepPixels) else np.asarray(frame.pixels)

    np.testing.assert_array_equal(seen(geometry.crop(_raster(pixels), crop=" 5, 7 ,20,10 ")), array[7:17, 5:25])
    rotated = geometry.rotate(_raster(pixels, dpi=(72, 144)), rotate=90)
    assert rotated.dpi == (144, 72)
    np.testing.assert_array_equal(seen(rotated), np.rot90(array, -1))
    np.testing.assert_array_equal(seen(geometry.rotate(_raster(pixels), rotate=180)), array[::-1, ::-1])
    np.testing.assert_array_equal(seen(geometry.rotate(_raster(pixels), rotate=270)), np.rot90(array))
    np.testing.assert_array_equal(seen(geometry.flip(_raster(pixels), flip="horizontal")), array[:, ::-1])
    np.testing.assert_array_equal(seen(geometry.flip(_raster(pixels), flip="vertical")), array[::-1])


@pytest.mark.parametrize("crop", ["0,0,51,10", "0,0,10,31", "50,0,1,1", "0,30,1,1"])
def test_a_crop_outside_the_picture_is_refused(crop: str) -> None:
    with pytest.raises(InvalidOption) as caught:
        _only(geometry.crop(_raster(_photo((50, 30))), crop=crop))

    error = caught.value
    assert (error.param, error.reason, error.details) == ("crop", "out_of_range", {"width": 50, "height": 30})


def test_all_frames_of_an_animation_are_changed() -> None:
    source = _raster(*(Image.new("RGB", (40, 20), (60 * index, 0, 0)) for index in range(4)), animated=True)

    raster = geometry.resize(geometry.rotate(geometry.crop(source, crop="0,0,20,20"), rotate=90), width=10)

    frames = list(raster.frames)
    assert raster.sizes == [(10, 10)] * 4
    assert [frame.size for frame in frames] == [(10, 10)] * 4
    assert [frame.duration for frame in frames] == [40.0] * 4
    assert [frame.image.getpixel((5, 5)) for frame in frames] == [(60 * index, 0, 0) for index in range(4)]


def test_options_without_effect_keep_the_raster() -> None:
    raster = _raster(_photo().convert("P"))

    for step in (geometry.crop, geometry.rotate, geometry.flip, geometry.resize, geometry.background):
        assert step(raster) is raster
    assert geometry.color_space(raster) is raster
    assert geometry.bit_depth(raster) is raster
    assert _only(geometry.resize(raster, width=500)).pixels.mode == "P"


@pytest.mark.parametrize("full", [(800, 600), (801, 601), (1601, 1067)])
@pytest.mark.parametrize("crop", [None, "100,50,600,500"])
def test_a_reduced_picture_gives_the_same_as_the_full_one(full: Size, crop: str | None) -> None:
    image = _photo(full)
    reduced = image.resize((-(-full[0] // 2), -(-full[1] // 2)), Image.Resampling.BOX)

    def result(frame: Frame) -> Frame:
        return _only(geometry.resize(geometry.rotate(geometry.crop(Raster([frame]), crop=crop), rotate=90), width=150))

    expected, seen = result(Frame(image)), result(Frame(reduced, full_size=full))

    assert seen.size == expected.size
    assert np.abs(np.asarray(seen.image, float) - np.asarray(expected.image, float)).mean() < 2.5


def test_decoders_keep_twice_the_size() -> None:
    def scale(size: Size, *, crop: str | None = None, rotate: int = 0, **box: int) -> int:
        needed = geometry.needed_size(size, box.get("width"), box.get("height"), crop=crop, rotate=rotate)
        return geometry.reduced_scale(size, needed)

    assert scale((6000, 4000), width=320) == 8
    assert scale((6000, 4000), width=1000) == 2
    assert scale((6000, 4000), width=1501) == 1
    assert scale((6000, 4000)) == 1
    assert scale((6000, 4000), width=320, crop="0,0,1500,1500") == 2
    assert scale((6000, 400), width=100, rotate=90) == 2
    assert scale((100, 100), width=5000) == 1


def test_background_replaces_transparency() -> None:
    image = Image.new("RGBA", (8, 8), (255, 0, 0, 0))
    target = TargetCapabilities(("L", "RGB"))

    for text, expected in [("#00f", (0, 0, 255)), ("#0000ff80", (127, 127, 255)), ("Lime", (0, 255, 0))]:
        raster = geometry.background(_raster(image), background=text)
        with pytest.warns(FidelityWarning, match="alpha_flattened"):
            assert raster.first_frame(target).image.getpixel((4, 4)) == expected
    gray = geometry.background(_raster(image.convert("LA")), background="#00f")
    with pytest.warns(FidelityWarning, match="alpha_flattened"):
        assert gray.first_frame(target).image.getpixel((4, 4)) == (0, 0, 255)


def test_an_unknown_background_is_refused() -> None:
    with pytest.raises(InvalidOption) as caught:
        geometry.background(_raster(_photo()), background="notacolor")

    assert (caught.value.param, caught.value.reason) == ("background", "malformed")


def _swapped_profile() -> bytes:
    """A profile with red and green swapped, so that ignoring it changes the colors."""
    profile = bytearray(ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes())
    red, green = profile.find(b"rXYZ"), profile.find(b"gXYZ")
    profile[red : red + 4], profile[green : green + 4] = b"gXYZ", b"rXYZ"
    return bytes(profile)


@pytest.mark.parametrize("deep", [False, True])
@pytest.mark.parametrize("mode", ["RGB", "RGBA"])
def test_color_spaces_are_converted_with_the_profile(deep: bool, mode: str) -> None:
    image = _photo(mode=mode)
    frame = Frame(_deep(image) if deep else image, _swapped_profile())
    source = [frame] if deep else None

    def converted(space: Literal["srgb", "gray"]) -> Frame:
        raster = Raster([_with_8_bits(frame)], deep_frames=source)
        return _only(geometry.color_space(raster, color_space=space))

    srgb, gray = converted("srgb"), converted("gray")

    expected = np.asarray(image)[..., [1, 0, 2]]
    assert np.abs(np.asarray(srgb.image).astype(float)[..., :3] - expected).max() <= 2
    assert (srgb.icc_profile, gray.icc_profile) == (None, None)
    assert srgb.pixels.mode == mode
    assert gray.pixels.mode == ("LA" if mode == "RGBA" else "L")
    luminance = _vips(Image.fromarray(expected)).copy(interpretation="srgb").colourspace("b-w").numpy()
    seen = np.asarray(gray.image.convert("L"), float)
    assert np.abs(seen - luminance.reshape(seen.shape)).max() < 8
    assert isinstance(gray.pixels, DeepPixels) == deep


_DEEP_TARGET = TargetCapabilities(("L", "RGB", "RGBA"), deep_modes=("L", "RGB", "RGBA"), deep_bits=(10, 12), icc=True)


def test_the_bit_depth_is_that_requested() -> None:
    eight, deep = _photo(), _deep(_photo())

    for bits in (8, 10, 12):
        for pixels in (eight, deep):
            raster = geometry.bit_depth(_raster(pixels), bit_depth=bits).converted_for(_DEEP_TARGET)  # type: ignore[arg-type]
            assert raster.bit_depth == bits
            assert isinstance(next(iter(raster.frames)).pixels, DeepPixels) == (bits > 8)


def test_widened_samples_keep_their_values() -> None:
    image = _photo().convert("P")
    raster = geometry.bit_depth(_raster(image), bit_depth=12).converted_for(_DEEP_TARGET)

    pixels = next(iter(raster.frames)).pixels

    assert isinstance(pixels, DeepPixels)
    np.testing.assert_array_equal(pixels.array, np.asarray(image.convert("RGB"), np.uint16) * 257)


def test_without_a_request_the_bit_depth_is_the_deepest_of_both() -> None:
    def depth(target: TargetCapabilities, source_bit_depth: int) -> int | None:
        return _raster(_deep(_photo()), source_bit_depth=source_bit_depth).converted_for(target).bit_depth

    assert _raster(_photo()).converted_for(_DEEP_TARGET).bit_depth == 8
    assert depth(_DEEP_TARGET, 10) == 10
    assert depth(TargetCapabilities(("RGB",), deep_modes=("RGB",)), 10) == 16
    with pytest.warns(FidelityWarning, match="depth_reduced"):
        assert depth(_DEEP_TARGET, 16) == 12
    with pytest.warns(FidelityWarning, match="depth_reduced"):
        assert depth(TargetCapabilities(("RGB",)), 16) == 8


def test_a_bit_depth_that_the_target_does_not_have_is_refused() -> None:
    raster = geometry.bit_depth(_raster(_photo()), bit_depth=16)

    with pytest.raises(InvalidOption) as caught:
        raster.converted_for(_DEEP_TARGET)

    error = caught.value
    assert (error.param, error.reason, error.details) == ("bit_depth", "out_of_range", {"available": [8, 10, 12]})


def test_sixteen_bits_and_the_profile_survive_geometry() -> None:
    profile = _swapped_profile()
    frame = Frame(_deep(_photo()), profile)
    source = Raster([_with_8_bits(frame)], deep_frames=[frame])

    raster = geometry.resize(geometry.flip(geometry.crop(source, crop="0,0,100,100"), flip="vertical"), width=50)

    seen = _only(raster)
    assert isinstance(seen.pixels, DeepPixels)
    assert seen.icc_profile == profile
    assert len(np.unique(seen.pixels.array)) > 1000
