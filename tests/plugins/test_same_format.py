"""A conversion into the format of the source keeps the depth, the palette and the compression of its pixels."""

import struct
import zlib
from io import BytesIO

import imagecodecs
import numpy as np
import pytest
import tifffile
from numpy.typing import NDArray
from psd_tools import PSDImage

from engine.media import RASTER
from engine.options import OptionValues
from engine.pipeline import open_file
from engine.registry import load_registry
from tests.support.results.conversions import codes, convert, opened
from tests.support.samples import psd_files
from tests.support.samples.generated import saved
from tests.support.samples.rasters import photo

_REGISTRY = load_registry()
_GRAY, _RGB, _PALETTE, _GRAY_ALPHA, _RGB_ALPHA = 0, 2, 3, 4, 6  # color types
_SIZE = 37, 20
_SAMPLES = {_GRAY: 1, _RGB: 3, _PALETTE: 1, _GRAY_ALPHA: 2, _RGB_ALPHA: 4}
_CHANGES: tuple[OptionValues, ...] = ({"metadata": "none"}, {"flip": "vertical"}, {"progressive": True})


def _chunk(kind: bytes, content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))


def _png(depth: int, color_type: int, *, transparency: bytes = b"") -> bytes:
    """Noise, with the header of a PNG."""
    rng = np.random.default_rng(depth)
    row = (_SIZE[0] * _SAMPLES[color_type] * depth + 7) // 8
    rows = b"".join(b"\0" + rng.bytes(row) for _ in range(_SIZE[1]))
    chunks = [_chunk(b"IHDR", struct.pack(">IIBBBBB", *_SIZE, depth, color_type, 0, 0, 0))]
    chunks += [_chunk(b"PLTE", rng.bytes(3 << depth))] if color_type == _PALETTE else []
    chunks += [_chunk(b"tRNS", transparency)] if transparency else []
    return b"\x89PNG\r\n\x1a\n" + b"".join([*chunks, _chunk(b"IDAT", zlib.compress(rows, 0)), _chunk(b"IEND", b"")])


def _palette(png: bytes) -> bytes:
    """The chunks of the palette."""
    found = [png.find(kind) for kind in (b"PLTE", b"tRNS")]
    return b"".join(png[at : at + 4 + int.from_bytes(png[at - 4 : at])] for at in found if at > 0)


@pytest.mark.parametrize("change", _CHANGES, ids=str)
@pytest.mark.parametrize(
    ("depth", "color_type"),
    [(depth, _GRAY) for depth in (1, 2, 4, 8, 16)]
    + [(depth, _PALETTE) for depth in (1, 2, 4, 8)]
    + [(depth, color_type) for depth in (8, 16) for color_type in (_RGB, _GRAY_ALPHA, _RGB_ALPHA)],
)
def test_png_keeps_depth_and_colors(depth: int, color_type: int, change: OptionValues) -> None:
    transparency = bytes((0, 100)) if color_type == _PALETTE else b""
    source = _png(depth, color_type, transparency=transparency)

    result = convert(source, "png", **change)

    assert not codes(result) - {"kept_original"}
    assert tuple(result.data[24:26]) == (depth, color_type)
    assert _palette(result.data) == _palette(source)
    expected = imagecodecs.png_decode(source)
    np.testing.assert_array_equal(imagecodecs.png_decode(result.data), expected[::-1] if "flip" in change else expected)


@pytest.mark.parametrize("depth", [1, 2, 4, 8])
def test_the_transparent_gray_of_png_is_transparent(depth: int) -> None:
    source = _png(depth, _GRAY, transparency=b"\0\1")

    result = convert(source, "png", flip="vertical")

    assert not codes(result)
    np.testing.assert_array_equal(imagecodecs.png_decode(result.data), imagecodecs.png_decode(source)[::-1])


def test_gray_with_more_levels_than_its_source_has_8_bits() -> None:
    assert tuple(convert(_png(2, _GRAY), "png", width=10).data[24:26]) == (8, _GRAY)


@pytest.mark.parametrize("mode", ["1", "L", "P", "RGB", "RGBA", "CMYK"])
def test_tiff_keeps_the_mode(mode: str) -> None:
    image = photo(mode="RGB").convert(mode) if mode != "RGBA" else photo(mode="RGBA")

    result = opened(convert(saved(image, "TIFF"), "tiff", flip="vertical").data)

    assert result.mode == mode
    np.testing.assert_array_equal(np.asarray(result), np.asarray(image)[::-1])
    if mode == "P":
        palette = image.getpalette() or []
        assert (result.getpalette() or [])[: len(palette)] == palette


@pytest.mark.parametrize("bands", [1, 3, 4])
def test_tiff_keeps_16_bits(bands: int) -> None:
    samples: NDArray[np.uint16] = np.random.default_rng(1).integers(0, 65_536, (20, 30, bands), np.uint16)
    samples = samples[..., 0] if bands == 1 else samples
    file = BytesIO()
    tifffile.imwrite(file, samples, photometric="minisblack" if bands == 1 else "rgb")

    result = convert(file.getvalue(), "tiff", flip="vertical").data

    np.testing.assert_array_equal(tifffile.imread(BytesIO(result)), samples[::-1])


@pytest.mark.parametrize(("mode", "bits"), [("1", 1), ("L", 8), ("P", 8), ("RGB", 24)])
def test_bmp_keeps_its_depth(mode: str, bits: int) -> None:
    image = photo(mode="RGB").convert(mode)

    result = convert(saved(image, "BMP"), "bmp", flip="vertical").data

    assert struct.unpack_from("<H", result, 28)[0] == bits
    np.testing.assert_array_equal(np.asarray(opened(result).convert("RGB")), np.asarray(image.convert("RGB"))[::-1])


def _is_lossless(data: bytes) -> bool:
    """Whether the pixels of a WebP, AVIF or HEIC come from a lossless codec, as its decoder knows."""
    name = _REGISTRY.identify_content(data).name
    raster = open_file(_REGISTRY.path(_REGISTRY.formats[name], RASTER), data)
    return not raster.source.lossy


@pytest.mark.parametrize("change", [{"metadata": "none"}, {"rotate": 90}, {"width": 50}, {"effort": 6}], ids=str)
@pytest.mark.parametrize("kind", ["webp", "avif", "heic"])
def test_lossless_stays_lossless(kind: str, change: OptionValues) -> None:
    source = convert(saved(photo(), "PNG"), kind, lossless=True).data

    result = convert(source, kind, **change)

    assert _is_lossless(source)
    assert _is_lossless(result.data)
    assert not codes(result) - {"kept_original"}
    expected, seen = (convert(data, "png", **options).data for data, options in ((source, change), (result.data, {})))
    np.testing.assert_array_equal(imagecodecs.png_decode(seen), imagecodecs.png_decode(expected))


@pytest.mark.parametrize("option", [{"quality": 60}, {"max_bytes": 20_000}], ids=str)
@pytest.mark.parametrize("kind", ["webp", "avif", "heic"])
def test_a_quality_makes_lossless_lossy(kind: str, option: OptionValues) -> None:
    source = convert(saved(photo(), "PNG"), kind, lossless=True).data

    result = convert(source, kind, **option)

    assert not _is_lossless(result.data)
    assert not codes(result)


@pytest.mark.parametrize("kind", ["webp", "avif", "heic"])
def test_lossy_stays_lossy(kind: str) -> None:
    source = convert(saved(photo(), "PNG"), kind, quality=90).data

    assert not _is_lossless(convert(source, kind, rotate=90).data)
    assert _is_lossless(convert(source, kind, lossless=True).data)


def test_a_lossless_animation_stays_lossless() -> None:
    frames = [photo(), photo().rotate(180)]
    source = saved(frames[0], "WEBP", save_all=True, append_images=frames[1:], duration=50, lossless=True)

    result = opened(convert(source, "webp", flip="vertical").data)

    for index, frame in enumerate(frames):
        result.seek(index)
        np.testing.assert_array_equal(np.asarray(result.convert("RGB")), np.asarray(frame)[::-1])


def _psd(kind: int) -> bytes:
    """Noise of a color mode of PSD."""
    rng = np.random.default_rng(kind)
    if kind == psd_files.BITMAP:
        return psd_files.build(rng.integers(0, 256, (1, 23, 5), np.uint8), kind, width=37)
    bands = {psd_files.GRAY: 1, psd_files.INDEXED: 1, psd_files.LAB: 3, psd_files.CMYK: 4}[kind]
    palette = rng.bytes(768) if kind == psd_files.INDEXED else b""
    return psd_files.build(rng.integers(0, 256, (bands, 23, 37), np.uint8), kind, palette=palette)


@pytest.mark.parametrize("change", [{}, {"rotate": 180}], ids=str)
@pytest.mark.parametrize(
    "kind", [psd_files.BITMAP, psd_files.GRAY, psd_files.INDEXED, psd_files.LAB, psd_files.CMYK], ids=str
)
def test_psd_keeps_its_color_mode(kind: int, change: OptionValues) -> None:
    source = _psd(kind)

    result = convert(source, "psd", **change)

    assert not codes(result)
    assert result.data[22:26] == source[22:26]  # depth and color mode
    expected, seen = (convert(data, "tiff", **options).data for data, options in ((source, change), (result.data, {})))
    np.testing.assert_array_equal(tifffile.imread(BytesIO(seen)), tifffile.imread(BytesIO(expected)))


@pytest.mark.parametrize("mode", ["1", "P"])
def test_a_psd_of_few_colors_is_what_another_reader_reads(mode: str) -> None:
    image = photo(mode="RGB").convert(mode)

    document = PSDImage.open(BytesIO(convert(saved(image, "PNG"), "psd").data))

    assert (document.color_mode.name, document.depth) == (("BITMAP", 1) if mode == "1" else ("INDEXED", 8))
    np.testing.assert_array_equal(np.asarray(document.topil()), np.asarray(image))
