"""Camera RAW of every maker: detection, samples, brightness next to the camera's own image, options, and truncation."""

import struct
from io import BytesIO
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import rawpy
import tifffile
from imagecodecs import png_decode
from numpy.typing import NDArray
from PIL import Image, ImageOps
from PIL.ExifTags import Base
from PIL.TiffTags import BYTE

from engine import RASTER, ConversionError, InvalidOption, pipeline
from engine.errors import CorruptInput, UnknownFormat
from engine.registry import load_registry
from plugins._tiff import tiff_directories
from plugins._tiff.raw_containers import FORMATS
from tests.support.results.conversions import codes, convert
from tests.support.samples.corpus import Entry, load_corpus
from tests.support.samples.generated import quadrants, sample, saved
from tests.support.samples.pairs import every
from tests.support.samples.rasters import photo
from tests.support.samples.raw_parts import CAPTURED_AT, Camera, Shot, mosaic, octets, preview_jpeg
from tests.support.samples.raw_samples import CAMERAS, raw_sample, tiff_raw

_REGISTRY = load_registry()
_SHOT = Shot(168, 120, 1)
_NAMES = [source.name for source in FORMATS]
_COARSE = {"crw": 7, "rw2": 15, "rwl": 15}  # differences of samples by the encoding of the generated files
_PHOTO_SHOT = Shot(420, 300, 1)
_RGB: NDArray[np.uint8] = np.asarray(photo((320, 240)))


@pytest.mark.parametrize("name", _NAMES)
def test_the_samples_of_each_container_are_read(name: str) -> None:
    data = sample(name)

    with rawpy.imread(BytesIO(data)) as raw:
        found = raw.raw_image.astype(int)

    assert _REGISTRY.identify_content(data).name == name
    assert np.abs(found - mosaic(CAMERAS[name], _SHOT)).max() <= _COARSE.get(name, 0)


def test_each_container_has_a_sample() -> None:
    assert set(_NAMES) == set(CAMERAS)


@pytest.mark.parametrize("name", every(2, _NAMES))
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

    assert xmp in convert(sample("cr3") + box, "jpeg", raw_mode="preview", metadata="all").data


@pytest.mark.parametrize("name", every(3, _NAMES))
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


def _converted(data: bytes, target: str = "png", source: str = "") -> Image.Image:
    found = _REGISTRY.identify_content(data)
    assert not source or found.name == source
    return Image.open(BytesIO(bytes(pipeline.run(_REGISTRY.plan([found], target), [data], {}).data)))


def _developed(data: bytes) -> NDArray[np.uint8]:
    with rawpy.imread(BytesIO(data)) as raw:
        return raw.postprocess(use_camera_wb=True)


def _brightness(image: Image.Image) -> float:
    return float(np.asarray(image.convert("L")).mean())


def _with_preview(exponent: float, *, bars: int = 0) -> tuple[bytes, Image.Image]:
    """A DNG whose preview is the scene to a power, with black bars above and below, and the preview without them."""
    data = raw_sample("dng", width=_PHOTO_SHOT.width, height=_PHOTO_SHOT.height)
    stored = preview_jpeg(_PHOTO_SHOT)
    scene = Image.open(BytesIO(stored)).convert("RGB")
    changed = scene.point([round(255 * (value / 255) ** exponent) for value in range(256)] * 3).resize((126, 90))
    framed = Image.new("RGB", (changed.width, changed.height + 2 * bars))
    framed.paste(changed, (0, bars))
    preview = saved(framed, "JPEG", quality=50)
    assert data.count(stored) == 1
    assert len(preview) <= len(stored)
    return data.replace(stored, preview.ljust(len(stored), b"\0")), changed


@pytest.mark.parametrize("exponent", [0.85, 1.0])
@pytest.mark.parametrize("target", ["png", "jpeg"])
def test_a_image_is_no_brighter_than_the_cameras(exponent: float, target: str) -> None:
    data, preview = _with_preview(exponent)

    result = _converted(data, target, "dng")

    assert _brightness(Image.fromarray(_developed(data))) / _brightness(preview) > 1.11
    assert _brightness(result) == pytest.approx(_brightness(preview), rel=0.05)


def test_a_bright_preview_clips_no_highlights() -> None:
    data, preview = _with_preview(0.2)

    result, developed = np.asarray(_converted(data)), _developed(data)

    assert _brightness(preview) > 1.2 * _brightness(Image.fromarray(developed))
    assert (result.max(axis=2) == 255).mean() < (developed.max(axis=2) == 255).mean() + 0.01


@pytest.mark.parametrize("entry", [entry for entry in load_corpus() if entry.name.startswith("raw/")], ids=str)
def test_real_images_are_as_bright_as_the_cameras(entry: Entry) -> None:
    data = entry.path.read_bytes()
    with rawpy.imread(BytesIO(data)) as raw:
        try:
            stored = raw.extract_thumb().data
        except rawpy.LibRawNoThumbnailError:
            return
    preview = Image.open(BytesIO(stored)) if isinstance(stored, bytes) else Image.fromarray(stored)
    result = _converted(data, "bmp")
    without_bars = ImageOps.fit(preview, (preview.width, round(preview.width * result.height / result.width)))

    assert min(preview.size) < 64 or _brightness(result) == pytest.approx(_brightness(without_bars), rel=0.15)


def test_black_bars_of_a_preview_do_not_count() -> None:
    data = raw_sample("dng", width=_PHOTO_SHOT.width, height=_PHOTO_SHOT.height)
    mean = _brightness(Image.fromarray(_developed(data)))
    exponent = min(np.arange(0.5, 1.5, 0.05), key=lambda power: abs(_brightness(_with_preview(power)[1]) - mean))

    framed, _ = _with_preview(exponent, bars=10)

    np.testing.assert_array_equal(np.asarray(_converted(framed)), _developed(framed))


def test_a_damaged_preview_is_ignored() -> None:
    data = raw_sample("dng", width=_PHOTO_SHOT.width, height=_PHOTO_SHOT.height)
    stored = preview_jpeg(_PHOTO_SHOT)
    damaged = data.replace(stored, stored[:300].ljust(len(stored), b"\0"))

    np.testing.assert_array_equal(np.asarray(_converted(damaged)), _developed(damaged))


def _scan(bits: int, *, linear: bool, byteorder: str) -> bytes:
    """The file of a film scanner: a thumbnail, and the image in a sub-directory."""
    encoded = _RGB / 255
    samples = np.where(encoded < 0.081, encoded / 4.5, ((encoded + 0.099) / 1.099) ** (1 / 0.45)) if linear else encoded
    stored = np.rint(samples * ((1 << bits) - 1)).astype(np.uint8 if bits == 8 else np.uint16)
    camera: list[Any] = [(271, 2, 0, "Nikon", True), (272, 2, 0, "Nikon SUPER COOLSCAN 5000 ED", True)]
    file = BytesIO()
    with tifffile.TiffWriter(file, byteorder="<" if byteorder == "<" else ">") as writer:
        thumbnail = np.ascontiguousarray(_RGB[::4, ::4])
        common: dict[str, Any] = {"photometric": "rgb", "metadata": None}
        writer.write(thumbnail, subfiletype=1, subifds=1, extratags=camera, software="Nikon Scan 4.0.2", **common)
        writer.write(stored, subfiletype=0, **common)
    return file.getvalue()


@pytest.mark.parametrize("byteorder", ["<", ">"])
@pytest.mark.parametrize("linear", [False, True])
@pytest.mark.parametrize("bits", [8, 16])
def test_a_film_scan_is_developed_in_full(bits: int, linear: bool, byteorder: str) -> None:
    data = _scan(bits, linear=linear, byteorder=byteorder)

    for target in ("png", "jpeg", "tiff"):
        result = _converted(data, target, "nef")
        assert result.size == (320, 240)
        assert np.abs(np.asarray(result.convert("RGB"), float) - _RGB).mean() < (4 if target == "jpeg" else 1)


def test_a_image_that_is_larger_than_decoded_is_refused() -> None:
    data = raw_sample("dng", width=168, height=120)
    (first,) = struct.unpack_from("<I", data, 4)
    (count,) = struct.unpack_from("<H", data, first)
    larger = struct.pack("<HHHIHHHHIHHI", 2, 256, 3, 1, 4000, 0, 257, 3, 1, 3000, 0, 0)
    end = first + 2 + 12 * count
    data = data[:end] + struct.pack("<I", len(data)) + data[end + 4 :] + larger

    with pytest.raises(ConversionError):
        _converted(data, source="dng")


@pytest.mark.parametrize("camera", ["dng", "cr2"])
def test_every_depth_is_a_development(camera: str) -> None:
    data = raw_sample(camera)

    for target in ("jpeg", "webp", "avif", "heic", "bmp", "pdf"):
        assert codes(convert(data, target, metadata="none")) == set()
    for target in ("png", "tiff"):
        for options, expected in (({}, np.uint16), ({"bit_depth": 16}, np.uint16), ({"bit_depth": 8}, np.uint8)):
            result = convert(data, target, **options)
            seen = png_decode(result.data) if target == "png" else tifffile.imread(BytesIO(result.data))
            assert not codes(result)
            assert seen.dtype == expected


def test_a_film_scan_of_16_bits_is_reduced_with_a_warning() -> None:
    assert codes(convert(_scan(16, linear=False, byteorder="<"), "jpeg")) == {"depth_reduced"}


def _converted_16(name: str = "dng", **options: str | float | bool) -> NDArray[np.float64]:
    """The image with 16 bits, as numbers from 0 to 1."""
    return np.asarray(tifffile.imread(BytesIO(convert(sample(name), "tiff", **options).data))) / 65535


def _gray(image: NDArray[np.float64]) -> NDArray[np.float64]:
    """The color of the gray quadrant."""
    height, width = image.shape[0] // 8, image.shape[1] // 8
    return np.asarray(image[5 * height : 7 * height, 5 * width : 7 * width].mean(axis=(0, 1)))


def _linear(encoded: NDArray[np.float64]) -> float:
    return float(((encoded + 0.099) / 1.099).mean() ** (1 / 0.45))


@pytest.mark.parametrize("name", ["dng", "arw"])
@pytest.mark.parametrize("stops", [-2.0, -0.5, 0.25])
def test_a_stop_is_a_factor_of_two(name: str, stops: float) -> None:
    normal, changed = _converted_16(name), _converted_16(name, exposure=stops)

    assert _linear(_gray(changed)) / _linear(_gray(normal)) == pytest.approx(2**stops, rel=0.05)


def test_ten_stops_are_white_and_black() -> None:
    assert _gray(_converted_16(exposure=10)).min() == 1
    assert _gray(_converted_16(exposure=-10)).max() < 0.02


def test_warmer_light_is_made_bluer() -> None:
    ratios = []
    for temperature in (2000, 3000, 4000, 4001, 5500, 8000, 12000):
        red, _, blue = _gray(_converted_16(white_balance=str(temperature)))
        ratios.append(blue / red)

    assert all(warmer > colder for warmer, colder in pairwise(ratios))
    assert ratios[0] > 1.5
    assert ratios[-1] < 0.85


@pytest.mark.parametrize("name", ["dng", "3fr"])
def test_gray_in_daylight_is_gray(name: str) -> None:
    if name == "dng":
        gray = _gray(_converted_16(white_balance="6500"))
        assert gray.max() - gray.min() < 0.03
    cold, warm = (_gray(_converted_16(name, white_balance=value)) for value in ("4000", "9000"))
    assert cold[2] / cold[0] > warm[2] / warm[0]


def test_automatic_white_balance_is_that_of_a_gray_world() -> None:
    found = {value: _converted_16(white_balance=value).mean(axis=(0, 1)) for value in ("auto", "2500")}

    assert np.ptp(found["auto"]) < 0.1 < np.ptp(found["2500"])


@pytest.mark.parametrize("value", ["1999", "12001", "warm", "5500.5", ""])
def test_other_white_balances_are_refused(value: str) -> None:
    with pytest.raises(InvalidOption, match="white_balance"):
        _REGISTRY.validate({"white_balance": value})


@pytest.mark.parametrize("name", ["dng", "cr3", "raf", "mrw"])
def test_half_the_size_is_the_same_image(name: str) -> None:
    data = raw_sample(name, orientation=6)
    step = _REGISTRY.path(_REGISTRY.formats[name], RASTER)
    raster = pipeline.open_file(step, data, {"half_size": True})

    full, half = _converted_16(name), _converted_16(name, half_size=True)

    assert raster.sizes == [(60, 84)] == [next(iter(raster.frames)).size]
    assert half.shape == (60, 84, 3)
    assert _gray(half) == pytest.approx(_gray(full), abs=0.03)


def test_options_have_no_effect_on_previews() -> None:
    assert codes(convert(sample("arw"), "jpeg", raw_mode="preview", exposure=1.0)) == {"option_ignored"}


def test_a_compression_that_is_not_decoded_is_named() -> None:
    data = sample("dng")
    stored = struct.pack("<HHIHH", 259, 3, 1, 1, 0)
    assert data.count(stored) == 1
    with pytest.raises(CorruptInput, match="JPEG XL"):
        convert(data.replace(stored, struct.pack("<HHIHH", 259, 3, 1, 52546, 0)), "png")
