"""Colors that AVIF and HEIC describe by code points, without a profile. For AVIF, as Chromium shows them."""

import struct
from collections.abc import Callable
from io import BytesIO
from itertools import product
from typing import TypeAlias

import imagecodecs
import numpy as np
import pillow_heif
import pytest
import pyvips
from numpy.typing import NDArray
from PIL import Image, ImageCms

from engine.registry import load_registry
from tests.support.browser import Screenshots
from tests.support.results.conversions import codes, convert
from tests.support.samples.generated import saved
from tests.support.samples.heif_files import edited, with_property
from tests.support.samples.profiles import srgb_profile
from tests.support.samples.rasters import photo

CodePoints: TypeAlias = tuple[int, int, int]
"""Primaries, transfer and matrix."""

_REGISTRY = load_registry()
_SRGB, _P3, _PQ, _HLG = (1, 13, 6), (12, 13, 6), (9, 16, 9), (9, 18, 9)
_HDR = (_PQ, _HLG, (12, 16, 6))
_OTHERS: dict[str, CodePoints] = {
    "Display P3": _P3,
    "Display P3 without transfer": (12, 2, 6),
    "Display P3 with the transfer of video": (12, 1, 6),
    "BT.2020 of 10 bits": (9, 14, 9),
    "BT.2020 of 12 bits": (9, 15, 9),
    "BT.2020 with sRGB": (9, 13, 9),
    "BT.709": (1, 1, 1),
    "BT.601": (6, 6, 6),
    "DCI P3": (11, 17, 6),
    "BT.470 M": (4, 4, 6),
    "gamma 2.8": (1, 5, 6),
    "SMPTE 240M": (7, 7, 7),
    "linear": (1, 8, 6),
    "unspecified": (2, 2, 6),
    "unknown": (3, 13, 6),
}
_COLORS = {"sRGB": _SRGB, "PQ": _PQ, "PQ of Display P3": (12, 16, 6), "HLG": _HLG, **_OTHERS}


def _avif(points: CodePoints, bits: int = 8, mode: str = "RGB") -> bytes:
    array = np.asarray(photo((120, 80), mode))
    samples = array if bits == 8 else array.astype(np.uint16) << (bits - 8)
    primaries, transfer, matrix = points
    encodable = 2 if primaries == 3 else primaries  # imagecodecs refuses what the standard reserves
    encoded = imagecodecs.avif_encode(
        samples,
        95,
        speed=8,
        bitspersample=bits,
        pixelformat="yuv444",
        primaries=encodable,
        transfer=transfer,
        matrix=matrix,
    )
    return bytes(encoded).replace(struct.pack(">4sH", b"nclx", encodable), struct.pack(">4sH", b"nclx", primaries))


def _heic(points: CodePoints, bits: int = 8) -> bytes:
    primaries, transfer, matrix = points
    names = {"color_primaries": primaries, "transfer_characteristics": transfer, "matrix_coefficients": matrix}
    image = photo((120, 80))
    if bits == 8:
        source = pillow_heif.from_pillow(image)
    else:
        deep = np.asarray(image).astype(np.uint16) * 257
        source = pillow_heif.from_bytes("RGB;16", image.size, deep.tobytes())
    file = BytesIO()
    source.save(file, quality=95, chroma=444, **names)
    return file.getvalue()


def _convert(data: bytes, target: str) -> tuple[bytes, set[str]]:
    result = convert(data, target)
    return result.data, codes(result)


def _difference(one: NDArray[np.int64], other: NDArray[np.int64]) -> float:
    """The mean of CIEDE2000."""
    images = (pyvips.Image.new_from_array(array.astype(np.uint8), interpretation="srgb") for array in (one, other))
    first, second = (image.colourspace("lab") for image in images)
    return float(first.dE00(second).avg())


@pytest.mark.parametrize("bits", [pytest.param(8, marks=pytest.mark.long), 10])
def test_colors_are_those_of_a_browser(screenshots: Screenshots, bits: int) -> None:
    files = []
    for name, points in _COLORS.items():
        data = _avif(points, bits)
        (bmp, codes), (png, _) = (_convert(data, target) for target in ("bmp", "png"))
        assert ("hdr_reduced" in codes) is (points in _HDR), name
        files += [data, bmp, png]

    shown = screenshots(*files)

    for name, expected, *seen in zip(_COLORS, shown[::3], shown[1::3], shown[2::3], strict=True):
        for image in seen:
            assert _difference(image, expected) < 0.5, name


def test_grey_and_transparent_images(screenshots: Screenshots) -> None:
    cases = list(product((_P3, (1, 5, 6), (1, 16, 6)), ("L", "RGBA")))
    originals = [_avif(points, 10, mode) for points, mode in cases]

    shown = screenshots(*originals, *(_convert(data, "png")[0] for data in originals))

    for case, expected, seen in zip(cases, shown[: len(cases)], shown[len(cases) :], strict=True):
        assert _difference(seen, expected) < 1, case


def test_the_light_level_of_hdr_counts(screenshots: Screenshots) -> None:
    plain = _avif(_PQ, 10)
    data = edited(plain, with_property(b"clli", struct.pack(">HH", 4000, 400)))
    png = _convert(data, "png")[0]

    expected, seen = screenshots(data, png)

    assert _difference(seen, expected) < 0.5
    assert png != _convert(plain, "png")[0]


@pytest.mark.parametrize("bits", [8, 10])
@pytest.mark.parametrize("points", [_SRGB, _P3, _PQ, _HLG, (9, 14, 9)])
def test_heic_has_the_colors_of_avif(bits: int, points: CodePoints) -> None:
    (heic, codes), (avif, others) = (_convert(make(points, bits), "bmp") for make in (_heic, _avif))

    images = [np.asarray(Image.open(BytesIO(data)).convert("RGB"), np.int64) for data in (heic, avif)]
    assert _difference(*images) < 2
    assert codes == others


@pytest.mark.parametrize("make", [_avif, _heic])
@pytest.mark.parametrize("bits", [pytest.param(8, marks=pytest.mark.long), 10])
def test_wide_colors_are_kept_where_the_target_holds_a_profile(make: Callable[..., bytes], bits: int) -> None:
    for target in ("jpeg", "png", "webp", "avif", "heic", "tiff"):
        with Image.open(BytesIO(_convert(make(_P3, bits), target)[0])) as image:
            space = ImageCms.ImageCmsProfile(BytesIO(image.info["icc_profile"])).profile
        assert space.red_colorant
        assert space.red_colorant[0] == pytest.approx((0.51512, 0.24120, -0.00105), abs=0.001)


def test_an_animation_has_the_colors_of_its_primary_image(screenshots: Screenshots) -> None:
    frames = np.stack([np.asarray(photo((120, 80))), np.asarray(photo((120, 80)).rotate(180))])
    data = bytes(
        imagecodecs.avif_encode(frames, 95, speed=8, pixelformat="yuv444", primaries=12, transfer=13, matrix=6)
    )
    still = _avif(_P3)

    expected, seen = screenshots(still, _convert(data, "bmp")[0])

    assert _difference(seen, expected) < 1


def test_a_profile_precedes_code_points() -> None:
    profile = srgb_profile()
    data = edited(_avif(_PQ), with_property(b"colr", b"prof" + profile))

    png, codes = _convert(data, "png")

    assert Image.open(BytesIO(png)).info["icc_profile"] == profile
    assert not codes


def test_a_description_of_srgb_adds_no_profile() -> None:
    for data in (saved(photo(), "AVIF"), _avif((1, 1, 1)), _heic(_SRGB)):
        assert "icc_profile" not in Image.open(BytesIO(_convert(data, "png")[0])).info
