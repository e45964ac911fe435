"""PNG with a palette: colors, dithering, quality, transparency and size."""

import struct
import zlib
from io import BytesIO
from typing import Any

import numpy as np
import pytest
import pyvips
from PIL import Image

from engine import InvalidOption
from engine.errors import ConversionError
from tests.support.results.conversions import codes, convert, opened
from tests.support.samples.generated import saved
from tests.support.samples.profiles import swapped_profile
from tests.support.samples.rasters import photo

_PHOTO = saved(photo((320, 240)), "PNG")


def _difference(data: bytes, other: bytes = _PHOTO) -> float:
    arrays = [np.asarray(opened(each).convert("RGB"), float) for each in (data, other)]
    return float(np.sqrt(((arrays[0] - arrays[1]) ** 2).mean()))


def _colors(data: bytes) -> int:
    return len(opened(data).convert("RGBA").getcolors(1 << 20) or ())


@pytest.mark.parametrize(("colors", "bits"), [(2, 1), (3, 2), (16, 4), (17, 8), (256, 8)])
def test_there_are_no_more_colors(colors: int, bits: int) -> None:
    result = convert(_PHOTO, "png", colors=colors)

    assert _colors(result.data) <= colors
    assert result.data[24:26] == bytes((bits, 3))  # depth, and the color type of palettes
    assert not codes(result)


def test_more_colors_are_nearer_and_a_palette_is_smaller() -> None:
    whole = convert(_PHOTO, "png", effort=9)
    results = [convert(_PHOTO, "png", colors=colors) for colors in (8, 64, 256)]

    assert _difference(results[0].data) > _difference(results[1].data) > _difference(results[2].data)
    assert len(results[2].data) < 0.5 * len(whole.data)
    by_vips = pyvips.Image.new_from_buffer(_PHOTO, "").pngsave_buffer(palette=True, Q=100, effort=7)
    assert len(convert(_PHOTO, "png", palette=True, dither=1, effort=9).data) < 1.05 * len(by_vips)
    assert _difference(results[2].data) < 1.1 * _difference(by_vips)


def test_dithering_keeps_the_mean_and_costs_bytes() -> None:
    flat, dithered = (convert(_PHOTO, "png", colors=8, dither=dither) for dither in (0, 1.0))

    def blurred(data: bytes) -> bytes:
        return saved(opened(data).convert("RGB").reduce(8), "PNG")

    assert len(flat.data) < len(dithered.data)
    assert _difference(blurred(dithered.data), blurred(_PHOTO)) < _difference(blurred(flat.data), blurred(_PHOTO))


def test_the_quality_decides_how_many_colors_there_are() -> None:
    x, y = np.meshgrid(np.linspace(0, 255, 320), np.linspace(0, 255, 240))
    smooth = saved(Image.fromarray(np.dstack([x, y, x]).astype(np.uint8)), "PNG")

    counts = [_colors(convert(smooth, "png", palette=True, quality=quality).data) for quality in (1, 20, 100)]

    assert counts[0] < counts[1] < counts[2] <= 256


@pytest.mark.parametrize("mode", ["RGB", "L", "1", "P", "RGBA"])
def test_few_colors_stay_exact(mode: str) -> None:
    image = Image.new("RGBA", (40, 30), (10, 20, 30, 255))
    image.paste((200, 100, 50, 128), (5, 5, 20, 20))
    image.paste((255, 255, 255, 255), (25, 5, 35, 20))
    data = saved(image if mode == "RGBA" else image.convert("RGB").convert(mode), "PNG")

    result = convert(data, "png", palette=True)

    original = opened(result.data)
    assert original.mode in ("P", "1")
    np.testing.assert_array_equal(np.asarray(original.convert("RGBA")), np.asarray(opened(data).convert("RGBA")))


def test_transparency_stays() -> None:
    data = saved(photo((320, 240), "RGBA"), "PNG")

    result = convert(data, "png", colors=64)

    alpha, before = (np.asarray(opened(each).convert("RGBA"))[..., 3].astype(int) for each in (result.data, data))
    assert np.abs(alpha - before).mean() < 2
    assert _colors(result.data) <= 64


def test_the_profile_and_the_resolution_stay() -> None:
    data = saved(photo((64, 64)), "PNG", icc_profile=swapped_profile(), dpi=(200, 200))

    image = opened(convert(data, "png", colors=16).data)

    assert image.info["icc_profile"] == swapped_profile()
    assert image.info["dpi"] == pytest.approx((200, 200), abs=0.1)


def test_sixteen_bits_become_eight_and_cannot_be_requested() -> None:
    wide = pyvips.Image.new_from_buffer(_PHOTO, "").cast("ushort").linear(257, 0).cast("ushort")
    data = wide.copy(interpretation="rgb16").pngsave_buffer()

    assert codes(convert(data, "png", palette=True)) == {"depth_reduced"}
    with pytest.raises(InvalidOption) as caught:
        convert(data, "png", palette=True, bit_depth=16)
    assert caught.value.param == "bit_depth"


def test_a_size_is_reached_by_the_quality() -> None:
    x, y = np.meshgrid(np.linspace(0, 255, 120), np.linspace(0, 255, 80))
    smooth = saved(Image.fromarray(np.dstack([x, y, x]).astype(np.uint8)), "PNG")
    full = convert(smooth, "png", palette=True)
    limit = len(full.data) * 9 // 10

    limited = convert(smooth, "png", palette=True, max_bytes=limit)

    assert len(limited.data) <= limit
    assert limited.outcome.quality_used is not None
    with pytest.raises(ConversionError) as caught:
        convert(saved(photo((120, 80)), "PNG"), "png", palette=True, max_bytes=1000)
    assert caught.value.reason == "target_unreachable"


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"quality": 50}, {"quality_ignored"}),
        ({"dither": 0.5}, {"option_ignored"}),
        ({"max_bytes": 1000, "effort": 9}, {"option_ignored"}),
        ({"palette": True, "quality": 50, "dither": 0.5}, set()),
        ({"colors": 5, "dither": 0.5}, set()),
    ],
)
def test_options_without_a_palette_are_told(options: dict[str, Any], told: set[str]) -> None:
    assert codes(convert(_PHOTO, "png", width=100, **options)) == told


def test_animations_have_no_common_palette() -> None:
    frames = [Image.new("RGB", (20, 20), (60 * index, 0, 0)) for index in range(3)]
    data = saved(frames[0], "PNG", save_all=True, append_images=frames[1:], duration=50)

    result = convert(data, "png", colors=4)

    assert codes(result) == {"option_ignored"}
    assert Image.open(BytesIO(result.data)).n_frames == 3  # type: ignore[attr-defined]


@pytest.mark.parametrize("colors", [2, 4, 16, 256])
def test_palettes_are_stored_without_filters_in_few_bits(colors: int) -> None:
    """Filters make the indexes of colors less alike, and their files larger."""
    data = convert(saved(photo((400, 300)), "PNG"), "png", colors=colors).data

    width, height, bits = struct.unpack_from(">IIB", data, 16)
    compressed = b"".join(data[start + 4 : start + 4 + size] for start, size in _chunks(data, b"IDAT"))
    rows = zlib.decompress(compressed)
    stride = 1 + -(-width * bits // 8)
    assert 1 << bits == colors
    assert len(rows) == height * stride
    assert set(rows[::stride]) == {0}
    assert len(compressed) <= len(zlib.compress(rows, 9))
    assert [size for _, size in _chunks(data, b"PLTE")] == [3 * colors]


def _chunks(data: bytes, kind: bytes) -> list[tuple[int, int]]:
    """Where the types of chunks of a kind are in a PNG, and their sizes."""
    found, start = [], 8
    while start < len(data):
        size = int.from_bytes(data[start : start + 4])
        if data[start + 4 : start + 8] == kind:
            found.append((start + 4, size))
        start += size + 12
    return found
