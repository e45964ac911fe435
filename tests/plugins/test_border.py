"""Rounded corners compared with those that Pillow draws, and padding."""

import warnings
from typing import Any

import numpy as np
import pytest
from PIL import Image, ImageDraw

from engine import DeepPixels, InvalidOption
from plugins.operations import border
from tests.support.results.conversions import codes, convert, opened
from tests.support.samples.generated import quadrants, saved
from tests.support.samples.rasters import only, photo, raster_of


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
    [
        ("10", (10, 10, 10, 10)),
        ("1,2,3,4", (1, 2, 3, 4)),
        ("10%", (4, 6, 4, 6)),
        ("50%,5,0, 10%", (20, 5, 0, 6)),
    ],
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

    image = opened(transparent.data)
    assert (image.size, image.mode) == ((48, 48), "RGBA")
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
