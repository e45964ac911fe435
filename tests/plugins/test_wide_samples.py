"""Floats, and integers of more than 16 bits, in TIFF."""

from io import BytesIO
from typing import Any

import numpy as np
import pytest
import tifffile
from numpy.typing import NDArray

from tests.support.results.conversions import codes, convert
from tests.support.samples.rasters import photo

_RGB: NDArray[np.uint8] = np.asarray(photo((96, 64)))
_GRAY: NDArray[np.uint8] = np.asarray(photo((96, 64)).convert("L"))


def _written(array: NDArray[Any], **parameters: Any) -> bytes:
    file = BytesIO()
    tifffile.imwrite(file, array, metadata=None, **parameters)
    return file.getvalue()


_EXACT: dict[str, NDArray[Any]] = {
    "floats of 8 bits": _RGB / np.float32(255),
    "floats of 16 bits": (_RGB.astype(np.uint16) * 200) / np.float64(65535),
    "32 bits that fit 16": _RGB.astype(np.uint32) * 200,
    "32 bits with zeros": (_RGB.astype(np.uint32) * 200) << 16,
    "32 bits of repeated 16": _RGB.astype(np.uint32) * 200 * 65537,
    "negative integers of 32 bits": _GRAY.astype(np.int32) * 200 - 20_000,
    "negative integers of 16 bits": _GRAY.astype(np.int16) * 200 - 20_000,
}
_INEXACT: dict[str, NDArray[Any]] = {
    "floats": _RGB / np.float32(254.3),
    "half floats": (_RGB / 254.3).astype(np.float16),
    "floats above 1": _RGB.astype(np.float32) ** 1.3,
    "not a number": np.where(_RGB > 200, np.nan, _RGB / np.float32(255)).astype(np.float32),
    "32 bits": _RGB.astype(np.uint32) * 12_345_678,
    "negative integers of 32 bits": _GRAY.astype(np.int32) * 20_000 - 9,
}


@pytest.mark.parametrize("target", ["png", "tiff", "psd"])
def test_a_loss_of_more_than_sixteen_bits_is_told(target: str) -> None:
    for samples, expected in ((_EXACT, set()), (_INEXACT, {"depth_reduced"})):
        for name, array in samples.items():
            data = _written(array, photometric="rgb" if array.ndim == 3 else "minisblack")
            assert codes(convert(data, target)) == expected, name


def test_a_loss_of_floats_in_lab_is_told() -> None:
    data = _written(_RGB / np.float32(3), photometric="cielab")

    assert codes(convert(data, "png")) == {"color_converted", "depth_reduced"}


def test_integers_of_32_bits_that_fit_16_are_those() -> None:
    data = _written(_EXACT["32 bits that fit 16"], photometric="rgb")

    seen = tifffile.imread(BytesIO(convert(data, "tiff").data))

    np.testing.assert_array_equal(seen, _RGB.astype(np.uint16) * 200)


@pytest.mark.parametrize("target", ["jpeg", "webp", "avif", "bmp"])
def test_a_loss_of_more_than_eight_bits_is_told(target: str) -> None:
    for array in (*_EXACT.values(), *_INEXACT.values()):
        data = _written(array, photometric="rgb" if array.ndim == 3 else "minisblack")
        assert codes(convert(data, target)) == {"depth_reduced"}
