"""Animations with palettes: what is stored of each frame, and the colors that are shown."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageSequence

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

    result = convert(source, "gif", width=80)

    assert len(result.data) < 0.8 * len(source)
    with opened(result.data) as image:
        assert len({bytes(frame.palette.palette) for frame in ImageSequence.Iterator(image.copy())}) == 1  # type: ignore[union-attr]


def test_frames_store_the_rectangle_that_changes() -> None:
    result = convert(_animation(_moving()), "gif")

    first, *others = _boxes(result.data)
    assert first == (0, 0, 96, 64)
    assert all(top >= 8 and bottom <= 32 and right - left <= 28 for left, top, right, bottom in others)
    assert _decibels(_shown(result.data), _moving()) > 30


def test_small_differences_do_not_add_up() -> None:
    noisy = photo((64, 48))
    frames = [
        Image.fromarray(np.minimum(np.asarray(noisy, int) // 2 + step, 255).astype(np.uint8)) for step in range(40)
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

    result = convert(_animation(frames), "gif")
    shown = _shown(result.data)

    assert _decibels(shown, frames) > 34
    with opened(result.data) as image:
        assert image.global_palette is not None  # type: ignore[attr-defined]


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


def test_noise_of_all_colors_is_stored() -> None:
    noise = np.random.default_rng(1).integers(0, 256, (3, 200, 200, 3)).astype(np.uint8)

    result = convert(_animation([Image.fromarray(frame) for frame in noise]), "gif")

    assert codes(result) == {"colors_reduced"}
    assert len(_shown(result.data)) == 3
