"""Watermarks: images compared with libvips in 8 and 16 bits, and text in several scripts."""

from collections.abc import Mapping
from io import BytesIO
from typing import Any

import numpy as np
import pytest
import pyvips
from PIL import Image, ImageFont

from engine import CorruptInput, DeepPixels, Frame, InvalidOption, OptionValue
from plugins._pixels.overlay import ImageMark, Layout, TextMark
from plugins.operations import watermark
from tests.support.results.conversions import codes, convert, convert_with, opened
from tests.support.samples.generated import saved
from tests.support.samples.profiles import ink_profile, swapped_profile
from tests.support.samples.rasters import only, photo, raster_of, vips_image, with_16_bits

_SIZE = (240, 160)


def _mark() -> Image.Image:
    """Red with a hole, and a part that is half transparent."""
    image = Image.new("RGBA", (60, 30), (230, 20, 10, 255))
    image.paste((0, 40, 220, 128), (10, 5, 40, 25))
    image.paste((0, 0, 0, 0), (45, 10, 55, 20))
    return image


def _drawn(image: Image.Image | DeepPixels, mark: Image.Image, **options: OptionValue) -> Frame:
    return only(watermark.watermark.run(raster_of(image), watermark=raster_of(mark), **options))


def _composed(image: Any, mark: Image.Image, place: tuple[int, int], opacity: float) -> Any:
    """What libvips composes, from 0 to 1, with alpha if the image has it."""
    unit = 65535 if isinstance(image, DeepPixels) else 255
    below = (vips_image(image).cast("float") / unit * 255).copy(interpretation="srgb")
    above = vips_image(mark).copy(interpretation="srgb")
    above = above[:3].bandjoin((above[3] * opacity).cast("float"))
    canvas = above.embed(*place, below.width, below.height)
    return below.composite2(canvas, "over", compositing_space="srgb").numpy() / 255


@pytest.mark.parametrize("mode", ["RGB", "RGBA"])
@pytest.mark.parametrize("deep", [False, True])
@pytest.mark.parametrize(
    ("position", "place"),
    [
        ("northwest", (12, 12)),
        ("south", (90, 118)),
        ("center", (90, 65)),
        ("0.9,0", (168, 12)),
        ("southeast", (168, 118)),
    ],
)
def test_marks_are_composed_as_by_libvips(mode: str, deep: bool, position: str, place: tuple[int, int]) -> None:
    image: Any = photo(mode=mode)
    image = with_16_bits(image) if deep else image

    seen = _drawn(image, _mark(), watermark_position=position, watermark_opacity=0.7, watermark_margin=5).pixels

    samples = (seen.array if isinstance(seen, DeepPixels) else np.asarray(seen)) / (65535 if deep else 255)
    expected = _composed(image, _mark(), place, 0.7)
    assert (seen.mode, isinstance(seen, DeepPixels)) == (mode, deep)
    difference = samples - expected[..., : samples.shape[2]]
    if mode == "RGBA":
        difference[..., :3] *= expected[..., 3:]
    assert np.sqrt((difference**2).mean()) < 0.003  # 50 dB
    untouched = np.asarray(image.array if isinstance(image, DeepPixels) else image)[:10] / (65535 if deep else 255)
    assert np.array_equal(samples[:10], untouched)


@pytest.mark.parametrize("angle", [30, -75, 400])
def test_turned_marks_are_those_of_libvips(angle: float) -> None:
    mark = ImageMark(_mark())
    drawn, _ = Layout("center", 0.25, 0, angle).place(mark, _SIZE)

    turned = vips_image(_mark()).copy(interpretation="srgb").premultiply()
    turned = turned.similarity(angle=-angle, interpolate=pyvips.Interpolate.new("bicubic")).unpremultiply()
    expected = np.asarray(turned.cast("uchar").numpy(), float)
    assert np.abs(np.array(drawn.size) - (turned.width, turned.height)).max() <= 2
    area = (np.asarray(drawn)[..., 3] / 255).sum()
    assert area == pytest.approx((expected[..., 3] / 255).sum(), rel=0.02)
    size = min(drawn.width, turned.width), min(drawn.height, turned.height)
    seen = np.asarray(drawn, float) * (np.asarray(drawn, float)[..., 3:] / 255)
    wanted = expected * (expected[..., 3:] / 255)
    assert np.abs(_central(seen, size) - _central(wanted, size)).mean() < 12  # edges, by up to a pixel


@pytest.mark.parametrize(("angle", "turn"), [(90, "rot270"), (180, "rot180"), (-90, "rot90")])
def test_right_angles_lose_nothing(angle: float, turn: str) -> None:
    drawn, _ = Layout("center", 0.25, 0, angle).place(ImageMark(_mark()), _SIZE)

    expected = getattr(vips_image(_mark()), turn)().numpy()
    visible = expected[..., 3] > 0
    assert np.abs(np.asarray(drawn, int) - expected)[visible].max() <= 1


def _central(array: Any, size: tuple[int, int]) -> Any:
    top, left = (array.shape[0] - size[1]) // 2, (array.shape[1] - size[0]) // 2
    return array[top : top + size[1], left : left + size[0]]


@pytest.mark.parametrize(
    ("image", "mark", "size", "expected"),
    [
        ((400, 200), (60, 30), 25, (100, 50)),  # also enlarged
        ((400, 200), (30, 60), 50, (92, 184)),  # as high as fits between the margins
        ((40, 300), (60, 30), 100, (38, 19)),
        ((5, 5), (60, 30), 0.1, (1, 1)),
    ],
)
def test_the_size_is_a_share_of_the_width(image: Any, mark: Any, size: float, expected: Any) -> None:
    drawn, place = Layout("southeast", size / 100, 0.02, 0).place(ImageMark(Image.new("RGBA", mark, "red")), image)

    assert np.abs(np.array(drawn.size) - expected).max() <= 1
    margin = round(image[0] * 0.02)
    assert (place[0] + drawn.width, place[1] + drawn.height) == (image[0] - margin, image[1] - margin)


def test_a_tile_repeats_the_mark() -> None:
    options: dict[str, Any] = {"watermark_opacity": 1, "watermark_size": 10, "watermark_margin": 5}
    mark = Image.new("RGBA", (9, 9), "lime")
    seen = np.asarray(_drawn(Image.new("RGB", _SIZE), mark, watermark_position="tile", **options).image)

    marked = seen[..., 1] == 255
    assert marked[:24, :24].all()
    assert not marked[24:36].any()
    assert not marked[:, 24:36].any()
    assert marked[36:60, 36:60].all()
    assert marked.mean() == pytest.approx((24 / 36) ** 2, abs=0.05)


@pytest.mark.parametrize("deep", [False, True])
@pytest.mark.parametrize(("mode", "kept"), [("1", "RGB"), ("L", "RGB"), ("LA", "RGBA"), ("P", "RGB"), ("CMYK", "CMYK")])
def test_every_mode_has_the_color_of_the_mark(mode: str, kept: str, deep: bool) -> None:
    if deep and mode in ("1", "P"):
        return
    image = Image.new("RGB", _SIZE, "white").convert(mode)
    ink = _drawn(DeepPixels.from_image(image) if deep else image, Image.new("RGBA", (9, 9), "red"), watermark_opacity=1)

    assert (ink.pixels.mode, isinstance(ink.pixels, DeepPixels)) == (kept, deep)
    original = ink.image.convert("RGB")
    assert np.abs(np.array(original.getpixel((220, 140))) - (255, 0, 0)).max() <= 2
    assert original.getpixel((10, 10)) == (255, 255, 255)


def test_a_gray_mark_leaves_gray_as_it_is() -> None:
    assert _drawn(photo().convert("L"), Image.new("RGBA", (9, 9), "black")).pixels.mode == "L"
    assert convert(saved(photo().convert("L"), "PNG"), "png", watermark_text="A").data[25] == 0  # gray in IHDR


def test_the_mark_has_the_colors_of_the_profile() -> None:
    """Of RGB and of inks, whatever the profile of the mark is."""
    red = saved(Image.new("RGB", (9, 9), (0, 255, 0)), "PNG", icc_profile=swapped_profile())
    for image, profile in ((photo(), swapped_profile()), (Image.new("CMYK", _SIZE), None)):
        data = saved(image, "TIFF", icc_profile=profile)
        marked = convert_with(data, "tiff", {"watermark": red}, watermark_opacity=1).data
        assert opened(marked).mode == image.mode
        srgb = opened(convert(marked, "png", color_space="srgb").data).convert("RGB")
        assert np.abs(np.array(srgb.getpixel((220, 140))) - (255, 0, 0)).max() <= 40  # inks are not as bright


def test_inks_with_a_profile_for_reading_only_are_drawn_on() -> None:
    data = saved(Image.new("CMYK", _SIZE), "TIFF", icc_profile=ink_profile())

    assert opened(convert(data, "tiff", watermark_text="A").data).mode == "CMYK"


@pytest.mark.parametrize("target", ["png", "gif", "webp"])
def test_each_frame_of_an_animation_is_marked(target: str) -> None:
    frames = [Image.new("RGB", (60, 40), (60 * index, 0, 0)) for index in range(3)]
    data = saved(frames[0], "GIF", save_all=True, append_images=frames[1:])

    mark = saved(Image.new("RGB", (9, 9), "blue"), "PNG")
    result: Any = opened(convert_with(data, target, {"watermark": mark}, watermark_opacity=1).data)

    assert result.n_frames == 3
    for index in range(3):
        result.seek(index)
        seen = result.convert("RGB")
        assert np.abs(np.array(seen.getpixel((53, 33))) - (0, 0, 255)).max() <= 20
        assert np.abs(np.array(seen.getpixel((5, 5))) - (60 * index, 0, 0)).max() <= 20


def test_corners_and_borders_come_after_the_mark() -> None:
    data, blue = saved(Image.new("RGB", (100, 100), "white"), "PNG"), saved(Image.new("RGB", (9, 9), "blue"), "PNG")
    options: Mapping[str, OptionValue] = {"watermark_opacity": 1, "watermark_size": 100, "watermark_margin": 0}

    made = convert_with(data, "png", {"watermark": blue}, radius="50%", pad="10", **options).data
    seen: Any = opened(made).convert("RGBA")

    assert seen.size == (120, 120)
    assert seen.getpixel((60, 60)) == (0, 0, 255, 255)
    assert [seen.getpixel(place)[3] for place in ((2, 60), (15, 15))] == [0, 0]


def test_images_of_every_kind_are_marks() -> None:
    """The first page of a PDF, an SVG, a photo with an orientation; options are not for them."""
    rectangle = b'<rect width="40" height="40" fill="#00f"/>'
    svg = b'<svg xmlns="http://www.w3.org/2000/svg" width="40" height="40">%s</svg>' % rectangle
    for mark in (svg, convert(svg, "pdf").data, convert(svg, "webp").data):
        options: dict[str, Any] = {"watermark_opacity": 1, "width": 120, "crop": "0,0,200,160"}
        seen = opened(convert_with(saved(photo(), "PNG"), "png", {"watermark": mark}, **options).data)
        assert seen.size == (120, 96)
        assert np.abs(np.array(seen.getpixel((110, 85))) - (0, 0, 255)).max() <= 3


def test_a_mark_that_is_damaged_is_the_fault_of_its_file() -> None:
    for damaged in (saved(photo(), "PNG")[:2000], saved(photo(), "PNG")[:20], b"GIF89a" + bytes(3)):
        with pytest.raises(CorruptInput, match="watermark is damaged") as caught:
            convert_with(saved(photo(), "PNG"), "png", {"watermark": damaged})
        assert caught.value.param == "watermark"


def test_options_that_contradict_or_have_no_effect() -> None:
    data = saved(photo(), "PNG")
    with pytest.raises(InvalidOption) as caught:
        convert_with(data, "png", {"watermark": data}, watermark_text="A")
    assert (caught.value.param, caught.value.reason) == ("watermark_text", "exclusive")
    assert codes(convert(data, "png", watermark_opacity=0.3)) == {"option_ignored"}
    svg = b'<svg xmlns="http://www.w3.org/2000/svg" width="9" height="9"/>'
    assert codes(convert_with(svg, "pdf", {"watermark": data})) == {"option_ignored"}


@pytest.mark.parametrize(
    ("text", "direction", "joins"),
    [
        ("© 2026 Example", "ltr", False),
        ("שלום", "rtl", False),
        ("سلام", "rtl", True),
        ("नमस्ते", "ltr", True),
        ("தமிழ்", "ltr", True),
        ("日本語", "ltr", False),
    ],
)
def test_text_is_shaped(text: str, direction: str, joins: bool) -> None:
    """Letters that join take less space than one by one, and those of Hebrew are drawn from the right."""
    mark = TextMark.of(text, (255, 255, 255, 255))
    drawn = mark.drawn(200)
    assert abs(drawn.width - 200) <= 3
    assert drawn.getchannel("A").getextrema() == (0, 255)
    ((_, chosen),) = mark.runs
    font = ImageFont.truetype(BytesIO(chosen.data), 60, chosen.index)
    apart = sum(font.getlength(letter) for letter in text)
    joined = font.getlength(text, direction=mark.direction)
    assert mark.direction == direction
    assert (joined != pytest.approx(apart, rel=0.005)) == joins
    if not joins and direction == "rtl":  # the first letter is the right one
        first = TextMark.of(text[0], (255, 255, 255, 255)).drawn(200 * font.getlength(text[0]) / apart)
        right = drawn.crop((drawn.width - first.width, 0, *drawn.size)).getchannel("A").getbbox()
        assert right is not None
        assert abs(right[3] - right[1] - first.height) <= 6


def test_a_text_has_all_fonts_that_it_needs() -> None:
    mixed = TextMark.of("© 2026 नमस्ते 日本 Ω", (0, 0, 0, 255))
    assert [text for text, _ in mixed.runs] == ["© 2026 ", "नमस्ते ", "日本 ", "Ω"]
    hebrew = TextMark.of("שלום 日本", (0, 0, 0, 255))
    assert [text for text, _ in hebrew.runs] == ["日本", "שלום "]  # Runs are in the order from left to right.
    assert TextMark.of("ᱥᱟᱱ 🎉", (0, 0, 0, 255)).drawn(100).width == pytest.approx(100, abs=3)
    with pytest.raises(InvalidOption) as caught:
        TextMark.of("A\U000e0101\U0010fffd", (0, 0, 0, 255))
    assert caught.value.param == "watermark_text"


def test_a_text_has_its_color_and_an_outline() -> None:
    for name, color, outline in (("#ffff00", (255, 255, 0), (0, 0, 0)), ("navy", (0, 0, 128), (255, 255, 255))):
        options: dict[str, Any] = {"watermark_color": name, "watermark_size": 80, "watermark_opacity": 1}
        seen = convert(saved(Image.new("RGB", (300, 100), "gray"), "PNG"), "png", watermark_text="ITI", **options).data
        colors = opened(seen).convert("RGB").getcolors(10_000) or ()
        assert {color, outline, (128, 128, 128)} <= {found for _, found in colors}


def test_a_short_text_is_not_drawn_larger_than_the_image() -> None:
    """A letter as wide as a wide image would be many times as high as that."""
    drawn, _ = Layout("center", 1, 0, 0).place(TextMark.of("|", (0, 0, 0, 255)), (10_000, 20))

    assert drawn.height <= 20
