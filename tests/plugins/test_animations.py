"""Frames, durations and loops of animations."""

import struct
from io import BytesIO

import numpy as np
import pytest
from PIL import Image

from engine import OptionValue, Raster
from engine.registry import load_registry
from tests.support.results.conversions import codes, convert, opened
from tests.support.samples.generated import saved

_REGISTRY = load_registry()


def _decoded(data: bytes) -> Raster:
    plan = _REGISTRY.plan([_REGISTRY.identify_content(data)], "png")
    raster: Raster = plan.conversions[0](data)
    return raster


def _animation() -> list[Image.Image]:
    frames = []
    for index in range(4):
        frame = Image.new("RGBA", (64, 48), (0, 0, 0, 0))
        frame.paste((200, 40 * index, 30, 255), (8 * index, 8, 8 * index + 16, 40))
        frames.append(frame)
    return frames


_DURATIONS = [100, 250, 80, 400]


@pytest.mark.parametrize("source", ["GIF", "WEBP", "PNG", "AVIF"])
@pytest.mark.parametrize("target", ["gif", "webp", "png", "avif"])
def test_animations_keep_frames_durations_and_loops(source: str, target: str) -> None:
    first, *others = _animation()
    runs = 2 if source == "GIF" else 3  # a GIF counts repeats
    ways: dict[str, dict[str, object]] = {
        "GIF": {"disposal": 2},
        "PNG": {"disposal": 1},
        "WEBP": {"lossless": True},
        "AVIF": {"quality": 95},
    }
    data = saved(first, source, save_all=True, append_images=others, duration=_DURATIONS, loop=runs, **ways[source])

    image = Image.open(BytesIO(convert(data, target).data))

    assert image.n_frames == 4  # type: ignore[attr-defined]
    for index, frame in enumerate(_animation()):
        image.seek(index)
        image.load()
        assert image.info["duration"] == pytest.approx(_DURATIONS[index], abs=10)
        shown, expected = (np.asarray(each.convert("RGBA"), int) for each in (image, frame))
        visible = expected[..., 3] > 0
        if source != "WEBP":  # libwebp does not set the alpha flag of such a file
            assert (shown[..., 3][~visible] < 128).mean() > 0.9
        assert np.abs(shown[visible][:, :3] - expected[visible][:, :3]).mean() < 25
    if "AVIF" not in (source, target.upper()):  # Pillow reads no resolution from AVIF
        assert image.info["loop"] == (2 if target == "gif" else 3)


def _durations(data: bytes) -> list[float]:
    image = Image.open(BytesIO(data))
    durations = []
    for index in range(image.n_frames):  # type: ignore[attr-defined]
        image.seek(index)
        image.load()
        durations.append(image.info["duration"])
    return durations


@pytest.mark.parametrize(
    "durations", [[16] * 30, [17, 16, 17] * 10, [33] * 30, [42] * 24, [12] * 40, [16, 400, 15, 11]]
)
def test_the_time_of_a_gif_is_that_of_the_animation(durations: list[int]) -> None:
    first, *others = [Image.new("RGB", (16, 16), (8 * index % 256, 0, index)) for index in range(len(durations))]
    data = saved(first, "WEBP", save_all=True, append_images=others, duration=durations, lossless=True)

    result = convert(data, "gif")

    written = _durations(result.data)
    assert sum(written) == pytest.approx(sum(durations), abs=min(durations))
    assert min(written) >= 20  # browsers play shorter frames in 100 ms
    assert codes(result) == {"timing_rounded"}
    last = opened(result.data)
    last.seek(len(written) - 1)
    assert np.abs(np.asarray(last.convert("RGB"), int) - np.asarray(others[-1], int)).max() <= 2


@pytest.mark.parametrize("durations", [[100, 250], [10, 20], [30, 0]])
def test_durations_that_a_gif_holds_are_kept(durations: list[int]) -> None:
    frames = [Image.new("RGB", (16, 16), (80 * index, 0, 0)) for index in range(2)]
    data = saved(frames[0], "GIF", save_all=True, append_images=frames[1:], duration=durations)

    result = convert(data, "gif", rotate=90)

    assert _durations(result.data) == _durations(data)
    assert not result.outcome.warnings


@pytest.mark.parametrize("target", ["webp", "png", "avif"])
def test_fractions_of_milliseconds_add_up(target: str) -> None:
    first, *others = [Image.new("RGB", (16, 16), (8 * index, 0, 0)) for index in range(30)]
    data = saved(first, "PNG", save_all=True, append_images=others, duration=[1000 / 60] * 30)
    data = data.replace(struct.pack(">HH", 17, 1000), struct.pack(">HH", 1, 60))  # checksums are not verified

    assert sum(_durations(convert(data, target).data)) == pytest.approx(500, abs=2)


def test_an_animation_becomes_its_first_frame_in_a_still_format() -> None:
    first, *others = _animation()
    result = convert(saved(first, "GIF", save_all=True, append_images=others, disposal=2), "bmp")

    assert codes(result) == {"frames_dropped", "alpha_flattened"}


@pytest.mark.parametrize("target", ["gif", "webp", "png", "avif", "jxl"])
@pytest.mark.parametrize(
    ("options", "shown", "durations", "plays"),
    [
        ({"loop": 5}, [0, 1, 2, 3, 4], [100, 250, 80, 400, 70], 5),
        ({"loop": 0}, [0, 1, 2, 3, 4], [100, 250, 80, 400, 70], 0),
        ({"delay": 60}, [0, 1, 2, 3, 4], [60] * 5, 3),
        ({"speed": 0.5}, [0, 1, 2, 3, 4], [200, 500, 160, 800, 140], 3),
        ({"delay": 120, "speed": 2}, [0, 1, 2, 3, 4], [60] * 5, 3),
        ({"reverse": True}, [4, 3, 2, 1, 0], [70, 400, 80, 250, 100], 3),
        ({"frames": "every:2"}, [0, 2, 4], [350, 480, 70], 3),
        ({"frames": "every:3", "reverse": True, "speed": 10}, [3, 0], [47, 43], 3),
    ],
    ids=str,
)
def test_frames_and_times_are_changed(
    target: str, options: dict[str, OptionValue], shown: list[int], durations: list[int], plays: int
) -> None:
    first, *others = [Image.new("RGB", (16, 16), (50 * index, 0, 200)) for index in range(5)]
    times = [100, 250, 80, 400, 70]
    data = saved(first, "WEBP", save_all=True, append_images=others, duration=times, loop=3, lossless=True)

    result = convert(data, target, **options)
    raster = _decoded(result.data)

    frames = list(raster.frames)
    assert (raster.count, raster.loop_count) == (len(shown), plays)
    assert [frame.duration for frame in frames] == pytest.approx(durations, abs=6 if target == "gif" else 1)
    reds = [frame.image.convert("RGB").getpixel((5, 5))[0] for frame in frames]  # type: ignore[index]
    assert reds == pytest.approx([50 * index for index in shown], abs=8)


def test_an_animation_of_one_frame_is_a_still() -> None:
    first, *others = _animation()
    data = saved(first, "WEBP", save_all=True, append_images=others, duration=50, lossless=True)

    result = convert(data, "gif", frames="every:9")

    assert opened(result.data).n_frames == 1  # type: ignore[attr-defined]
    assert "frames_dropped" not in codes(result)


@pytest.mark.parametrize(("target", "used"), [("jpeg", False), ("tiff", True)])
def test_options_of_animations_are_told_where_the_target_has_none(target: str, used: bool) -> None:
    first, *others = [Image.new("RGB", (16, 16), (80 * index, 0, 0)) for index in range(3)]
    data = saved(first, "GIF", save_all=True, append_images=others, duration=50)

    result = convert(data, target, reverse=True, loop=2)

    (told,) = [one.message for one in result.outcome.warnings if one.code == "option_ignored"]
    assert ("reverse" in told, "loop" in told) == (not used, True)
    red, *_ = opened(result.data).convert("RGB").getpixel((0, 0))  # type: ignore[misc]
    assert red == pytest.approx(160 if used else 0, abs=8)
