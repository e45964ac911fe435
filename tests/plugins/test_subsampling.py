"""The resolution of colors in JPEG, AVIF and HEIC, and the quality of transparency in WebP."""

from io import BytesIO

import numpy as np
import pillow_heif
import pytest
from PIL import Image, JpegImagePlugin

from tests.support.results.conversions import codes, convert, opened
from tests.support.samples.generated import saved
from tests.support.samples.rasters import photo

_STRIPES = Image.fromarray(np.tile(np.array([[[200, 0, 0], [0, 0, 200]]], np.uint8), (64, 32, 1)))


def _sampling(target: str, data: bytes) -> str:
    if target == "jpeg":
        return ("4:4:4", "4:2:2", "4:2:0")[JpegImagePlugin.get_sampling(Image.open(BytesIO(data)))]
    chroma = str(pillow_heif.open_heif(BytesIO(data)).info["chroma"])
    return ":".join(chroma)


@pytest.mark.parametrize("target", ["jpeg", "avif", "heic"])
@pytest.mark.parametrize("deep", [False, True])
def test_colors_have_the_resolution_that_is_asked_for(target: str, deep: bool) -> None:
    depth = {"bit_depth": 10} if deep and target != "jpeg" else {}
    data = saved(_STRIPES, "PNG")
    errors = {}
    for sampling in ("4:2:0", "4:2:2", "4:4:4"):
        result = convert(data, target, subsampling=sampling, quality=80, **depth)
        assert _sampling(target, result.data) == sampling
        assert not codes(result)
        seen = opened(convert(result.data, "png", bit_depth=8).data).convert("RGB")
        errors[sampling] = np.abs(np.asarray(seen, float) - np.asarray(_STRIPES, float)).mean()
    assert errors["4:4:4"] < errors["4:2:2"] / 2  # the stripes are one pixel wide
    assert _sampling(target, convert(data, target, quality=80, **depth).data) == "4:2:0"


@pytest.mark.parametrize("target", ["avif", "heic"])
def test_without_loss_colors_have_the_full_resolution(target: str) -> None:
    result = convert(saved(_STRIPES, "PNG"), target, lossless=True, subsampling="4:2:2")

    assert codes(result) == {"option_ignored"}
    assert _sampling(target, result.data) == "4:4:4"


def test_animations_have_the_resolution_that_is_asked_for() -> None:
    frames = [photo((64, 64)), photo((64, 64)).transpose(Image.Transpose.ROTATE_180)]
    data = saved(frames[0], "GIF", save_all=True, append_images=frames[1:], duration=50)

    small, large = (convert(data, "avif", subsampling=sampling).data for sampling in ("4:2:0", "4:4:4"))

    assert small != large
    assert Image.open(BytesIO(large)).n_frames == 2  # type: ignore[attr-defined]


def test_the_quality_of_transparency() -> None:
    image = photo((240, 160), "RGBA")
    noise = np.random.default_rng(1).integers(0, 255, (160, 240), np.uint8)
    image.putalpha(Image.fromarray(noise))
    data = saved(image, "PNG")

    exact, reduced = (convert(data, "webp", alpha_quality=quality) for quality in (100, 10))

    alphas = [np.asarray(opened(one.data))[..., 3].astype(int) for one in (exact, reduced)]
    np.testing.assert_array_equal(alphas[0], noise)
    assert 1 < np.abs(alphas[1] - noise).mean() < 64
    assert len(reduced.data) < len(exact.data)
    assert codes(convert(data, "webp", lossless=True, alpha_quality=10)) == {"option_ignored"}
