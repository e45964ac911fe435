"""Crop in percent and by ratio, focus points, and the most salient part as smartcrop of libvips finds it."""

import warnings
from typing import Any

import numpy as np
import pytest
import pyvips
from PIL import Image

from engine import DeepPixels, FidelityWarning, Frame, InvalidOption, Size
from plugins._pixels.attention import salient_point
from plugins.operations import geometry
from tests.support.samples.rasters import only, photo, raster_of, resize


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
