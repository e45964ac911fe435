"""The options `metadata` and `dpi`: what results keep, as ExifTool reads them, values of EXIF, and the resolution."""

import struct
import warnings
from io import BytesIO
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np
import pytest
import tifffile
from PIL import Image

from engine import FidelityWarning, Frame, ImageMetadata, Raster
from engine.mupdf import pymupdf
from engine.registry import load_registry
from plugins._metadata import exif_data
from plugins._metadata.writing import filter_exif, filter_xmp
from plugins.operations import geometry
from plugins.operations.metadata import metadata
from tests.support.results.conversions import codes, convert, opened
from tests.support.samples.exif_blocks import EXPOSURE, MAKER_NOTE, ORIENTATION, exif_block, read_tags
from tests.support.samples.generated import quadrants, sample, saved
from tests.support.samples.profiles import srgb_profile
from tests.support.samples.rasters import photo
from tests.support.samples.tagged_photo import (
    KEPT,
    PRIVATE,
    XMP_KEPT,
    XMP_PRIVATE,
    exiftool,
    exiftool_of_all,
    tagged_photo,
)

Choice: TypeAlias = Literal["all", "safe", "none"]
_EXIF_RESOLUTION = (0x011A, 0x011B, 0x0128)
_HOLD_EXIF = ("jpeg", "png", "webp", "avif", "heic", "tiff", "psd")
_SIZE = (64, 48)
# Tags that describe the storage of the pixels.
_STORAGE = {(0, tag) for tag in (*range(254, 260), 262, 273, 274, *range(277, 285), 296, 317, 320, 338, 339, 700)}
_PREVIEW = 1
_SIDES = {(EXPOSURE, 0xA002), (EXPOSURE, 0xA003)}
_SAFE = {(0, tag) for tag in (0x010E, 0x010F, 0x0110, 0x0131, 0x0132, 0x013B, 0x8298, 0x9C9C)} | {
    (EXPOSURE, tag) for tag in (0x829A, 0x8827, 0x9000, 0x9003, 0x9204, 0xA434)
}


class Result(NamedTuple):
    """A file and its tags, as ExifTool reads them."""

    data: bytes
    tags: dict[str, Any]


_CHOICES: tuple[Choice, ...] = ("all", "safe", "none")


_TARGETS = ("jpeg", "webp", "avif", "heic", "tiff", "png")


_REGISTRY = load_registry()


def _convert(data: bytes, target: str, choice: Choice) -> bytes:
    options = {} if choice == "safe" else {"metadata": choice}  # safe is the default
    return convert(data, target, **options).data


def _values(tags: dict[str, Any]) -> set[str]:
    return {str(value) for value in tags.values()}


def test_the_source_has_all_tags() -> None:
    tags = exiftool(tagged_photo())
    names = {name.partition(":")[2] for name in tags}

    assert {*KEPT, *PRIVATE} <= names
    assert {*XMP_KEPT, *XMP_PRIVATE} <= tags.keys()
    assert "ThumbnailImage" in names


@pytest.fixture(scope="module", params=_TARGETS)
def results(request: pytest.FixtureRequest) -> dict[Choice, Result]:
    """The photo in a target format, by the value of the option."""
    files = [_convert(tagged_photo(), request.param, choice) for choice in _CHOICES]
    return dict(zip(_CHOICES, map(Result, files, exiftool_of_all(files)), strict=True))


def test_the_position_is_there_only_if_requested(results: dict[Choice, Result]) -> None:
    for choice, result in results.items():
        positions = [name for name in result.tags if "GPS" in name or "City" in name or "Location" in name]

        assert bool(positions) == (choice == "all")


def test_safe_keeps_date_camera_exposure_and_author(results: dict[Choice, Result]) -> None:
    data, tags = results["safe"]
    by_name = {name.partition(":")[2]: str(value) for name, value in tags.items() if not name.startswith("XMP")}

    assert {name: by_name.get(name) for name in KEPT} == KEPT
    assert {name: str(tags.get(name)) for name in XMP_KEPT} == XMP_KEPT
    assert not {*PRIVATE, "ThumbnailImage", "MakerNoteUnknownText"} & by_name.keys()
    assert not XMP_PRIVATE.keys() & tags.keys()
    assert not {"BODY-12345", "LENS-12345", "An Owner", "owners-computer", "private comment"} & _values(tags)
    assert b"BODY-12345" not in data


def test_none_keeps_only_the_profile(results: dict[Choice, Result]) -> None:
    data, tags = results["none"]

    assert not {*KEPT.values(), *PRIVATE.values()} - {"N", "W", "35", "400"} & _values(tags)
    assert not [name for name in tags if name.startswith(("XMP", "ExifIFD", "GPS", "IFD1"))]
    assert Image.open(BytesIO(data)).info["icc_profile"] == srgb_profile()


@pytest.mark.parametrize(("choice", "expected"), [("safe", ["location_removed"]), ("none", []), ("all", [])])
def test_the_removal_of_a_position_is_a_warning(choice: Choice, expected: list[str]) -> None:
    with Image.open(BytesIO(tagged_photo())) as image:
        raster = Raster([], metadata=ImageMetadata(exif=image.info["exif"]))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        metadata.run(raster, metadata=choice)

    messages = [warned.message for warned in caught]
    assert [message.code for message in messages if isinstance(message, FidelityWarning)] == expected


def test_without_a_position_there_is_no_warning() -> None:
    tags = Image.Exif()
    tags[0x010F] = "Maker"
    tags.get_ifd(0x8825)[0] = b"\2\3\0\0"

    kept = filter_exif(tags.tobytes(), "safe")

    assert kept is not None
    assert b"Maker" in kept


@pytest.mark.parametrize("choice", ["all", "safe"])
@pytest.mark.parametrize("block", [b"II*\0\xff\xff\xff\xff", b"nonsense", b"MM\0*\0\0\0\x08\0\0\0\0\0\0"])
def test_damaged_exif_is_removed_with_a_warning(block: bytes, choice: Choice) -> None:
    with pytest.warns(FidelityWarning, match="metadata_damaged"):
        assert filter_exif(b"Exif\0\0" + block, choice) is None


def _packet(properties: str, before: str = "") -> bytes:
    rdf = "http://www.w3.org/1999/02/22-rdf-syntax-ns#"
    return (
        f'<?xpacket begin="\ufeff" id="W5M0MpCehiHzreSzNTczkc9d"?>{before}<x:xmpmeta xmlns:x="adobe:ns:meta/">'
        f'<rdf:RDF xmlns:rdf="{rdf}"><rdf:Description rdf:about="" xmlns:dc="http://purl.org/dc/elements/1.1/"'
        f' xmlns:exif="http://ns.adobe.com/exif/1.0/" xmlns:tiff="http://ns.adobe.com/tiff/1.0/" {properties}'
        '</rdf:Description></rdf:RDF></x:xmpmeta>     <?xpacket end="w"?>'
    ).encode()


def test_properties_are_attributes_or_elements() -> None:
    packet = _packet(
        'tiff:Make="Maker" exif:SerialNumber="123" unknown="1"><dc:rights>Mine</dc:rights>'
        "<!-- private --><exif:MakerNote>abc</exif:MakerNote><exif:FNumber>4/1</exif:FNumber>"
    )

    kept = filter_xmp(packet, "safe")

    assert kept is not None
    assert all(text in kept for text in (b'tiff:Make="Maker"', b"<dc:rights>Mine</dc:rights>", b"4/1", b"<?xpacket"))
    assert not [text for text in (b"123", b"private", b"MakerNote", b"unknown") if text in kept]


@pytest.mark.parametrize(
    "packet",
    [
        b"no XML",
        b"",
        b"<x/>",
        _packet('tiff:Make="M">')[:-60],
        _packet(">"),
        _packet('tiff:Make="&a;">', '<!DOCTYPE x [<!ENTITY a "aaaa">]>'),
        _packet('tiff:Make="M">' + "<dc:a>" * 5000 + "</dc:a>" * 5000),
        _packet(f'tiff:Make="{"M" * (5 << 20)}">'),
        _packet('tiff:Make="M">').decode().encode("utf-16"),
    ],
    ids=range(9),
)
def test_unusable_packets_are_removed(packet: bytes) -> None:
    assert filter_xmp(packet, "safe") is None


@pytest.mark.parametrize("name", ["exif:GPSLatitude", "drone:GpsLongitude", "photoshop:City", "Iptc4xmpCore:Location"])
def test_positions_in_xmp_are_found(name: str) -> None:
    prefix = name.partition(":")[0]
    declared = "" if prefix == "exif" else f'xmlns:{prefix}="urn:{prefix}" '
    with pytest.warns(FidelityWarning, match="location_removed"):
        assert filter_xmp(_packet(f'{declared}{name}="1">'), "safe") is None


def test_geometry_removes_the_preview() -> None:
    with Image.open(BytesIO(tagged_photo())) as image:
        exif = image.info["exif"]
    raster = geometry.crop.run(Raster([Frame(quadrants())], metadata=ImageMetadata(exif=exif)), crop="0,0,9,9")

    assert raster.metadata.exif is not None
    tags = Image.Exif()
    tags.load(raster.metadata.exif)
    assert tags[0x0110] == "Camera Model"
    assert not tags.get_ifd(-1)
    assert exif.find(b"\xff\xd8") > 0 > raster.metadata.exif.find(b"\xff\xd8")


def _source(encoder: str, **parameters: Any) -> bytes:
    return saved(photo((96, 64)), encoder, **parameters)


def _exif(**tags: Any) -> bytes:
    exif = Image.Exif()
    exif[0x010F] = "Maker"
    exif[0x011A], exif[0x011B], exif[0x0128] = 72.0, 72.0, 3
    block: bytes = exif.tobytes()
    return block


@pytest.mark.parametrize("target", ["jpeg", "png", "tiff", "bmp", "jp2", "jxr", "psd", "pcx"])
@pytest.mark.parametrize("exif", [False, True])
def test_the_resolution_is_written(target: str, exif: bool) -> None:
    data = _source("JPEG", dpi=(90, 45), **({"exif": _exif()} if exif else {}))

    result = convert(data, target, dpi=200)

    back = convert(result.data, "tiff").data if target in ("jp2", "jxr", "psd") else result.data
    assert opened(back).info["dpi"] == pytest.approx((200, 200), abs=0.5)
    assert not codes(result) - {"metadata_dropped", "colors_reduced"}
    assert "resolution" not in str(result.outcome.warnings)
    if exif and target in ("jpeg", "png"):
        block = opened(result.data).getexif()
        assert [block[tag] for tag in _EXIF_RESOLUTION] == [200, 200, 2]
        assert block[0x010F] == "Maker"


@pytest.mark.parametrize("target", ["webp", "avif", "heic", "jxl"])
@pytest.mark.parametrize("exif", [False, True])
def test_the_resolution_is_in_exif_where_there_is_no_other_place(target: str, exif: bool) -> None:
    result = convert(_source("PNG", **({"exif": _exif()} if exif else {})), target, dpi=200)

    assert not codes(result)
    block = opened(convert(result.data, "jpeg", metadata="all").data).getexif()
    assert [block[tag] for tag in _EXIF_RESOLUTION] == [200, 200, 2]


@pytest.mark.parametrize("target", ["gif", "qoi", "tga"])
def test_a_target_without_resolution_is_told(target: str) -> None:
    result = convert(_source("PNG"), target, dpi=200)

    (message,) = [one.message for one in result.outcome.warnings if one.code == "metadata_dropped"]
    assert "resolution" in message


@pytest.mark.parametrize("metadata", ["safe", "all", "none"])
@pytest.mark.parametrize("parameters", [{}, {"dpi": (30, 30)}, {"exif": _exif()}], ids=["none", "jfif", "exif"])
@pytest.mark.parametrize("over", ["jpeg", "jxl"])
def test_the_coefficients_of_a_jpeg_stay(over: str, parameters: dict[str, Any], metadata: str) -> None:
    data = _source("JPEG", quality=60, **parameters)

    made = convert(data, over, dpi=200, metadata=metadata)
    result = made if over == "jpeg" else convert(made.data, "jpeg", metadata="all")

    assert not codes(made)
    image = opened(result.data)
    assert image.tobytes() == opened(data).tobytes()
    assert image.info["dpi"] == pytest.approx((200, 200))
    assert opened(convert(convert(data, "jxl").data, "jpeg", dpi=150).data).info["dpi"] == pytest.approx((150, 150))


@pytest.mark.parametrize("encoder", ["JPEG", "PNG", "TIFF"])
def test_the_resolution_is_that_of_a_page(encoder: str) -> None:
    result = convert(_source(encoder), "pdf", dpi=48)

    document = pymupdf.open(stream=result.data)
    assert (document[0].rect.width, document[0].rect.height) == pytest.approx((144, 96), abs=0.1)
    if encoder == "JPEG":
        assert document.extract_image(document[0].get_images()[0][0])["ext"] == "jpeg"
        stored = document.xref_stream_raw(document[0].get_images()[0][0])
        assert opened(stored).tobytes() == opened(_source(encoder)).tobytes()


def test_all_pages_get_it() -> None:
    file = BytesIO()
    with tifffile.TiffWriter(file) as writer:
        for dots in (50, 300):
            writer.write(np.asarray(photo((40, 30))), photometric="rgb", resolution=(dots, dots), resolutionunit="inch")

    pages = tifffile.TiffFile(BytesIO(convert(file.getvalue(), "tiff", dpi=120).data)).pages

    assert [page.aspage().get_resolution(unit=2) for page in pages] == [(120, 120)] * 2


def test_a_drawing_still_has_the_size_of_its_resolution() -> None:
    drawing = b'<svg xmlns="http://www.w3.org/2000/svg" width="96" height="48"><rect width="96" height="48"/></svg>'

    image = opened(convert(drawing, "png", dpi=192).data)
    wide = opened(convert(drawing, "png", dpi=192, width=384).data)

    assert (image.size, image.info["dpi"]) == ((192, 96), pytest.approx((192, 192), abs=0.1))
    assert wide.info["dpi"] == pytest.approx((384, 384), abs=0.1)


def _photo(block: bytes) -> bytes:
    return saved(quadrants(_SIZE), "JPEG", exif=block, quality=90)


def _exif_values(data: bytes) -> dict[tuple[int, int], tuple[int, int, bytes]]:
    """Type, number and bytes of each value but those of storage and preview."""
    tags = read_tags(data)
    return {
        tag: (stored.kind, stored.number, stored.data)
        for tag, stored in tags.items()
        if tag[0] != _PREVIEW and tag not in _STORAGE | _SIDES
    }


@pytest.mark.parametrize(("order", "encoding"), [("<", "utf-8"), (">", "latin-1")])
@pytest.mark.parametrize("source", _HOLD_EXIF)
def test_values_stay_as_they_are(source: str, order: str, encoding: str) -> None:
    block = exif_block(order, encoding)
    expected = _exif_values(block)
    file = convert(_photo(block), source, metadata="all").data

    results = {target: convert(file, target, metadata="all").data for target in _HOLD_EXIF}

    assert len(expected) == 22
    assert _exif_values(file) == expected
    assert {target: _exif_values(data) for target, data in results.items()} == dict.fromkeys(_HOLD_EXIF, expected)


@pytest.mark.parametrize("target", _HOLD_EXIF)
def test_safe_values_stay_as_they_are(target: str) -> None:
    block = exif_block(">", "latin-1", orientation=6)

    values = _exif_values(convert(_photo(block), target).data)

    assert values == {tag: value for tag, value in _exif_values(block).items() if tag in _SAFE}


@pytest.mark.parametrize(
    "comment",
    [
        b"ASCII\0\0\0plain",
        b"UNICODE\0" + "größer".encode("utf-16-be"),
        b"JIS\0\0\0\0\0\x1b$BF|K\\",
        b"\0\0\0\0\0\0\0\0gr\xf6\xdfer",
    ],
)
@pytest.mark.parametrize("target", _HOLD_EXIF)
def test_comments_keep_their_prefix(target: str, comment: bytes) -> None:
    data = convert(_photo(exif_block(">", comment=comment)), target, metadata="all").data

    assert read_tags(data)[EXPOSURE, 0x9286].data == comment


@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize("target", ["jpeg", "png", "webp", "avif", "heic", "psd"])
def test_maker_notes_stay_at_their_offset_without_orientation_and_preview(target: str, order: str) -> None:
    block = exif_block(order, orientation=6)

    data = convert(_photo(block), target, metadata="all", quality=50 if target == "jpeg" else 80).data

    tags = read_tags(data)
    assert tags[EXPOSURE, MAKER_NOTE] == read_tags(block)[EXPOSURE, MAKER_NOTE]
    assert tags[0, ORIENTATION].data == struct.pack(f"{order}H", 1)
    assert not [tag for tag in tags if tag[0] == _PREVIEW]
    assert len(exif_data.upright(block) or b"") < len(block) - 600


@pytest.mark.parametrize("target", _HOLD_EXIF)
@pytest.mark.parametrize("options", [{"crop": "3,5,20,31"}, {"width": 20}, {"rotate": 90}, {}])
def test_sizes_are_those_of_the_result(target: str, options: dict[str, str | int]) -> None:
    order = ">"
    data = convert(_photo(exif_block(order, orientation=8)), target, metadata="all", **options).data

    tags = read_tags(data)
    width, height = {"crop": (20, 31), "width": (20, 27), "rotate": (64, 48)}.get(next(iter(options), ""), (48, 64))
    assert tags[EXPOSURE, 0xA002].data == struct.pack(f"{order}I", width)
    assert tags[EXPOSURE, 0xA003].data == struct.pack(f"{order}H", height)


@pytest.mark.parametrize("raw", ["cr2", "nef", "arw", "dng", "orf", "rw2", "raf"])
def test_texts_of_raw_stay_as_they_are(raw: str) -> None:
    data = sample(raw)
    model = read_tags(data.replace(b"IIU\0", b"II*\0").replace(b"IIRO", b"II*\0"))[0, 0x0110].data
    text = "©ü".encode().ljust(len(model) - 1, b"x") + b"\0"

    values = {name: _exif_values(convert(data.replace(model, text), name).data) for name in ("jpeg", "tiff", "webp")}

    assert {name: found[0, 0x0110][2] for name, found in values.items()} == dict.fromkeys(values, text)


def _changed(change: int, at: int) -> bytes:
    block = bytearray(exif_block("<", orientation=6))
    block[at] = change
    return bytes(block)


@pytest.mark.filterwarnings("ignore::engine.FidelityWarning")
def test_no_block_is_too_much() -> None:
    """Blocks with one other byte have loops, other numbers of values, and other offsets."""
    size = len(exif_block("<")) - 600
    for at in range(6, size):
        block = _changed((0xFF, 8)[at % 2], at)
        results = [filter_exif(block, "safe"), exif_data.upright(block), exif_data.without_preview(block)]

        assert all(len(result or b"") <= len(block) for result in results)


def test_values_that_overlap_are_not_multiplied() -> None:
    entries = b"".join(struct.pack("<HHII", tag, 7, 60_000, 8) for tag in range(0x9000, 0x9100))
    block = b"Exif\0\0II*\0\x08\0\0\0" + struct.pack("<H", 256) + entries + bytes(60_000)

    with pytest.warns(FidelityWarning, match="metadata_damaged"):
        assert filter_exif(block, "all") is None


@pytest.mark.parametrize("encoder", ["PNG", "WEBP", "AVIF"])
def test_damaged_exif_is_told(encoder: str) -> None:
    data = saved(quadrants(_SIZE), encoder, exif=b"Exif\0\0MM\0*\0\0\0\x08\0\0\0\0\0\0")

    assert "metadata_damaged" in codes(convert(data, "webp", metadata="all"))
    assert codes(convert(data, "png", metadata="none")) == set()


_CLIP = b"\0\0\0\x18ftypmp42\0\0\0\0mp42isom\0\0\0\x10mdat" + bytes(8)
_CAMERA = 'xmlns:GCamera="http://ns.google.com/photos/1.0/camera/"'
_ATTRIBUTES = f'<rdf:Description {_CAMERA} GCamera:MotionPhoto="1" GCamera:MotionPhotoVersion="1"/>'
_ELEMENTS = f"<rdf:Description {_CAMERA}><GCamera:MicroVideo>1</GCamera:MicroVideo></rdf:Description>"
_PARTS = """<rdf:Description xmlns:Container="http://ns.google.com/photos/1.0/container/"><Container:Directory><rdf:Seq>
<rdf:li Item:Semantic="MotionPhoto" xmlns:Item="http://ns.google.com/photos/1.0/container/item/"/></rdf:Seq>
</Container:Directory></rdf:Description>"""


def _motion_photo(*descriptions: str) -> bytes:
    packet = _packet('dc:creator="Author">').replace(b"</rdf:RDF>", "".join(descriptions).encode() + b"</rdf:RDF>")
    return saved(photo(_SIZE), "JPEG", xmp=packet) + _CLIP


@pytest.mark.parametrize("metadata", ["all", "safe", "none"])
@pytest.mark.parametrize("described", [(), (_ATTRIBUTES,), (_ELEMENTS,), (_ATTRIBUTES, _PARTS)])
def test_the_video_of_a_motion_photo_is_told_and_not_announced(described: tuple[str, ...], metadata: str) -> None:
    data = _motion_photo(*described)

    for target in ("jpeg", "png"):
        result = convert(data, target, metadata=metadata)
        assert codes(result) == {"frames_dropped"}
        assert not [name for name in (b"Motion", b"MicroVideo", b"Directory", b"mdat") if name in result.data]
        assert (b"Author" in result.data) == (metadata != "none")


def test_the_video_stays_in_a_file_with_all_its_bytes() -> None:
    data = _motion_photo(_ATTRIBUTES, _PARTS)

    kept = convert(data, "jxl", metadata="all")

    assert codes(kept) == set()
    assert convert(kept.data, "jpeg", metadata="all").data == data
    assert _CLIP in convert(data, "pdf", metadata="all").data
    assert codes(convert(kept.data, "jpeg")) == codes(convert(data, "jxl")) == {"frames_dropped"}


def test_the_video_of_heic_is_told() -> None:
    box = struct.pack(">I4s", 8 + len(_CLIP), b"mpvd") + _CLIP

    assert codes(convert(sample("heic") + box, "png")) == {"frames_dropped"}
