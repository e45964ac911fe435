"""Gain maps: kept in JPEG, JPEG XL and AVIF, read in HEIC, changed as the image is, and read by libultrahdr."""

from io import BytesIO
from pathlib import Path

import imagecodecs
import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image
from PIL.MpoImagePlugin import MpoImageFile

from engine import Frame, GainMap, GainMapNumbers
from engine.options import OptionValue
from plugins._color import gain_maps
from plugins._jpeg import ultra_hdr
from plugins._jpeg.segments import read_segments
from plugins.formats import avif, jpeg, jxl
from tests.support.results.conversions import codes, convert, opened
from tests.support.samples.corpus import CORPUS
from tests.support.samples.generated import saved
from tests.support.samples.heif_files import with_gain_map_of_iphone, with_tone_mapped_item
from tests.support.samples.rasters import photo

_SIZE = (96, 64)
_STOPS = 2.0
_FILES = [
    *CORPUS.glob("jpeg/*gainmap*.jpg"),
    *CORPUS.glob("jpeg/*_apple_*.jpg"),
    *CORPUS.parent.glob("hard2/*gainmap*.jpg"),
]


def _gain_map_of(original: Image.Image, mode: str = "L") -> GainMap:
    """The right half of the image is four times as bright."""
    width, height = original.width // 2, original.height // 2
    image = Image.new(mode, (width, height))
    image.paste(Image.new(mode, (width // 2, height), "white"), (width // 2, 0))
    frame = Frame(image, full_size=original.size)
    return GainMap(frame, GainMapNumbers((0.0,), (_STOPS,), (1.0,), (1 / 64,), (1 / 64,), 0.0, _STOPS))


def _file(orientation: int = 1, mode: str = "L") -> bytes:
    tags = Image.Exif()
    tags[0x0112], tags[0x010F] = orientation, "Maker"
    image = Image.new("RGB", _SIZE, (120, 120, 120))
    data = saved(image, "JPEG", exif=tags, quality=95)
    return ultra_hdr.join(data, read_segments, _gain_map_of(image, mode))


def _numbers(gain_map: GainMap) -> list[list[float]]:
    """The numbers, each for three bands."""
    *lists, base, other, _ = gain_map.numbers
    return [[*values] * (3 // len(values)) for values in (*lists, (base,), (other,))]


def _light(data: bytes) -> NDArray[np.float64]:
    """The linear light of an image with gain map on a screen that shows all of it. White is 1."""
    return np.asarray(imagecodecs.ultrahdr_decode(data), np.float64)[..., :3]


def _brightened(data: bytes) -> str:
    """The side of the image that is brightened."""
    light = _light(data).mean(axis=2)
    height, width = (side // 4 for side in light.shape)
    sides = {"left": light[:, :width], "right": light[:, -width:], "top": light[:height], "bottom": light[-height:]}
    assert light.max() > 3 * light.min()
    return max(sides, key=lambda side: float(sides[side].mean()))


@pytest.mark.parametrize("mode", ["L", "RGB"])
@pytest.mark.parametrize("target", ["jpeg", "jxl", "avif"])
def test_gain_maps_are_kept(target: str, mode: str) -> None:
    data = _file(mode=mode)

    result = convert(data, target)

    assert codes(result) == set()
    back = result.data if target == "jpeg" else convert(result.data, "jpeg").data
    assert _brightened(back) == "right"
    assert _light(back) == pytest.approx(_light(data), abs=0.05)
    kept = jpeg.decode(back).gain_map
    assert kept is not None
    np.testing.assert_allclose(_numbers(kept), _numbers(_gain_map_of(photo(_SIZE))), atol=1e-5)
    assert kept.frame.size == (_SIZE[0] // 2, _SIZE[1] // 2)


@pytest.mark.parametrize("target", ["jpeg", "jxl", "avif"])
@pytest.mark.parametrize(
    ("options", "edge", "size"),
    [
        ({"rotate": 90}, "bottom", (64, 96)),
        ({"rotate": 180}, "left", (96, 64)),
        ({"rotate": 270}, "top", (64, 96)),
        ({"flip": "horizontal"}, "left", (96, 64)),
        ({"width": 48}, "right", (48, 32)),
        ({"crop": "32,16,64,32"}, "right", (64, 32)),
        ({"crop": "1:1", "gravity": "1,0.5"}, "right", (64, 64)),
        ({"width": 32, "height": 32, "fit": "cover", "quality": 70}, "right", (32, 32)),
    ],
)
def test_gain_maps_are_changed_as_the_image(
    target: str, options: dict[str, OptionValue], edge: str, size: tuple[int, int]
) -> None:
    result = convert(_file(), target, **options)

    assert codes(result) == set()
    back = result.data if target == "jpeg" else convert(result.data, "jpeg").data
    assert opened(back).size == size
    assert _brightened(back) == edge


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("over", ["jpeg", "jxl", "jxl with quality", "avif"])
def test_gain_maps_have_the_orientation_of_the_image(orientation: int, over: str) -> None:
    options: dict[str, OptionValue] = {"quality": 90} if over == "jxl with quality" else {}
    result = convert(_file(orientation), over.split()[0], **options)

    assert "hdr_reduced" not in codes(result)
    direct = convert(result.data, "jpeg").data  # from jxl, it has the orientation of the source
    upright = convert(direct if over == "jxl" else result.data, "jpeg", rotate=90)
    edge = ["right", "left", "left", "right", "bottom", "bottom", "top", "top"][orientation - 1]
    assert _brightened(upright.data) == {"right": "bottom", "bottom": "left", "left": "top", "top": "right"}[edge]


@pytest.mark.parametrize("target", ["png", "webp", "heic", "tiff", "gif", "bmp"])
def test_other_formats_tell_the_loss(target: str) -> None:
    for source in (_file(), *(convert(_file(), holder).data for holder in ("jxl", "avif"))):
        assert codes(convert(source, target)) - {"colors_reduced", "metadata_dropped"} == {"hdr_reduced"}
        assert "hdr_reduced" not in codes(convert(source, target, hdr="drop"))


@pytest.mark.parametrize("target", ["jpeg", "jxl", "avif"])
def test_gain_maps_can_be_dropped(target: str) -> None:
    result = convert(_file(), target, hdr="drop")

    assert codes(result) == set()
    assert jpeg.decode(result.data if target == "jpeg" else convert(result.data, "jpeg").data).gain_map is None
    assert b"hdr-gain-map" not in result.data
    assert b"jhgm" not in result.data
    assert b"tmap" not in result.data


def test_the_index_of_images_is_that_of_multi_image_files() -> None:
    data = _file()

    with MpoImageFile(BytesIO(data)) as image:  # Pillow itself takes Ultra HDR for plain JPEG
        assert image.n_frames == 2
        assert image.size == _SIZE
        image.seek(1)
        image.load()
        assert image.size == (_SIZE[0] // 2, _SIZE[1] // 2)


def test_other_colors_padding_and_effects_lose_the_gain_map() -> None:
    padded: dict[str, OptionValue] = {"width": 40, "height": 40, "fit": "contain"}
    others: list[dict[str, OptionValue]] = [{"color_space": "gray"}, {"pad": "5"}, {"gamma": 2.0}, {"blur": 2.0}]

    for options in (padded, *others):
        assert codes(convert(_file(), "jpeg", **options)) == {"hdr_reduced"}


@pytest.mark.parametrize("file", _FILES, ids=[file.name for file in _FILES])
def test_real_files_keep_their_gain_map(file: Path) -> None:
    data = file.read_bytes()
    source = jpeg.decode(data).gain_map
    assert source is not None

    for result in (convert(data, "jpeg"), *(convert(convert(data, over).data, "jpeg") for over in ("jxl", "avif"))):
        assert "hdr_reduced" not in codes(result)
        kept = jpeg.decode(result.data).gain_map
        assert kept is not None
        difference = np.asarray(kept.frame.image, int) - np.asarray(source.frame.image, int)
        assert np.abs(difference).mean() < 3
        np.testing.assert_allclose(_numbers(kept), _numbers(source), atol=1e-5)
        assert _light(result.data).max() > 1.5


def test_apple_gain_maps_get_their_headroom() -> None:
    packet = b'<x HDRGainMap:HDRGainMapHeadroom="4.0"/>'
    ramp = Image.linear_gradient("L")

    gain_map = gain_maps.from_apple(ramp, packet, (512, 512))

    assert gain_map is not None
    stops = np.asarray(gain_map.frame.image, float)[:, 0] / 255 * gain_map.numbers.maximum[0]
    encoded = np.arange(256) / 255
    light = np.where(encoded <= 0.04045, encoded / 12.92, ((encoded + 0.055) / 1.055) ** 2.4)
    assert gain_map.numbers.other_headroom == 2
    assert 2**stops == pytest.approx(1 + 3 * light, rel=0.01)
    assert gain_maps.from_apple(ramp, b"", (512, 512)) is None


@pytest.mark.parametrize("target", ["jpeg", "jxl", "avif"])
def test_gain_maps_of_iphones_in_heic(target: str) -> None:
    image = Image.new("RGB", _SIZE, (120, 120, 120))
    source = with_gain_map_of_iphone(image, _gain_map_of(image).frame.image, "4.0")

    result = convert(source, target)

    assert codes(result) == set()
    back = result.data if target == "jpeg" else convert(result.data, "jpeg").data
    assert _brightened(back) == "right"
    assert _light(back) == pytest.approx(_light(_file()), abs=0.15)
    assert codes(convert(source, "png")) == {"hdr_reduced"}
    assert codes(convert(source, "png", hdr="drop")) == set()
    without = with_gain_map_of_iphone(image, _gain_map_of(image).frame.image, "none")
    assert codes(convert(without, target)) == {"hdr_reduced"}


@pytest.mark.parametrize("target", ["jpeg", "jxl", "avif"])
def test_tone_mapped_items_of_heic(target: str) -> None:
    image = Image.new("RGB", _SIZE, (120, 120, 120))
    gain_map = _gain_map_of(image)
    source = with_tone_mapped_item(image, gain_map.frame.image, gain_maps.to_iso(gain_map))

    result = convert(source, target)

    assert codes(result) == set()
    back = result.data if target == "jpeg" else convert(result.data, "jpeg").data
    assert _light(back) == pytest.approx(_light(_file()), abs=0.15)
    assert codes(convert(source, "png")) == {"hdr_reduced"}
    assert codes(convert(source, "png", hdr="drop")) == set()
    broken = with_tone_mapped_item(image, gain_map.frame.image, b"")
    assert codes(convert(broken, target)) == {"hdr_reduced"}


def test_avif_with_metadata_and_gain_map() -> None:
    data = convert(_file(), "avif", metadata="all").data

    kept = avif.decode(data)

    assert kept.gain_map is not None
    assert kept.metadata.exif is not None
    assert b"Maker" in kept.metadata.exif
    assert opened(data).size == _SIZE
    numbers = gain_maps.to_iso(kept.gain_map)
    assert data.count(numbers) == 1
    later = data.replace(numbers, b"\0\1" + numbers[2:])  # a version that is not known
    assert codes(convert(later, "jpeg")) >= {"hdr_reduced"}


def test_numbers_by_iso_with_a_common_denominator() -> None:
    numbers = [1000, 0, 3000, -500, 3000, 1000, 15, 16]
    data = bytes((0, 0, 0, 0, 0x48)) + b"".join(number.to_bytes(4, signed=number < 0) for number in numbers)

    read = gain_maps.from_iso(data)

    assert read == GainMapNumbers((-0.5,), (3.0,), (1.0,), (0.015,), (0.016,), 0.0, 3.0, True)
    for invalid in (b"", data[:20], b"\0\1" + data[2:], data[:5] + bytes(4) + data[9:]):
        assert gain_maps.from_iso(invalid) is None


@pytest.mark.parametrize(
    "change",
    [
        (b'HDRCapacityMax="2.000000"', b'HDRCapacityMax="9e99900."'),
        (b'GainMapMax="2.000000"', b'GainMapMax="9999.000"'),
        (b'Gamma="1.000000"', b'Gamma="0.000000"'),
        (b'BaseRenditionIsHDR="False"', b'BaseRenditionIsHDR="True" '),
    ],
)
def test_invalid_numbers_are_told(change: tuple[bytes, bytes]) -> None:
    data = _file().replace(b"urn:iso:std:iso:ts:21496:-1", b"urn:iso:std:iso:ts:00000:-1")
    assert change[0] in data

    result = convert(data.replace(*change), "jpeg")

    assert codes(result) == {"hdr_reduced"}
    assert opened(result.data).size == _SIZE


def test_damaged_gain_maps_are_told() -> None:
    data = _file()
    second = data.rindex(b"\xff\xd8\xff")
    content = jxl.decode(convert(data, "jxl").data)
    assert content.gain_map is not None

    header = data.index(b"\xff\xc0", second)
    assert codes(convert(data[:header] + bytes(len(data) - header), "jpeg")) == {"hdr_reduced"}
    kept = bytearray(convert(data, "jxl").data)
    start = kept.index(b"jhgm") + 4
    for position in (start, start + 2, start + 5, start + 90):
        changed = bytearray(kept)
        changed[position] ^= 0x7F
        assert codes(convert(bytes(changed), "png")) == {"hdr_reduced"}
        assert opened(convert(bytes(changed), "jpeg").data).size == _SIZE
