"""Truncated files, which are refused, and files of which only the end is missing, which are not."""

import numpy as np
import pytest

from engine import CorruptInput
from tests.support.results.conversions import codes, convert, opened
from tests.support.samples.generated import sample, saved
from tests.support.samples.heif_files import grid
from tests.support.samples.rasters import photo

_EOI = b"\xff\xd9"
_RANDOM = np.random.default_rng(1).bytes(9000)
# What is in the place of the end of a JPEG.
_TRAILERS = {"nothing": b"", "zeros": bytes(500), "video": sample("mp4") + _RANDOM, "camera": _RANDOM + b"SEFT"}


def test_tiles_that_are_missing() -> None:
    """libheif leaves them out."""
    data = grid("heic", 128, 64, copies=True)

    assert convert(data, "png").data
    for missing in (1, 40):
        with pytest.raises(CorruptInput, match="truncated"):
            convert(data[:-missing], "png")


@pytest.mark.parametrize("trailer", _TRAILERS)
@pytest.mark.parametrize(("mode", "progressive"), [("RGB", False), ("RGB", True), ("L", False)])
def test_a_jpeg_without_the_marker_of_its_end(mode: str, trailer: str, *, progressive: bool) -> None:
    data = saved(photo(mode=mode), "JPEG", progressive=progressive)
    image = data.removesuffix(_EOI)

    results = {target: convert(image + _TRAILERS[trailer], target) for target in ("png", "jpeg", "pdf")}

    assert [codes(result) for result in results.values()] == [{"repaired"}] * 3
    for target in ("png", "jpeg"):
        np.testing.assert_array_equal(opened(results[target].data), opened(data))
    assert image in results["pdf"].data


@pytest.mark.parametrize("progressive", [False, True])
@pytest.mark.parametrize("kept", [0.25, 0.5, 0.75, 0.9, 0.99, 0.999])
def test_a_jpeg_without_more_than_its_end(kept: float, *, progressive: bool) -> None:
    data = saved(photo(), "JPEG", progressive=progressive)

    with pytest.raises(CorruptInput):
        convert(data[: int(kept * len(data))], "png")


def test_a_jpeg_with_a_video_after_its_end() -> None:
    data = saved(photo(), "JPEG")

    assert codes(convert(data + b"\xff\xda\0\x0c" * 200, "png")) == set()
