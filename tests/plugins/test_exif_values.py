"""The values of EXIF, which are bytes: every type and encoding, from each format into each that holds EXIF."""

import struct

import pytest

from engine import FidelityWarning
from plugins._metadata import exif_data
from plugins._metadata.writing import filter_exif
from tests.support.results.conversions import codes, convert
from tests.support.samples.exif_blocks import (
    EXPOSURE,
    MAKER_NOTE,
    ORIENTATION,
    exif_block,
    read_tags,
)
from tests.support.samples.generated import quadrants, sample, saved

_HOLD_EXIF = ("jpeg", "png", "webp", "avif", "heic", "tiff", "psd")
_SIZE = (64, 48)
# Tags that describe the storage of the pixels.
_STORAGE = {(0, tag) for tag in (*range(254, 260), 262, 273, 274, *range(277, 285), 296, 317, 338, 339, 700)}
_PREVIEW = 1
_SIDES = {(EXPOSURE, 0xA002), (EXPOSURE, 0xA003)}
_SAFE = {(0, tag) for tag in (0x010E, 0x010F, 0x0110, 0x0131, 0x0132, 0x013B, 0x8298, 0x9C9C)} | {
    (EXPOSURE, tag) for tag in (0x829A, 0x8827, 0x9000, 0x9003, 0x9204, 0xA434)
}


def _photo(block: bytes) -> bytes:
    return saved(quadrants(_SIZE), "JPEG", exif=block, quality=90)


def _values(data: bytes) -> dict[tuple[int, int], tuple[int, int, bytes]]:
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
    expected = _values(block)
    file = convert(_photo(block), source, metadata="all").data

    results = {target: convert(file, target, metadata="all").data for target in _HOLD_EXIF}

    assert len(expected) == 22
    assert _values(file) == expected
    assert {target: _values(data) for target, data in results.items()} == dict.fromkeys(_HOLD_EXIF, expected)


@pytest.mark.parametrize("target", _HOLD_EXIF)
def test_safe_values_stay_as_they_are(target: str) -> None:
    block = exif_block(">", "latin-1", orientation=6)

    values = _values(convert(_photo(block), target).data)

    assert values == {tag: value for tag, value in _values(block).items() if tag in _SAFE}


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

    values = {target: _values(convert(data.replace(model, text), target).data) for target in ("jpeg", "tiff", "webp")}

    assert {target: found[0, 0x0110][2] for target, found in values.items()} == dict.fromkeys(values, text)


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
