"""Images of a few pixels: every raster target writes every size, mode and depth, and its reader opens the result."""

import warnings
from collections.abc import Iterator

import numpy as np
import pytest
from PIL import Image

from engine import DeepPixels, Size
from engine.conversions import EncodedFile
from engine.media import RASTER
from engine.registry import load_registry
from engine.verification import verify
from tests.support.samples.pairs import every
from tests.support.samples.rasters import raster_of

_REGISTRY = load_registry()
_TARGETS = [target.name for target in _REGISTRY.targets(RASTER)]
_SLOW = ("avif", "heic", "mp4", "webm")
_MODES = {"1": 1, "L": 1, "LA": 2, "P": 1, "PA": 1, "RGB": 3, "RGBA": 4, "CMYK": 4}
_DEEP_MODES = ("L", "LA", "RGB", "RGBA", "CMYK")
_OPTIONS: tuple[dict[str, str | bool], ...] = (
    {},
    {"lossless": True},
    {"progressive": True},
    {"compression": "lzw"},
    {"compression": "jpeg"},
)


def _images(size: Size, rng: np.random.Generator) -> Iterator[Image.Image | DeepPixels]:
    """Noise and a plain image of each mode and depth."""
    for mode, bands in _MODES.items():
        shape = size[::-1] if bands == 1 else (*size[::-1], bands)
        for samples in (rng.integers(0, 65_536, shape, np.uint16), np.full(shape, 30_000, np.uint16)):
            yield _image((samples >> 8).astype(np.uint8), mode, rng)
            if mode in _DEEP_MODES:
                yield DeepPixels(samples, mode)


def _image(samples: np.ndarray, mode: str, rng: np.random.Generator) -> Image.Image:
    if mode == "1":
        return Image.fromarray(samples).convert("1")
    image = Image.fromarray(samples, mode[0] if mode in ("P", "PA") else mode)
    if mode in ("P", "PA"):
        image.putpalette(rng.bytes(768))
    if mode == "PA":
        image.info["transparency"] = rng.bytes(256)
    return image


def _sizes(rng: np.random.Generator, squares: int, lines: int) -> list[Size]:
    """Some sizes up to 9 x 9, and lines of one to seven pixels."""
    small = [(int(width), int(height)) for width, height in rng.integers(1, 10, (squares, 2))]
    thin = [(int(rng.choice((1, 2, 3, 5, 7))), int(length)) for length in rng.integers(10, 301, lines)]
    return [(1, 1), (1, 106), *small, *thin, *((length, width) for width, length in thin)]


@pytest.mark.parametrize("target", every(2, _TARGETS))
def test_small_images_of_all_modes_are_written(target: str, request: pytest.FixtureRequest) -> None:
    everything = request.config.getoption("long")
    many = everything and target not in _SLOW
    rng = np.random.default_rng(1)
    plan = _REGISTRY.plan([_REGISTRY.formats["webp"]], target)
    encoder = plan.steps[plan.encoder_position]
    options = [given for given in _OPTIONS if given.keys() <= encoder.options.keys()]

    for turn, size in enumerate(_sizes(rng, *((8, 4) if many else (1, 1)))):
        images = [*_images(size, rng)]
        for image in images if everything else images[turn % 2 :: 2]:
            raster = raster_of(image)
            given = options[int(rng.integers(len(options)))]
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                verify(_REGISTRY, plan, EncodedFile(encoder(raster, given), raster))
