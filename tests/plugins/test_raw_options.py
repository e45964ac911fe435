"""Options of camera RAW: exposure, white balance and half the size."""

from io import BytesIO
from itertools import pairwise

import numpy as np
import pytest
import tifffile
from numpy.typing import NDArray

from engine import RASTER, InvalidOption, pipeline
from engine.registry import load_registry
from tests.support.results.conversions import codes, convert
from tests.support.samples.generated import sample
from tests.support.samples.raw_samples import raw_sample

_REGISTRY = load_registry()


def _developed(name: str = "dng", **options: str | float | bool) -> NDArray[np.float64]:
    """The image with 16 bits, as numbers from 0 to 1."""
    return np.asarray(tifffile.imread(BytesIO(convert(sample(name), "tiff", **options).data))) / 65535


def _gray(image: NDArray[np.float64]) -> NDArray[np.float64]:
    """The color of the gray quadrant."""
    height, width = image.shape[0] // 8, image.shape[1] // 8
    return np.asarray(image[5 * height : 7 * height, 5 * width : 7 * width].mean(axis=(0, 1)))


def _linear(encoded: NDArray[np.float64]) -> float:
    return float(((encoded + 0.099) / 1.099).mean() ** (1 / 0.45))


@pytest.mark.parametrize("name", ["dng", "arw"])
@pytest.mark.parametrize("stops", [-2.0, -0.5, 0.25])
def test_a_stop_is_a_factor_of_two(name: str, stops: float) -> None:
    normal, changed = _developed(name), _developed(name, exposure=stops)

    assert _linear(_gray(changed)) / _linear(_gray(normal)) == pytest.approx(2**stops, rel=0.05)


def test_ten_stops_are_white_and_black() -> None:
    assert _gray(_developed(exposure=10)).min() == 1
    assert _gray(_developed(exposure=-10)).max() < 0.02


def test_warmer_light_is_made_bluer() -> None:
    ratios = []
    for temperature in (2000, 3000, 4000, 4001, 5500, 8000, 12000):
        red, _, blue = _gray(_developed(white_balance=str(temperature)))
        ratios.append(blue / red)

    assert all(warmer > colder for warmer, colder in pairwise(ratios))
    assert ratios[0] > 1.5
    assert ratios[-1] < 0.85


@pytest.mark.parametrize("name", ["dng", "3fr"])
def test_gray_in_daylight_is_gray(name: str) -> None:
    if name == "dng":
        gray = _gray(_developed(white_balance="6500"))
        assert gray.max() - gray.min() < 0.03
    cold, warm = (_gray(_developed(name, white_balance=value)) for value in ("4000", "9000"))
    assert cold[2] / cold[0] > warm[2] / warm[0]


def test_automatic_white_balance_is_that_of_a_gray_world() -> None:
    found = {value: _developed(white_balance=value).mean(axis=(0, 1)) for value in ("auto", "2500")}

    assert np.ptp(found["auto"]) < 0.1 < np.ptp(found["2500"])


@pytest.mark.parametrize("value", ["1999", "12001", "warm", "5500.5", ""])
def test_other_white_balances_are_refused(value: str) -> None:
    with pytest.raises(InvalidOption, match="white_balance"):
        _REGISTRY.validate({"white_balance": value})


@pytest.mark.parametrize("name", ["dng", "cr3", "raf", "mrw"])
def test_half_the_size_is_the_same_image(name: str) -> None:
    data = raw_sample(name, orientation=6)
    step = _REGISTRY.path(_REGISTRY.formats[name], RASTER)
    raster = pipeline.open_file(step, data, {"half_size": True})

    full, half = _developed(name), _developed(name, half_size=True)

    assert raster.sizes == [(60, 84)] == [next(iter(raster.frames)).size]
    assert half.shape == (60, 84, 3)
    assert _gray(half) == pytest.approx(_gray(full), abs=0.03)


def test_options_have_no_effect_on_previews() -> None:
    result = convert(sample("arw"), "jpeg", raw_mode="preview", exposure=1.0)

    assert codes(result) == {"option_ignored"}
