"""TIFF: encodings that Pillow does not read, floats, wide integers, and sub-directories."""

import struct
from io import BytesIO
from typing import Any

import numpy as np
import pytest
import pyvips
import tifffile
from numpy.typing import NDArray
from PIL import Image

from engine import CorruptInput, UnknownFormat, pipeline
from engine.options import OptionValue
from engine.registry import load_registry
from tests.support.results.conversions import codes, convert
from tests.support.samples.generated import sample, saved
from tests.support.samples.rasters import photo

_REGISTRY = load_registry()
_RGB: NDArray[np.uint8] = np.asarray(photo((96, 64)))
_GRAY: NDArray[np.uint8] = np.asarray(photo((96, 64)).convert("L"))
_ALPHA = np.tile(np.linspace(40, 255, 96).astype(np.uint8), (64, 1))


def _written(array: NDArray[Any], **parameters: Any) -> bytes:
    file = BytesIO()
    tifffile.imwrite(file, array, metadata=None, **parameters)
    return file.getvalue()


def _convert(data: bytes, target: str = "png", **options: OptionValue) -> bytes:
    source = _REGISTRY.identify_content(data)
    assert source.name == "tiff"
    return bytes(pipeline.run(_REGISTRY.plan([source], target, options=options), [data], options).data)


def _pixels(data: bytes, mode: str = "RGB") -> NDArray[np.float64]:
    return np.asarray(Image.open(BytesIO(data)).convert(mode), float)


def _lab(array: NDArray[np.uint8]) -> NDArray[np.float64]:
    """CIE Lab of D50 of sRGB samples, by the formulas of the standards."""
    encoded = array / 255
    linear = np.where(encoded <= 0.04045, encoded / 12.92, ((encoded + 0.055) / 1.055) ** 2.4)
    to_xyz = [[0.4360747, 0.3850649, 0.1430804], [0.2225045, 0.7168786, 0.0606169], [0.0139322, 0.0971045, 0.7141733]]
    relative = linear @ np.array(to_xyz).T / [0.9642, 1, 0.8249]
    root = np.where(relative > 216 / 24389, np.cbrt(relative), (24389 / 27 * relative + 16) / 116)
    x, y, z = np.moveaxis(root, -1, 0)
    return np.dstack((116 * y - 16, 500 * (x - y), 200 * (y - z)))


def _lab_samples(kind: str, bits: int) -> NDArray[Any]:
    lightness, a, b = np.moveaxis(_lab(_RGB), -1, 0)
    maximum, unit = (1 << bits) - 1, 1 << (bits - 8)
    if kind == "cielab":
        values = (lightness / 100 * maximum, np.rint(a * unit) % (maximum + 1), np.rint(b * unit) % (maximum + 1))
    elif kind == "icclab":
        values = (lightness / 100 * 255 * unit, (a + 128) * unit, (b + 128) * unit)
    else:
        values = (lightness / 100 * maximum, (a + 85) / 170 * maximum, (b + 75) / 200 * maximum)
    samples: NDArray[np.float64] = np.rint(np.dstack(values)).clip(0, maximum)
    return samples.astype(f"u{bits // 8}")


@pytest.mark.parametrize(
    ("kind", "bits"), [("cielab", 8), ("cielab", 16), ("icclab", 8), ("icclab", 16), ("itulab", 8)]
)
@pytest.mark.parametrize("target", ["png", "jpeg", "tiff"])
def test_lab(kind: str, bits: int, target: str) -> None:
    data = _written(_lab_samples(kind, bits), photometric=kind, compression="lzw", predictor=True)

    result = _convert(data, target, **({"quality": 100} if target == "jpeg" else {}))

    tolerance = 2.5 if target == "jpeg" else 0.6 if bits == 16 else 1.5
    assert np.abs(_pixels(result) - _RGB).mean() < tolerance
    assert target != "tiff" or tifffile.imread(BytesIO(result)).dtype == ("u2" if bits == 16 else "u1")


@pytest.mark.parametrize("target", ["png", "jpeg", "tiff", "pdf"])
@pytest.mark.parametrize("bits", [8, 16])
def test_lossless_jpeg_tiles(bits: int, target: str) -> None:
    samples = _GRAY if bits == 8 else _GRAY.astype(np.uint16) * 257
    jpeg: dict[str, Any] = {"compression": "jpeg", "compressionargs": {"lossless": True}}
    data = _written(samples, photometric="minisblack", bitspersample=bits, tile=(64, 64), **jpeg)

    result = _convert(data, target)

    if target in ("png", "tiff"):
        np.testing.assert_array_equal(tifffile.imread(BytesIO(_convert(data, "tiff"))), samples)
    assert result


@pytest.mark.parametrize("alpha", [False, True])
@pytest.mark.parametrize("tile", [None, (32, 32)])
def test_webp_tiles(alpha: bool, tile: tuple[int, int] | None) -> None:
    samples = np.dstack((_RGB, _ALPHA)) if alpha else _RGB
    webp: dict[str, Any] = {"compression": "webp", "compressionargs": {"lossless": True}}
    extra = ["unassalpha"] if alpha else None
    data = _written(samples, photometric="rgb", tile=tile, extrasamples=extra, **webp)

    np.testing.assert_array_equal(_pixels(_convert(data), "RGBA" if alpha else "RGB"), samples)


@pytest.mark.parametrize("compression", ["zlib", "zstd", "lerc", "jpeg2000", "jpegxl", "jpegxr", "png", "lzma"])
@pytest.mark.parametrize("bits", [8, 16])
@pytest.mark.parametrize("tile", [None, (32, 32)])
def test_lossless_compressions(compression: str, bits: int, tile: tuple[int, int] | None) -> None:
    samples = _RGB if bits == 8 else _RGB.astype(np.uint16) * 257
    data = _written(samples, photometric="rgb", compression=compression, tile=tile)

    result = tifffile.imread(BytesIO(_convert(data, "tiff")))

    assert result.dtype == samples.dtype
    np.testing.assert_array_equal(result, samples)


@pytest.mark.parametrize("bits", [2, 4, 6, 10, 12, 14])
def test_packed_samples(bits: int) -> None:
    maximum = (1 << bits) - 1
    samples = np.rint(_GRAY / 255 * maximum).astype("u1" if bits <= 8 else "u2")

    data = _written(samples, photometric="minisblack", bitspersample=bits)
    result: NDArray[Any] = tifffile.imread(BytesIO(_convert(data, "tiff")))

    assert result.dtype == (np.uint8 if bits <= 8 else np.uint16)
    assert np.abs(result.astype(float) / np.iinfo(result.dtype).max - _GRAY / 255).max() < 0.5 / maximum + 0.003


@pytest.mark.parametrize("kind", ["uint32", "uint64"])
def test_integers_of_more_than_16_bits_use_their_full_range(kind: str) -> None:
    samples = _GRAY.astype(kind) << np.uint64(np.dtype(kind).itemsize * 8 - 8).astype(kind)

    result = tifffile.imread(BytesIO(_convert(_written(samples, photometric="minisblack"), "tiff")))

    np.testing.assert_array_equal(result, _GRAY.astype(np.uint16) << 8)


@pytest.mark.parametrize("bits", [8, 16])
def test_associated_alpha_is_divided_out(bits: int) -> None:
    kind, unit = (np.uint8, 1) if bits == 8 else (np.uint16, 257)
    multiplied = np.rint(_RGB * (_ALPHA[..., None] / 255) * unit)
    samples = np.dstack((multiplied, _ALPHA.astype(float) * unit)).astype(kind)

    result = _pixels(_convert(_written(samples, photometric="rgb", extrasamples=["assocalpha"])), "RGBA")

    assert np.abs(result - np.dstack((_RGB, _ALPHA))).mean() < (1 if bits == 16 else 2)


@pytest.mark.parametrize("planes", ["contig", "separate"])
@pytest.mark.parametrize("bits", [8, 16])
@pytest.mark.parametrize("kind", ["unspecified", "unassalpha"])
@pytest.mark.parametrize("colors", ["rgb", "minisblack"])
def test_a_single_extra_sample_is_transparency(colors: str, kind: str, bits: int, planes: str) -> None:
    samples = np.dstack((_RGB if colors == "rgb" else _GRAY, _ALPHA)).astype(f"u{bits // 8}") * (257 if bits > 8 else 1)
    stored = np.ascontiguousarray(np.moveaxis(samples, -1, 0)) if planes == "separate" else samples
    data = _written(stored, photometric=colors, planarconfig=planes, extrasamples=[kind])

    result = convert(data, "png")

    assert codes(result) == set()
    shown = _pixels(result.data, "RGBA")
    np.testing.assert_array_equal(shown[..., 3], _ALPHA)
    np.testing.assert_array_equal(shown[..., 0], (_RGB if colors == "rgb" else _GRAY[..., None])[..., 0])


@pytest.mark.parametrize("kind", ["unspecified", "unassalpha"])
def test_bits_and_lab_with_transparency(kind: str) -> None:
    bits = np.zeros((8, 8, 2), np.uint8)
    bits[:, 4:] = [1, 0]
    packed = np.packbits(bits.reshape(8, 16), axis=1)  # 2 samples of 1 bit
    tags = [(338, "H", 1, (0 if kind == "unspecified" else 2,), True)]
    data = _written(packed, photometric="minisblack", extratags=tags)
    for tag, kind_of_tag, code, before, after in ((256, 4, "I", 2, 8), (258, 3, "H", 8, 1), (277, 3, "H", 1, 2)):
        entry = struct.pack(f"<HHI{code}", tag, kind_of_tag, 1, before)
        assert entry in data
        data = data.replace(entry, struct.pack(f"<HHI{code}", tag, kind_of_tag, 1, after))

    np.testing.assert_array_equal(_pixels(_convert(data), "LA")[0], [[0, 0]] * 4 + [[255, 0]] * 4)
    lab = _written(np.dstack((_RGB, _ALPHA)), photometric="cielab", planarconfig="contig", extrasamples=[kind])
    result = convert(lab, "png")
    assert codes(result) - {"color_converted"} == ({"layers_dropped"} if kind == "unspecified" else set())
    alpha = _pixels(result.data, "RGBA")[..., 3]
    np.testing.assert_array_equal(alpha, np.full_like(_ALPHA, 255) if kind == "unspecified" else _ALPHA)


@pytest.mark.parametrize("colors", ["rgb", "separated"])
def test_channels_that_are_dropped_are_told(colors: str) -> None:
    samples = np.dstack((_RGB, _ALPHA, _ALPHA))
    extra = ["unspecified"] * (samples.shape[2] - (3 if colors == "rgb" else 4))
    data = _written(samples, photometric=colors, planarconfig="contig", extrasamples=extra)

    result = convert(data, "png")

    assert codes(result) - {"color_converted"} == {"layers_dropped"}
    assert Image.open(BytesIO(result.data)).mode == "RGB"


def test_a_width_of_two_numbers_is_damage() -> None:
    data = _written(_RGB.astype(np.uint16), photometric="rgb")
    entry = struct.pack("<HHII", 256, 4, 1, 96)
    assert entry in data

    with pytest.raises(CorruptInput):
        _convert(data.replace(entry, struct.pack("<HHI2H", 256, 3, 2, 96, 96)))


@pytest.mark.parametrize("bits", [8, 16])
def test_inks_with_transparency_become_rgb_with_it(bits: int) -> None:
    maximum = (1 << bits) - 1
    samples = np.zeros((4, 6, 5), np.uint8 if bits == 8 else np.uint16)
    samples[:, :3, 3] = samples[..., 4] = maximum  # black beside white
    samples[0, :, 4] //= 5

    data = _convert(_written(samples, photometric="separated", planarconfig="contig", extrasamples=["unassalpha"]))

    found = np.asarray(Image.open(BytesIO(data)))
    np.testing.assert_array_equal(found[..., 3], np.repeat([[51], [255], [255], [255]], 6, axis=1))
    assert found[:, :3, :3].max() < 60
    np.testing.assert_array_equal(found[:, 3:, :3], np.full((4, 3, 3), 255))


def test_a_palette_of_16_bits() -> None:
    quantized = photo((96, 64)).quantize(100)
    palette = np.zeros((3, 65536), np.uint16)
    colors = np.asarray(quantized.getpalette(), np.uint16).reshape(-1, 3) * 257
    palette[:, : len(colors)] = colors.T
    data = _written(np.asarray(quantized, np.uint16), photometric="palette", colormap=palette)

    np.testing.assert_array_equal(_pixels(_convert(data)), np.asarray(quantized.convert("RGB")))


@pytest.mark.parametrize("byteorder", ["<", ">"])
@pytest.mark.parametrize("planar", [False, True])
def test_big_tiff_keeps_depth_and_resolution(byteorder: str, planar: bool) -> None:
    samples = _RGB.astype(np.uint16) * 257
    stored = np.ascontiguousarray(np.moveaxis(samples, -1, 0)) if planar else samples
    file: dict[str, Any] = {"bigtiff": True, "byteorder": byteorder, "compression": "zlib", "predictor": True}
    file |= {"resolution": (300, 300), "resolutionunit": "inch"}
    data = _written(stored, photometric="rgb", planarconfig="separate" if planar else "contig", **file)

    with tifffile.TiffFile(BytesIO(_convert(data, "tiff"))) as result:
        np.testing.assert_array_equal(result.asarray(), samples)
        assert result.pages.first.get_resolution() == (300, 300)


def _pages(*pages: tuple[NDArray[Any], dict[str, Any]]) -> bytes:
    file = BytesIO()
    with tifffile.TiffWriter(file) as writer:
        for array, parameters in pages:
            writer.write(array, **{"photometric": "rgb", "metadata": None, **parameters})
    return file.getvalue()


@pytest.mark.parametrize("compression", ["zlib", "webp"])
@pytest.mark.parametrize("sub_directories", [False, True])
def test_overviews_are_no_pages(compression: str, sub_directories: bool) -> None:
    reduced = {"subfiletype": 1, "compression": compression}
    data = _pages(
        (_RGB, {"compression": compression, **({"subifds": 2} if sub_directories else {})}),
        (np.ascontiguousarray(_RGB[::2, ::2]), reduced),
        (np.ascontiguousarray(_RGB[::4, ::4]), reduced),
    )

    with tifffile.TiffFile(BytesIO(_convert(data, "tiff"))) as result:
        assert [page.shape for page in result.pages] == [_RGB.shape]


def test_masks_are_no_pages() -> None:
    mask = {"subfiletype": 4, "photometric": "mask"}

    with tifffile.TiffFile(BytesIO(_convert(_pages((_RGB, {}), (_ALPHA > 99, mask)), "tiff"))) as result:
        assert [page.shape for page in result.pages] == [_RGB.shape]


def test_a_sub_directory_that_is_larger_than_its_thumbnail_is_the_image() -> None:
    thumbnail = np.ascontiguousarray(_RGB[::4, ::4])
    data = _pages((thumbnail, {"subfiletype": 1, "subifds": 1}), (_RGB, {"subfiletype": 0}))

    np.testing.assert_array_equal(_pixels(_convert(data)), _RGB)


def test_a_file_of_a_camera_with_nothing_but_thumbnails_is_no_tiff() -> None:
    thumbnail = {"subfiletype": 1, "extratags": [(271, 2, 0, "Maker", True)]}

    with pytest.raises(UnknownFormat):
        _REGISTRY.identify_content(_pages((_RGB, thumbnail)))


def test_pages_of_all_kinds() -> None:
    data = _pages(
        (_RGB.astype(np.uint16) * 257, {}),
        (_GRAY > 128, {"photometric": "minisblack"}),
        (_RGB, {"compression": "webp", "compressionargs": {"lossless": True}}),
    )

    with tifffile.TiffFile(BytesIO(_convert(data, "tiff"))) as result:
        assert [page.dtype for page in result.pages] == [np.uint16, np.bool_, np.uint8]
        np.testing.assert_array_equal(result.pages[1].asarray(), _GRAY <= 128)  # 0 is white
        np.testing.assert_array_equal(result.pages[2].asarray(), _RGB)


def test_an_unsupported_page_is_named() -> None:
    linear = pyvips.Image.new_from_array(_RGB).copy(interpretation="srgb").colourspace("xyz")
    data = bytes(linear.tiffsave_buffer())

    with pytest.raises(CorruptInput, match=r"LOGLUV.*SGILOG.*16 bits"):
        _convert(data)


def test_the_result_of_a_sample_is_complete() -> None:
    data = _convert(sample("tiff"), "tiff")

    assert _REGISTRY.formats["tiff"].is_complete
    assert _REGISTRY.formats["tiff"].is_complete(data)
    assert not _REGISTRY.formats["tiff"].is_complete(data[: len(data) // 2])


@pytest.mark.parametrize("target", ["png", "pdf"])
def test_parts_that_decoders_fill_are_missed(target: str) -> None:
    jpeg: dict[str, Any] = {"compression": "jpeg", "compressionargs": {"lossless": True}}
    tile = _written(_GRAY.astype(np.uint16) * 257, photometric="minisblack", bitspersample=16, tile=(64, 64), **jpeg)
    bits_at_end = saved(Image.fromarray(_RGB), "TIFF", compression="tiff_lzw")

    for data in (tile[:-50], bits_at_end[:-1]):
        with pytest.raises(CorruptInput, match="truncated"):
            convert(data, target)


def test_a_missing_page_is_told() -> None:
    data = _written(np.stack([_GRAY, _GRAY]), photometric="minisblack", compression="zlib")
    with tifffile.TiffFile(BytesIO(data)) as file:
        second = file.pages[1].offset

    results = {target: convert(data[:second], target) for target in ("tiff", "pdf")}

    assert codes(convert(data, "tiff")) == set()
    assert {target: codes(result) for target, result in results.items()} == {"tiff": {"repaired"}, "pdf": {"repaired"}}


def test_a_truncated_big_tiff_is_incomplete() -> None:
    data = _written(_RGB, photometric="rgb", bigtiff=True)
    is_complete = _REGISTRY.formats["tiff"].is_complete

    assert is_complete is not None
    assert is_complete(data)
    assert not is_complete(data[:-2000])


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
