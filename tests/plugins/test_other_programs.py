"""JPEG XR and JPEG 2000: what other programs write is read, and they read what is written."""

import subprocess
from io import BytesIO
from pathlib import Path
from typing import Any

import imagecodecs
import numpy as np
import OpenEXR
import pytest
import tifffile
from numpy.typing import NDArray

from tests.support.results.conversions import codes, convert

_RNG = np.random.default_rng(43)
# Numbers of JxrEncApp for pixel formats, with the type and the number that is white.
_LIGHT = {
    "gray fixed": (4, "L", np.int16, 1 << 13),
    "gray float": (8, "L", np.float32, 1),
    "fixed": (11, "RGB", np.int16, 1 << 13),
    "fixed 32": (14, "RGB", np.int32, 1 << 24),
    "half": (12, "RGB", np.float16, 1),
    "float with an unused band": (15, "RGB", np.float32, 1),
    "fixed alpha": (24, "RGBA", np.int16, 1 << 13),
    "fixed alpha 32": (27, "RGBA", np.int32, 1 << 24),
    "half alpha": (25, "RGBA", np.float16, 1),
}
_PIXEL_FORMATS = bytes.fromhex("24c3dd6f034efe4bb1853d77768dc9")
# Numbers of pixel formats with an unused band, which no program writes, by those without it.
_PADDED = {"fixed": (0x12, 0x40), "fixed 32": (0x18, 0x41), "half": (0x3B, 0x42)}


def run(*arguments: object) -> bytes:
    return subprocess.run(list(map(str, arguments)), check=True, capture_output=True).stdout


def gradient(mode: str) -> NDArray[Any]:
    """Values from 0.25 to 1.25, of 1 to 4 bands; alpha is at most 1."""
    bands = np.array([1, 0.7, 0.4, 0.8])[: len(mode)]
    values = np.asarray((np.add.outer(np.arange(24), np.arange(40)) / 62 + 0.25)[..., None] * bands)
    return values if mode != "L" else np.squeeze(values)


def encoded(folder: Path, number: int, samples: NDArray[Any], **parameters: Any) -> bytes:
    """What JxrEncApp makes of the samples of a TIFF, almost without loss."""
    source, result = folder / "source.tif", folder / "source.jxr"
    tifffile.imwrite(source, samples, photometric="rgb" if samples.ndim == 3 else "minisblack", **parameters)
    run("JxrEncApp", "-i", source, "-o", result, "-c", number, "-q", "1.0")
    return result.read_bytes()


def decoded(path: Path) -> NDArray[Any]:
    """What JxrDecApp reads."""
    result = path.with_name("result.tif")
    run("JxrDecApp", "-i", path, "-o", result)
    return np.asarray(tifffile.imread(result))


def light_of(data: bytes) -> NDArray[Any]:
    """The samples of a file as OpenEXR, without multiplication by alpha."""
    result = convert(data, "exr")
    assert not codes(result)
    (channel,) = OpenEXR.File(BytesIO(result.data)).channels().values()
    light = np.asarray(channel.pixels, np.float32)
    if light.shape[-1] == 4:
        light[..., :3] /= light[..., 3:]
    return light


@pytest.mark.parametrize("kind", _LIGHT)
def test_light_of_jpeg_xr(tmp_path: Path, kind: str) -> None:
    number, mode, dtype, white = _LIGHT[kind]
    light = gradient(mode)
    further = {"extrasamples": ["unassalpha"]} if mode == "RGBA" else {}

    data = encoded(tmp_path, number, (light * white).astype(dtype), **further)

    expected = decoded(tmp_path / "source.jxr").astype(np.float32) / white
    np.testing.assert_allclose(light_of(data), expected, rtol=1e-6)
    assert np.median(np.abs(expected - light)) < 1e-3
    if kind in _PADDED:
        plain, padded = (_PIXEL_FORMATS + bytes([one]) for one in _PADDED[kind])
        np.testing.assert_allclose(light_of(data.replace(plain, padded)), expected, rtol=1e-6)


def test_inks_with_transparency_of_jpeg_xr_become_rgb_with_it(tmp_path: Path) -> None:
    samples = np.zeros((32, 64, 5), np.uint8)
    samples[:, :32, 3] = samples[..., 4] = 255  # black beside white
    samples[0, :, 4] = 51
    source, path = tmp_path / "source.tif", tmp_path / "source.jxr"
    plain: dict[str, Any] = {"metadata": None, "software": False, "description": None}  # JxrEncApp reads no more
    tifffile.imwrite(source, samples, photometric="separated", extrasamples=["unassalpha"], **plain)
    run("JxrEncApp", "-i", source, "-o", path, "-c", 32, "-q", "1.0")

    result = convert(path.read_bytes(), "png")

    found = imagecodecs.png_decode(result.data)
    assert codes(result) == {"color_converted"}
    assert (found[0, 0, 3], found[1, 0, 3]) == (51, 255)
    assert found[:, :32, :3].max() < 60
    assert found[:, 32:, :3].min() == 255


@pytest.mark.parametrize("options", [{"lossless": True}, {"quality": 90}], ids=str)
@pytest.mark.parametrize(("bands", "kind"), [(1, np.uint8), (3, np.uint8), (4, np.uint16)])
def test_jxrlib_reads_what_is_written(tmp_path: Path, bands: int, kind: Any, options: dict[str, Any]) -> None:
    samples = _RNG.integers(0, int(np.iinfo(kind).max) + 1, (35, 41, bands)).astype(kind)
    path = tmp_path / "picture.jxr"

    data = convert(bytes(imagecodecs.png_encode(np.squeeze(samples))), "jxr", **options).data
    path.write_bytes(data)
    found = decoded(path).reshape(samples.shape)

    again = imagecodecs.png_decode(convert(data, "png").data).reshape(samples.shape)
    np.testing.assert_array_equal(found, again)
    if options.get("lossless"):
        np.testing.assert_array_equal(found, samples)


@pytest.mark.parametrize("target", ["jp2", "j2k"])
@pytest.mark.parametrize(("bands", "kind"), [(1, np.uint8), (3, np.uint8), (3, np.uint16)])
def test_jasper_reads_what_is_written(tmp_path: Path, target: str, bands: int, kind: Any) -> None:
    samples = np.squeeze(_RNG.integers(0, int(np.iinfo(kind).max) + 1, (35, 41, bands)).astype(kind))
    path = tmp_path / f"result.{target}"

    for options, tolerance in (({"lossless": True}, 0), ({"quality": 90}, 1 + np.iinfo(kind).max // 4096)):
        path.write_bytes(convert(bytes(imagecodecs.png_encode(samples)), target, **options).data)
        portable = run("jpeg2ktopam", path)
        found = imagecodecs.png_decode(convert(portable, "png").data)

        expected = imagecodecs.png_decode(convert(path.read_bytes(), "png").data)
        np.testing.assert_allclose(found.astype(int), expected.astype(int), atol=tolerance)
        if not tolerance:
            np.testing.assert_array_equal(found, samples)
