"""GIF and animated PNG of random rectangles: Chromium shows what is decoded, and the results like their sources."""

from collections.abc import Callable, Iterator, Sequence
from typing import TypeAlias

import numpy as np
import pytest
from numpy.typing import NDArray
from playwright.sync_api import Page

from engine.registry import load_registry
from tests.support.browser import decoded_frames, running_browser
from tests.support.results.conversions import convert
from tests.support.samples.animations import random_apng, random_gif

pytestmark = pytest.mark.long

_REGISTRY = load_registry()
_FILES = [
    (make, media_type, seed) for make, media_type in ((random_gif, "gif"), (random_apng, "png")) for seed in range(100)
]
_Shown: TypeAlias = Sequence[tuple[float, NDArray[np.uint8]]]


@pytest.fixture(scope="module")
def page() -> Iterator[Page]:
    with running_browser() as browser:
        page = browser.new_page()
        page.route("**/*", lambda route: route.fulfill(body="<p>", content_type="text/html"))
        page.goto("http://localhost/")  # only such pages have decoders
        yield page


@pytest.mark.parametrize(("make", "name", "seed"), _FILES)
def test_frames_are_those_of_chromium(page: Page, make: Callable[[int], bytes], name: str, seed: int) -> None:
    data = make(seed)
    plays, expected = decoded_frames(page, data, f"image/{name}")

    raster = _REGISTRY.plan([_REGISTRY.identify_content(data)], "bmp").conversions[0](data)

    assert raster.loop_count == plays
    _assert_same([(frame.duration, np.asarray(frame.image.convert("RGBA"))) for frame in raster.frames], expected)


@pytest.mark.parametrize(("make", "name", "seed"), _FILES[::5])
@pytest.mark.parametrize("target", ["gif", "png", "webp"])
def test_results_are_shown_like_their_sources(
    page: Page, make: Callable[[int], bytes], name: str, seed: int, target: str
) -> None:
    if target == "gif" and name == "png":
        pytest.skip("a GIF has no half transparent pixels")
    data = make(seed)
    result = convert(data, target, **({"lossless": True} if target == "webp" else {})).data

    plays, expected = decoded_frames(page, data, f"image/{name}")
    plays_of_result, shown = decoded_frames(page, result, f"image/{target}")

    assert plays_of_result == plays
    _assert_same(_merged(shown), _merged(expected))


def _assert_same(shown: _Shown, expected: _Shown) -> None:
    """Durations may differ by a millisecond, and samples by 2, as colors are multiplied with alpha."""
    assert len(shown) == len(expected)
    for (duration, pixels), (expected_duration, expected_pixels) in zip(shown, expected, strict=True):
        assert duration == pytest.approx(expected_duration, abs=1.01)
        np.testing.assert_allclose(_multiplied(pixels), _multiplied(expected_pixels), atol=2)


def _multiplied(pixels: NDArray[np.uint8]) -> NDArray[np.float64]:
    return np.dstack((pixels[..., :3] * (pixels[..., 3:] / 255), pixels[..., 3]))


def _merged(frames: _Shown) -> _Shown:
    """Frames that show the same after each other as one, as encoders write them."""
    merged: list[tuple[float, NDArray[np.uint8]]] = []
    for duration, pixels in frames:
        if merged and np.array_equal(_multiplied(merged[-1][1]).round(), _multiplied(pixels).round()):
            merged[-1] = (merged[-1][0] + duration, pixels)
        else:
            merged.append((duration, pixels))
    return merged
