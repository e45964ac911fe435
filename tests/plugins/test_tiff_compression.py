"""Compression of TIFF files that conversions write."""

from io import BytesIO
from pathlib import Path

import numpy as np
import pytest
import pyvips
import tifffile
from numpy.typing import NDArray
from PIL import Image

from engine import pipeline
from engine.registry import load_registry
from tests.support.results.conversions import convert
from tests.support.samples.generated import saved
from tests.support.samples.rasters import photo

_REGISTRY = load_registry()


def _bilevel() -> Image.Image:
    """Black text-like strokes on white."""
    image = Image.new("1", (400, 300), 1)
    for row in range(10, 290, 14):
        image.paste(0, (20, row, 380 - row // 2, row + 2))
    return image


def _packed(pixels: NDArray[np.bool_]) -> bytes:
    file = BytesIO()
    tifffile.imwrite(file, pixels, photometric="minisblack", compression="packbits")
    return file.getvalue()


def _first_page(data: bytes) -> tuple[str, int, NDArray[np.bool_]]:
    """Compression, bits and pixels, where True is white."""
    with tifffile.TiffFile(BytesIO(data)) as file:
        page = file.pages.first
        is_white = page.photometric == tifffile.PHOTOMETRIC.MINISBLACK
        return tifffile.COMPRESSION(page.compression).name, int(page.bitspersample), page.asarray() == is_white


@pytest.mark.parametrize("source", ["png", "tiff_g4", "tiff_lsb", "tiff_min_is_black"])
def test_1_bit_stays_1_bit_by_group_4(source: str, tmp_path: Path) -> None:
    image = _bilevel()
    pixels = np.asarray(image)
    data = {
        "png": lambda: saved(image, "PNG"),
        "tiff_g4": lambda: saved(image, "TIFF", compression="group4"),
        "tiff_lsb": lambda: saved(image, "TIFF", compression="group4", tiffinfo={266: 2}),
        "tiff_min_is_black": lambda: _packed(pixels),
    }[source]()
    fmt = _REGISTRY.identify_content(data)

    result = bytes(pipeline.run(_REGISTRY.plan([fmt], "tiff"), [data], {}).data)

    compression, bits, seen = _first_page(result)
    assert (compression, bits) == ("CCITTFAX4", 1)
    np.testing.assert_array_equal(seen, pixels)
    np.testing.assert_array_equal(np.asarray(Image.open(BytesIO(result))), pixels)
    np.testing.assert_array_equal(pyvips.Image.new_from_buffer(result, "").numpy() > 0, pixels)
    assert source != "tiff_g4" or len(result) <= len(data)


def test_dithered_pixels_are_deflated() -> None:
    dithered = photo((200, 200)).convert("1")

    result = convert(saved(dithered, "TIFF"), "tiff").data

    compression, bits, seen = _first_page(result)
    assert (compression, bits) == ("ADOBE_DEFLATE", 1)
    np.testing.assert_array_equal(seen, np.asarray(dithered))


@pytest.mark.parametrize(("compression", "name"), [("none", "NONE"), ("lzw", "LZW"), ("deflate", "ADOBE_DEFLATE")])
def test_a_requested_compression_is_that_of_1_bit_too(compression: str, name: str) -> None:
    result = convert(saved(_bilevel(), "TIFF", compression="group4"), "tiff", compression=compression).data

    seen_name, bits, seen = _first_page(result)
    assert (seen_name, bits) == (name, 1)
    np.testing.assert_array_equal(seen, np.asarray(_bilevel()))


@pytest.mark.parametrize("compression", ["lzw", "deflate"])
def test_photos_are_predicted_and_drawings_are_not(compression: str) -> None:
    drawing = Image.new("RGB", (400, 300), "white")
    drawing.paste((200, 0, 0), (40, 40, 360, 90))
    smooth = Image.fromarray(np.tile(np.arange(400, dtype=np.uint8), (300, 1))).convert("RGB")

    def predictor(image: Image.Image) -> int:
        with tifffile.TiffFile(BytesIO(convert(saved(image, "TIFF"), "tiff", compression=compression).data)) as file:
            np.testing.assert_array_equal(file.asarray(), np.asarray(image))
            return int(file.pages.first.predictor)

    assert (predictor(smooth), predictor(drawing)) == (2, 1)
