"""JPEG XR: samples of all depths, linear light, what its directory says about an image, and broken files."""

import struct
from pathlib import Path
from typing import Any

import imagecodecs
import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

from engine import CorruptInput, TooLarge
from tests.support.results.conversions import codes, convert, opened
from tests.support.samples.corpus import format_files
from tests.support.samples.generated import quadrants, saved
from tests.support.samples.profiles import srgb_profile

_RNG = np.random.default_rng(199)
_FORMATS = bytes.fromhex("24c3dd6f034efe4bb1853d77768dc9")
_RGBA = bytes.fromhex("2dadc7f58d6add43a7a8a29935261ae9")


def noise(channels: int, kind: Any = np.uint8, size: tuple[int, int] = (9, 7)) -> NDArray[Any]:
    samples = _RNG.integers(0, int(np.iinfo(kind).max) + 1, (size[1], size[0], channels)).astype(kind)
    return samples if channels > 1 else samples[..., 0]


def jxr(samples: NDArray[Any], **parameters: Any) -> bytes:
    return bytes(imagecodecs.jpegxr_encode(samples, **parameters))


def decoded(data: bytes, **options: Any) -> NDArray[Any]:
    result = convert(data, "png", **options)
    assert not codes(result)
    return np.asarray(imagecodecs.png_decode(result.data))


def entry(data: bytes, tag: int) -> int:
    """The offset of a tag's entry in the directory."""
    (start,) = struct.unpack_from("<I", data, 4)
    (size,) = struct.unpack_from("<H", data, start)
    return next(at for at in range(start + 2, start + 2 + 12 * size, 12) if data[at : at + 2] == struct.pack("<H", tag))


def with_value(data: bytes, tag: int, value: int) -> bytes:
    changed = bytearray(data)
    struct.pack_into("<I", changed, entry(data, tag) + 8, value)
    return bytes(changed)


@pytest.mark.parametrize("channels", [1, 2, 3, 4])
@pytest.mark.parametrize("kind", [np.uint8, np.uint16])
def test_lossless_results_have_the_samples_of_the_source(channels: int, kind: Any) -> None:
    samples = noise(channels, kind, (int(_RNG.integers(1, 40)), int(_RNG.integers(1, 40))))

    data = convert(bytes(imagecodecs.png_encode(samples)), "jxr", lossless=True).data

    for file in (data, convert(data, "jxr", flip="vertical").data):
        found = imagecodecs.jpegxr_decode(file).reshape(*samples.shape[:2], -1)
        found = found if file is data else found[::-1]
        found = found[..., [0, 3]] if channels == 2 else found
        np.testing.assert_array_equal(found.reshape(samples.shape), samples)


def test_quality_changes_size_and_error() -> None:
    pixels = np.asarray(quadrants()) // 2 + noise(3, size=(168, 120)) // 8
    source = saved(Image.fromarray(pixels), "PNG")

    low, high = (convert(source, "jxr", quality=quality).data for quality in (20, 95))

    errors = [np.abs(imagecodecs.jpegxr_decode(data).astype(int) - pixels).mean() for data in (low, high)]
    assert len(low) < len(high) / 2
    assert errors[1] < 2 < errors[0] < 12


@pytest.mark.parametrize("width", [1, 9, 31, 32])
def test_narrow_images_can_be_lossy(width: int) -> None:
    samples = np.full((40, width, 3), 77, np.uint8)

    data = convert(bytes(imagecodecs.png_encode(samples)), "jxr", quality=20).data

    np.testing.assert_allclose(imagecodecs.jpegxr_decode(data).astype(int), samples, atol=3)


@pytest.mark.parametrize("kind", [np.float16, np.float32])
@pytest.mark.parametrize("shape", [(8, 40), (8, 40, 3), (8, 40, 4)])
def test_floats_are_linear_light(kind: Any, shape: tuple[int, ...]) -> None:
    light = np.ones(shape, kind)
    light[:, :20] *= kind(0.18)
    if shape[-1] == 4:
        light[..., 3] = 1

    found = convert(jxr(light), "png", bit_depth=8)
    bright = convert(jxr(light), "png", bit_depth=8, exposure=2)

    samples = np.asarray(opened(found.data))[0, :, ...].reshape(40, -1)[:, 0]
    assert (samples[0], samples[39]) == (118, 255)
    assert not codes(found)
    assert codes(bright) == {"tone_mapped"}
    kept = convert(jxr(light), "exr")
    assert not codes(kept)


@pytest.mark.parametrize(("number", "exif"), [(0, 1), (1, 4), (2, 2), (3, 3), (4, 6), (5, 7), (6, 5), (7, 8), (8, 1)])
def test_the_transformation_is_applied(number: int, exif: int) -> None:
    samples = noise(3)
    turns = {1: "a", 2: "a[:, ::-1]", 3: "a[::-1, ::-1]", 4: "a[::-1]", 5: "a.swapaxes(0, 1)", 6: "np.rot90(a, -1)"}
    turns |= {7: "np.rot90(a, -1)[::-1]", 8: "np.rot90(a)"}
    expected = eval(turns[exif], {"a": samples, "np": np})

    np.testing.assert_array_equal(decoded(with_value(jxr(samples), 0xBC02, number)), expected)


@pytest.mark.parametrize("number", [0x0E, 0x0F, 0x10])
def test_bands_without_meaning_and_multiplied_colors(number: int) -> None:
    samples = np.array([[[66, 32, 0, 128], [255, 10, 20, 255], [0, 0, 0, 0]]], np.uint8)
    divided = np.array([[[131, 64, 0, 128], [255, 10, 20, 255], [0, 0, 0, 0]]])

    found = decoded(jxr(samples).replace(_RGBA, _FORMATS + bytes([number])))

    np.testing.assert_array_equal(found, {0x0E: samples[..., :3], 0x0F: samples, 0x10: divided}[number])


def test_inks_stay_inks() -> None:
    samples = noise(4)

    data = convert(jxr(samples, photometric="CMYK"), "tiff")

    assert not codes(data)
    np.testing.assert_array_equal(np.asarray(opened(data.data)), samples)


def test_exposure_is_ignored_without_light() -> None:
    assert codes(convert(jxr(noise(3)), "png", exposure=1)) == {"option_ignored"}


def test_bilevel_is_gray() -> None:
    bits = _RNG.integers(0, 2, (9, 7)).astype(bool)

    np.testing.assert_array_equal(decoded(jxr(bits)), bits * 255)


def test_metadata_profile_and_resolution_stay() -> None:
    tags = Image.Exif()
    tags[271] = "Maker"
    profile = srgb_profile()
    source = saved(quadrants(), "JPEG", exif=tags, icc_profile=profile, dpi=(200, 100), xmp=b"<x:xmpmeta/>")

    data = convert(source, "jxr", metadata="all").data
    back = opened(convert(data, "tiff", metadata="all").data)

    assert back.info["icc_profile"] == profile
    assert back.getexif()[271] == "Maker"
    assert back.info["dpi"] == (200, 100)
    assert back.info["xmp"] == b"<x:xmpmeta/>"


def _broken() -> dict[str, bytes]:
    whole, alpha = jxr(noise(3, size=(40, 40))), jxr(noise(4, size=(40, 40)))
    bomb = bytearray(whole)
    start = bomb.index(b"WMPHOTO\0")
    struct.pack_into(">HH", bomb, start + 12, 59_999, 59_999)
    return {
        "header": whole[:8],
        "half": whole[: len(whole) // 2],
        "end": whole[:-1],
        "end of alpha": alpha[:-1],
        "codestream": whole.replace(b"WMPHOTO", b"WMPHOTX"),
        "no pixels": with_value(whole, 0xBC80, 0),
        "other size": with_value(whole, 0xBC81, 41),
        "format": whole.replace(_FORMATS, b"\xff" * 15),
        "bomb": with_value(with_value(whole, 0xBC80, 60_000), 0xBC81, 60_000),
        "codestream bomb": bytes(bomb),
    }


@pytest.mark.parametrize(("what", "data"), [*_broken().items()], ids=[*_broken()])
def test_broken_files_are_refused(what: str, data: bytes) -> None:
    with pytest.raises(TooLarge if "bomb" in what else CorruptInput):
        convert(data, "png")


@pytest.mark.parametrize("path", format_files("jxr"), ids=str)
def test_format_files(path: Path) -> None:
    data = path.read_bytes()

    found = decoded(data)

    white, opaque = (0, 0), 4
    assert found[white].max() == np.iinfo(found.dtype).max
    assert found.dtype == (np.uint16 if "16" in path.name else np.uint8)
    assert found.shape == (256, 256, *([opaque] if "rgb" in path.name else []))
    for size in (len(data) // 3, len(data) - 1):
        with pytest.raises(CorruptInput):
            convert(data[:size], "png")
