"""ICO, CUR and ICNS: bitmaps of all depths with their masks, blocks of every kind, and the sizes that are written."""

import struct
import subprocess
from io import BytesIO
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from engine import InvalidOption, OptionValue
from engine.dry_run import dry_run
from engine.registry import load_registry
from tests.support.results.conversions import codes, convert, opened
from tests.support.samples.broken import BLAMED, broken, outcome
from tests.support.samples.corpus import format_files
from tests.support.samples.generated import sample, saved
from tests.support.samples.rasters import photo

_REGISTRY = load_registry()
_KINDS = {"ico": 1, "cur": 2}
_SIZE = (11, 5)


def _icon(*blocks: bytes, kind: int = 1, length: int | None = None) -> bytes:
    """A file with these images. `length` replaces the ones in its directory, which hold no sizes."""
    offset, entries = 6 + 16 * len(blocks), b""
    for block in blocks:
        entries += struct.pack("<BBBBHHII", 0, 0, 0, 0, 1, 1, len(block) if length is None else length, offset)
        offset += len(block)
    return struct.pack("<HHH", 0, kind, len(blocks)) + entries + b"".join(blocks)


def _bitmap(image: Image.Image, bits: int, transparent: np.ndarray | None, masks: tuple[int, ...] = ()) -> bytes:
    """The image, and a mask with 1 for transparent pixels, both from the bottom; without a mask if it is None."""
    array = np.asarray(image)[::-1]
    colors = b""
    if bits <= 8:
        palette = np.zeros((1 << bits, 4), np.uint8)
        own = np.array(image.getpalette()).reshape(-1, 3)[: 1 << bits]
        palette[: len(own), :3] = own[:, ::-1]
        colors = palette.tobytes()
        unpacked = (array[..., None] >> np.arange(bits - 1, -1, -1)) & 1
        rows = np.packbits(unpacked.reshape(len(array), -1), axis=1)
    elif bits == 16:
        red, green, blue = (array[..., band].astype("<u2") >> 3 for band in range(3))
        rows = (red << 10 | green << 5 | blue).view(np.uint8)
    else:
        rows = array[..., [2, 1, 0, 3][: bits // 8]].reshape(len(array), -1)
    body = b"".join(row.tobytes().ljust(-(-row.nbytes // 4) * 4, b"\0") for row in rows)
    if transparent is not None:
        body += b"".join(row.tobytes().ljust(4, b"\0") for row in np.packbits(transparent[::-1], axis=1))
    compression = 3 if masks else 0
    header = struct.pack("<IiiHHIIiiII", 40, image.width, 2 * image.height, 1, bits, compression, 0, 0, 0, 0, 0)
    return header + struct.pack(f"<{len(masks)}I", *masks) + colors + body


def _rgba(data: bytes) -> np.ndarray:
    return np.asarray(opened(convert(data, "png").data).convert("RGBA"))


@pytest.mark.parametrize("kind", _KINDS.values())
@pytest.mark.parametrize("bits", [1, 4, 8, 16, 24, 32])
def test_bitmaps_of_all_depths_have_their_mask(bits: int, kind: int) -> None:
    image = photo(_SIZE)
    image = image.quantize(1 << bits) if bits <= 8 else image.convert("RGBA") if bits == 32 else image
    if bits == 32:
        image.putalpha(0)  # no alpha, so that the mask counts
    transparent = np.zeros(_SIZE[::-1], bool)
    transparent[1, 2:5] = True

    found = _rgba(_icon(_bitmap(image, bits, transparent), kind=kind, length=8))

    np.testing.assert_array_equal(found[..., 3], np.where(transparent, 0, 255))
    expected = np.asarray(image.convert("RGB"), int)
    expected = (expected >> 3) * 255 // 31 if bits == 16 else expected
    assert np.abs(found[..., :3] - expected).max() <= 1


def test_alpha_counts_more_than_the_mask_where_there_is_one() -> None:
    image = photo(_SIZE, "RGBA")

    np.testing.assert_array_equal(_rgba(_icon(_bitmap(image, 32, np.ones(_SIZE[::-1], bool)))), np.asarray(image))


def test_a_mask_can_be_missing() -> None:
    image = photo(_SIZE)

    assert (_rgba(_icon(_bitmap(image, 24, None)))[..., :3] == np.asarray(image)).all()


@pytest.mark.parametrize("missing", [1, 20, 200])
def test_truncated_files(missing: int) -> None:
    data = _icon(_bitmap(photo(_SIZE), 24, np.ones(_SIZE[::-1], bool)))

    assert (outcome(data), outcome(data[:-missing])) == ("picture", "corrupt_input")


def test_a_truncated_mask() -> None:
    data = _icon(_bitmap(photo(_SIZE), 24, np.ones(_SIZE[::-1], bool)), length=50)  # a wrong length

    assert [outcome(data[: len(data) - missing]) for missing in (0, 5, 15)] == ["picture", *["corrupt_input"] * 2]


def test_bit_fields() -> None:
    image = photo(_SIZE, "RGBA")
    masks = (0xFF0000, 0xFF00, 0xFF, 0xFF000000)
    bitmap = _bitmap(image, 32, None, masks[:3])

    np.testing.assert_array_equal(_rgba(_icon(bitmap))[..., :3], np.asarray(image)[..., :3])


def test_the_largest_image_with_the_most_bits_is_read() -> None:
    small = _bitmap(Image.new("RGB", (16, 16), "red"), 24, None)
    large = _bitmap(Image.new("RGB", (32, 32), "blue"), 24, None)
    gray = _bitmap(Image.new("RGB", (32, 32), "gray").quantize(2), 1, None)

    for blocks in ((small, gray, large), (large, small, gray)):
        assert _rgba(_icon(*blocks))[0, 0].tolist() == [0, 0, 255, 255]
    png = saved(Image.fromarray(np.full((300, 300), 0x1234, np.uint16)), "PNG")
    assert np.asarray(opened(convert(_icon(large, png), "png").data))[0, 0] == 0x1234


@pytest.mark.parametrize("path", format_files("ico", "cur"), ids=lambda path: path.name)
def test_real_files(path: Path) -> None:
    expected = np.asarray(opened(path.read_bytes()).convert("RGBA"))

    found = _rgba(path.read_bytes())
    np.testing.assert_array_equal(found[..., 3], expected[..., 3])
    visible = found[..., 3] > 0
    np.testing.assert_array_equal(found[visible], expected[visible])


@pytest.mark.parametrize("name", _KINDS)
@pytest.mark.parametrize(
    ("size", "sizes", "expected"),
    [
        ((300, 200), None, {(16, 16), (32, 32), (48, 48), (256, 171)}),
        ((40, 30), None, {(16, 16), (32, 32), (40, 30)}),
        ((300, 200), "16, 32,48,256", {(16, 16), (32, 32), (48, 48), (256, 256)}),
        ((40, 30), "24,256", {(24, 24)}),
        ((7, 3), "256", {(7, 7)}),
    ],
)
def test_written_sizes(name: str, size: tuple[int, int], sizes: str | None, expected: set[tuple[int, int]]) -> None:
    source, options = saved(photo(size), "PNG"), {} if sizes is None else {"sizes": sizes}

    result = convert(source, name, **options)

    data = result.data[:2] + b"\1" + result.data[3:]  # Pillow reads only the sizes of icons
    assert opened(data).info["sizes"] == expected
    largest = max(expected)
    assert opened(convert(result.data, "png").data).size == largest
    assert codes(result) == ({"not_enlarged"} if sizes and "256" in sizes and max(size) < 256 else set())
    planned = dry_run(_REGISTRY.plan([_REGISTRY.formats["png"]], name, options=options), [source], options)
    assert (planned.width, planned.height) == largest


def test_images_are_centered_in_squares_and_keep_their_transparency() -> None:
    image = Image.new("RGBA", (64, 32), (10, 200, 30, 128))

    found = np.asarray(opened(convert(saved(image, "PNG"), "ico", sizes="32").data).convert("RGBA"))

    assert found[:8, :, 3].max() == found[24:, :, 3].max() == 0
    assert np.abs(found[8:24].astype(int) - (10, 200, 30, 128)).max() <= 1


def test_other_readers_find_bitmaps_and_from_256_pixels_png() -> None:
    image = photo((260, 260), "RGBA")

    data = convert(saved(image, "PNG"), "ico", sizes="16,255,256").data

    offsets = [struct.unpack_from("<I", data, 6 + 16 * index + 12)[0] for index in range(3)]
    assert [data[offset : offset + 4] for offset in offsets] == [b"(\0\0\0", b"(\0\0\0", b"\x89PNG"]
    largest = np.asarray(Image.open(BytesIO(data)).convert("RGBA"))
    np.testing.assert_array_equal(_rgba(data), largest)
    small = convert(saved(image, "PNG"), "ico", sizes="16").data
    read = subprocess.run(["winicontopam"], input=small, check=True, capture_output=True).stdout
    np.testing.assert_array_equal(_rgba(read)[..., :3], _rgba(small)[..., :3])


@pytest.mark.parametrize("sizes", ["", "0", "257", "16;32", "16,", "x"])
def test_other_sizes_are_refused(sizes: str) -> None:
    with pytest.raises(InvalidOption) as raised:
        convert(sample("png"), "ico", sizes=sizes)

    assert raised.value.param == "sizes"


def test_a_width_beyond_that_of_icons_is_refused() -> None:
    with pytest.raises(InvalidOption) as raised:
        convert(saved(photo((400, 300)), "PNG"), "ico", width=300)

    assert (raised.value.param, raised.value.reason) == ("width", "out_of_range")


@pytest.mark.parametrize("name", _KINDS)
def test_broken_files_are_blamed(name: str) -> None:
    header = 6 + 16 + 40
    image = _bitmap(photo((48, 48)), 24, np.zeros((48, 48), bool))
    found = [outcome(one) for one in broken(_icon(image, kind=_KINDS[name]), header)]

    assert set(found) <= BLAMED | {"picture"}
    assert set(found[:2]) <= {"unrecognized", "corrupt_input"}


@pytest.mark.parametrize(
    ("target", "options", "expected"),
    [
        ("ico", {}, {(16, 16), (32, 32), (48, 48), (256, 171)}),
        ("ico", {"sizes": "16,64"}, {(16, 16), (64, 64)}),
        ("ico", {"sizes": "16,64", "width": 20}, {(16, 16)}),
        ("cur", {"sizes": "256"}, {(256, 256)}),
        ("icns", {}, {(side, side, 1) for side in (16, 32, 64, 128, 256, 512)} | {(512, 512, 2)}),
    ],
)
def test_drawings_are_drawn_at_the_largest_size(
    target: str, options: dict[str, OptionValue], expected: set[tuple[int, ...]]
) -> None:
    drawing = b'<svg xmlns="http://www.w3.org/2000/svg" width="24" height="16"><circle cx="12" cy="8" r="6"/></svg>'

    result = convert(drawing, target, **options)

    listed = result.data.replace(b"\0\0\2\0", b"\0\0\1\0", 1)  # as an icon, because Pillow lists the sizes of no cursor
    image = Image.open(BytesIO(listed))
    assert {*image.info["sizes"]} == expected
    alpha = np.asarray(image.convert("RGBA").getchannel("A"), int)
    assert alpha.sum() / 255 == pytest.approx(np.pi * (alpha.shape[1] / 4) ** 2, rel=0.1)
    partial = ((alpha > 16) & (alpha < 240)).sum()
    assert partial < 2.5 * alpha.shape[1]  # at sharp edges


def _icns(**blocks: bytes) -> bytes:
    """A file with blocks of these types, in which `_` stands for #."""
    named = [(name.replace("_", "#").encode(), content) for name, content in blocks.items()]
    body = b"".join(name + (8 + len(content)).to_bytes(4) + content for name, content in named)
    return b"icns" + (8 + len(body)).to_bytes(4) + body


def _packed(samples: bytes) -> bytes:
    """Runs of three and more equal bytes, and others as they are."""
    packed, start = b"", 0
    while start < len(samples):
        run = next((n for n in range(1, 131) if samples[start + n : start + n + 1] != samples[start : start + 1]), 130)
        if run >= 3:
            packed += bytes((run + 125, samples[start]))
        else:
            packed += bytes((run - 1,)) + samples[start : start + run]
        start += run
    return packed


@pytest.mark.parametrize(("kind", "mask", "side"), [("is32", "s8mk", 16), ("il32", "l8mk", 32), ("ih32", "h8mk", 48)])
@pytest.mark.parametrize("packed", [True, False])
def test_colors_with_alpha_in_another_block(kind: str, mask: str, side: int, packed: bool) -> None:
    image = photo((side, side), "RGBA")
    image.paste((1, 2, 3, 4), (0, 0, side, 3))
    *colors, alpha = (band.tobytes() for band in image.split())
    content = b"".join(map(_packed, colors) if packed else colors)

    np.testing.assert_array_equal(_rgba(_icns(**{kind: content, mask: alpha})), np.asarray(image))
    np.testing.assert_array_equal(_rgba(_icns(**{kind: content}))[..., :3], np.asarray(image)[..., :3])


def test_128_pixels_begin_with_zeros_as_pillow_expects() -> None:
    image = photo((128, 128), "RGBA")
    *colors, alpha = (band.tobytes() for band in image.split())
    data = _icns(it32=bytes(4) + b"".join(map(_packed, colors)), t8mk=alpha)

    np.testing.assert_array_equal(_rgba(data), np.asarray(image))
    np.testing.assert_array_equal(np.asarray(opened(data)), np.asarray(image))


def test_packed_alpha_and_colors() -> None:
    image = photo((32, 32), "RGBA")
    red, green, blue, alpha = (band.tobytes() for band in image.split())

    data = _icns(ic05=b"ARGB" + b"".join(map(_packed, (alpha, red, green, blue))))

    np.testing.assert_array_equal(_rgba(data), np.asarray(image))


@pytest.mark.parametrize("encoder", ["PNG", "JPEG2000"])
def test_the_largest_image_is_read(encoder: str) -> None:
    large = photo((256, 256), "RGBA")
    small = saved(photo((16, 16)), "PNG")

    for blocks in ({"icp4": small, "ic08": saved(large, encoder)}, {"ic08": saved(large, encoder), "icp4": small}):
        np.testing.assert_array_equal(_rgba(_icns(**blocks)), np.asarray(large))


def test_palettes_and_bitmaps() -> None:
    mask = np.zeros((16, 16), np.uint8)
    mask[4:12] = 1
    bitmap = np.tile(np.array([1, 0], np.uint8), (16, 8))
    both = np.packbits(bitmap).tobytes() + np.packbits(mask).tobytes()
    indexes = np.full((16, 16), 0xD7, np.uint8)  # the first red after the cube

    black = _rgba(_icns(ics_=both))
    red = _rgba(_icns(ics_=both, ics8=indexes.tobytes()))
    yellow = _rgba(_icns(ics4=bytes([0x11] * 128)))

    assert black[5, :2].tolist() == [[0, 0, 0, 255], [255, 255, 255, 255]]
    np.testing.assert_array_equal(black[..., 3], mask * 255)
    assert red[5, 5].tolist() == [0xEE, 0, 0, 255]
    np.testing.assert_array_equal(red[..., 3], mask * 255)
    assert yellow[0, 0].tolist() == [0xFC, 0xF3, 5, 255]


@pytest.mark.parametrize(
    ("size", "sizes", "expected"),
    [
        ((300, 200), None, [16, 32, 64, 128, 256]),
        ((1100, 900), None, [16, 32, 64, 128, 256, 512, 1024]),
        ((300, 200), "32, 128", [32, 128]),
        ((40, 30), "16,256", [16]),
        ((7, 3), None, [16]),
    ],
)
def test_the_squares_that_icns_has(size: tuple[int, int], sizes: str | None, expected: list[int]) -> None:
    source, options = saved(photo(size), "PNG"), {} if sizes is None else {"sizes": sizes}

    result = convert(source, "icns", **options)

    with Image.open(BytesIO(result.data)) as image:
        assert sorted(width * scale for width, _, scale in image.info["sizes"]) == sorted({*expected})[:7]
        assert image.size[0] == expected[-1]
    assert codes(result) == ({"not_enlarged"} if sizes == "16,256" else set())
    planned = dry_run(_REGISTRY.plan([_REGISTRY.formats["png"]], "icns", options=options), [source], options)
    assert (planned.width, planned.height) == (expected[-1], expected[-1])


def test_other_squares_are_refused() -> None:
    with pytest.raises(InvalidOption) as raised:
        convert(sample("png"), "icns", sizes="16,48")

    assert (raised.value.param, raised.value.reason) == ("sizes", "out_of_range")
    assert (raised.value.details or {})["available"] == [16, 32, 64, 128, 256]


def test_broken_icns_files_are_blamed() -> None:
    image = photo((48, 48))
    data = _icns(ih32=b"".join(_packed(band.tobytes()) for band in image.split()))
    found = [outcome(one) for one in broken(data, 16)]

    assert set(found) <= BLAMED | {"picture"}
    assert found[:3] == ["corrupt_input"] * 3
    assert outcome(_icns(name=b"no picture")) == "corrupt_input"
