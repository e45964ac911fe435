"""Animations with palettes: what is stored of each frame, and the colors that are shown."""

import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image, ImageSequence

from engine.errors import ConversionError
from engine.registry import load_registry
from tests.support.results.conversions import codes, convert, opened
from tests.support.samples.generated import saved
from tests.support.samples.rasters import photo


def _animation(frames: Sequence[Image.Image], kind: str = "PNG", **settings: Any) -> bytes:
    return saved(frames[0], kind, save_all=True, append_images=frames[1:], **settings)


def _moving(size: tuple[int, int] = (96, 64), count: int = 8) -> list[Image.Image]:
    """A photo that moves over another one."""
    large, small = photo(size), photo((24, 24))
    frames = [large.copy() for _ in range(count)]
    for index, frame in enumerate(frames):
        frame.paste(small, (4 * index, 8))
    return frames


def _shown(data: bytes) -> list[NDArray[Any]]:
    with opened(data) as image:
        return [np.asarray(frame.convert("RGBA"), int) for frame in ImageSequence.Iterator(image)]


def _boxes(data: bytes) -> list[tuple[int, ...]]:
    """The rectangles that a GIF stores: left, top, right and bottom."""
    with opened(data) as image:
        return [frame.dispose_extent for frame in ImageSequence.Iterator(image)]  # type: ignore[attr-defined]


def _decibels(shown: Sequence[NDArray[Any]], expected: Sequence[Image.Image]) -> float:
    pairs = zip(shown, expected, strict=True)
    error = np.mean([((one[..., :3] - np.asarray(other.convert("RGB"), int)) ** 2).mean() for one, other in pairs])
    return float(10 * np.log10(255**2 / error))


def test_a_gif_that_is_reduced_in_size_becomes_smaller() -> None:
    source = _animation(_moving(), "GIF")

    assert len(convert(source, "gif", width=80).data) < 0.8 * len(source)


def test_frames_store_the_rectangle_that_changes() -> None:
    result = convert(_animation(_moving()), "gif")

    assert "transparency" not in opened(result.data).info
    first, *others = _boxes(result.data)
    assert first == (0, 0, 96, 64)
    assert all(top >= 8 and bottom <= 32 and right - left <= 28 for left, top, right, bottom in others)
    assert _decibels(_shown(result.data), _moving()) > 30


def test_small_differences_do_not_add_up() -> None:
    noisy = photo((64, 48))
    frames = [
        Image.fromarray(np.minimum(np.asarray(noisy, int) // 2 + step, 255).astype(np.uint8)) for step in range(20)
    ]

    shown = _shown(convert(_animation(frames), "gif").data)

    first, last = (
        np.abs(one[..., :3] - np.asarray(frame.convert("RGB"), int)).mean()
        for one, frame in ((shown[0], frames[0]), (shown[-1], frames[-1]))
    )
    assert last < first + 1


def test_scenes_have_palettes_of_their_own() -> None:
    rng = np.random.default_rng(1)
    colors = (np.array([250, 90, 20]), np.array([10, 120, 240]))
    frames = [
        Image.fromarray(
            (colors[index // 16] * rng.random((32, 32, 1)) ** 0.5 + rng.integers(0, 9, (32, 32, 3)))
            .clip(0, 255)
            .astype(np.uint8)
        )
        for index in range(32)
    ]

    whole, *scenes = (
        _decibels(_shown(convert(_animation(part), "gif").data), part) for part in (frames, frames[:16], frames[16:])
    )

    # One palette for both scenes would be 2 dB worse.
    assert whole > min(scenes) - 0.5


def test_a_frame_stores_only_the_colors_that_it_uses() -> None:
    rng = np.random.default_rng(1)
    samples = rng.integers(0, 120, (32, 7, 8, 3)).astype(np.uint8)
    samples[16:] += 130
    frames = [Image.fromarray(one) for one in samples]

    result = convert(_animation(frames), "gif").data

    descriptors = re.findall(rb"\0,\0\0\0\0\x08\0\x07\0(.)", result, re.DOTALL)
    assert len(descriptors) == 32
    own = [2 << (flags[0] & 7) for flags in descriptors if flags[0] & 0x80]
    assert own
    assert max(own) == 64
    np.testing.assert_array_equal(_shown(result), [np.asarray(frame.convert("RGBA")) for frame in frames])


def test_only_what_disappears_is_cleared() -> None:
    frames = []
    for index in range(4):
        frame = Image.new("RGBA", (60, 40))
        frame.paste((200, 30, 30, 255), (0, 0, 20, 40))
        if index:
            frame.paste((30, 30, 200, 255), (30 + 4 * index, 10, 40 + 4 * index, 20))
        frames.append(frame)

    result = convert(_animation(frames, disposal=1), "gif")

    assert [right - left for left, _, right, _ in _boxes(result.data)] == [20, 10, 10, 10]
    for one, frame in zip(_shown(result.data), frames, strict=True):
        np.testing.assert_array_equal(one, np.asarray(frame))


def test_a_frame_without_pixels_is_kept() -> None:
    frames = [Image.new("RGBA", (8, 8), color) for color in ("red", (0, 0, 0, 0), (0, 0, 0, 0), "blue")]

    shown = _shown(convert(_animation(frames, duration=[50, 60, 70, 80]), "gif").data)

    assert [frame[0, 0].tolist() for frame in shown if frame[0, 0, 3]] == [[255, 0, 0, 255], [0, 0, 255, 255]]
    assert len(shown) == 3
    assert not shown[1][..., 3].any()


@pytest.mark.parametrize(("target", "most"), [("gif", 65_536), ("webp", 65_535)])
def test_an_animation_plays_as_often_as_the_target_can_say(target: str, most: int) -> None:
    frames = [Image.new("RGB", (8, 8), color) for color in ("red", "blue")]
    reader = load_registry().plan([load_registry().formats[target]], "png").conversions[0]

    results = [convert(_animation(frames, loop=count), target) for count in (most, most + 1, 1 << 31)]

    assert [reader(result.data).loop_count for result in results] == [most] * 3
    assert [codes(result) for result in results] == [set(), {"timing_rounded"}, {"timing_rounded"}]


def test_a_short_frame_after_longer_ones_has_no_negative_duration() -> None:
    frames = [Image.new("RGB", (8, 8), (30 * index, 0, 0)) for index in range(8)]

    result = convert(_animation(frames, duration=[*[15] * 6, 1, 15]), "gif")

    with opened(result.data) as image:
        durations = [frame.info["duration"] for frame in ImageSequence.Iterator(image)]
    assert sum(durations) == pytest.approx(106, abs=10)


def test_a_frame_that_is_shown_longer_than_a_gif_can_say_is_reported() -> None:
    frames = [Image.new("RGB", (8, 8), color) for color in ("red", "red", "blue")]

    results = [convert(_animation(frames, "WEBP", duration=[355_350, last, 50]), "gif") for last in (300_000, 300_010)]

    assert [opened(result.data).info["duration"] for result in results] == [655_350] * 2
    assert [codes(result) for result in results] == [set(), {"timing_rounded"}]


@pytest.mark.parametrize("colors", [2, 256])
def test_frames_can_all_be_transparent(colors: int) -> None:
    frames = [Image.new("RGBA", (8, 8), (index, 0, 0, 0)) for index in range(3)]

    (shown,) = _shown(convert(_animation(frames), "gif", colors=colors).data)

    assert not shown[..., 3].any()


def test_noise_of_all_colors_is_stored() -> None:
    noise = np.random.default_rng(1).integers(0, 256, (3, 200, 200, 3)).astype(np.uint8)

    result = convert(_animation([Image.fromarray(frame) for frame in noise]), "gif")

    assert codes(result) == {"colors_reduced"}
    assert len(_shown(result.data)) == 3


@pytest.mark.parametrize("colors", [2, 3, 16, 255])
@pytest.mark.parametrize("kind", ["still", "animation", "transparent"])
def test_there_are_no_more_colors(colors: int, kind: str) -> None:
    frames = _moving(count=1 if kind == "still" else 4)
    if kind == "transparent":
        for frame in frames:
            frame.putalpha(frame.getchannel("R").point(lambda level: 255 if level > 90 else 0))

    result = convert(_animation(frames), "gif", colors=colors)

    visible = [pixel for frame in _shown(result.data) for pixel in frame.reshape(-1, 4).tolist() if pixel[3]]
    assert len({tuple(pixel) for pixel in visible}) <= colors
    with opened(result.data) as image:
        assert len(image.getpalette() or ()) <= 3 * max(4, 1 << (colors - 1).bit_length())
    assert codes(result) == {"colors_reduced"}


def test_dithering_keeps_the_brightness_and_what_stays() -> None:
    ramp = np.tile(np.linspace(0, 255, 96), (64, 1))
    frames = [Image.fromarray(ramp.astype(np.uint8)).convert("RGB") for _ in range(3)]
    for index, frame in enumerate(frames):
        frame.paste((255, 0, 0), (8 * index, 0, 8 * index + 8, 8))
    source = _animation(frames)

    flat, dithered = (_shown(convert(source, "gif", colors=5, dither=dither).data) for dither in (0, 1))

    for shown in (flat, dithered):
        assert not np.abs(shown[0][16:] - shown[2][16:]).max()
    means = [shown[0][16:, :, 0].reshape(6, 8, 12, 8).mean(axis=(0, 1, 3)) for shown in (flat, dithered)]
    errors = [np.abs(mean - ramp[0].reshape(12, 8).mean(axis=1)).mean() for mean in means]
    assert errors[1] < 0.7 * errors[0]


def test_pixels_stray_for_smaller_files() -> None:
    rng = np.random.default_rng(1)
    ramp = np.linspace((0, 60, 200), (255, 160, 90), 96)[None]
    noisy = (ramp + rng.normal(0, 4, (6, 64, 96, 3))).clip(0, 255).astype(np.uint8)
    frames = [Image.fromarray(frame) for frame in noisy]
    source = _animation(frames)

    results = [convert(source, "gif", **({"lossy": lossy} if lossy else {})) for lossy in (0, 20, 80, 200)]

    sizes = [len(result.data) for result in results]
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[2] < 0.8 * sizes[0]
    errors = [_decibels(_shown(result.data), frames) for result in results]
    assert errors == sorted(errors, reverse=True)
    assert errors[1] > errors[0] - 5


def test_lossy_has_no_effect_on_a_still() -> None:
    assert codes(convert(saved(photo(), "PNG"), "gif", lossy=20)) == {"colors_reduced", "option_ignored"}


@pytest.mark.parametrize("count", [1, 8])
def test_a_gif_fits_into_a_limit_with_the_best_quality_that_does(count: int) -> None:
    source = _animation(_moving(count=count))
    whole = convert(source, "gif")
    limit = len(whole.data) * 2 // 3

    limited = convert(source, "gif", max_bytes=limit)

    assert 0.8 * limit < len(limited.data) <= limit
    assert limited.outcome.quality_used in range(1, 100)
    assert len(_shown(limited.data)) == count
    assert _decibels(_shown(limited.data), _moving(count=count)) > 20
    assert convert(source, "gif", max_bytes=len(whole.data)).data == whole.data
    with pytest.raises(ConversionError, match="No quality"):
        convert(_animation(_moving((320, 240), count)), "gif", max_bytes=1000)
    ignored = convert(source, "gif", quality=50)
    assert ignored.data == whole.data
    assert codes(ignored) == codes(whole) | {"quality_ignored"}


@pytest.mark.parametrize("target", ["gif", "png", "webp", "mp4"])
@pytest.mark.parametrize(
    ("times", "fps", "expected"),
    [
        ([50] * 8, 10, [100] * 4),
        ([40] * 10, 12.5, [80] * 5),
        ([40] * 10, 10, [120, 80, 120, 80]),
        ([200, 20, 20, 20, 200, 40], 10, [200, 260, 40]),
        ([30] * 4, 60, [30] * 4),
        ([50] * 4, 1, [200]),
    ],
    ids=str,
)
def test_frames_that_come_too_soon_are_left_out(target: str, times: list[int], fps: float, expected: list[int]) -> None:
    frames = [Image.new("RGB", (16, 16), (25 * index, 0, 0)) for index in range(len(times))]

    result = convert(_animation(frames, duration=times), target, fps=fps)

    back = load_registry().plan([load_registry().identify_content(result.data)], "png").conversions[0](result.data)
    durations = [frame.duration for frame in back.frames]
    assert len(durations) == len(expected)
    if len(expected) > 1:
        assert durations == pytest.approx(expected, abs=2)


def test_frames_that_are_left_out_are_no_pages() -> None:
    frames = [Image.new("RGB", (16, 16), (25 * index, 0, 0)) for index in range(6)]

    result = convert(_animation(frames, duration=50), "jpeg", pages="all", fps=10)

    assert result.outcome.file_count == 3
