"""JPEG to JPEG XL and back: each byte with all metadata, each coefficient without; files that JPEG XL cannot hold."""

import subprocess
import warnings
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from engine import ConversionError, pipeline, verification
from engine.options import OptionValue
from engine.registry import load_registry
from plugins._jpeg.segments import filter_segments, read_segments
from plugins.formats import jxl
from tests.support.results.conversions import codes, convert, opened
from tests.support.samples.corpus import CORPUS
from tests.support.samples.generated import saved
from tests.support.samples.profiles import ink_profile, swapped_profile
from tests.support.samples.rasters import photo

_REGISTRY = load_registry()
_BLOCK_OF_TABLES, _TABLE = 0xDB, 64  # a marker; entries
_FILES = [file for file in sorted((CORPUS / "jpeg").glob("*.jpg")) if "12mp" not in file.name]
_POSITION = 0x8825


def _tags(orientation: int = 1) -> Image.Exif:
    tags = Image.Exif()
    tags[0x0112], tags[0x010F] = orientation, "Maker"
    tags.get_ifd(_POSITION)[1] = "N"
    return tags


def _jpegtran(data: bytes, *options: str) -> bytes:
    return subprocess.run(["jpegtran", *options], input=data, check=True, capture_output=True).stdout


def _with_wide_tables(data: bytes) -> bytes:
    """The file with the same quantization tables, written with 16 bits per entry."""
    parts, position = [], 0
    for code, start, end in read_segments(data):
        parts.append(data[position:start])
        position = end
        if code != _BLOCK_OF_TABLES:
            parts.append(data[start:end])
            continue
        body, tables = data[start + 4 : end], b""
        for offset in range(0, len(body), 1 + _TABLE):
            entries = body[offset + 1 : offset + 1 + _TABLE]
            tables += bytes([0x10 | body[offset]]) + b"".join(bytes([0, entry]) for entry in entries)
        parts.append(data[start : start + 2] + (len(tables) + 2).to_bytes(2) + tables)
    return b"".join(parts) + data[position:]


def _files() -> Iterator[tuple[str, bytes]]:
    """Files that differ in sampling, coding, tables, scans, segments and what follows the image."""
    image = photo((75, 53))
    for subsampling in ("4:4:4", "4:2:2", "4:2:0"):
        plain = saved(image, "JPEG", quality=85, subsampling=subsampling)
        yield subsampling, plain
        yield f"{subsampling} progressive", _jpegtran(plain, "-progressive")
        yield f"{subsampling} restarts", _jpegtran(plain, "-restart", "2B")
        yield f"{subsampling} optimized", _jpegtran(plain, "-optimize")
        yield f"{subsampling} progressive with restarts", _jpegtran(plain, "-progressive", "-restart", "3B")
    plain = saved(image, "JPEG", quality=85)
    yield "4:1:1 by rows", _jpegtran(plain, "-transpose")
    yield "wide tables", _with_wide_tables(plain)
    yield "gray", saved(image.convert("L"), "JPEG", quality=70)
    yield "gray progressive", saved(image.convert("L"), "JPEG", quality=70, progressive=True)
    yield "RGB", saved(image, "JPEG", quality=85, keep_rgb=True)
    yield "quality 1", saved(image, "JPEG", quality=1)
    yield "quality 100", saved(image, "JPEG", quality=100, subsampling="4:4:4")
    yield "1 x 1", saved(photo((1, 1)), "JPEG")
    yield "8 x 8", saved(photo((8, 8)), "JPEG", subsampling="4:4:4")
    yield "65 x 1", saved(photo((65, 1)), "JPEG")
    yield "profile", saved(image, "JPEG", icc_profile=swapped_profile())
    yield "comment and position", saved(image, "JPEG", comment=b"private", exif=_tags(6))
    yield "tail", plain + b"tail" + bytes(1000)
    yield "another picture", plain + plain
    yield "no JFIF", _without_first_segment(plain)
    yield "unknown segments", plain[:2] + b"\xff\xef\0\x09private" + b"\xff\xe5\0\2" + plain[2:]
    yield "gain map without numbers", _with_name_of_a_gain_map(plain) * 2
    yield "damaged EXIF", saved(image, "JPEG", exif=b"Exif\0\0II*\0\xff\xff\xff\xff")
    yield "fill bytes", plain[:2] + b"\xff\xff\xff" + plain[2:]


def _filtered(data: bytes) -> bytes:
    with warnings.catch_warnings(action="ignore"):
        return filter_segments(data, "safe")


def _with_name_of_a_gain_map(data: bytes) -> bytes:
    xmp = b'http://ns.adobe.com/xap/1.0/\0<x xmlns:hdrgm="http://ns.adobe.com/hdr-gain-map/1.0/"/>'
    return data[:2] + b"\xff\xe1" + (len(xmp) + 2).to_bytes(2) + xmp + data[2:]


def _without_first_segment(data: bytes) -> bytes:
    _, start, end = next(read_segments(data))
    return data[:start] + data[end:]


_GENERATED = dict(_files())


def test_there_are_thirty_files() -> None:
    assert len(_GENERATED) >= 30


@pytest.mark.parametrize("name", _GENERATED)
def test_each_byte_comes_back(name: str) -> None:
    data = _GENERATED[name]

    result = convert(data, "jxl", metadata="all")

    assert codes(result) == ({"hdr_reduced"} if "gain map" in name else set())
    assert len(result.data) < len(data) + 700
    options: dict[str, OptionValue] = {"metadata": "all"}
    plan = _REGISTRY.plan([_REGISTRY.formats["jxl"]], "jpeg", options=options)
    back = pipeline.run(plan, [result.data], options).file
    verification.verify(_REGISTRY, plan, back, options)
    assert back.data == data


@pytest.mark.parametrize("name", ["4:2:0", "4:2:0 progressive", "wide tables", "RGB", "comment and position"])
def test_djxl_gets_back_each_byte(name: str, tmp_path: Path) -> None:
    source, result = tmp_path / "in.jxl", tmp_path / "out.jpg"
    source.write_bytes(convert(_GENERATED[name], "jxl", metadata="all").data)

    subprocess.run(["djxl", source, result], check=True, capture_output=True)

    assert result.read_bytes() == _GENERATED[name]


@pytest.mark.parametrize("file", _FILES, ids=[file.name for file in _FILES])
def test_real_files_come_back(file: Path) -> None:
    data = file.read_bytes()
    if opened(data).mode == "CMYK":
        pytest.skip("JPEG XL cannot hold this coding")

    assert convert(convert(data, "jxl", metadata="all").data, "jpeg", metadata="all").data == data
    safe = convert(convert(data, "jxl", hdr="drop").data, "jpeg", metadata="all").data
    assert safe == _filtered(data)


def test_only_private_metadata_goes() -> None:
    data = _GENERATED["comment and position"]

    first = convert(data, "jxl")
    second = convert(convert(data, "jxl", metadata="all").data, "jpeg")

    assert codes(first) == codes(second) == {"location_removed"}
    assert b"private" not in first.data
    back = convert(first.data, "jpeg", metadata="all").data
    assert back == second.data == _filtered(data)
    assert np.array_equal(np.asarray(opened(back)), np.asarray(opened(data)))
    tags = opened(back).getexif()
    assert (tags[0x0112], tags[0x010F]) == (6, "Maker")  # the pixels stay as they are stored
    assert not tags.get_ifd(_POSITION)
    assert len(convert(data, "jxl", metadata="none").data) < len(first.data)


@pytest.mark.parametrize("orientation", [1, 3, 6])
def test_the_image_is_shown_upright(orientation: int) -> None:
    data = saved(photo((75, 53)), "JPEG", exif=_tags(orientation), quality=90)
    size = (53, 75) if orientation == 6 else (75, 53)

    result = convert(data, "jxl")

    shown = opened(convert(result.data, "png").data)
    assert shown.size == size
    upright = opened(convert(data, "png").data)
    assert np.abs(np.asarray(shown, int) - np.asarray(upright, int)).mean() < 1


def test_a_restored_jpeg_has_the_orientation_of_the_image() -> None:
    data = convert(_GENERATED["comment and position"], "jxl", metadata="all").data
    tag = b"\x01\x12\0\3\0\0\0\1\0"
    edited = data.replace(tag + b"\6", tag + b"\1")
    assert edited != data

    for metadata in ("none", "safe", "all"):
        result = opened(convert(edited, "jpeg", metadata=metadata).data)
        assert (result.size, result.getexif()[0x0112]) == ((75, 53), 6)
        assert (0x010F in result.getexif()) == (metadata != "none")


def test_options_that_need_pixels_decode() -> None:
    data = _GENERATED["4:2:0"]
    kept = convert(data, "jxl", metadata="all").data

    pixels: list[dict[str, OptionValue]] = [{"quality": 40}, {"width": 30}, {"crop": "8,8,30,30"}, {"rotate": 90}]
    pixels.append({"max_bytes": 1000})
    for options in pixels:
        result = convert(data, "jxl", **options)
        assert b"jbrd" not in result.data[:200]
        assert codes(result) == set()
        assert convert(kept, "jpeg", **options).data != data
    direct: list[dict[str, OptionValue]] = [{"effort": 9}, {"metadata": "none"}, {"max_bytes": len(kept)}]
    for options in direct:
        assert b"jbrd" in convert(data, "jxl", **options).data[:200]
    assert opened(convert(kept, "jpeg", width=30).data).size == (30, 21)


def test_a_file_without_a_jpeg_becomes_one() -> None:
    data = convert(saved(photo((40, 30), "RGBA"), "PNG"), "jxl", lossless=True).data

    result = convert(data, "jpeg")

    assert codes(result) == {"alpha_flattened"}
    assert opened(result.data).size == (40, 30)


def _arithmetic() -> bytes:
    return _jpegtran(_GENERATED["4:2:0"], "-arithmetic")


def _inks() -> bytes:
    return saved(photo((40, 30)).convert("CMYK"), "JPEG", icc_profile=ink_profile(), exif=_tags())


def test_a_coding_that_jpeg_xl_cannot_hold_is_told() -> None:
    arithmetic, inks = convert(_arithmetic(), "jxl"), convert(_inks(), "jxl")

    assert codes(arithmetic) == {"jpeg_reencoded"}
    assert codes(convert(_jpegtran(_GENERATED["4:2:0"], "-progressive", "-restart", "1"), "jxl")) == {"jpeg_reencoded"}
    assert codes(inks) == {"jpeg_reencoded", "color_converted", "location_removed"}
    (frame,) = jxl.decode(arithmetic.data).frames
    expected = np.asarray(Image.open(BytesIO(_arithmetic())), int)
    assert np.abs(np.asarray(frame.image, int) - expected).mean() < 3
    kept = convert(_inks(), "jxl", lossless=True)
    assert codes(kept) == {"location_removed"}
    (frame,) = jxl.decode(kept.data).frames
    assert frame.image.mode == "CMYK"


@pytest.mark.long
def test_the_coding_of_large_files_is_not_kept() -> None:
    results = [convert(saved(Image.new("L", (8000, height)), "JPEG"), "jxl") for height in (5000, 5001)]

    assert [codes(result) for result in results] == [set(), {"jpeg_reencoded"}]


@pytest.mark.parametrize("length", [0.3, 0.6, 0.95])
@pytest.mark.parametrize("name", ["4:2:0", "4:2:0 progressive", "gray"])
def test_truncated_files_are_refused(name: str, length: float) -> None:
    data = _GENERATED[name]
    inside = convert(data, "jxl", metadata="all").data

    damaged = [(data[: int(len(data) * length)], "jxl"), (inside[: int(len(inside) * length)], "jpeg")]
    arithmetic = _arithmetic()
    damaged += [(arithmetic[: int(len(arithmetic) * length)], target) for target in ("jxl", "pdf")]
    for broken, target in damaged:
        with pytest.raises(ConversionError) as refused:
            convert(broken, target)
        assert refused.value.reason == "corrupt_input"


def test_no_other_path_leads_over_these_steps() -> None:
    for plan in _REGISTRY.catalogue():
        names = plan.step_names
        assert ("jpeg -> jxl" in names) == ((plan.source.name, plan.target.name) == ("jpeg", "jxl"))
        assert ("jxl -> jpeg" in names) == ((plan.source.name, plan.target.name) == ("jxl", "jpeg"))
