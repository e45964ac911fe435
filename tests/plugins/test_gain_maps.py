"""Gain maps and other images beside the one that is converted, in JPEG, JPEG XL, AVIF and HEIC."""

import struct
from collections.abc import Callable
from io import BytesIO
from pathlib import Path

import imagecodecs
import numpy as np
import pillow_heif
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
from tests.support.samples.heif_files import box, boxes, edited, with_gain_map_of_iphone, with_tone_mapped_item
from tests.support.samples.rasters import photo

_SIZE = (96, 64)
_STOPS = 2.0
_FILES = [
    *CORPUS.glob("jpeg/*gainmap*.jpg"),
    *CORPUS.glob("jpeg/*_apple_*.jpg"),
    *CORPUS.parent.glob("hard2/*gainmap*.jpg"),
]
_ADOBE = b'<x xmlns:hdrgm="http://ns.adobe.com/hdr-gain-map/1.0/" hdrgm:Version="1.0"/>'
_APPLE = b"<x><apdi:AuxiliaryImageType>urn:com:apple:photo:2020:aux:hdrgainmap</apdi:AuxiliaryImageType></x>"
_DEPTH = b"<x><apdi:AuxiliaryImageType>urn:mpeg:hevc:2015:auxid:2</apdi:AuxiliaryImageType></x>"
_XMP, _ISO = b"http://ns.adobe.com/xap/1.0/\0", b"urn:iso:std:iso:ts:21496:-1\0"
_UNDEFINED, _VGA, _FULL_HD, _PANORAMA, _DISPARITY = 0, 0x010001, 0x010002, 0x020001, 0x020002
_PRIMARY = 0x030000
_TARGETS = ("png", "jpeg", "pdf", "eps")


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
def test_changes_of_gain_maps(target: str, options: dict[str, OptionValue], edge: str, size: tuple[int, int]) -> None:
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
@pytest.mark.parametrize("kind", ["of iPhones", "tone-mapped item"])
def test_gain_maps_in_heic(kind: str, target: str) -> None:
    image = Image.new("RGB", _SIZE, (120, 120, 120))
    gain_map = _gain_map_of(image)
    if kind == "of iPhones":
        source, without = (with_gain_map_of_iphone(image, gain_map.frame.image, stops) for stops in ("4.0", "none"))
    else:
        described = (gain_maps.to_iso(gain_map), b"")
        source, without = (with_tone_mapped_item(image, gain_map.frame.image, data) for data in described)

    result = convert(source, target)

    assert codes(result) == set()
    back = result.data if target == "jpeg" else convert(result.data, "jpeg").data
    assert kind != "of iPhones" or _brightened(back) == "right"
    assert _light(back) == pytest.approx(_light(_file()), abs=0.15)
    assert codes(convert(source, "png")) == {"hdr_reduced"}
    assert codes(convert(source, "png", hdr="drop")) == set()
    assert codes(convert(without, target)) == {"hdr_reduced"}


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
    assert jxl.decode(convert(data, "jxl").data).gain_map is not None

    header = data.index(b"\xff\xc0", second)
    assert codes(convert(data[:header] + bytes(len(data) - header), "jpeg")) == {"hdr_reduced"}
    kept = bytearray(convert(data, "jxl").data)
    start = kept.index(b"jhgm") + 4
    for position in (start, start + 2, start + 5, start + 90):
        changed = bytearray(kept)
        changed[position] ^= 0x7F
        assert codes(convert(bytes(changed), "png")) == {"hdr_reduced"}
        assert opened(convert(bytes(changed), "jpeg").data).size == _SIZE


def _jpeg(*segments: tuple[int, bytes], mode: str = "RGB") -> bytes:
    data = saved(photo((60, 40), mode), "JPEG")
    added = (struct.pack(">BBH", 0xFF, marker, len(body) + 2) + body for marker, body in segments)
    return b"".join([data[:2], *added, data[2:]])


def _xmp(packet: bytes) -> tuple[int, bytes]:
    return 0xE1, _XMP + packet


def _multi_image(first: bytes, *others: tuple[int, bytes], order: str = ">", indexed: int | None = None) -> bytes:
    """A JPEG with others after it, each with its kind, and an index of them, or of the first `indexed` ones."""
    entries = [(_PRIMARY, b""), *others][:indexed]
    directory = struct.pack(
        f"{order}2sHIHHHI4sHHIIHHIII",
        b"MM" if order == ">" else b"II",
        *(42, 8, 3, 0xB000, 7, 4, b"0100", 0xB001, 4, 1, len(entries), 0xB002, 7, 16 * len(entries), 50, 0),
    )
    size = len(first) + 4 + 4 + len(directory) + 16 * len(entries)
    rows, end = [], size - 10  # offsets count from the directory, 10 bytes after the start of the file
    for kind, data in entries:
        rows.append(struct.pack(f"{order}3IHH", kind, len(data), end if data else 0, 0, 0))
        end += len(data)
    body = b"MPF\0" + directory + b"".join(rows)
    index = struct.pack(">BBH", 0xFF, 0xE2, len(body) + 2) + body
    return b"".join([first[:2], index, first[2:], *(data for _, data in others)])


def _told(data: bytes, target: str) -> set[str]:
    return codes(convert(data, target))


@pytest.mark.parametrize("target", _TARGETS)
@pytest.mark.parametrize("order", "<>")
def test_gain_maps_of_jpeg_are_told(target: str, order: str) -> None:
    plain = _jpeg()
    for segment in (_xmp(_ADOBE), _xmp(_APPLE), (0xE2, _ISO)):
        gain_map = _UNDEFINED, _jpeg(segment, mode="L")
        assert _told(_multi_image(plain, gain_map, order=order), target) == {"hdr_reduced"}
        preview, depth = (_VGA, plain), (_UNDEFINED, _jpeg(_xmp(_DEPTH)))
        assert _told(_multi_image(plain, preview, depth, gain_map, order=order), target) == {"hdr_reduced"}


@pytest.mark.parametrize("target", _TARGETS)
def test_gain_maps_of_jpeg_without_index_are_told(target: str) -> None:
    for segment in (_xmp(_ADOBE), (0xE2, _ISO)):
        assert _told(_jpeg(segment) + _jpeg(segment, mode="L"), target) == {"hdr_reduced"}
        assert _told(_jpeg(segment), target) == set()  # the gain map has been cut off


@pytest.mark.parametrize("target", _TARGETS)
@pytest.mark.parametrize("kind", [_UNDEFINED, _PANORAMA, _DISPARITY])
def test_additional_images_of_jpeg_are_told(target: str, kind: int) -> None:
    image = _jpeg()

    assert _told(_multi_image(image, (kind, image)), target) == {"pictures_dropped"}
    assert _told(_multi_image(image, (_VGA, image), (kind, image)), target) == {"pictures_dropped"}


@pytest.mark.parametrize("target", _TARGETS)
def test_previews_damaged_indexes_and_other_data_are_no_loss(target: str) -> None:
    image = _jpeg()
    damaged = bytearray(_multi_image(image, (_DISPARITY, image)))
    damaged[10:14] = b"\xff" * 4
    lossless = [
        _multi_image(image, (_VGA, image), (_FULL_HD, image)),
        _multi_image(image, (_DISPARITY, b"no picture")),
        bytes(damaged),
        image + image,
        image + box(b"ftyp", b"mp42"),
    ]

    assert [_told(data, target) for data in lossless] == [set()] * len(lossless)


def test_images_of_another_program_are_told() -> None:
    stereo = saved(photo((60, 40)), "MPO", save_all=True, append_images=[photo((60, 40)).rotate(90)])

    told = [one for one in convert(stereo, "webp").outcome.warnings if one.code == "pictures_dropped"]

    assert [one.message for one in told] == ["Only the first of 2 images in the file was converted."]


def test_a_stream_of_a_pdf_with_all_metadata_keeps_the_images() -> None:
    image = _jpeg()
    data = _multi_image(image, (_DISPARITY, image))

    result = convert(data, "pdf", metadata="all")

    assert codes(result) == set()
    assert data in result.data


def _tone_mapped(wide: bool) -> Callable[[dict[bytes, bytes]], None]:
    """Adds an item of the type tmap, with the wide numbers of large files or without."""

    def edit(changed: dict[bytes, bytes]) -> None:
        version = (b"\3" if wide else b"\2") + bytes(3)
        number = struct.pack(">I" if wide else ">H", 9)
        entries = changed[b"iinf"][6:] + box(b"infe", version + number + bytes(2) + b"tmap\0")
        count = sum(1 for _ in boxes(entries))
        head = b"\1\0\0\0" + struct.pack(">I", count) if wide else bytes(4) + struct.pack(">H", count)
        changed[b"iinf"] = head + entries

    return edit


@pytest.mark.parametrize("wide", [False, True])
def test_gain_maps_of_avif_are_told(wide: bool) -> None:
    data = saved(photo((60, 40)), "AVIF")

    assert _told(data, "png") == set()
    assert _told(edited(data, _tone_mapped(wide)), "png") == {"hdr_reduced"}


def _with_auxiliary_type(data: bytes, kind: bytes) -> bytes:
    """A still of libheif with one more property."""
    file = dict(boxes(data))
    meta = dict(boxes(file[b"meta"][4:]))
    properties = dict(boxes(meta[b"iprp"]))
    added = box(b"auxC", bytes(4) + kind + b"\0")
    properties[b"ipco"] += added
    meta[b"iprp"] = b"".join(box(*each) for each in properties.items())
    locations = bytearray(meta[b"iloc"])
    (base,) = struct.unpack_from(">I", locations, 12)
    struct.pack_into(">I", locations, 12, base + len(added))
    meta[b"iloc"] = bytes(locations)
    file[b"meta"] = bytes(4) + b"".join(box(*each) for each in meta.items())
    return b"".join(box(*each) for each in file.items())


def test_gain_maps_of_heic_are_told() -> None:
    file = BytesIO()
    pillow_heif.from_pillow(photo((64, 64))).save(file)

    apple, iso = b"urn:com:apple:photo:2020:aux:hdrgainmap", b"urn:iso:std:iso:ts:21496:-1"
    for kind in (apple, iso, apple + b"\0\1\2"):
        assert _told(_with_auxiliary_type(file.getvalue(), kind), "png") == {"hdr_reduced"}
    assert _told(_with_auxiliary_type(file.getvalue(), b"urn:mpeg:hevc:2015:auxid:2"), "png") == set()


@pytest.mark.parametrize("target", ["jpeg", "png", "webp"])
@pytest.mark.parametrize("version", [b' hdrgm:Version="1.0">', b"><hdrgm:Version>1.0</hdrgm:Version>"])
def test_results_announce_no_gain_map(target: str, version: bytes) -> None:
    packet = b'<x xmlns:hdrgm="http://ns.adobe.com/hdr-gain-map/1.0/"' + version + b"</x>"
    gain_map = _UNDEFINED, _jpeg(_xmp(_ADOBE), mode="L")

    result = convert(_multi_image(_jpeg(_xmp(packet)), gain_map), target, metadata="all")

    assert codes(result) == {"hdr_reduced"}
    assert b"xmlns:hdrgm" in result.data
    assert b"hdrgm:Version" not in result.data


@pytest.mark.parametrize("target", ["png", "pdf", "eps"])
def test_gain_maps_of_cameras_are_told(target: str) -> None:
    for file in (
        *CORPUS.parent.glob("*/*gainmap*.jpg"),
        *CORPUS.glob("jpeg/*gainmap.jpg"),
        *CORPUS.glob("*/*_apple_*"),
    ):
        assert "hdr_reduced" in _told(file.read_bytes(), target)
