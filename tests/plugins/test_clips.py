"""Clips as animations and images, and animations as clips: times, sizes, colors, and the limits."""

from collections.abc import Sequence
from fractions import Fraction
from io import BytesIO
from typing import Any

import numpy as np
import pytest
from PIL import Image, ImageDraw, ImageSequence

from engine import CorruptInput, TooLarge, pipeline
from engine.registry import load_registry
from engine.verification import verify
from plugins.formats.clips import PYAV
from tests.support.results.conversions import codes, convert, opened
from tests.support.samples.clips import clip
from tests.support.samples.generated import COLORS, quadrants, saved

pytestmark = pytest.mark.skipif(not PYAV.present, reason="PyAV is not installed")

_REGISTRY = load_registry()
_TIMES = (100, 200, 100, 300)  # milliseconds
_SIZE = (96, 64)
_BACKGROUND, _MARK = (40, 60, 210), (220, 30, 40)
_IDENTITY = np.array([1, 0, 0, 1]).astype(">i4") << 16


def _images(size: tuple[int, int] = _SIZE) -> list[Image.Image]:
    """As many as times; in each, a mark is further right."""
    images = [Image.new("RGB", size, _BACKGROUND) for _ in _TIMES]
    for number, image in enumerate(images):
        ImageDraw.Draw(image).rectangle((number * 20 + 4, 16, number * 20 + 19, 47), fill=_MARK)
    return images


def _gif(size: tuple[int, int] = _SIZE) -> bytes:
    first, *others = _images(size)
    return saved(first, "GIF", save_all=True, append_images=others, duration=_TIMES, loop=0)


def _of(count: int, size: tuple[int, int] = _SIZE, **parameters: Any) -> bytes:
    """A clip of the quadrants, two of four times upside down."""
    upright = quadrants(size)
    turned = upright.transpose(Image.Transpose.FLIP_TOP_BOTTOM)
    return clip(*[turned if number % 4 >= 2 else upright for number in range(count)], **parameters)


def _turned(clip: bytes, matrix: Sequence[int]) -> bytes:
    """The clip, to be shown turned by a matrix (a, b, c, d) in the header of its track."""
    old, new = (
        b"".join(int(value).to_bytes(4, "big", signed=True) for value in (*pair[:2], 0, *pair[2:], 0))
        for pair in (_IDENTITY.tolist(), [one << 16 for one in matrix])
    )
    position = clip.index(b"tkhd")
    return clip[:position] + clip[position:].replace(old, new, 1)


def _durations(data: bytes) -> list[float]:
    with Image.open(BytesIO(data)) as image:
        return [frame.copy().info["duration"] for frame in ImageSequence.Iterator(image)]


def _quadrant_colors(image: Image.Image) -> list[tuple[int, ...]]:
    points = [(x * image.width // 4, y * image.height // 4) for y in (1, 3) for x in (1, 3)]
    return [tuple(np.asarray(image.convert("RGB"))[y, x].tolist()) for x, y in points]


@pytest.mark.parametrize("clip", ["mp4", "webm"])
def test_an_animation_keeps_its_times_and_colors_in_a_clip_and_back(clip: str) -> None:
    plan = _REGISTRY.plan([_REGISTRY.formats["gif"]], clip)
    written = pipeline.run(plan, [_gif()])
    found = verify(_REGISTRY, plan, written.file)
    back = convert(written.data, "png")

    assert (found.count, found.size) == (4, _SIZE)
    assert codes(written) == codes(back) == set()
    assert _durations(back.data) == list(_TIMES)
    with Image.open(BytesIO(back.data)) as image:
        for shown, expected in zip(ImageSequence.Iterator(image), _images(), strict=True):
            assert np.abs(np.asarray(shown.convert("RGB"), int) - np.asarray(expected, int)).mean() < 3


def test_frames_without_duration_are_shown_in_clips_as_in_browsers() -> None:
    first, *others = _images()
    still = saved(first, "GIF", save_all=True, append_images=others, duration=[0, 50, 0, 80])

    assert _durations(convert(convert(still, "mp4").data, "png").data) == pytest.approx([100, 50, 100, 80])


@pytest.mark.parametrize(("at", "frame"), [(0, 0), (0.09, 0), (0.1, 1), (0.35, 2), (0.4, 3), (60, 3)])
def test_a_frame_is_chosen_by_its_time(at: float, frame: int) -> None:
    result = convert(convert(_gif(), "mp4").data, "png", at=at)

    image = opened(result.data).convert("RGB")
    pixel = image.getpixel((frame * 20 + 11, 32))
    assert isinstance(pixel, tuple)
    assert pixel[0] > 180
    assert codes(result) == set()


def test_frames_are_chosen_by_number() -> None:
    result = convert(convert(_gif(), "mp4").data, "gif", pages="2,4")

    with Image.open(BytesIO(result.data)) as image:
        marks = [np.asarray(one.convert("RGB"))[32, :, 0].argmax() for one in ImageSequence.Iterator(image)]
    assert marks == [pytest.approx(number * 20 + 4, abs=5) for number in (1, 3)]
    assert _durations(result.data) == [_TIMES[1], _TIMES[3]]


def test_a_clip_has_upright_images_with_square_pixels() -> None:
    """A quarter turn clockwise, as phones store clips in portrait; and pixels that are twice as wide as high."""
    plain = opened(convert(_of(1), "png").data)
    turned = opened(convert(_turned(_of(1), (0, 1, -1, 0)), "png").data)
    wide = opened(convert(_of(1, ratio=Fraction(2, 1)), "png").data)

    assert [plain.size, turned.size, wide.size] == [_SIZE, _SIZE[::-1], (_SIZE[0] * 2, _SIZE[1])]
    assert _quadrant_colors(plain) == [pytest.approx(color, abs=8) for color in COLORS]
    assert _quadrant_colors(wide) == [pytest.approx(color, abs=8) for color in COLORS]
    assert _quadrant_colors(turned) == [pytest.approx(COLORS[index], abs=8) for index in (2, 0, 3, 1)]


@pytest.mark.parametrize(
    ("muxer", "codec", "samples"),
    [
        ("webm", "libvpx-vp9", "yuva420p"),
        ("webm", "libvpx", "yuva420p"),
        ("mov", "prores_ks", "yuva444p10le"),
        ("mov", "qtrle", "argb"),
        ("mov", "png", "rgba"),
    ],
)
def test_transparency_of_clips_is_kept(muxer: str, codec: str, samples: str) -> None:
    image = Image.new("RGBA", (64, 48), (0, 0, 255, 255))
    image.paste((255, 0, 0, 0), (0, 24, 64, 48))
    data = clip(image, image, image, muxer=muxer, codec=codec, samples=samples)

    for target in ("png", "webp"):
        found = opened(convert(data, target).data)
        assert found.has_transparency_data
        pixels = np.asarray(found.convert("RGBA"), int)
        assert pixels[40, 10, 3] < 8
        np.testing.assert_allclose(pixels[5, 10], (0, 0, 255, 255), atol=12)
    assert codes(convert(data, "jpeg")) == {"alpha_flattened", "frames_dropped"}


def test_sides_of_odd_length_stay() -> None:
    for target in ("mp4", "webm"):
        assert opened(convert(convert(_gif((95, 61)), target).data, "png").data).size == (95, 61)


def test_sound_is_dropped_and_told() -> None:
    assert codes(convert(_of(4, sound=True), "gif")) == {"sound_dropped"}


def test_a_long_clip_has_as_many_frames_as_an_animation_can_have() -> None:
    result = convert(_of(600, (16, 16), rate=30), "webp")

    assert codes(result) == {"timing_rounded"}
    assert sum(_durations(result.data)) == pytest.approx(20_000, abs=50)


@pytest.mark.parametrize(
    ("clip", "details"),
    [
        ({"count": 62, "rate": 1}, {"max_seconds": 60, "seconds": 62.0}),
        ({"count": 1, "size": (1922, 16)}, {"max_side": 1920, "side": 1922}),
        ({"count": 1, "size": (1000, 16), "ratio": Fraction(2, 1)}, {"max_side": 1920, "side": 2000}),
    ],
)
def test_longer_and_larger_clips_are_refused(clip: dict[str, Any], details: dict[str, float]) -> None:
    with pytest.raises(TooLarge) as raised:
        convert(_of(**clip), "gif")

    assert raised.value.details == details


@pytest.mark.parametrize("clip", ["mp4", "webm"])
def test_half_a_clip_is_refused(clip: str) -> None:
    data = convert(_gif(), clip).data

    with pytest.raises(CorruptInput, match="truncated"):
        convert(data[: len(data) // 2], "gif")


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"\0\0\0\x14ftypqt  \0\0\0\0qt  ", "mov"),
        (b"\0\0\0\x14ftypisom\0\0\0\0isom", "mp4"),
        (b"\x1a\x45\xdf\xa3\x8b\x42\x82\x84webm", "webm"),
    ],
)
def test_the_content_tells_the_container(data: bytes, expected: str) -> None:
    assert _REGISTRY.identify_content(data).name == expected


@pytest.mark.parametrize("data", [b"\0\0\0\x14ftypM4A \0\0\0\0isom", b"\x1a\x45\xdf\xa3\x93\x42\x82\x88matroska"])
def test_sound_and_other_containers_are_no_clips(data: bytes) -> None:
    assert [fmt.name for fmt in _REGISTRY.formats.values() if fmt.sniff(data)] == []
