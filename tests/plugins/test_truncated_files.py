"""Truncated files, which are refused, and files of which only the end is missing, which are not."""

import pytest

from engine import CorruptInput
from tests.support.results.conversions import convert
from tests.support.samples.heif_files import grid


def test_tiles_that_are_missing() -> None:
    """libheif leaves them out."""
    data = grid("heic", 128, 64, copies=True)

    assert convert(data, "png").data
    for missing in (1, 40):
        with pytest.raises(CorruptInput, match="truncated"):
            convert(data[:-missing], "png")
