"""JPEG 2000: what its boxes say about channels, colors and metadata; broken and hostile files; results."""

import struct
from io import BytesIO
from itertools import product
from typing import Any

import imagecodecs
import numpy as np
import pikepdf
import pytest
from numpy.typing import NDArray
from PIL import Image

from engine import ConversionError, CorruptInput, TooLarge
from engine.mupdf import pymupdf
from tests.support.results import readers
from tests.support.results.conversions import codes, convert, opened
from tests.support.samples.corpus import format_files
from tests.support.samples.generated import boxed, jp2_box, saved
from tests.support.samples.profiles import srgb_profile

_RNG = np.random.default_rng(2000)
_SRGB, _GRAY, _YCC, _CMYK = (b"\1\0\0" + struct.pack(">I", number) for number in (16, 17, 18, 12))
_CODESTREAM = b"\xff\x4f\xff\x51"
_MODES = {1: "L", 2: "LA", 3: "RGB", 4: "RGBA"}


def noise(channels: int, bits: int = 8, size: tuple[int, int] = (9, 7)) -> NDArray[Any]:
    """Rows x columns (x channels)."""
    samples = _RNG.integers(0, 1 << bits, (size[1], size[0], channels)).astype(np.uint8 if bits <= 8 else np.uint16)
    return samples if channels > 1 else samples[..., 0]


def codestream(samples: NDArray[Any], bits: int | None = None, **parameters: Any) -> bytes:
    """Without loss, and with the channels as they are."""
    parameters = {"codecformat": "j2k", "reversible": True, "mct": False, "planar": False, **parameters}
    return bytes(imagecodecs.jpeg2k_encode(samples, bitspersample=bits, **parameters))


def decoded(data: bytes) -> NDArray[Any]:
    result = convert(data, "png")
    assert not codes(result)
    return np.asarray(imagecodecs.png_decode(result.data))


def definition(*channels: tuple[int, int, int]) -> bytes:
    """A box of channels: number, kind, and the color it is for."""
    entries = b"".join(struct.pack(">3H", *channel) for channel in channels)
    return jp2_box(b"cdef", struct.pack(">H", len(channels)) + entries)


@pytest.mark.parametrize("bits", [1, 2, 4, 8, 10, 12, 16])
def test_samples_of_any_depth_have_the_full_range(bits: int) -> None:
    samples = noise(3, bits)

    maximum = 255 if bits <= 8 else 65535
    expected = np.rint(samples.astype(float) * maximum / ((1 << bits) - 1))

    np.testing.assert_allclose(decoded(codestream(samples, bits)), expected, atol=1 if bits > 8 else 0)


def test_signed_samples_are_around_zero() -> None:
    samples = noise(1).astype(np.int16) - 128

    np.testing.assert_array_equal(decoded(codestream(samples.astype(np.int8))), samples + 128)


@pytest.mark.parametrize(("target", "bits", "channels"), list(product(("jp2", "j2k", "jph"), (8, 16), (1, 2, 3, 4))))
def test_lossless_results_have_the_samples_of_the_source(target: str, bits: int, channels: int) -> None:
    samples = noise(channels, bits, (int(_RNG.integers(1, 10)), int(_RNG.integers(1, 10))))

    result = convert(bytes(imagecodecs.png_encode(samples)), target, lossless=True)

    found = imagecodecs.jpeg2k_decode(result.data)
    np.testing.assert_array_equal(found.reshape(samples.shape), samples)
    again = convert(result.data, target)  # a lossless file stays so in its own format
    np.testing.assert_array_equal(imagecodecs.jpeg2k_decode(again.data).reshape(samples.shape), samples)
    assert opened(result.data).mode == _MODES[channels] or bits == 16


def test_openjph_reads_what_it_has_not_decoded() -> None:
    samples = noise(3, 16, (70, 33))

    data = convert(bytes(imagecodecs.png_encode(samples)), "jph", lossless=True).data

    assert data[20:24] == b"jph "
    np.testing.assert_array_equal(imagecodecs.htj2k_decode(data[data.index(_CODESTREAM) :]), samples)


@pytest.mark.parametrize("target", ["jp2", "j2k", "jph"])
def test_quality_changes_size_and_error(target: str) -> None:
    pixels = np.clip(np.add.outer(np.arange(64), np.arange(96))[..., None] + noise(3, 5, (96, 64)), 0, 255)
    source = saved(Image.fromarray(pixels.astype(np.uint8)), "PNG")

    low, high = (convert(source, target, quality=quality).data for quality in (30, 95))

    errors = [np.abs(imagecodecs.jpeg2k_decode(data).astype(int) - pixels).mean() for data in (low, high)]
    assert len(low) < len(high)
    assert errors[1] < 2 < errors[0] < 12


def test_the_last_part_may_end_with_the_codestream() -> None:
    samples = noise(3)
    stream = bytearray(codestream(samples))
    struct.pack_into(">I", stream, stream.index(b"\xff\x90") + 6, 0)  # the size of the part

    np.testing.assert_array_equal(decoded(bytes(stream)), samples)
    with pytest.raises(CorruptInput):
        convert(bytes(stream[:-1]), "png")


def test_palettes_are_applied() -> None:
    indexes = noise(1, 2)
    colors = [(255, 0, 0), (0, 255, 0), (0, 0, 255), (9, 8, 7)]
    palette = struct.pack(">HB3B", 4, 3, 7, 7, 7) + bytes(np.array(colors, np.uint8))
    columns = b"".join(struct.pack(">HBB", 0, 1, column) for column in range(3))
    header = jp2_box(b"pclr", palette) + jp2_box(b"cmap", columns)

    np.testing.assert_array_equal(decoded(boxed(codestream(indexes), additional=header)), np.array(colors)[indexes])


def test_ycc_becomes_rgb() -> None:
    rgb = Image.linear_gradient("L").resize((40, 30)).convert("RGB")
    rgb.paste((200, 30, 60), (5, 5, 15, 15))

    data = boxed(codestream(np.asarray(rgb.convert("YCbCr"))), colors=_YCC)

    np.testing.assert_allclose(decoded(data), np.asarray(rgb), atol=3)


def test_channels_have_the_order_of_their_definition() -> None:
    samples = noise(4)

    data = boxed(codestream(samples), additional=definition((0, 1, 0), (1, 0, 3), (2, 0, 2), (3, 0, 1)))

    np.testing.assert_array_equal(decoded(data), samples[..., [3, 2, 1, 0]])


def test_a_channel_without_meaning_is_no_transparency() -> None:
    samples = noise(4)
    absent = 65535

    data = boxed(codestream(samples), additional=definition((0, 0, 1), (1, 0, 2), (2, 0, 3), (3, absent, absent)))

    result = convert(data, "png")
    assert codes(result) == {"layers_dropped"}
    np.testing.assert_array_equal(np.asarray(opened(result.data)), samples[..., :3])


def test_a_fifth_channel_is_reported() -> None:
    assert "layers_dropped" in codes(convert(boxed(codestream(noise(5))), "png"))


def test_colors_multiplied_by_transparency_are_divided() -> None:
    samples = np.array([[[64, 32, 0, 128], [255, 10, 20, 255], [0, 0, 0, 0]]], np.uint8)

    data = boxed(codestream(samples), additional=definition((0, 0, 1), (1, 0, 2), (2, 0, 3), (3, 2, 0)))

    expected = [[[128, 64, 0, 128], [255, 10, 20, 255], [0, 0, 0, 0]]]
    np.testing.assert_array_equal(decoded(data), expected)


def test_inks_stay_inks() -> None:
    samples = noise(4)

    data = convert(boxed(codestream(samples), colors=_CMYK), "jp2", metadata="none").data

    assert opened(data).mode == "CMYK"
    np.testing.assert_array_equal(np.asarray(opened(data)), samples)
    assert codes(convert(data, "j2k")) == {"color_converted"}


@pytest.mark.parametrize("bits", [8, 16])
def test_inks_with_transparency_become_rgb_with_it(bits: int) -> None:
    samples = np.zeros((4, 6, 5), np.uint8 if bits == 8 else np.uint16)
    samples[:, :3, 3] = samples[..., 4] = (1 << bits) - 1  # black beside white
    samples[0, :, 4] //= 5
    kinds = definition(*((channel, 0, channel + 1) for channel in range(4)), (4, 1, 0))

    result = convert(boxed(codestream(samples), colors=_CMYK, additional=kinds), "png")

    found = np.asarray(opened(result.data))
    assert codes(result) == {"color_converted"} | ({"depth_reduced"} if bits == 16 else set())
    np.testing.assert_array_equal(found[..., 3], np.repeat([[51], [255], [255], [255]], 6, axis=1))
    assert found[:, :3, :3].max() < 60
    np.testing.assert_array_equal(found[:, 3:, :3], np.full((4, 3, 3), 255))


def test_metadata_profile_and_resolution_stay() -> None:
    tags = Image.Exif()
    tags[271], tags[274] = "Maker", 6
    profile = srgb_profile()
    image = Image.fromarray(noise(3))
    source = saved(image, "JPEG", quality=95, exif=tags, icc_profile=profile, dpi=(200, 100))

    data = convert(source, "jp2", lossless=True).data
    back = opened(convert(data, "png").data)

    assert back.info["icc_profile"] == profile
    assert back.getexif()[271] == "Maker"
    assert [round(value) for value in back.info["dpi"]] == [100, 200]
    assert back.size == image.size[::-1]


def test_the_orientation_of_exif_is_applied() -> None:
    samples = noise(3)
    tags = Image.Exif()
    tags[274] = 6
    data = boxed(codestream(samples)) + jp2_box(b"uuid", b"JpgTiffExif->JP2" + tags.tobytes()[6:])

    result = convert(data, "png")

    np.testing.assert_array_equal(imagecodecs.png_decode(result.data), np.rot90(samples, -1))


_RGB_SAMPLES = np.asarray(Image.linear_gradient("L").resize((24, 16)).convert("RGB")) // [[[1, 2, 3]]]
_SAMPLES = _RGB_SAMPLES.astype(np.uint8)
_WITH_ALPHA = np.dstack((_SAMPLES, np.full((16, 24), 200, np.uint8)))
_FOR_PDF = {
    "gray": (boxed(codestream(_SAMPLES[..., 0]), colors=_GRAY), True),
    "gray of 16 bits": (boxed(codestream(_SAMPLES[..., 0].astype(np.uint16) * 257, 16), colors=_GRAY), True),
    "RGB": (boxed(codestream(_SAMPLES)), True),
    "RGB of 12 bits": (boxed(codestream(_SAMPLES.astype(np.uint16) * 16, 12)), True),
    "inks": (boxed(codestream(_WITH_ALPHA), colors=_CMYK), True),
    "codestream": (codestream(_SAMPLES), True),
    "YCC": (boxed(codestream(_SAMPLES), colors=_YCC), False),
    "other order": (boxed(codestream(_SAMPLES), additional=definition((0, 0, 3), (1, 0, 2), (2, 0, 1))), False),
    "transparency": (boxed(codestream(_WITH_ALPHA)), False),
    "high throughput": (bytes(imagecodecs.htj2k_encode(_SAMPLES, reversible=True, planar=False, rgb=True)), False),
}


@pytest.mark.parametrize("name", _FOR_PDF)
def test_a_pdf_contains_what_its_readers_decode(name: str) -> None:
    data, is_embedded = _FOR_PDF[name]

    result = convert(data, "pdf", dpi=72)

    assert codes(result) == set()
    with pikepdf.open(BytesIO(result.data)) as document:
        (image,) = document.pages[0].get_images().values()
        assert (image.Filter == "/JPXDecode") == is_embedded
        if is_embedded:
            stored = imagecodecs.jpeg2k_decode(image.read_raw_bytes())
            np.testing.assert_array_equal(stored, imagecodecs.jpeg2k_decode(data))
    expected = Image.alpha_composite(
        Image.new("RGBA", (24, 16), "white"), opened(convert(data, "bmp").data).convert("RGBA")
    )
    for shown in (readers.read("pdf", result.data).pixels, _drawn_by_mupdf(result.data)):
        assert np.abs(shown.astype(int) - np.asarray(expected.convert("RGB"), int)).max() <= 6


def _drawn_by_mupdf(data: bytes) -> NDArray[np.uint8]:
    pixels = pymupdf.open(stream=data)[0].get_pixmap()
    return np.frombuffer(pixels.samples, np.uint8).reshape(pixels.height, pixels.width, 3)


@pytest.mark.parametrize("name", ["RGB", "transparency"])
def test_a_pdf_shows_the_image_turned(name: str) -> None:
    tags = Image.Exif()
    tags[271], tags[274] = "Maker", 6
    data = _FOR_PDF[name][0] + jp2_box(b"uuid", b"JpgTiffExif->JP2" + tags.tobytes()[6:])

    for options in ({}, {"rotate": 90}, {"flip": "horizontal"}):
        result = convert(data, "pdf", dpi=72, **options)
        expected = np.asarray(opened(convert(data, "bmp", **options).data), int)
        np.testing.assert_allclose(_drawn_by_mupdf(result.data), expected, atol=2)
    kept = {policy: convert(data, "pdf", metadata=policy).data for policy in ("none", "safe", "all")}
    assert [b"Maker" in made for made in kept.values()] == [False, name == "RGB", name == "RGB"]
    assert b"JPXDecode" not in convert(data, "pdf", width=10).data


def test_a_profile_gives_its_colors() -> None:
    profile = srgb_profile()

    data = boxed(codestream(noise(3)), colors=b"\2\0\0" + profile)

    assert opened(convert(data, "png").data).info["icc_profile"] == profile


def _broken() -> dict[str, bytes]:
    stream = saved(Image.fromarray(noise(3, size=(64, 64))), "JPEG2000", no_jp2=True, tile_size=(32, 32))
    whole = boxed(stream)
    bomb = bytearray(stream)
    struct.pack_into(">II", bomb, 8, 60_000, 60_000)
    no_pixels, many_channels, other_size = bytearray(stream), bytearray(stream), bytearray(stream)
    struct.pack_into(">II", no_pixels, 8, 0, 0)
    struct.pack_into(">H", many_channels, 40, 16_384)
    struct.pack_into(">II", other_size, 8, 9_999, 9_999)
    return {
        "end": stream[:-2],
        "half": stream[: len(stream) // 2],
        "header": stream[:30],
        "box": whole[:-40],
        "no codestream": whole[: whole.index(b"jp2c") + 4],
        "no pixels": bytes(no_pixels),
        "channels": bytes(many_channels),
        "size": bytes(other_size),
        "bomb": bytes(bomb),
    }


@pytest.mark.parametrize(("what", "data"), [*_broken().items()], ids=[*_broken()])
def test_broken_files_are_refused(what: str, data: bytes) -> None:
    with pytest.raises(TooLarge if what == "bomb" else CorruptInput):
        convert(data, "png")


@pytest.mark.parametrize("path", format_files("jp2", "j2k"), ids=str)
def test_real_files_have_the_pixels_that_pillow_reads(path: Any) -> None:
    data = path.read_bytes()
    result = convert(data, "png")

    expected, found = Image.open(BytesIO(data)), opened(convert(data, "png", bit_depth=8).data)
    expected.load()
    assert found.size == expected.size
    depth = data[data.index(_CODESTREAM) + 42] + 1  # Pillow wraps 16-bit white around
    if depth <= 8 and found.mode == expected.mode:
        np.testing.assert_allclose(np.asarray(found, int), np.asarray(expected, int), atol=1)
    for size in (len(data) // 3, len(data) - 1):
        with pytest.raises(ConversionError):
            convert(data[:size], "png")
    assert not codes(result) - {"color_converted"}
