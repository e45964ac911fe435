"""PQ and HLG: kept by AVIF, HEIC and PNG, reduced to sRGB for other targets."""

import struct
import zlib
from io import BytesIO
from itertools import product
from typing import Any, TypeAlias

import imagecodecs
import numpy as np
import pillow_heif
import pytest
from numpy.typing import NDArray
from PIL import Image

from tests.support.browser import Screenshots
from tests.support.results.conversions import codes, convert, opened
from tests.support.samples.generated import saved
from tests.support.samples.heif_files import boxes, edited, with_property
from tests.support.samples.rasters import photo, with_16_bits

CodePoints: TypeAlias = tuple[int, int]
"""Primaries and transfer."""

_PQ, _HLG, _P3_PQ = (9, 16), (9, 18), (12, 16)
_HOLDING, _OTHERS = ("png", "avif", "heic"), ("jpeg", "webp", "tiff", "bmp", "gif", "psd", "pdf", "eps")
_SIZE = (120, 80)
_LOSSLESS: dict[str, dict[str, bool]] = {"png": {}, "avif": {"lossless": True}}
_GEOMETRY: tuple[dict[str, Any], ...] = (
    {"width": 60},
    {"rotate": 90},
    {"crop": "10,10,50,40"},
    {"width": 50, "height": 50, "fit": "cover"},
)
_HEADER_END = 33
_SCREEN = struct.pack(">8H2I", 34_000, 16_000, 13_250, 34_500, 7_500, 3_000, 15_635, 16_450, 20_000_000, 50)


def _png(points: CodePoints, bits: int = 16, mode: str = "RGB", *chunks: tuple[bytes, bytes]) -> bytes:
    image = photo(_SIZE, mode)
    data = saved(image, "PNG") if bits == 8 else bytes(imagecodecs.png_encode(with_16_bits(image).array))
    described = [(b"cICP", bytes((*points, 0, 1))), *chunks]
    added = (struct.pack(">I", len(b)) + k + b + struct.pack(">I", zlib.crc32(k + b)) for k, b in described)
    return b"".join([data[:_HEADER_END], *added, data[_HEADER_END:]])


def _avif(points: CodePoints, bits: int = 10, mode: str = "RGB") -> bytes:
    array = np.asarray(photo(_SIZE, mode))
    samples = array if bits == 8 else array.astype(np.uint16) << (bits - 8)
    primaries, transfer = points
    encoded = imagecodecs.avif_encode(
        samples, 95, speed=8, bitspersample=bits, pixelformat="yuv444", primaries=primaries, transfer=transfer, matrix=9
    )
    return bytes(encoded)


def _heic(points: CodePoints, bits: int = 10, mode: str = "RGB") -> bytes:
    names = dict(zip(("color_primaries", "transfer_characteristics"), points, strict=True))
    deep = np.asarray(photo(_SIZE, mode)).astype(np.uint16) * 257
    image = pillow_heif.from_bytes(f"{mode};16", _SIZE, deep.tobytes())
    file = BytesIO()
    image.save(file, quality=95, chroma=444, matrix_coefficients=9, **names)
    return file.getvalue()


_SOURCES = {"png": _png, "avif": _avif, "heic": _heic}


def _described(data: bytes, target: str) -> CodePoints | None:
    """The code points in a file; None without."""
    if target == "png":
        place = data.find(b"cICP")
        return None if place < 0 else (data[place + 4], data[place + 5])
    properties = dict(boxes(dict(boxes(dict(boxes(dict(boxes(data))[b"meta"][4:]))[b"iprp"]))[b"ipco"]))
    if not properties[b"colr"].startswith(b"nclx"):
        return None
    primaries, transfer = struct.unpack_from(">HH", properties[b"colr"], 4)
    return primaries, transfer


def _samples(data: bytes, target: str) -> NDArray[Any]:
    """The encoded samples, from 0 to 1."""
    if target == "heic":
        image = pillow_heif.open_heif(BytesIO(data), convert_hdr_to_8bit=False)
        return np.asarray(image) / np.float64(65535 if image.mode.endswith("16") else 255)
    array = np.asarray(imagecodecs.png_decode(data) if target == "png" else imagecodecs.avif_decode(data))
    bits = 8 if array.dtype == np.uint8 else 16 if target == "png" else 12 if array.max() > 1023 else 10
    return array / np.float64((1 << bits) - 1)


@pytest.mark.parametrize("target", _HOLDING)
@pytest.mark.parametrize("source", _HOLDING)
def test_hdr_stays_hdr(source: str, target: str) -> None:
    for points in (_PQ, _HLG, _P3_PQ):
        data = _SOURCES[source](points)

        result = convert(data, target, flip="vertical")

        assert "hdr_reduced" not in codes(result)
        assert _described(result.data, target) == points
        difference = np.abs(_samples(result.data, target)[::-1] - _samples(data, source))
        assert difference.mean() < 0.02


@pytest.mark.parametrize("mode", ["L", "RGBA"])
def test_gray_and_transparent_hdr_stays_hdr(mode: str) -> None:
    for (source, make), target in product(_SOURCES.items(), _HOLDING):
        result = convert(make(_PQ, mode=mode), target, flip="vertical")

        assert not codes(result) - {"depth_reduced"}, (source, target)
        assert _described(result.data, target) == _PQ, (source, target)


@pytest.mark.parametrize("target", _OTHERS)
def test_hdr_is_reduced_for_other_targets(target: str) -> None:
    for make in _SOURCES.values():
        assert "hdr_reduced" in codes(convert(make(_HLG), target))


@pytest.mark.parametrize("mode", ["RGB", "P", "1", "LA"])
def test_hdr_with_eight_bits_stays_exact(mode: str) -> None:
    data = _png(_PQ, 8, mode)

    for target, options in _LOSSLESS.items():
        result = convert(data, target, flip="vertical", **options)
        assert codes(result) == set()
        assert _described(result.data, target) == _PQ
        seen, expected = (np.asarray(opened(one).convert("RGBA")) for one in (result.data, data))
        np.testing.assert_array_equal(seen[::-1], expected)


def test_a_browser_shows_the_kept_colors(screenshots: Screenshots) -> None:
    cases: list[tuple[str, dict[str, Any], float]] = [
        ("png", {}, 0.5),
        ("avif", {"lossless": True}, 0.5),
        ("avif", {}, 4),
    ]
    sources = [_SOURCES[source](points) for source, points in product(("png", "avif"), (_PQ, _HLG, _P3_PQ))]
    made = [convert(data, target, flip="vertical", **options).data for data in sources for target, options, _ in cases]

    shown = screenshots(*sources, *made)

    pairs = zip(product(shown[: len(sources)], cases), shown[len(sources) :], strict=True)
    for (expected, (target, options, tolerance)), seen in pairs:
        assert np.abs(seen[::-1] - expected).mean() < tolerance, (target, options)


def test_ten_bits_of_avif_stay_exact_in_png() -> None:
    data = _avif(_HLG)

    result = convert(data, "png")

    assert codes(result) == set()
    np.testing.assert_allclose(_samples(result.data, "png"), _samples(data, "avif"), atol=1e-5)
    assert codes(convert(data, "avif", lossless=True)) == set()


def test_the_brightness_of_content_and_screen_is_kept() -> None:
    levels = struct.pack(">2I", 12_340_000, 4_560_000)
    data = _png(_PQ, 16, "RGB", (b"mDCV", _SCREEN), (b"cLLI", levels))

    avif = convert(data, "avif").data
    back = convert(avif, "png").data

    assert b"clli" + struct.pack(">2H", 1234, 456) in avif
    assert b"mdcv" + _SCREEN[4:12] + _SCREEN[:4] + _SCREEN[12:] in avif  # green, blue, red
    for png in (convert(data, "png").data, back):
        assert b"mDCV" + _SCREEN in png
        assert b"cLLI" + levels in png
    plain = edited(_avif(_PQ), with_property(b"clli", bytes(4)))
    assert b"cLLI" not in convert(plain, "png").data


def test_geometry_keeps_hdr() -> None:
    data = _png(_PQ)

    for options in _GEOMETRY:
        result = convert(data, "png", **options)
        assert codes(result) == set()
        assert _described(result.data, "png") == _PQ


@pytest.mark.parametrize(
    "options",
    [
        {"color_space": "srgb"},
        {"color_space": "gray"},
        {"bit_depth": 8},
        {"width": 100, "height": 100, "fit": "contain", "background": "#fff"},
    ],
)
def test_options_that_need_srgb_reduce_hdr(options: dict[str, Any]) -> None:
    result = convert(_png(_PQ), "png", **options)

    assert "hdr_reduced" in codes(result)
    assert _described(result.data, "png") is None
    if "background" in options:
        assert Image.open(BytesIO(result.data)).convert("RGB").getpixel((0, 0)) == (255, 255, 255)


@pytest.mark.parametrize("target", _HOLDING)
def test_a_background_reduces_only_transparent_hdr(target: str) -> None:
    for make in _SOURCES.values():
        opaque, transparent = (convert(make(_PQ, mode=mode), target, background="#f00") for mode in ("RGB", "RGBA"))
        assert "hdr_reduced" not in codes(opaque)
        assert _described(opaque.data, target) == _PQ
        assert codes(transparent) >= {"hdr_reduced", "alpha_flattened"}
        assert _described(transparent.data, target) != _PQ


def test_animations_are_reduced() -> None:
    frames = [photo(_SIZE).rotate(90 * turn) for turn in range(2)]
    data = saved(frames[0], "PNG", save_all=True, append_images=frames[1:], duration=100)
    chunk = b"cICP" + bytes((*_PQ, 0, 1))
    described = struct.pack(">I", 4) + chunk + struct.pack(">I", zlib.crc32(chunk))

    for target in ("png", "avif"):
        result = convert(data[:_HEADER_END] + described + data[_HEADER_END:], target, flip="vertical")
        assert codes(result) == {"hdr_reduced"}
        assert b"cICP" not in result.data
