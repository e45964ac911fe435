"""JPEG XR, JPEG 2000, OpenEXR and Radiance: what other programs write is read, and they read what is written."""

import subprocess
from fractions import Fraction
from io import BytesIO
from pathlib import Path
from typing import Any

import av
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
    additional = {"extrasamples": ["unassalpha"]} if mode == "RGBA" else {}

    data = encoded(tmp_path, number, (light * white).astype(dtype), **additional)

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


_PLANES = {"gbrpf32le": (1, 2, 0), "gbrapf32le": (1, 2, 0, 3)}  # the order of bands in FFmpeg


def from_ffmpeg(data: bytes, codec: str) -> NDArray[Any]:
    """The samples of a still as the decoder of FFmpeg reads it, in the order of its bands."""
    decoder: Any = av.CodecContext.create(codec, "r")
    frames: list[Any] = [*decoder.decode(av.Packet(data)), *decoder.decode(None)]
    return np.asarray(frames[0].to_ndarray())


def by_ffmpeg(light: NDArray[np.float32], codec: str, kind: str, **options: str) -> bytes:
    """A still that the encoder of FFmpeg writes."""
    encoder: Any = av.CodecContext.create(codec, "w")
    encoder.height, encoder.width = light.shape[:2]
    encoder.pix_fmt, encoder.time_base, encoder.options = kind, Fraction(1), options
    frame = av.VideoFrame(encoder.width, encoder.height, kind)
    for plane, band in zip(frame.planes, _PLANES[kind], strict=True):
        samples = np.zeros((plane.height, plane.line_size // 4), np.float32)
        samples[:, : plane.width] = light[..., band]
        plane.update(samples.tobytes())
    return b"".join(bytes(packet) for packet in (*encoder.encode(frame), *encoder.encode(None)))


def light_with(bands: int) -> NDArray[np.float32]:
    """Light up to 8, with alpha from 0.1 to 1."""
    light = _RNG.random((21, 43, bands), np.float32) ** 3 * 8
    if bands == 4:
        light[..., 3] = light[..., 3] / 9 + 0.1
    return light


@pytest.mark.parametrize("compression", ["none", "rle", "zip1", "zip16"])
@pytest.mark.parametrize("kind", _PLANES)
def test_openexr_of_ffmpeg_is_read(compression: str, kind: str) -> None:
    light = light_with(len(_PLANES[kind]))

    data = by_ffmpeg(light, "exr", kind, compression=compression, format="float")

    expected = np.dstack((light[..., :3] / light[..., 3:], light[..., 3])) if kind == "gbrapf32le" else light
    np.testing.assert_allclose(light_of(data), expected, rtol=1e-5)


@pytest.mark.parametrize("bands", [3, 4])
def test_ffmpeg_reads_the_openexr_that_is_written(bands: int) -> None:
    light = light_with(bands)
    source = BytesIO()
    OpenEXR.File({"type": OpenEXR.scanlineimage}, {"RGBA"[:bands]: light}).write(source)

    result = convert(source.getvalue(), "exr", flip="vertical")

    np.testing.assert_allclose(from_ffmpeg(result.data, "exr")[::-1], light, rtol=1e-5)


@pytest.mark.parametrize("width", [5, 43])
def test_radiance_of_ffmpeg_is_read_and_the_other_way_round(width: int) -> None:
    light = light_with(3)[:, :width]
    brightest = light.max(axis=2, keepdims=True)

    read = light_of(by_ffmpeg(np.ascontiguousarray(light), "hdr", "gbrpf32le"))
    source = BytesIO()
    OpenEXR.File({"type": OpenEXR.scanlineimage}, {"RGB": np.ascontiguousarray(light)}).write(source)
    written = from_ffmpeg(convert(source.getvalue(), "hdr").data, "hdr")

    assert (np.abs(read - light) / brightest).max() < 1 / 127  # FFmpeg does not round
    assert (np.abs(written - light) / brightest).max() < 0.51 / 127


@pytest.mark.parametrize(("target", "kind"), [("jp2", "rgb24"), ("j2k", "gray")])
def test_ffmpeg_reads_the_jpeg_2000_that_is_written(target: str, kind: str) -> None:
    samples = np.squeeze(_RNG.integers(0, 256, (35, 41, 3 if kind == "rgb24" else 1), np.uint8))

    data = convert(bytes(imagecodecs.png_encode(samples)), target, lossless=True).data

    np.testing.assert_array_equal(from_ffmpeg(data, "jpeg2000"), samples)
