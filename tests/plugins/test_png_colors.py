"""Colors that PNG describes by cICP, gAMA and cHRM, as Chromium shows them."""

import struct
import zlib
from io import BytesIO
from itertools import cycle
from typing import Any, TypeAlias

import imagecodecs
import numpy as np
import pytest
from PIL import Image, ImageCms

from engine.registry import load_registry
from tests.support.browser import Screenshots
from tests.support.results.conversions import codes, convert
from tests.support.samples.generated import saved
from tests.support.samples.profiles import swapped_profile
from tests.support.samples.rasters import photo

Chunk: TypeAlias = tuple[bytes, bytes]

_REGISTRY = load_registry()
_HEADER_END = 33
_SRGB, _P3 = (0.64, 0.33, 0.3, 0.6, 0.15, 0.06), (0.68, 0.32, 0.265, 0.69, 0.15, 0.06)
_ADOBE = (0.64, 0.33, 0.21, 0.71, 0.15, 0.06)
_SMPTE_428, _HLG, _PQ = 17, 18, 16


def _cicp(primaries: int, transfer: int, matrix: int = 0) -> Chunk:
    return b"cICP", bytes((primaries, transfer, matrix, 1))


def _gama(value: int) -> Chunk:
    return b"gAMA", struct.pack(">I", value)


def _chrm(*colors: float) -> Chunk:
    return b"cHRM", struct.pack(">8I", *(round(100_000 * value) for value in (0.3127, 0.329, *colors)))


def _clli(peak: int) -> Chunk:
    return b"cLLI", struct.pack(">II", 10_000 * peak, 10_000 * peak // 4)


def _iccp() -> Chunk:
    return b"iCCP", b"ICC\0\0" + zlib.compress(swapped_profile())


def _png(image: Image.Image, *chunks: Chunk, bits: int = 8) -> bytes:
    """A PNG with these chunks after its header."""
    data = saved(image, "PNG") if bits == 8 else imagecodecs.png_encode(np.asarray(image).astype(np.uint16) * 257)
    added = (
        struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body)) for kind, body in chunks
    )
    return b"".join([data[:_HEADER_END], *added, data[_HEADER_END:]])


def _convert(data: bytes, target: str, **options: Any) -> tuple[bytes, set[str]]:
    result = convert(data, target, **options)
    return result.data, codes(result)


_DESCRIPTIONS: dict[str, list[Chunk]] = {
    "PQ": [_cicp(9, _PQ)],
    "PQ of 4000 cd/m²": [_cicp(9, _PQ), _clli(4000)],
    "PQ of a screen of 400 cd/m²": [_cicp(12, _PQ), (b"mDCV", struct.pack(">8H2I", *[0] * 8, 4_000_000, 50))],
    "HLG": [_cicp(9, _HLG)],
    "Display P3": [_cicp(12, 13)],
    "BT.709": [_cicp(1, 1)],
    "BT.2020": [_cicp(9, 14)],
    "DCI P3": [_cicp(11, _SMPTE_428)],
    "BT.470 M": [_cicp(4, 4)],
    "SMPTE 240M": [_cicp(7, 7)],
    "linear": [_gama(100_000)],
    "gamma 1.8": [_gama(55_556)],
    "Adobe RGB": [_gama(45_455), _chrm(*_ADOBE)],
    "P3 without gamma": [_chrm(*_P3)],
    "invalid": [_gama(70_000), (b"cHRM", bytes(32))],
    "cICP before gAMA": [_cicp(12, 13), _gama(100_000)],
    "cICP before iCCP": [_cicp(12, 13), _iccp()],
    "iCCP before gAMA": [_iccp(), _gama(100_000)],
    "sRGB before gAMA": [(b"sRGB", b"\0"), _gama(100_000)],
    "unknown code points before gAMA": [_cicp(3, 13), _gama(100_000)],
}
_HDR = [_cicp(9, _PQ), _cicp(12, _PQ), _cicp(9, _HLG)]
_KINDS = [("RGBA", 8), ("L", 8), ("LA", 8), ("P", 8), ("RGB", 16), ("L", 16)]


def test_colors_are_those_of_a_browser(screenshots: Screenshots) -> None:
    cases, files = [], []
    for (name, chunks), kind in zip(_DESCRIPTIONS.items(), cycle(_KINDS)):
        for mode, bits in (("RGB", 8), kind):
            data = _png(photo((120, 80), mode), *chunks, bits=bits)
            (bmp, codes), (png, _) = (_convert(data, target) for target in ("bmp", "png"))
            assert ("hdr_reduced" in codes) == any(chunk in chunks for chunk in _HDR), name
            cases.append((name, mode, bits))
            files += [data, bmp, png]

    shown = screenshots(*files)

    for case, expected, *seen in zip(cases, shown[::3], shown[1::3], shown[2::3], strict=True):
        for difference in (np.abs(image - expected) for image in seen):
            assert difference.mean() < 0.6, case


def test_colors_beyond_srgb_are_kept_where_the_target_holds_a_profile() -> None:
    data = _png(photo(), _cicp(12, 13))

    for target in ("jpeg", "png", "webp", "avif", "tiff"):
        profile = Image.open(BytesIO(_convert(data, target, rotate=90)[0])).info["icc_profile"]
        space = ImageCms.ImageCmsProfile(BytesIO(profile)).profile
        assert space.red_colorant
        assert space.green_colorant
        assert space.red_colorant[0] == pytest.approx((0.51512, 0.24120, -0.00105), abs=0.001)  # as Apple's
        assert space.green_colorant[0] == pytest.approx((0.29198, 0.69225, 0.04189), abs=0.001)


def test_descriptions_of_srgb_change_nothing() -> None:
    image = photo()
    for chunks in ([_gama(45_455)], [_gama(45_455), _chrm(*_SRGB)], [_gama(45_000), _chrm(*_SRGB)], [_cicp(1, 13)]):
        result, codes = _convert(_png(image, *chunks), "tiff")

        seen = Image.open(BytesIO(result))
        assert "icc_profile" not in seen.info
        np.testing.assert_array_equal(np.asarray(seen), np.asarray(image))
        assert not codes


def test_alpha_of_hdr_is_kept() -> None:
    image = photo(mode="RGBA")

    result, _ = _convert(_png(image, _cicp(9, _PQ)), "tiff")

    np.testing.assert_array_equal(np.asarray(Image.open(BytesIO(result)))[..., 3], np.asarray(image)[..., 3])


def test_chunks_of_a_wrong_size_are_ignored() -> None:
    expected = _convert(_png(photo()), "bmp")

    assert _convert(_png(photo(), (b"cICP", b"\x0c\x0d")), "bmp") == expected
    assert _convert(_png(photo(), (b"cLLI", b"\1"), (b"mDCV", b"\1")), "bmp") == expected


@pytest.mark.parametrize("mode", ["1", "L", "LA", "P", "RGB", "RGBA"])
@pytest.mark.parametrize("size", [(1, 1), (3, 2), (5, 9), (33, 17)])
def test_interlaced_pngs_have_the_same_pixels(mode: str, size: tuple[int, int]) -> None:
    image = photo((64, 64)).crop((20, 20, 20 + size[0], 20 + size[1]))
    data = saved(image.quantize(13) if mode == "P" else image.convert(mode), "PNG")

    result = convert(data, "png", progressive=True).data

    assert result[28] == 1  # interlaced
    np.testing.assert_array_equal(imagecodecs.png_decode(result), imagecodecs.png_decode(data))
