"""Truncated files, which are refused, and files of which only the end is missing, which are not."""

import numpy as np
import pytest

from engine import CorruptInput
from tests.support.results.conversions import codes, convert, opened, run_tool
from tests.support.samples.generated import quadrants, sample, saved
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


@pytest.mark.parametrize("after", [b"", b" \0\0"])
def test_a_gif_without_an_end(after: bytes) -> None:
    frames = [quadrants((40, 30)), quadrants((40, 30)).rotate(180)]
    data = saved(frames[0], "GIF", save_all=True, append_images=frames[1:], comment="a; b")

    assert codes(convert(data + after, "webp")) == set()
    assert codes(convert(data[:-1], "webp")) == {"repaired"}
    one_frame = convert(data[: data.rindex(b"!\xf9")], "webp")
    assert (codes(one_frame), opened(one_frame.data).n_frames) == ({"repaired"}, 1)  # type: ignore[attr-defined]
    with pytest.raises(CorruptInput):
        convert(data[:-9], "webp")


def test_a_revision_of_a_pdf_without_its_index() -> None:
    """MuPDF would show the revision before."""
    data = sample("pdf")
    cut = data + b"4 0 obj\n<</Type/Page/Rotate 90"

    assert codes(convert(data + b"\njunk\n", "png")) == set()
    for run in (lambda: convert(cut, "png"), lambda: run_tool("pdf-rotate", cut, angle=90)):
        with pytest.raises(CorruptInput, match="truncated"):
            run()


@pytest.mark.parametrize("name", ["fb2", "mobi"])
@pytest.mark.parametrize("target", ["pdf", "txt"])
@pytest.mark.parametrize("missing", [1, 20, 200])
def test_a_book_without_its_end(name: str, target: str, missing: int) -> None:
    with pytest.raises(CorruptInput, match="truncated"):
        convert(sample(name)[:-missing], target)
