"""Images beside the one that is converted: gain maps of JPEG, HEIC and AVIF, and those of multi-picture JPEG."""

import struct
from collections.abc import Callable
from io import BytesIO

import pillow_heif
import pytest

from tests.support.results.conversions import codes, convert
from tests.support.samples.corpus import CORPUS
from tests.support.samples.generated import saved
from tests.support.samples.heif_files import box, boxes, edited
from tests.support.samples.rasters import photo

_ADOBE = b'<x xmlns:hdrgm="http://ns.adobe.com/hdr-gain-map/1.0/" hdrgm:Version="1.0"/>'
_APPLE = b"<x><apdi:AuxiliaryImageType>urn:com:apple:photo:2020:aux:hdrgainmap</apdi:AuxiliaryImageType></x>"
_DEPTH = b"<x><apdi:AuxiliaryImageType>urn:mpeg:hevc:2015:auxid:2</apdi:AuxiliaryImageType></x>"
_XMP, _ISO = b"http://ns.adobe.com/xap/1.0/\0", b"urn:iso:std:iso:ts:21496:-1\0"
_UNDEFINED, _VGA, _FULL_HD, _PANORAMA, _DISPARITY = 0, 0x010001, 0x010002, 0x020001, 0x020002
_PRIMARY = 0x030000
_TARGETS = ("png", "jpeg", "pdf", "eps")


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
