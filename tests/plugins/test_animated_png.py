"""Animated PNG: what is stored of each frame, and that the frames that are shown are those of the source."""

import struct
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageSequence

from engine.registry import load_registry
from plugins._pixels.png_chunks import read_chunks
from tests.support.results.conversions import codes, convert, opened
from tests.support.samples.animations import random_apng
from tests.support.samples.generated import saved
from tests.support.samples.rasters import photo

_KEYS = ((3, 254, 1), (251, 2, 253), (5, 249, 4), (247, 8, 246))
"""The colors of which one stands for pixels that stay."""


def _animation(frames: Sequence[Image.Image], **settings: Any) -> bytes:
    return saved(frames[0], "WEBP", save_all=True, append_images=frames[1:], lossless=True, exact=True, **settings)


def _shown(data: bytes) -> list[NDArray[Any]]:
    with opened(data) as image:
        return [np.asarray(frame.convert("RGBA")) for frame in ImageSequence.Iterator(image)]


def _controls(data: bytes) -> list[tuple[int, ...]]:
    """Of each frame: width, height, left, top, duration, units in a second, disposal and blend operation."""
    chunks = read_chunks(memoryview(data))
    return [struct.unpack(">4I2H2B", chunk[12:-4]) for kind, chunk in chunks if kind == b"fcTL"]


def _color_type(data: bytes) -> int:
    return data[25]


def _moving(alpha: int = 255, corner: tuple[int, int, int] = (0, 0, 0)) -> list[Image.Image]:
    """A photo with an alpha that moves over another one."""
    frames = []
    for left in range(0, 32, 8):
        frame = photo((96, 64)).convert("RGBA")
        small = photo((24, 24)).convert("RGBA")
        small.putalpha(alpha)
        frame.paste(small, (left, 8))
        frame.putpixel((95, 63), (*corner, 255))
        frames.append(frame)
    return frames


@pytest.mark.parametrize(("alpha", "color_type"), [(255, 2), (128, 6)])
def test_frames_store_the_rectangle_that_changes(alpha: int, color_type: int) -> None:
    frames = _moving(alpha)

    result = convert(_animation(frames), "png").data

    assert _color_type(result) == color_type
    first, *others = _controls(result)
    assert first[:4] == (96, 64, 0, 0)
    assert [one[:4] for one in others] == [(32, 24, left, 8) for left in (0, 8, 16)]
    np.testing.assert_array_equal(_shown(result), [np.asarray(frame) for frame in frames])


def test_pixels_that_stay_are_not_stored() -> None:
    frames = [photo((96, 64)) for _ in range(4)]
    for index, frame in enumerate(frames):
        for corner in ((0, 0), (95, 63)):
            frame.putpixel(corner, (60 * index, 0, 0))

    result = convert(_animation(frames), "png").data

    assert [one[7] for one in _controls(result)] == [0, 1, 1, 1]
    assert len(result) < 1.2 * len(convert(saved(frames[0], "PNG"), "png").data)
    np.testing.assert_array_equal(_shown(result), [np.asarray(frame.convert("RGBA")) for frame in frames])


def test_an_opaque_clip_with_each_of_the_colors_that_mean_transparent_is_stored() -> None:
    sources = [_moving(corner=_KEYS[0]), _moving()]
    for x, color in enumerate(_KEYS):
        for frame in sources[1]:
            frame.putpixel((x, 0), (*color, 255))

    results = [convert(_animation(frames), "png").data for frames in sources]

    assert [_color_type(result) for result in results] == [2, 6]
    for frames, result in zip(sources, results, strict=True):
        np.testing.assert_array_equal(_shown(result), [np.asarray(frame) for frame in frames])


@pytest.mark.parametrize("count", [2, 255, 256])
def test_few_colors_are_a_palette(count: int) -> None:
    samples = np.stack([np.arange(32 * 24) % count, np.arange(32 * 24) % 7, np.full(32 * 24, 9)], axis=-1)
    first = Image.fromarray((samples % [count, 1, 10]).astype(np.uint8).reshape(24, 32, 3))
    second = first.copy()
    second.paste((1, 0, 9), (4, 4, 12, 12))
    second.putpixel((7, 7), (0, 0, 9))

    result = convert(_animation([first, second]), "png").data

    assert _color_type(result) == 3
    np.testing.assert_array_equal(_shown(result), [np.asarray(one.convert("RGBA")) for one in (first, second)])


@pytest.mark.parametrize("seed", range(10))
def test_all_kinds_of_frames_stay_as_they_are_shown(seed: int) -> None:
    source = random_apng(seed)

    result = convert(source, "png").data

    assert _timeline(result) == _timeline(source)


def _timeline(data: bytes) -> list[tuple[float, bytes]]:
    """When each change of what is shown begins, in milliseconds, and the pixels then."""
    changes: list[tuple[float, bytes]] = []
    time = 0.0
    for frame in load_registry().plan([load_registry().formats["png"]], "webp").conversions[0](data).frames:
        shown = np.array(frame.image.convert("RGBA"))
        shown[shown[..., 3] == 0] = 0
        if not changes or changes[-1][1] != shown.tobytes():
            changes.append((time, shown.tobytes()))
        time += frame.duration
    return [*changes, (time, b"")]


def test_a_frame_can_be_shown_for_minutes() -> None:
    durations = [70_000, 700_000, 7_000_000]
    frames = [Image.new("RGB", (8, 8), color) for color in ("red", "green", "blue")]

    result = convert(_animation(frames, duration=durations), "png")

    assert [one[4] * 1000 / one[5] for one in _controls(result.data)] == durations
    assert not codes(result)


def test_a_frame_that_would_be_shown_for_a_day_is_told() -> None:
    frames = [Image.new("RGB", (8, 8), color) for color in ("red", *["green"] * 6)]

    result = convert(_animation(frames, duration=13_000_000), "png")

    assert [one[4] / one[5] for one in _controls(result.data)] == [13_000, 65_535]
    assert codes(result) == {"timing_rounded"}


def test_equal_frames_are_stored_once() -> None:
    frames = [Image.new("RGB", (8, 8), color) for color in ("red", "red", "blue", "blue", "blue")]

    result = convert(saved(frames[0], "GIF", save_all=True, append_images=frames[1:], duration=40), "png").data

    assert [one[4:6] for one in _controls(result)] == [(80, 1000), (120, 1000)]


def test_pixels_stray_for_smaller_files() -> None:
    ramp = np.linspace((0, 60, 200), (255, 160, 90), 96)[None]
    noise = np.random.default_rng(1).normal(0, 2, (6, 64, 96, 3))
    frames = [Image.fromarray(frame) for frame in (ramp + noise).clip(0, 255).astype(np.uint8)]
    source = _animation(frames)

    whole, some, more = (convert(source, "png", **options).data for options in ({}, {"lossy": 20}, {"lossy": 80}))

    assert len(more) < 0.7 * len(some) < 0.5 * len(whole)
    for data, levels in ((some, 6), (more, 13)):
        wanted = np.stack([np.asarray(frame, int) for frame in frames])
        assert np.abs(np.stack(_shown(data))[..., :3] - wanted).max() == levels


def test_lossy_has_no_effect_on_a_still() -> None:
    assert codes(convert(saved(photo(), "PNG"), "png", lossy=20)) == {"option_ignored"}


def test_a_gif_with_several_palettes_keeps_all_its_colors() -> None:
    samples = np.random.default_rng(1).integers(0, 256, (4, 14, 15, 3)).astype(np.uint8)
    first, *others = (Image.fromarray(one) for one in samples)
    source = saved(first, "GIF", save_all=True, append_images=others, duration=50)

    result = convert(source, "png")

    assert codes(result) == set()
    np.testing.assert_array_equal(_shown(result.data), _shown(source))
    np.testing.assert_array_equal(np.stack(_shown(source))[..., :3], samples)


def test_a_clip_with_a_palette_that_is_resized_has_one_again() -> None:
    frames = []
    for index in range(3):
        frame = Image.new("RGB", (320, 240), "white")
        draw = ImageDraw.Draw(frame)
        for line in range(3):
            draw.line((0, 70 * line + index, 320, 240 - 50 * line), (line * 90, 40, 200 - line * 70), 5)
        frames.append(frame)
    source = saved(frames[0], "GIF", save_all=True, append_images=frames[1:], duration=50)

    plain, result = (convert(source, "png", width=160, **options) for options in ({"palette": False}, {}))

    assert (_color_type(plain.data), codes(plain)) == (2, set())
    assert (_color_type(result.data), codes(result)) == (3, {"colors_reduced"})
    assert len(result.data) < 0.7 * len(plain.data)
    for one, other in zip(_shown(result.data), _shown(plain.data), strict=True):
        assert np.abs(one.astype(int) - other).mean() < 1
