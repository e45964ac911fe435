"""GIF keeps colors exactly where each frame adds at most 256, and tells where transparency becomes hard."""

from collections.abc import Callable, Sequence
from io import BytesIO
from typing import Any, TypeAlias

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image, ImageSequence

from tests.support.results.conversions import codes, convert
from tests.support.samples.generated import saved
from tests.support.samples.rasters import photo

_SIZE = 40, 30
_Operation: TypeAlias = tuple[dict[str, str | int], Callable[[NDArray[Any]], NDArray[Any]]]
_OPERATIONS: dict[str, _Operation] = {
    "nothing": ({}, lambda image: image),
    "rotate": ({"rotate": 90}, lambda image: np.rot90(image, -1)),
    "flip": ({"flip": "horizontal"}, lambda image: image[:, ::-1]),
    "crop": ({"crop": "3,2,20,25"}, lambda image: image[2:27, 3:23]),
}


def _frames(data: bytes) -> list[NDArray[np.uint8]]:
    """The frames in RGBA, with black for all that is transparent."""
    shown = [np.asarray(frame.convert("RGBA")) for frame in ImageSequence.Iterator(Image.open(BytesIO(data)))]
    return [np.where(frame[..., 3:] > 0, frame, 0).astype(np.uint8) for frame in shown]


def _animation(frames: Sequence[NDArray[np.uint8]]) -> bytes:
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

    result = convert(_animation(frames), "gif")

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
    result = convert(_animation([np.asarray(photo(mode="RGB")), np.asarray(photo(mode="RGB"))[::-1]]), "gif")

    assert codes(result) == {"colors_reduced"}


@pytest.mark.parametrize(("alpha", "told"), [((0, 255), False), ((0, 128, 255), True), ((255, 254), True)])
@pytest.mark.parametrize("mode", ["RGBA", "LA", "P", "animation"])
def test_hard_alpha_is_told(mode: str, alpha: tuple[int, ...], told: bool) -> None:
    rgba = np.zeros((len(alpha), 8, 4), np.uint8)
    rgba[..., 3] = np.array(alpha)[:, None]
    if mode == "animation":
        second = rgba.copy()
        second[..., 0] = 9
        source = _animation([rgba, second])
    elif mode == "P":
        image = Image.fromarray(np.arange(len(alpha), dtype=np.uint8)[:, None].repeat(8, 1))
        image.putpalette(bytes(range(9)))
        source = saved(image, "PNG", transparency=bytes(alpha))
    else:
        source = saved(Image.fromarray(rgba).convert(mode), "PNG")

    assert codes(convert(source, "gif")) == ({"alpha_thresholded"} if told else set())
