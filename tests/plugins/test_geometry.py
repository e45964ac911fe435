"""Crop, rotation, resizing, gravity, background and bit depth: exact sizes, and pixels compared with libvips."""

import warnings
from collections.abc import Callable
from typing import Any, Literal, TypeAlias

import numpy as np
import pytest
import pyvips
from numpy.typing import NDArray
from PIL import Image

from engine import DeepPixels, FidelityWarning, Frame, InvalidOption, Raster, Size
from plugins._pixels.canvases import salient_point
from plugins._pixels.resampling import resample
from plugins._pixels.sizes import Drawing, reduced_scale, scaled_size
from plugins.operations import colors, geometry
from tests.support.samples.generated import quadrants
from tests.support.samples.profiles import swapped_profile
from tests.support.samples.rasters import only, photo, raster_of, resize, vips_image, with_16_bits

Fit: TypeAlias = Literal["inside", "outside", "cover", "contain", "fill"]
_FITS: tuple[Fit, ...] = ("inside", "outside", "cover", "contain", "fill")


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
        (400, 100, "cover", False, (300, 75)),
        (400, 300, "cover", False, (267, 200)),
        (100, 300, "cover", False, (67, 200)),
        (400, 400, "contain", False, (400, 400)),
        (400, 100, "fill", False, (300, 75)),
        (500, 500, "fill", False, (200, 200)),
        (900, None, "inside", True, (900, 600)),
        (400, 100, "cover", True, (400, 100)),
        (400, 400, "contain", True, (400, 400)),
        (400, 100, "fill", True, (400, 100)),
    ],
)
def test_sizes_are_exact(width: int | None, height: int | None, fit: Fit, enlarge: bool, expected: Size) -> None:
    source = raster_of(photo((300, 200)))

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FidelityWarning)
        resized = resize(source, width=width, height=height, fit=fit, enlarge=enlarge)
        image = only(resized)

    assert resized.sizes == [expected]
    assert image.size == expected


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"width": 900}, {"not_enlarged": "300 x 200"}),
        ({"width": 300}, {}),
        ({"width": 300, "height": 300}, {}),
        ({"width": 900, "height": 100}, {}),
        ({"width": 900, "height": 900}, {"not_enlarged": "300 x 200"}),
        ({"width": 300, "height": 300, "fit": "outside"}, {"not_enlarged": "300 x 200"}),
        ({"width": 300, "height": 300, "fit": "cover"}, {"not_enlarged": "200 x 200"}),
        ({"width": 300, "height": 300, "fit": "fill"}, {"not_enlarged": "200 x 200"}),
        ({"width": 300, "height": 300, "fit": "contain", "gravity": "north"}, {}),
        ({"width": 200, "height": 100, "fit": "cover", "gravity": "north"}, {}),
        ({"width": 900, "enlarge": True}, {}),
        ({"enlarge": True}, {"option_ignored": "enlarge"}),
        ({"fit": "cover"}, {"option_ignored": "fit"}),
        ({"width": 100, "fit": "cover"}, {"option_ignored": "fit"}),
        ({"width": 100, "gravity": "north"}, {"option_ignored": "gravity"}),
        ({"width": 100, "height": 100, "gravity": "north"}, {"option_ignored": "gravity"}),
    ],
)
def test_what_a_resize_cannot_do_is_told(options: dict[str, Any], expected: dict[str, str]) -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        resize(raster_of(photo((300, 200))), **options)

    told = {one.message.code: one.message.message for one in caught if isinstance(one.message, FidelityWarning)}
    assert told.keys() == expected.keys()
    assert all(part in told[code] for code, part in expected.items())


@pytest.mark.parametrize("fit", ["inside", "outside", "cover"])
@pytest.mark.parametrize("size", [(301, 203), (7, 5000), (5000, 7), (1, 1)])
def test_sizes_fit_their_box(size: Size, fit: Fit) -> None:
    for box in [(1, 1), (64, 48), (48, 64), (333, 17), (6000, 6000)]:
        scaled = scaled_size(size, *box, fit=fit, enlarge=True)

        assert box[0] == scaled[0] or box[1] == scaled[1]
        compare: Callable[[int, int], bool] = int.__le__ if fit == "inside" else int.__ge__
        assert all(compare(side, limit) for side, limit in zip(scaled, box, strict=True))


@pytest.mark.parametrize("fit", _FITS)
def test_a_size_beyond_the_limit_is_refused(fit: Fit) -> None:
    with pytest.raises(InvalidOption) as caught:
        only(resize(raster_of(photo()), width=60_000, height=60_000, fit=fit, enlarge=True))

    assert (caught.value.param, caught.value.reason) == ("width", "out_of_range")


def _vips_resized(image: Image.Image | DeepPixels, size: Size) -> NDArray[Any]:
    source = vips_image(image)
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
    image: Image.Image | DeepPixels = photo(mode="RGB").convert(mode) if mode == "CMYK" else photo(mode=mode)
    image = with_16_bits(image) if isinstance(image, Image.Image) and deep else image
    resized = only(resize(raster_of(image), width=size[0], height=size[1], fit="fill", enlarge=True)).pixels

    seen = resized.array if isinstance(resized, DeepPixels) else np.asarray(resized)
    expected = _vips_resized(image, size)

    difference = np.abs(seen.astype(float) - expected.reshape(seen.shape).astype(float)) / (257 if deep else 1)
    if mode in ("LA", "RGBA"):  # the color of transparent pixels is not visible
        difference[..., :-1] *= expected[..., -1:] / (65535 if deep else 255)
    assert resized.mode == mode
    assert difference.mean() < 1.5
    assert np.percentile(difference, 99) < 16


@pytest.mark.parametrize("mode", ["L", "RGB", "RGBA", "CMYK"])
@pytest.mark.parametrize("size", [(120, 80), (77, 51), (480, 320), (30, 100), (9, 200)])
def test_resized_pixels_match_the_filter_of_pillow(mode: str, size: Size) -> None:
    image = photo(mode="RGBA").convert(mode)
    box = (10.5, 3, 200.25, 101)
    exact = _premultiplied(image.resize(size, Image.Resampling.LANCZOS, box))

    difference = np.abs(_premultiplied(resample(image, size, box)) - exact)

    assert difference.mean() <= 0.5
    assert np.percentile(difference, 99) < (3.5 if mode == "RGBA" else 1.5)


def _premultiplied(image: Any) -> NDArray[Any]:
    samples = np.asarray(image).astype(float)
    if image.mode == "RGBA":
        samples[..., :3] *= samples[..., 3:] / 255
    return samples


@pytest.mark.parametrize("gravity", ["center", "north", "southeast", "west"])
def test_cover_keeps_the_part_of_the_gravity(gravity: Any) -> None:
    image = photo((300, 200))
    covered = only(resize(raster_of(image), width=60, height=100, fit="cover", gravity=gravity)).image

    whole = vips_image(image).resize(0.5, kernel="lanczos3")
    left = {"southeast": 90, "west": 0}.get(gravity, 45)
    expected = whole.crop(left, 0, 60, 100).numpy()

    assert np.abs(np.asarray(covered, float) - expected).mean() < 1.5


@pytest.mark.parametrize(("gravity", "box"), [("center", (0, 20)), ("north", (0, 0)), ("southwest", (0, 40))])
def test_contain_pads_with_the_background(gravity: Any, box: tuple[int, int]) -> None:
    source = raster_of(quadrants((120, 80)))
    padded = only(resize(source, width=120, height=120, fit="contain", gravity=gravity, background="#f80"))

    pixels = np.asarray(padded.image)
    top = box[1]

    assert padded.size == (120, 120)
    np.testing.assert_array_equal(pixels[top : top + 80], np.asarray(quadrants((120, 80))))
    outside = np.delete(pixels, np.s_[top : top + 80], axis=0)
    assert (outside == (255, 136, 0)).all()


@pytest.mark.parametrize(
    ("mode", "background", "expected"),
    [
        ("RGB", None, ("RGBA", (255, 255, 255, 0))),
        ("RGBA", None, ("RGBA", (255, 255, 255, 0))),
        ("RGB", "#11223344", ("RGBA", (17, 34, 51, 0))),
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
    source = raster_of(DeepPixels.from_image(image) if deep else image)
    padded = only(resize(source, width=40, height=40, fit="contain", background=background))

    pixels = padded.pixels.array if isinstance(padded.pixels, DeepPixels) else np.asarray(padded.pixels)
    corner = tuple(np.atleast_1d(pixels[0, 0]).tolist())

    assert (padded.pixels.mode, tuple(value // 257 if deep else value for value in corner)) == expected
    assert padded.image.convert("L").getpixel((1, 11)) == pytest.approx(
        image.convert("RGB").convert("L").getpixel((1, 1)), abs=3
    )


def test_padding_is_in_the_color_space_of_the_profile() -> None:
    profile = swapped_profile()
    source = Raster([Frame(quadrants((40, 20)), profile)])

    padded = only(resize(source, width=40, height=40, fit="contain", background="#f00"))

    red, green, blue = np.asarray(padded.pixels)[0, 0]
    assert green > 200
    assert max(red, blue) < 60


def test_palettes_are_resized_in_full_color() -> None:
    image = Image.new("P", (64, 64))
    image.putpalette([255, 0, 0, 0, 0, 255])
    image.putdata([(x + y) % 2 for y in range(64) for x in range(64)])

    red, green, blue = np.asarray(only(resize(raster_of(image), width=16)).image)[8, 8]

    assert (red, green, blue) == pytest.approx((128, 0, 128), abs=4)


def test_colors_of_transparent_pixels_do_not_bleed() -> None:
    image = Image.new("RGBA", (64, 64), (0, 255, 0, 0))
    image.paste((255, 0, 0, 255), (0, 0, 32, 64))

    for pixels in (image, DeepPixels.from_image(image)):
        resized = np.asarray(only(resize(raster_of(pixels), width=20)).image)
        visible = resized[..., 3] > 8
        assert (resized[visible][:, 1] <= 2).all()


@pytest.mark.parametrize("deep", [False, True])
def test_crop_and_turns_move_pixels_exactly(deep: bool) -> None:
    image = photo((50, 30))
    pixels = with_16_bits(image) if deep else image
    array = pixels.array if isinstance(pixels, DeepPixels) else np.asarray(pixels)

    def seen(raster: Raster) -> NDArray[Any]:
        frame = only(raster)
        assert raster.sizes == [frame.size]
        return frame.pixels.array if isinstance(frame.pixels, DeepPixels) else np.asarray(frame.pixels)

    np.testing.assert_array_equal(seen(geometry.crop.run(raster_of(pixels), crop=" 5, 7 ,20,10 ")), array[7:17, 5:25])
    rotated = geometry.rotate.run(raster_of(pixels, dpi=(72, 144)), rotate=90)
    assert rotated.dpi == (144, 72)
    np.testing.assert_array_equal(seen(rotated), np.rot90(array, -1))
    np.testing.assert_array_equal(seen(geometry.rotate.run(raster_of(pixels), rotate=180)), array[::-1, ::-1])
    np.testing.assert_array_equal(seen(geometry.rotate.run(raster_of(pixels), rotate=270)), np.rot90(array))
    np.testing.assert_array_equal(seen(geometry.flip.run(raster_of(pixels), flip="horizontal")), array[:, ::-1])
    np.testing.assert_array_equal(seen(geometry.flip.run(raster_of(pixels), flip="vertical")), array[::-1])


@pytest.mark.parametrize("crop", ["0,0,51,10", "0,0,10,31", "50,0,1,1", "0,30,1,1"])
def test_a_crop_outside_the_image_is_refused(crop: str) -> None:
    with pytest.raises(InvalidOption) as caught:
        only(geometry.crop.run(raster_of(photo((50, 30))), crop=crop))

    error = caught.value
    assert (error.param, error.reason, error.details) == ("crop", "out_of_range", {"width": 50, "height": 30})


def test_all_frames_of_an_animation_are_changed() -> None:
    source = raster_of(*(Image.new("RGB", (40, 20), (60 * index, 0, 0)) for index in range(4)), animated=True)

    raster = resize(geometry.rotate.run(geometry.crop.run(source, crop="0,0,20,20"), rotate=90), width=10)

    frames = list(raster.frames)
    assert raster.sizes == [(10, 10)] * 4
    assert [frame.size for frame in frames] == [(10, 10)] * 4
    assert [frame.duration for frame in frames] == [40.0] * 4
    assert [frame.image.getpixel((5, 5)) for frame in frames] == [(60 * index, 0, 0) for index in range(4)]


def test_options_without_effect_keep_the_raster() -> None:
    raster = raster_of(photo().convert("P"))

    for step in (geometry.crop, geometry.rotate, geometry.flip, geometry.resize, colors.background):
        assert step(raster, {}) is raster
    assert colors.color_space.run(raster) is raster
    assert colors.bit_depth.run(raster) is raster
    assert only(resize(raster, width=raster.sizes[0][0])).pixels.mode == "P"


@pytest.mark.parametrize("full", [(800, 600), (801, 601), (1601, 1067)])
@pytest.mark.parametrize("crop", [None, "100,50,600,500"])
def test_a_reduced_image_gives_the_same_as_the_full_one(full: Size, crop: str | None) -> None:
    image = photo(full)
    reduced = image.resize((-(-full[0] // 2), -(-full[1] // 2)), Image.Resampling.BOX)

    def result(frame: Frame) -> Frame:
        return only(resize(geometry.rotate.run(geometry.crop.run(Raster([frame]), crop=crop), rotate=90), width=150))

    expected, seen = result(Frame(image)), result(Frame(reduced, full_size=full))

    assert seen.size == expected.size
    assert np.abs(np.asarray(seen.image, float) - np.asarray(expected.image, float)).mean() < 2.5


def test_decoders_keep_twice_the_size() -> None:
    def scale(size: Size, **options: Any) -> int:
        return reduced_scale(size, Drawing(**options).needed_size(size))

    assert scale((6000, 4000), width=320) == 8
    assert scale((6000, 4000), width=1000) == 2
    assert scale((6000, 4000), width=1501) == 1
    assert scale((6000, 4000)) == 1
    assert scale((6000, 4000), width=320, crop="0,0,1500,1500") == 2
    assert scale((6000, 400), width=100, rotate=90) == 2
    assert scale((100, 100), width=5000) == 1


@pytest.mark.parametrize(
    ("crop", "box"),
    [
        ("16:9", (0, 15, 300, 184)),
        ("1:1", (50, 0, 250, 200)),
        ("1.91:1", (0, 21, 300, 178)),
        ("1:9999", (149, 0, 150, 200)),
        ("10%,10%,50%,50%", (30, 20, 180, 120)),
        ("33.3333%,0%,66.6667%,100%", (100, 0, 300, 200)),
        ("10,10%,20,10%", (10, 20, 30, 40)),
        (" 5 , 5, 10,10", (5, 5, 15, 15)),
        ("99.9999%,0,0.0001%,1", (299, 0, 300, 1)),
    ],
)
@pytest.mark.parametrize("deep", [False, True])
def test_crop_in_percent_and_by_ratio(crop: str, box: tuple[int, int, int, int], deep: bool) -> None:
    image = photo((300, 200))
    raster = geometry.crop(raster_of(DeepPixels.from_image(image) if deep else image), {"crop": crop})

    left, top, right, bottom = box
    assert raster.sizes == [(right - left, bottom - top)]
    seen = only(raster)
    assert seen.size == raster.sizes[0]
    np.testing.assert_array_equal(np.asarray(seen.image), np.asarray(image)[top:bottom, left:right])


@pytest.mark.parametrize("crop", ["51%,0,50%,10", "0,0,101%,10", "0%,0%,0%,50%", "0,0,10,101%"])
def test_percentages_outside_the_image_are_refused(crop: str) -> None:
    with pytest.raises(InvalidOption) as caught:
        geometry.crop(raster_of(photo((300, 200))), {"crop": crop})

    assert (caught.value.param, caught.value.reason) == ("crop", "out_of_range")


@pytest.mark.parametrize(
    ("gravity", "left"), [("0,0", 0), ("0.5,0.5", 50), ("1,1", 100), ("0.6,0", 80), (".4,.1", 20), ("east", 100)]
)
def test_a_focus_point_is_in_the_middle_as_far_as_the_edges_allow(gravity: str, left: int) -> None:
    image = photo((300, 200))
    by_ratio = geometry.crop(raster_of(image), {"crop": "1:1", "gravity": gravity})
    covered = resize(raster_of(image), width=100, height=100, fit="cover", gravity=gravity)

    np.testing.assert_array_equal(np.asarray(only(by_ratio).image), np.asarray(image)[:, left : left + 200])
    expected = image.crop((left, 0, left + 200, 200)).resize((100, 100), Image.Resampling.LANCZOS)
    assert np.abs(np.asarray(only(covered).image, float) - np.asarray(expected, float)).mean() < 1.5


def _spot(position: tuple[int, int], color: Any, background: Any) -> Image.Image:
    image = Image.new("RGB", (640, 480), background)
    x, y = np.meshgrid(range(640), range(480))
    inside = (x - position[0]) ** 2 + (y - position[1]) ** 2 < 60**2
    image.paste(color, (0, 0), Image.fromarray(inside))
    return image


_SALIENT = [
    photo((300, 200)),
    photo((700, 300)),
    _spot((170, 30), (224, 172, 150), (10, 10, 40)),
    _spot((90, 120), (224, 172, 150), (240, 240, 240)),
    _spot((470, 350), (255, 0, 0), (120, 120, 120)),
    _spot((520, 400), (30, 200, 40), (10, 10, 40)),
    _spot((300, 90), (250, 250, 250), (120, 120, 120)),
]


@pytest.mark.parametrize("image", _SALIENT, ids=range(len(_SALIENT)))
def test_the_salient_point_is_that_of_libvips(image: Image.Image) -> None:
    side = min(image.size) // 2
    original = pyvips.Image.new_from_array(np.asarray(image)).copy(interpretation="srgb")
    _, found = original.smartcrop(side, side, interesting="attention", attention_x=True, attention_y=True)

    x, y = salient_point(Frame(image), (side, side), image.size)

    # Both place it with a precision of 32 steps.
    assert x == pytest.approx(found["attention_x"] / image.width, abs=1 / 16)
    assert y == pytest.approx(found["attention_y"] / image.height, abs=1 / 16)


@pytest.mark.parametrize("mode", ["L", "LA", "RGBA", "CMYK", "P"])
def test_the_salient_part_of_every_mode(mode: str) -> None:
    image = _spot((560, 240), (255, 60, 40), (90, 90, 90)).convert(mode)

    raster = geometry.crop(raster_of(image), {"crop": "1:1", "gravity": "attention"})

    assert np.asarray(only(raster).image.convert("L"))[240, 400] != np.asarray(image.convert("L"))[0, 0]
    assert only(geometry.crop(raster_of(image), {"crop": "1:1", "gravity": "attention"})).size == (480, 480)


def test_the_frames_of_an_animation_have_the_same_part() -> None:
    images = [_spot(position, (255, 60, 40), (90, 90, 90)) for position in ((100, 240), (540, 240))]

    animated = geometry.crop(raster_of(*images, animated=True), {"crop": "1:1", "gravity": "attention"})
    pages = resize(raster_of(*images), width=48, height=48, fit="cover", gravity="attention")

    first, second = animated.frames
    np.testing.assert_array_equal(np.asarray(second.image), np.asarray(images[1].crop((0, 0, 480, 480))))
    assert first.duration == 40
    for page in pages.frames:  # each has its own
        assert np.asarray(page.image)[..., 0].max() > 240


@pytest.mark.parametrize(
    ("options", "size", "told"),
    [
        ({"scale": "50%"}, (150, 100), None),
        ({"scale": " 33.3 %"}, (100, 67), None),
        ({"scale": "200%"}, (300, 200), "not_enlarged"),
        ({"scale": "200%", "enlarge": True}, (600, 400), None),
        ({"scale": "1%"}, (3, 2), None),
        ({"scale": "50%", "width": 60}, (60, 40), "option_ignored"),
        ({"width": 60, "dpr": 2}, (120, 80), None),
        ({"width": 61, "dpr": 1.5}, (92, 61), None),
        ({"height": 60, "dpr": 4, "enlarge": True}, (360, 240), None),
        ({"width": 200, "dpr": 2}, (300, 200), "not_enlarged"),
        ({"width": 50, "height": 50, "fit": "cover", "dpr": 2}, (100, 100), None),
        ({"width": 50, "height": 50, "fit": "contain", "dpr": 2}, (100, 100), None),
        ({"dpr": 2}, (300, 200), "option_ignored"),
        ({"max_pixels": 60_000}, (300, 200), None),
        ({"max_pixels": 15_000}, (150, 100), None),
        ({"max_pixels": 1}, (1, 1), None),
        ({"width": 200, "max_pixels": 2_000}, (54, 36), None),
        ({"scale": "50%", "max_pixels": 2_000}, (54, 36), None),
        ({"width": 100, "height": 100, "fit": "cover", "max_pixels": 2_500}, (50, 50), None),
        ({"width": 400, "height": 100, "fit": "contain", "max_pixels": 10_000}, (200, 50), None),
    ],
)
def test_relative_sizes(options: dict[str, Any], size: Size, told: str | None) -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        raster = resize(raster_of(photo((300, 200))), **options)
        image = only(raster)

    assert raster.sizes == [size]
    assert image.size == size
    assert {one.message.code for one in caught if isinstance(one.message, FidelityWarning)} == ({told} - {None})


@pytest.mark.parametrize("size", [(10_000, 1), (1, 900), (7, 5000), (301, 203)])
@pytest.mark.parametrize("limit", [1, 2, 100, 999])
def test_no_result_has_more_than_max_pixels(size: Size, limit: int) -> None:
    for options in ({}, {"width": 300, "height": 20, "fit": "cover"}, {"width": 300, "height": 90, "fit": "contain"}):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FidelityWarning)
            width, height = only(resize(raster_of(Image.new("L", size)), max_pixels=limit, **options)).size

        assert width * height <= limit
        assert options.get("fit") != "contain" or width * height > limit / 4


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"gravity": "attention"}, True),
        ({"gravity": "0.1,0.1", "crop": "10,10,50,50"}, True),
        ({"gravity": "0.1,0.1", "crop": "1:1"}, False),
        ({"gravity": "attention", "width": 100, "height": 100, "fit": "contain"}, True),
        ({"gravity": "0.1,0.9", "width": 100, "height": 100, "fit": "contain"}, False),
    ],
)
def test_gravity_without_effect_is_told(options: dict[str, Any], told: bool) -> None:
    cropping = {name: options[name] for name in options if name in ("crop", "gravity")}
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        only(resize(geometry.crop(raster_of(photo((300, 200))), cropping), **options))

    assert any("gravity" in str(one.message) for one in caught) == told
