"""PBM, PGM, PPM, PAM and PFM: all kinds and depths, compared with Netpbm's programs, MuPDF and Pillow."""

import subprocess
from io import BytesIO
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

from engine import ConversionError, CorruptInput
from engine.mupdf import pymupdf
from tests.support.results.conversions import codes, convert, opened
from tests.support.samples.broken import BLAMED, broken, outcome
from tests.support.samples.corpus import format_files
from tests.support.samples.generated import quadrants, sample, saved
from tests.support.samples.rasters import photo

_RNG = np.random.default_rng(1)


def _png(array: NDArray[np.generic]) -> bytes:
    return saved(Image.fromarray(array), "PNG")


def _run(program: str, *arguments: str, data: bytes) -> bytes:
    return subprocess.run([program, *arguments], input=data, check=True, capture_output=True).stdout


def _samples(data: bytes) -> NDArray[np.uint16]:
    """The image as 16-bit PNG, read by Pillow from what convertd makes of the file."""
    return np.asarray(opened(convert(data, "png").data))


@pytest.mark.parametrize("maximum", [1, 3, 100, 255, 1023, 65535])
@pytest.mark.parametrize(("kind", "bands"), [("P2", 1), ("P3", 3), ("P5", 1), ("P6", 3), ("P7", 2), ("P7", 4)])
def test_samples_of_any_maximum_are_scaled(kind: str, bands: int, maximum: int) -> None:
    width, height = 5, 3
    values = _RNG.integers(0, maximum + 1, (height, width, bands))
    if kind == "P7":
        head = f"P7\n# made by hand\nWIDTH {width}\nHEIGHT {height}\nDEPTH {bands}\nMAXVAL {maximum}\n"
        head += f"TUPLTYPE {'GRAYSCALE' if bands == 2 else 'RGB'}_ALPHA\nENDHDR\n"
    else:
        head = f"{kind} # a comment\n{width}\t{height} # another\n{maximum}\n"
    plain = kind in ("P2", "P3")
    raw = values.astype("u1" if maximum < 256 else ">u2").tobytes()
    body = (" ".join(map(str, values.ravel())) + "\n").encode() if plain else raw

    result = convert(head.encode() + body, "tiff" if maximum < 256 else "pam").data

    top = 255 if maximum < 256 else 65535
    if top == 255:
        found = np.asarray(opened(result)).reshape(height, width, bands)
    else:
        found = np.frombuffer(result[result.index(b"ENDHDR\n") + 7 :], ">u2").reshape(height, width, bands)
    np.testing.assert_array_equal(found, (values * top + maximum // 2) // maximum)


@pytest.mark.parametrize("kind", ["P1", "P2", "P3"])
@pytest.mark.parametrize("missing", [1, 3, 40, 70])
def test_plain_files_without_their_last_samples(kind: str, missing: int) -> None:
    count = 300 if kind == "P3" else 100
    head = f"{kind}\n10 10\n" if kind == "P1" else f"{kind}\n10 10\n1\n"

    assert convert((head + "1 " * count).encode(), "png").data
    with pytest.raises(CorruptInput, match=r"truncated|missing"):
        convert((head + "1 " * (count - missing)).encode(), "png")


@pytest.mark.parametrize("width", [1, 7, 8, 9])
@pytest.mark.parametrize("body", ["raw", "plain", "digits without space"])
def test_bitmaps_of_any_width(width: int, body: str) -> None:
    black = _RNG.integers(0, 2, (3, width))
    if body == "raw":
        data = b"P4 %d 3\n" % width + np.packbits(black, axis=1).tobytes()
    else:
        separator = " " if body == "plain" else ""
        data = b"P1\n#c\n%d 3\n" % width + separator.join(map(str, black.ravel())).encode() + b"\n"

    np.testing.assert_array_equal(np.asarray(opened(convert(data, "png").data).convert("L")), (1 - black) * 255)


@pytest.mark.parametrize(("kind", "mode"), [("pgm", "L"), ("ppm", "RGB"), ("pam", "LA"), ("pam", "RGBA"), ("pbm", "1")])
def test_netpbm_reads_what_is_written(kind: str, mode: str) -> None:
    image = photo((37, 23)).convert("L").convert("1") if mode == "1" else photo((37, 23), mode)

    result = convert(saved(image, "PNG"), kind)

    assert codes(result) == set()
    read = opened(_run("pamtopng", data=result.data))
    np.testing.assert_array_equal(np.asarray(read.convert(image.mode)), np.asarray(image))


@pytest.mark.parametrize("target", ["pgm", "pam", "pfm"])
def test_16_bits_are_kept_both_ways(target: str) -> None:
    array = _RNG.integers(0, 65536, (6, 9), np.uint16)

    result = convert(_png(array), target)

    np.testing.assert_array_equal(_samples(result.data), array)
    assert codes(result) == set()
    if target == "pgm":
        np.testing.assert_array_equal(np.asarray(opened(_run("pamtopng", data=result.data)), np.uint16), array)


@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize(("kind", "bands"), [("Pf", 1), ("PF", 3), ("PH", 3)])
def test_floats_are_linear_light_from_the_bottom(kind: str, bands: int, order: str) -> None:
    values = np.zeros((2, 3, bands), f"{order}f{2 if kind == 'PH' else 4}")
    values[0] = 0.2159  # the top row; 0.5 in sRGB
    data = f"{kind}\n3 2\n{'-' if order == '<' else ''}1.0\n".encode() + values[::-1].tobytes()

    found = np.asarray(opened(convert(data, "bmp").data).convert("RGB"))

    assert found[0].tolist() == [[128] * 3] * 3
    assert found[1].max() == 0


@pytest.mark.parametrize("target", ["pbm", "pgm", "ppm", "pam"])
def test_additional_images_are_told(target: str) -> None:
    data = convert(saved(photo().crop((0, 0, 13, 7)), "PNG"), target).data

    assert codes(convert(data + b"\n", "png")) == set()
    assert codes(convert(data + data, "png")) == {"pictures_dropped"}


def test_the_light_that_is_written_is_that_of_netpbm() -> None:
    result = convert(saved(quadrants(), "PNG"), "pfm").data

    linear = opened(_run("pamtopng", data=_run("pfmtopam", data=result)))
    expected = np.asarray(quadrants()) / 255
    expected = np.where(expected <= 0.04045, expected / 12.92, ((expected + 0.055) / 1.055) ** 2.4)
    assert np.abs(np.asarray(linear.convert("RGB")) / 255 - expected).max() < 0.01


def test_light_above_1_is_told() -> None:
    values = np.array([[0.5, 7.25]], "<f4")

    data = b"Pf 2 1 -1\n" + values.tobytes()

    assert codes(convert(data, "png")) == {"tone_mapped"}
    assert codes(convert(data, "png", exposure=-3)) == set()


def test_light_above_1_is_kept_by_formats_of_light() -> None:
    values = np.array([[[0.5, 7.25, 300], [0, 0.125, 1]]], "<f4")

    back = convert(convert(b"PF 2 1 -1\n" + values.tobytes(), "exr").data, "pfm")

    assert codes(back) == set()
    assert back.data == b"PF\n2 1\n-1.0\n" + values.tobytes()
    brighter = convert(back.data, "pfm", exposure=2).data
    np.testing.assert_array_equal(np.frombuffer(brighter[-24:], "<f4"), values.ravel() * 4)


@pytest.mark.parametrize("target", ["pgm", "pbm"])
def test_lost_colors_are_told(target: str) -> None:
    for image in (quadrants(), quadrants().quantize(4)):
        assert codes(convert(saved(image, "PNG"), target)) == {"colors_reduced"}
    deep = b"P6 1 1 65535\n" + np.array([60000, 30000, 10], ">u2").tobytes()
    assert "colors_reduced" in codes(convert(deep, target))
    assert codes(convert(_png(np.zeros((2, 2), np.uint8)), "pgm")) == set()


@pytest.mark.parametrize("path", format_files("pbm", "pgm", "ppm", "pfm"), ids=lambda path: path.name)
def test_real_files(path: Path) -> None:
    data = path.read_bytes()
    found = np.asarray(opened(convert(data, "bmp").data).convert("RGB"), int)

    with Image.open(BytesIO(data)) as image:
        scale = {"F": 1.0, "I": 257.0}.get(image.mode)
        expected = np.asarray(image, float) / scale if scale else np.asarray(image.convert("RGB"))
    difference = np.abs(found - (expected if expected.ndim == 3 else expected[..., None]))
    # Pillow rounds 16 bits in another way.
    assert (found.shape[:2], difference.max() <= 1) == (expected.shape[:2], True)
    if path.suffix != ".pfm":
        pixmap = pymupdf.Pixmap(data) if "plain" not in path.name else pymupdf.Pixmap(_run("pamtopnm", data=data))
        assert (pixmap.height, pixmap.width) == found.shape[:2]


@pytest.mark.parametrize("name", ["pbm", "pgm", "ppm", "pam", "pfm"])
def test_broken_files_are_blamed(name: str) -> None:
    data = sample(name)
    header = 11 if name != "pam" else data.index(b"ENDHDR\n") + 7

    found = [outcome(one) for one in broken(data, header)]

    assert set(found) <= BLAMED | {"picture"}
    assert found[:3] in (["unrecognized", "corrupt_input", "corrupt_input"], ["corrupt_input"] * 3)


@pytest.mark.parametrize(
    "data",
    [
        b"P5 0 4 255\n",
        b"P5 2 2 0\n0000",
        b"P5 2 2 65536\n00000000",
        b"P2 2 2 15\n1 2 3 99",
        b"P2 2 2 15\n1 -2 3 4",
        b"P2 2 2 15\n1 x 3 4",
        b"P1 2 2\n10 1",
        b"P7\nWIDTH 2\nHEIGHT 2\nDEPTH 9\nMAXVAL 255\nENDHDR\n" + bytes(36),
        b"P7\nWIDTH 2\nHEIGHT 2\nMAXVAL 255\nENDHDR\n" + bytes(36),
        b"Pf 2 2 -1\n" + bytes(15),
    ],
)
def test_invalid_headers_and_samples_are_blamed(data: bytes) -> None:
    assert outcome(data) == "corrupt_input"


def test_too_many_pixels_are_refused_before_they_are_read() -> None:
    with pytest.raises(ConversionError) as raised:
        convert(b"P6 99999 99999 255\n" + bytes(100), "png")

    assert raised.value.reason == "pixels"
