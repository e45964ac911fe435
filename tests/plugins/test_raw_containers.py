"""Camera RAW of every maker: what is detected, that samples are read exactly, and what is truncated."""

import struct
from io import BytesIO

import numpy as np
import pytest
import rawpy
import tifffile
from PIL import Image
from PIL.ExifTags import Base
from PIL.TiffTags import BYTE

from engine import pipeline
from engine.errors import CorruptInput, InvalidOption, UnknownFormat
from engine.registry import load_registry
from plugins._tiff import tiff_directories
from plugins._tiff.raw_containers import FORMATS
from tests.support.results.conversions import convert
from tests.support.samples.generated import quadrants, sample, saved
from tests.support.samples.raw_parts import CAPTURED_AT, Camera, Shot, mosaic, octets
from tests.support.samples.raw_samples import CAMERAS, raw_sample, tiff_raw

_REGISTRY = load_registry()
_SHOT = Shot(168, 120, 1)
_NAMES = [source.name for source in FORMATS]
_COARSE = {"crw": 7, "rw2": 15, "rwl": 15}  # differences of samples by the encoding of the generated files


@pytest.mark.parametrize("name", _NAMES)
def test_the_samples_of_each_container_are_read(name: str) -> None:
    data = sample(name)

    with rawpy.imread(BytesIO(data)) as raw:
        found = raw.raw_image.astype(int)

    assert _REGISTRY.identify_content(data).name == name
    assert np.abs(found - mosaic(CAMERAS[name], _SHOT)).max() <= _COARSE.get(name, 0)


def test_each_container_has_a_sample() -> None:
    assert set(_NAMES) == set(CAMERAS)


@pytest.mark.parametrize("name", _NAMES)
def test_a_truncated_file_is_refused(name: str) -> None:
    data = sample(name)
    source = _REGISTRY.formats[name]
    for share in (0.2, 0.6, 0.9):
        with pytest.raises(CorruptInput):
            pipeline.run(_REGISTRY.plan([source], "bmp"), [data[: int(len(data) * share)]])


@pytest.mark.parametrize("name", _NAMES)
def test_a_file_without_its_last_byte_is_refused_if_the_image_would_differ(name: str) -> None:
    data = sample(name)
    plan = _REGISTRY.plan([_REGISTRY.formats[name]], "bmp", options={"half_size": True})
    whole = pipeline.run(plan, [data], {"half_size": True}).data

    try:
        found = pipeline.run(plan, [data[:-1]], {"half_size": True}).data
    except CorruptInput:
        return
    assert found == whole
    assert name in ("cr2", "iiq")  # in which the pixels are not the end


def test_tiles_beyond_the_end_are_missing() -> None:
    file = BytesIO()
    tifffile.imwrite(file, np.zeros((64, 64), np.uint8), tile=(16, 16))
    data = file.getvalue()

    for content, is_truncated in ((data, False), (data[:-1], True)):
        assert tiff_directories.is_truncated(content, tiff_directories.read_directories(content)) == is_truncated


def test_the_start_of_a_raw_file_is_no_image() -> None:
    data = sample("nrw")[:1118]
    source = _REGISTRY.identify_content(data)

    with pytest.raises(CorruptInput):
        pipeline.run(_REGISTRY.plan([source], "bmp"), [data])


@pytest.mark.parametrize(
    ("make", "model", "name"),
    [
        ("RICOH IMAGING COMPANY, LTD.", "PENTAX K-1", "pef"),
        ("SONY", "ILCE-7M2", "arw"),
        ("SONY", "DSC-R1", "sr2"),
        ("NIKON CORPORATION", "NIKON D3X", "nef"),
        ("NIKON", "COOLPIX P330", "nrw"),
        ("EASTMAN KODAK COMPANY", "KODAK P850 ZOOM DIGITAL CAMERA", "kdc"),
        ("Kodak", "DCS560C", "dcr"),
    ],
)
def test_the_maker_and_the_model_name_the_container(make: str, model: str, name: str) -> None:
    assert _REGISTRY.identify_content(tiff_raw(Camera(make, model, 0, 4095), _SHOT)).name == name


def test_a_raw_file_of_an_unknown_maker_is_not_a_tiff() -> None:
    with pytest.raises(UnknownFormat):
        _REGISTRY.identify_content(tiff_raw(Camera("Nobody", "PENTAX", 0, 4095), _SHOT))


@pytest.mark.parametrize("make", ["PENTAX", "SAMSUNG", "Hasselblad", "Leaf", "KODAK", "SONY"])
def test_a_tiff_of_a_camera_stays_a_tiff(make: str) -> None:
    exif = Image.Exif()
    exif[Base.Make], exif[Base.Model] = make, "DSC-R1"

    assert _REGISTRY.identify_content(saved(quadrants(), "TIFF", exif=exif)).name == "tiff"


@pytest.mark.parametrize("make", ["PENTAX", "LEICA", "SONY"])
def test_a_dng_of_a_camera_stays_a_dng(make: str) -> None:
    version = octets(Base.DNGVersion, bytes([1, 4, 0, 0]), BYTE)
    data = tiff_raw(Camera(make, "DSC-R1", 0, 4095), _SHOT, more=[version])

    assert _REGISTRY.identify_content(data).name == "dng"


@pytest.mark.parametrize("name", [name for name in _NAMES if name != "crw"])
def test_metadata_is_kept(name: str) -> None:
    result = convert(sample(name), "jpeg", raw_mode="preview")
    tags = Image.open(BytesIO(result.data)).getexif()

    assert (tags[Base.Make], tags[Base.Model]) == (CAMERAS[name].make, CAMERAS[name].model)
    assert tags.get_ifd(Base.ExifOffset)[Base.DateTimeOriginal] == CAPTURED_AT


def test_xmp_of_cr3_is_kept() -> None:
    xmp = b'<x:xmpmeta xmlns:x="adobe:ns:meta/"/>'
    uuid = bytes.fromhex("be7acfcb97a942e89c71999491e3afac")
    box = struct.pack(">I4s", 24 + len(xmp), b"uuid") + uuid + xmp

    result = convert(sample("cr3") + box, "jpeg", raw_mode="preview", metadata="all")

    assert xmp in result.data


@pytest.mark.parametrize("name", _NAMES)
@pytest.mark.parametrize(("mode", "scale"), [("preview", 1), ("develop", 2)])
def test_images_are_upright(name: str, mode: str, scale: int) -> None:
    result = convert(raw_sample(name, orientation=6), "bmp", raw_mode=mode)
    image = Image.open(BytesIO(result.data))

    assert image.size == (60 * scale, 84 * scale)
    red = image.getpixel((45 * scale, 20 * scale))
    assert isinstance(red, tuple)
    assert red[0] > 2 * max(red[1:])


def test_a_file_without_preview_is_refused() -> None:
    data = sample("arw").replace(b"\xff\xd8\xff", b"\0\0\0")

    with pytest.raises(InvalidOption, match="raw_mode"):
        convert(data, "jpeg", raw_mode="preview")
