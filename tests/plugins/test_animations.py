"""Frames, durations and loops of animations; GIF keeps colors exactly where each frame adds at most 256."""

import struct
from collections.abc import Callable, Sequence
from io import BytesIO
from typing import Any, TypeAlias

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image, ImageSequence

from engine import CorruptInput, OptionValue, Raster
from engine.registry import load_registry
from tests.support.results.conversions import codes, convert, opened
from tests.support.samples.animations import Part, apng_file, gif_file
from tests.support.samples.generated import saved
from tests.support.samples.rasters import photo

_REGISTRY = load_registry()
_SIZE = 40, 30
_Operation: TypeAlias = tuple[dict[str, str | int], Callable[[NDArray[Any]], NDArray[Any]]]
_OPERATIONS: dict[str, _Operation] = {
    "nothing": ({}, lambda image: image),
    "rotate": ({"rotate": 90}, lambda image: np.rot90(image, -1)),
    "flip": ({"flip": "horizontal"}, lambda image: image[:, ::-1]),
    "crop": ({"crop": "3,2,20,25"}, lambda image: image[2:27, 3:23]),
}


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


def test_pixels_of_gif_that_stay_are_not_reduced_again() -> None:
    first = photo((64, 48))
    second = first.copy()
    second.paste(first.rotate(180).crop((0, 0, 24, 24)), (9, 9))

    result = convert(saved(first, "PNG", save_all=True, append_images=[second]), "gif")

    before, after = (np.asarray(frame.convert("RGB")) for frame in ImageSequence.Iterator(opened(result.data)))
    changed = (before != after).any(axis=-1)
    assert codes(result) == {"colors_reduced"}
    assert changed[9:33, 9:33].mean() > 0.9
    assert changed.sum() == changed[9:33, 9:33].sum()


def test_frames_of_webp_without_loss_hold_only_what_changes() -> None:
    first, *others = [photo((160, 120)) for _ in range(30)]
    for index, frame in enumerate(others):
        frame.putpixel((index, 9), (index, 0, 0))
    animation = saved(first, "PNG", save_all=True, append_images=others)

    still, moving = (convert(data, "webp", lossless=True).data for data in (saved(first, "PNG"), animation))

    assert len(moving) < 1.5 * len(still)
    with Image.open(BytesIO(moving)) as shown:
        kept = [frame.convert("RGB").tobytes() for frame in ImageSequence.Iterator(shown)]
    assert kept == [frame.tobytes() for frame in (first, *others)]


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


@pytest.mark.parametrize("times", [[16] * 30, [17, 16, 17] * 10, [33] * 30, [42] * 24, [12] * 40, [16, 400, 15, 11]])
def test_the_time_of_a_gif_is_that_of_the_animation(times: list[int]) -> None:
    first, *others = [Image.new("RGB", (16, 16), (8 * index % 256, 0, index)) for index in range(len(times))]
    data = saved(first, "WEBP", save_all=True, append_images=others, duration=times, lossless=True)

    result = convert(data, "gif")

    written = _durations(result.data)
    assert sum(written) == pytest.approx(sum(times), abs=min(times))
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


_COLORS = bytes([255, 0, 0, 0, 255, 0, 0, 0, 255, 9, 9, 9])  # indexes 0 to 3 of a GIF
_SHOWN = {".": (0, 0, 0, 0), "R": (255, 0, 0, 255), "G": (0, 255, 0, 255), "B": (0, 0, 255, 255)} | {
    "b": (0, 0, 255, 128),
    "P": (127, 0, 128, 255),  # the half transparent blue on red
    "V": (0, 0, 255, 192),  # and on itself
}


def _part(color: int | str, side: int, left: int = 0, **header: Any) -> Part:
    """A square of an index of a GIF, or of RGBA, away from the upper left corner by `left` in both directions."""
    pixels = np.full((side, side), color) if isinstance(color, int) else np.full((side, side, 4), _SHOWN[color])
    return Part(pixels.astype(np.uint8), left, left, **header)


def _two_greens() -> Part:
    """The color of index 1 is that of index 2 here; one row is transparent."""
    return Part(np.array([[1, 1], [3, 3]], np.uint8), colors=_COLORS[3:6] * 3 + _COLORS[9:], transparent=3)


@pytest.mark.parametrize(
    ("parts", "shown"),
    [
        ([_part(1, 2, 1)], [".../.GG/.GG"]),  # smaller than the screen
        ([_part(1, 3, 1), _part(2, 1)], ["..../.GGG/.GGG/.GGG", "B.../.GGG/.GGG/.GGG"]),  # enlarges the screen
        ([_part(0, 3), _part(1, 3, 1)], ["RRR/RRR/RRR", "RRR/RGG/RGG"]),  # ends at the screen
        ([_part(0, 3), _part(1, 2, 5), _part(2, 1)], ["RRR/RRR/RRR", "RRR/RRR/RRR", "BRR/RRR/RRR"]),
        ([_part(0, 3), _part(1, 0), _part(2, 1)], ["RRR/RRR/RRR", "RRR/RRR/RRR", "BRR/RRR/RRR"]),  # without a pixel
        ([_part(0, 3), _part(1, 2, disposal=2), _part(2, 1)], ["RRR/RRR/RRR", "GGR/GGR/RRR", "B.R/..R/RRR"]),
        ([_part(0, 3), _part(1, 2, disposal=3), _part(2, 1)], ["RRR/RRR/RRR", "GGR/GGR/RRR", "BRR/RRR/RRR"]),
        ([_part(0, 3, disposal=3), _part(1, 2)], ["RRR/RRR/RRR", "GG./GG./..."]),
        ([_part(0, 3, disposal=2), _two_greens()], ["RRR/RRR/RRR", "GG./.../..."]),
        ([_part(0, 3), _two_greens(), _part(1, 1, 2)], ["RRR/RRR/RRR", "GGR/RRR/RRR", "GGR/RRR/RRG"]),
    ],
)
def test_the_rectangles_of_a_gif_are_laid_on_each_other(parts: list[Part], shown: list[str]) -> None:
    assert _letters(gif_file((3, 3), _COLORS, parts)) == shown


@pytest.mark.parametrize(
    ("parts", "default", "shown"),
    [
        ([_part("R", 3), _part("b", 2, blend=1)], None, ["RRR/RRR/RRR", "PPR/PPR/RRR"]),
        ([_part("b", 3, blend=1), _part("b", 2, blend=1)], None, ["bbb/bbb/bbb", "VVb/VVb/bbb"]),
        ([_part("R", 3), _part("b", 2)], None, ["RRR/RRR/RRR", "bbR/bbR/RRR"]),
        ([_part("R", 3), _part(".", 2), _part("G", 1)], None, ["RRR/RRR/RRR", "..R/..R/RRR", "G.R/..R/RRR"]),
        (
            [_part("R", 3), _part("G", 2, disposal=1), _part("B", 1)],
            None,
            ["RRR/RRR/RRR", "GGR/GGR/RRR", "B.R/..R/RRR"],
        ),
        (
            [_part("R", 3), _part("G", 2, disposal=2), _part("B", 1)],
            None,
            ["RRR/RRR/RRR", "GGR/GGR/RRR", "BRR/RRR/RRR"],
        ),
        ([_part("R", 3, disposal=2), _part("B", 1)], None, ["RRR/RRR/RRR", "B../.../..."]),
        ([_part("G", 2, 1, disposal=1), _part("B", 1)], "R", [".../.GG/.GG", "B../.../..."]),
        ([_part("G", 2, 1)], "R", [".../.GG/.GG"]),
    ],
)
def test_the_rectangles_of_an_animated_png_are_blended(
    parts: list[Part], default: str | None, shown: list[str]
) -> None:
    image = None if default is None else _part(default, 3).pixels

    assert _letters(apng_file((3, 3), "RGBA", parts, default=image)) == shown


def _letters(data: bytes) -> list[str]:
    """The frames of a file as rows of letters of `_SHOWN`."""
    letters = {color: letter for letter, color in _SHOWN.items()}
    return [
        "/".join("".join(letters[tuple(pixel)] for pixel in row) for row in _visible(frame.image).tolist())
        for frame in _decoded(data).frames
    ]


@pytest.mark.parametrize("target", ["gif", "png", "webp", "jxl"])
def test_composed_frames_reach_every_target(target: str) -> None:
    sources = [
        gif_file((3, 3), _COLORS, [_part(1, 2, 1)]),
        gif_file((3, 3), _COLORS, [_part(0, 3), _part(1, 3, 1), _part(2, 1, disposal=2), _part(2, 1, 1)]),
        apng_file((3, 3), "RGBA", [_part("R", 3), _part("b", 2, blend=1)]),
    ]
    options: dict[str, OptionValue] = {"lossless": True} if target in ("webp", "jxl") else {}

    shown = [_letters(convert(source, target, **options).data) for source in sources]

    assert shown == [_letters(source) for source in sources]


@pytest.mark.parametrize("parts", [[_part("R", 3), _part("B", 2, 2)], [_part("R", 3), _part("B", 0)]])
def test_an_animated_png_with_a_frame_beyond_the_image_is_damaged(parts: list[Part]) -> None:
    with pytest.raises(CorruptInput, match="empty or beyond"):
        convert(apng_file((3, 3), "RGBA", parts), "webp")


def test_the_depth_of_an_animated_png_is_told() -> None:
    deep = Part(np.full((3, 3, 3), 30_000, np.uint16))

    assert codes(convert(apng_file((3, 3), "RGB", [deep, deep]), "webp")) == {"depth_reduced"}


@pytest.mark.parametrize(("source", "target"), [("jxl", "png"), ("mp4", "png"), ("gif", "tiff")])
def test_frames_are_selected_in_the_order_given(source: str, target: str) -> None:
    first, *others = [Image.new("RGB", (16, 16), (60 * index, 0, 200)) for index in range(4)]
    data = saved(first, "WEBP", save_all=True, append_images=others, duration=_DURATIONS, lossless=True)

    raster = _decoded(convert(convert(data, source).data, target, pages="4,2-3").data)

    frames = list(raster.frames)
    reds = [frame.image.convert("RGB").getpixel((5, 5))[0] for frame in frames]  # type: ignore[index]
    assert reds == pytest.approx([180, 60, 120], abs=12)
    if target == "png":
        assert [frame.duration for frame in frames] == pytest.approx([400, 250, 80], abs=1)


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


def _frames(data: bytes) -> list[NDArray[np.uint8]]:
    return [_visible(frame) for frame in ImageSequence.Iterator(Image.open(BytesIO(data)))]


def _visible(image: Image.Image) -> NDArray[np.uint8]:
    """The image in RGBA, with black for all that is transparent."""
    shown = np.asarray(image.convert("RGBA"))
    return np.where(shown[..., 3:] > 0, shown, 0).astype(np.uint8)


def _gif_animation(frames: Sequence[NDArray[np.uint8]]) -> bytes:
    first, *others = [Image.fromarray(frame) for frame in frames]
    return saved(first, "WEBP", save_all=True, append_images=others, duration=100, lossless=True, exact=True)


def _growing() -> bytes:
    """A GIF whose frames have 300 colors together: the second frame adds 200 to 100 of the first."""
    first, second = Image.new("P", _SIZE), Image.new("P", _SIZE, 200)
    for image, count in ((first, 100), (second, 200)):
        image.putdata([index % count if index < 600 or count == 100 else 200 for index in range(_SIZE[0] * _SIZE[1])])
    first.putpalette(bytes(value for index in range(256) for value in (index, 0, 90)))
    second.putpalette(bytes(value for index in range(256) for value in (0, index, 200)))
    second.info["transparency"] = 200
    return saved(first, "GIF", save_all=True, append_images=[second], duration=100, disposal=1, optimize=False)


@pytest.mark.parametrize("operation", _OPERATIONS)
def test_the_palettes_of_a_gif_stay(operation: str) -> None:
    options, expected = _OPERATIONS[operation]
    source = _growing()
    assert max(len(np.unique(frame.reshape(-1, 4), axis=0)) for frame in _frames(source)) > 256

    result = convert(source, "gif", color_space="keep", metadata="none", **options)

    assert not codes(result) - {"kept_original"}
    for before, after in zip(_frames(source), _frames(result.data), strict=True):
        np.testing.assert_array_equal(after, expected(before))


@pytest.mark.parametrize("colors", [1, 2, 254, 255])
@pytest.mark.parametrize("transparent", [0.0, 0.3, 1.0])
def test_frames_of_few_colors_are_exact(colors: int, transparent: float) -> None:
    """Frames that move, appear and disappear, the first one possibly invisible."""
    rng = np.random.default_rng(colors)
    palette = np.concatenate((rng.integers(0, 256, (colors, 3)), np.full((colors, 1), 255)), axis=1).astype(np.uint8)
    palette[0] = (0, 0, 0, 255)
    frames = [palette[rng.integers(0, colors, _SIZE[::-1])] for _ in range(5)]
    for frame in frames:
        frame[rng.random(_SIZE[::-1]) < transparent] = 0
    frames[2] = frames[1]
    frames[4][:] = palette[0]

    result = convert(_gif_animation(frames), "gif")

    assert not codes(result)
    shown = _frames(result.data)
    distinct = [frame for index, frame in enumerate(frames) if not index or (frame != frames[index - 1]).any()]
    assert len(shown) == len(distinct)
    for before, after in zip(distinct, shown, strict=True):
        np.testing.assert_array_equal(after, before)


def test_a_still_of_256_colors_is_exact() -> None:
    samples = np.random.default_rng(1).integers(0, 256, (256, 3), np.uint8).reshape(16, 16, 3)

    result = convert(saved(Image.fromarray(samples), "PNG"), "gif")

    assert not codes(result)
    np.testing.assert_array_equal(_frames(result.data)[0][..., :3], samples)


def test_a_photo_is_reduced() -> None:
    result = convert(_gif_animation([np.asarray(photo(mode="RGB")), np.asarray(photo(mode="RGB"))[::-1]]), "gif")

    assert codes(result) == {"colors_reduced"}


@pytest.mark.parametrize(("alpha", "told"), [((0, 255), False), ((0, 128, 255), True), ((255, 254), True)])
@pytest.mark.parametrize("mode", ["RGBA", "LA", "P", "animation"])
def test_hard_alpha_is_told(mode: str, alpha: tuple[int, ...], told: bool) -> None:
    rgba = np.zeros((len(alpha), 8, 4), np.uint8)
    rgba[..., 3] = np.array(alpha)[:, None]
    if mode == "animation":
        second = rgba.copy()
        second[..., 0] = 9
        source = _gif_animation([rgba, second])
    elif mode == "P":
        image = Image.fromarray(np.arange(len(alpha), dtype=np.uint8)[:, None].repeat(8, 1))
        image.putpalette(bytes(range(9)))
        source = saved(image, "PNG", transparency=bytes(alpha))
    else:
        source = saved(Image.fromarray(rgba).convert(mode), "PNG")

    assert codes(convert(source, "gif")) == ({"alpha_thresholded"} if told else set())
