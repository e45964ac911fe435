"""Linear light, in OpenEXR and Radiance HDR: the tone curve, exposure, channels and windows; broken files."""

import struct
from io import BytesIO
from pathlib import Path
from typing import Any
from zlib import crc32

import imagecodecs
import numpy as np
import OpenEXR
import pytest
from numpy.typing import NDArray
from PIL import Image

from engine import CorruptInput, InvalidOption, TooLarge
from tests.support.results.conversions import codes, convert, opened
from tests.support.samples.corpus import format_files
from tests.support.samples.generated import exr, linear, quadrants, saved

_MIDDLE_GRAY = 30235  # 18 % in sRGB, of 65535
_RNG = np.random.default_rng(2200)
_DISPLAY_P3 = (0.68, 0.32, 0.265, 0.69, 0.15, 0.06, 0.3127, 0.329)


def ramp(brightest: float) -> NDArray[np.float32]:
    """Gray that becomes brighter to the right; the first column is middle gray."""
    light = np.tile(np.linspace(0, brightest, 300, dtype=np.float32)[:, None], (4, 1, 3))
    light[:, 0] = 0.18
    return light


def hdr(light: NDArray[np.float32]) -> bytes:
    return bytes(imagecodecs.rgbe_encode(light, header=True))


def float_exr(light: NDArray[np.float32]) -> bytes:
    return exr({"RGB": light})


def decoded(data: bytes, **options: Any) -> NDArray[Any]:
    return np.asarray(imagecodecs.png_decode(convert(data, "png", **options).data))


def pixels(data: bytes) -> NDArray[Any]:
    """The samples of an OpenEXR file of one group of channels."""
    (channel,) = OpenEXR.File(BytesIO(data)).channels().values()
    return np.asarray(channel.pixels)


@pytest.mark.parametrize("make", [float_exr, hdr])
@pytest.mark.parametrize("brightest", [1.5, 16.0, 5000.0])
def test_the_tone_curve_keeps_middle_gray_and_cuts_nothing(make: Any, brightest: float) -> None:
    result = convert(make(ramp(brightest)), "png")
    row = imagecodecs.png_decode(result.data)[0, :, 0].astype(int)

    assert codes(result) == {"tone_mapped"}
    assert row[0] == pytest.approx(_MIDDLE_GRAY, abs=100 if make is hdr else 1)
    steps = np.diff(row[1:])
    assert (steps > 0).mean() > 0.2  # RGBE, and 16 bits far above white, have fewer values
    assert steps.min() >= 0
    assert row[-1] >= 65_300


def test_the_tone_curve_is_the_documented_one() -> None:
    """White is the distance 1 from middle gray, and the peak, 16 times as bright, is 19.3: 1 (1 + 1 / 19.3²) / 2."""
    light = np.full((1, 2, 3), 16, np.float32)
    light[0, 0] = 1

    white = decoded(float_exr(light))[0, 0, 0] / 65535

    assert ((white + 0.055) / 1.055) ** 2.4 == pytest.approx(0.18 + 0.82 * 0.50134, abs=1e-4)


def test_the_tone_curve_keeps_hues() -> None:
    light = np.zeros((1, 2, 3), np.float32)
    light[0] = (8, 4, 0), (0.1, 0.05, 0)

    found = linear(Image.fromarray((decoded(float_exr(light)) >> 8).astype(np.uint8)))

    assert found[0, :, 1] / found[0, :, 0] == pytest.approx([0.5, 0.5], abs=0.02)
    assert found[0, 1, 0] == pytest.approx(0.1, abs=0.01)


def test_images_up_to_white_are_not_changed() -> None:
    samples = _RNG.integers(0, 65536, (9, 7, 3)).astype(np.uint16)

    result = convert(convert(bytes(imagecodecs.png_encode(samples)), "exr").data, "png")

    assert not codes(result)
    np.testing.assert_array_equal(imagecodecs.png_decode(result.data), samples)


@pytest.mark.parametrize("make", [float_exr, hdr])
def test_exposure_is_in_stops(make: Any) -> None:
    data = make(ramp(0.9))

    brighter, same, darker = (decoded(data, exposure=stops)[0, 100, 0] for stops in (1.5, 0, -2))

    light = linear(Image.fromarray(np.array([[brighter, same, darker]]).astype(np.float32) / 257))[0]
    assert light[2] / light[1] == pytest.approx(0.25, rel=0.02)
    assert "tone_mapped" in codes(convert(data, "png", exposure=1.5))
    assert pixels(convert(data, "exr", exposure=2).data)[0, 100] == pytest.approx(ramp(0.9)[0, 100] * 4, rel=0.01)
    for stops in (10.5, -11.0):
        with pytest.raises(InvalidOption):
            convert(data, "png", exposure=stops)


def test_other_targets_of_light_keep_it() -> None:
    light = ramp(500.0) - 1
    light[0, 1] = (1e-3, -2, np.inf)

    kept = convert(float_exr(light), "exr", flip="vertical")

    assert not codes(kept)
    np.testing.assert_array_equal(pixels(kept.data), light[::-1])
    found = imagecodecs.rgbe_decode(convert(float_exr(ramp(500.0)), "hdr").data)
    np.testing.assert_allclose(found, ramp(500.0), rtol=1 / 255)


def test_halves_stay_halves_unless_the_light_is_too_bright() -> None:
    halves = (_RNG.random((5, 6, 3)) * 60_000).astype(np.float16)

    assert pixels(convert(exr({"RGB": halves}), "exr", flip="vertical").data).dtype == np.float16
    bright = convert(exr({"RGB": halves}), "exr", exposure=4).data
    np.testing.assert_array_equal(pixels(bright), halves.astype(np.float32) * 16)


@pytest.mark.parametrize("shape", [(200, 200), (200, 8), (200, 17), (40, 129), (2, 300)])
def test_hdr_has_the_nearest_light_that_a_common_exponent_allows(shape: tuple[int, int]) -> None:
    """Neither components nor exponents of neighbors are equal, so that they take more bytes than without runs."""
    light = np.exp2(_RNG.uniform(-9, 9, (*shape, 3))).astype(np.float32)

    found = imagecodecs.rgbe_decode(convert(float_exr(light), "hdr").data)

    units = 2 ** np.floor(np.log2(found.max(axis=2, keepdims=True))) / 128
    assert (np.abs(found - light) / units).max() < 0.51


@pytest.mark.parametrize("channels", [1, 2, 3, 4])
@pytest.mark.parametrize("kind", [np.uint8, np.uint16])
def test_exr_holds_the_samples_of_images(channels: int, kind: Any) -> None:
    maximum = int(np.iinfo(kind).max)
    samples = _RNG.integers(0, maximum + 1, (5, 9, channels)).astype(kind)
    if channels in (2, 4):
        samples[..., -1] = np.maximum(samples[..., -1], maximum // 2)
    samples = samples if channels > 1 else samples[..., 0]

    data = convert(bytes(imagecodecs.png_encode(samples)), "exr").data
    back = decoded(data, bit_depth=8 if kind is np.uint8 else 16)

    np.testing.assert_array_equal(back[..., [0, 3]] if channels == 2 else back, samples)


def test_colors_of_exr_are_not_multiplied_by_alpha() -> None:
    rgba = np.zeros((1, 3, 4), np.float32)
    rgba[0] = (0.25, 0.5, 0, 0.5), (1, 0, 0, 1), (0, 0, 0, 0)

    found = decoded(exr({"RGBA": rgba}), bit_depth=8)

    np.testing.assert_array_equal(found, [[[188, 255, 0, 128], [255, 0, 0, 255], [0, 0, 0, 0]]])
    stored = pixels(convert(exr({"RGBA": rgba}), "exr", flip="vertical").data)
    np.testing.assert_array_equal(stored, rgba)


def test_hdr_without_transparency_gets_white() -> None:
    rgba = np.zeros((1, 2, 4), np.float32)
    rgba[0, 1] = (0.5, 0, 0, 1)

    result = convert(exr({"RGBA": rgba}), "hdr")

    assert codes(result) == {"alpha_flattened", "depth_reduced"}
    np.testing.assert_allclose(imagecodecs.rgbe_decode(result.data), np.array([[[1, 1, 1], [0.5, 0, 0]]]), atol=0.01)


def test_other_primaries_become_those_of_srgb() -> None:
    red = np.zeros((2, 2, 3), np.float32)
    red[..., 0] = 0.5

    found = pixels(convert(exr({"RGB": red}, chromaticities=_DISPLAY_P3), "exr", flip="vertical").data)

    np.testing.assert_allclose(found[0, 0], [0.61247, -0.02103, -0.00982], atol=1e-4)


def test_the_display_window_is_the_image() -> None:
    light = np.ones((4, 6, 3), np.float32)
    corner, end = (np.array(point, np.int32) for point in ((2, 1), (11, 8)))
    window = {"dataWindow": (np.array([9, -1], np.int32), np.array([14, 2], np.int32)), "displayWindow": (corner, end)}

    found = decoded(exr({"RGB": light}, **window), bit_depth=8)

    expected = np.zeros((8, 10))  # PNG is gray without colors
    expected[:2, 7:] = 255
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize(
    ("parts", "expected"),
    [
        ([{"RGB": 1, "Z": 9}], "RGB"),
        ([{"Z": 9}, {"RGB": 1}], "RGB"),
        ([{"beauty.R": 1, "beauty.G": 1, "beauty.B": 1, "Z": 9}], "RGB"),
        ([{"Y": 1, "Z": 9}], "L"),
        ([{"depth": 1}], "L"),
    ],
)
def test_colors_come_before_other_channels(parts: list[dict[str, int]], expected: str) -> None:
    shape = {"RGB": (3, 4, 3)}
    layers = [{name: np.full(shape.get(name, (3, 4)), one, np.float32) for name, one in part.items()} for part in parts]

    result = convert(exr(*layers), "png", bit_depth=8)

    assert codes(result) - {"tone_mapped"} == ({"layers_dropped"} if "Z" in str(parts) else set())
    assert np.asarray(opened(result.data).convert(expected)).min() == 255


def _attribute(name: str, kind: str, value: bytes) -> bytes:
    return f"{name}\0{kind}\0".encode() + struct.pack("<i", len(value)) + value


def luminance_and_chroma(luminance: float, red: float, blue: float) -> bytes:
    """An OpenEXR file of 8 x 6 halves, and of 4 x 3 differences of red and blue; the library cannot write one."""
    rows, columns, half = 6, 8, 1
    channels = [("BY", 2), ("RY", 2), ("Y", 1)]
    names = b"".join(name.encode() + b"\0" + struct.pack("<i4x2i", half, step, step) for name, step in channels)
    box = struct.pack("<4i", 0, 0, columns - 1, rows - 1)
    header = struct.pack("<2I", 20000630, 2) + _attribute("channels", "chlist", names + b"\0")
    header += _attribute("compression", "compression", b"\0") + _attribute("lineOrder", "lineOrder", b"\0")
    header += _attribute("dataWindow", "box2i", box) + _attribute("displayWindow", "box2i", box)
    header += _attribute("pixelAspectRatio", "float", struct.pack("<f", 1))
    header += _attribute("screenWindowCenter", "v2f", bytes(8))
    header += _attribute("screenWindowWidth", "float", struct.pack("<f", 1)) + b"\0"
    lines = []
    for row in range(rows):
        chroma = [blue] * (columns // 2) + [red] * (columns // 2) if row % 2 == 0 else []
        samples = np.array(chroma + [luminance] * columns, np.float16).tobytes()
        lines.append(struct.pack("<2i", row, len(samples)) + samples)
    first = len(header) + 8 * rows
    offsets = [first + sum(map(len, lines[:row])) for row in range(rows)]
    return header + struct.pack(f"<{rows}Q", *offsets) + b"".join(lines)


def test_luminance_and_chroma_become_rgb() -> None:
    rgb, shares = np.array([0.5, 0.25, 0.1]), np.array([0.2126, 0.7152, 0.0722])
    luminance = float(rgb @ shares)
    red, blue = ((float(value) - luminance) / luminance for value in rgb[::2])

    found = pixels(convert(luminance_and_chroma(luminance, red, blue), "exr", flip="vertical").data)

    np.testing.assert_allclose(found, np.broadcast_to(rgb, (6, 8, 3)), atol=1e-3)


def _radiance(header: bytes, body: bytes) -> bytes:
    return b"#?RADIANCE\nFORMAT=32-bit_rle_rgbe\n" + header + b"\n" + body


_ROWS = np.array([[[128, 0, 0, 129], [0, 128, 0, 129]], [[0, 0, 128, 129], [128, 128, 128, 128]]], np.uint8)
_EXPECTED = np.array([[[255, 0, 0], [0, 255, 0]], [[0, 0, 255], [188, 188, 188]]])


@pytest.mark.parametrize(
    ("size", "turned"),
    [
        (b"-Y 2 +X 2", _EXPECTED),
        (b"-Y 2 -X 2", _EXPECTED[:, ::-1]),
        (b"+Y 2 +X 2", _EXPECTED[::-1]),
        (b"+Y 2 -X 2", _EXPECTED[::-1, ::-1]),
        (b"+X 2 -Y 2", _EXPECTED.swapaxes(0, 1)),
        (b"+X 2 +Y 2", _EXPECTED.swapaxes(0, 1)[::-1]),
        (b"-X 2 -Y 2", _EXPECTED.swapaxes(0, 1)[:, ::-1]),
        (b"-X 2 +Y 2", _EXPECTED.swapaxes(0, 1)[::-1, ::-1]),
    ],
)
def test_the_order_of_rows_and_columns(size: bytes, turned: NDArray[Any]) -> None:
    data = _radiance(b"", size + b"\n" + _ROWS.tobytes())

    np.testing.assert_array_equal(decoded(data, bit_depth=8), turned)


def test_runs_of_whole_pixels_are_expanded() -> None:
    row = bytes((128, 0, 0, 129)) + bytes((1, 1, 1, 4)) + bytes((1, 1, 1, 1)) + bytes((0, 128, 0, 129))

    found = decoded(_radiance(b"", b"-Y 1 +X 262\n" + row), bit_depth=8)

    np.testing.assert_array_equal(found[0, [0, 260, 261]], [[255, 0, 0], [255, 0, 0], [0, 255, 0]])


def test_xyz_becomes_rgb() -> None:
    white = b"#?RADIANCE\nFORMAT=32-bit_rle_xyze\n\n-Y 1 +X 1\n" + bytes((122, 128, 139, 128))

    np.testing.assert_allclose(decoded(white, bit_depth=8)[0, 0], [188, 188, 188], atol=2)


def _broken() -> dict[str, bytes]:
    whole, light = exr({"RGB": linear(quadrants())}), hdr(linear(quadrants()))
    window = whole.index(b"dataWindow\0box2i\0") + 21
    display = whole.index(b"displayWindow\0box2i\0") + 24
    bombs = bytearray(whole), bytearray(whole)
    struct.pack_into("<4i", bombs[0], display, 0, 0, 60_000, 60_000)
    struct.pack_into("<4i", bombs[1], window, 0, 0, 60_000, 60_000)
    empty = bytearray(whole)
    struct.pack_into("<4i", empty, window, 5, 5, 0, 0)
    return {
        "exr header": whole[:100],
        "exr half": whole[: len(whole) // 2],
        "exr end": whole[:-1],
        "exr empty": bytes(empty),
        "exr bomb": bytes(bombs[0]),
        "exr data bomb": bytes(bombs[1]),
        "hdr half": light[: len(light) // 2],
        "hdr end": light[:-1],
        "hdr flat": _radiance(b"", b"-Y 9 +X 7\n" + bytes(9 * 7 * 4 - 1)),
        "hdr run": _radiance(b"", b"-Y 9 +X 9\n" + bytes((1, 1, 1, 255)) * 20),
        "hdr size": _radiance(b"", b"-Y 0 +X 7\n"),
        "hdr bomb": _radiance(b"", b"-Y 99999 +X 99999\n\2\2"),
    }


@pytest.mark.parametrize(("what", "data"), [*_broken().items()], ids=[*_broken()])
def test_broken_files_are_refused(what: str, data: bytes) -> None:
    with pytest.raises(TooLarge if what.endswith("bomb") and what != "exr data bomb" else (CorruptInput, TooLarge)):
        convert(data, "png")


@pytest.mark.parametrize("path", format_files("exr", "hdr"), ids=str)
def test_format_files(path: Path) -> None:
    data = path.read_bytes()
    result = convert(data, "png", bit_depth=8)

    assert not codes(result)
    assert opened(result.data).size == (32, 32)
    if path.suffix == ".hdr":
        light = np.clip(imagecodecs.rgbe_decode(data), 0, 1)
        np.testing.assert_allclose(linear(opened(result.data)), light, atol=0.005)
    for size in (len(data) // 3, len(data) - 1):
        with pytest.raises(CorruptInput):
            convert(data[:size], "png")


def test_images_with_pq_become_linear_light() -> None:
    """Samples of BT.2100: 0.58069 are 203 cd/m², the reference white, 0.7518 are 1000 cd/m²."""
    samples = np.zeros((8, 8, 3), np.uint16)
    samples[:4], samples[4:] = round(0.58069 * 65535), round(0.7518 * 65535)
    chunk = struct.pack(">I", 4) + b"cICP" + bytes((9, 16, 0, 1))
    data = bytes(imagecodecs.png_encode(samples))
    data = data[:33] + chunk + struct.pack(">I", crc32(chunk[4:])) + data[33:]

    found = convert(data, "exr")

    assert not codes(found)
    np.testing.assert_allclose(pixels(found.data)[[0, 7], 0, 0], np.array([1, 1000 / 203]), rtol=0.005)


def test_resized_light_stays_within_its_range() -> None:
    light = np.zeros((40, 40, 3), np.float32)
    light[10:30, 10:30] = 100

    found = pixels(convert(float_exr(light), "exr", width=17).data)

    assert found.shape == (17, 17, 3)
    assert found.min() == 0
    assert found.max() == 100


def test_a_background_is_laid_under_light() -> None:
    transparent = Image.new("RGBA", (3, 3))

    result = convert(saved(transparent, "PNG"), "exr", background="#ff0000")

    np.testing.assert_array_equal(pixels(result.data), np.full((3, 3, 3), (1, 0, 0)))
