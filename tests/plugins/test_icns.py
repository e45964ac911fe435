"""ICNS: blocks of every kind, and the squares that are written."""

from io import BytesIO

import numpy as np
import pytest
from PIL import Image

from engine import InvalidOption
from engine.dry_run import dry_run
from engine.registry import load_registry
from tests.support.results.conversions import codes, convert, opened
from tests.support.samples.broken import BLAMED, broken, outcome
from tests.support.samples.generated import sample, saved
from tests.support.samples.rasters import photo

_REGISTRY = load_registry()


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


def _rgba(data: bytes) -> np.ndarray:
    return np.asarray(opened(convert(data, "png").data).convert("RGBA"))


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
def test_the_sizes_that_are_written(size: tuple[int, int], sizes: str | None, expected: list[int]) -> None:
    source, options = saved(photo(size), "PNG"), {} if sizes is None else {"sizes": sizes}

    result = convert(source, "icns", **options)

    with Image.open(BytesIO(result.data)) as image:
        assert sorted(width * scale for width, _, scale in image.info["sizes"]) == sorted({*expected})[:7]
        assert image.size[0] == expected[-1]
    assert codes(result) == ({"not_enlarged"} if sizes == "16,256" else set())
    dry_runn = dry_run(_REGISTRY.plan([_REGISTRY.formats["png"]], "icns", options=options), [source], options)
    assert (dry_runn.width, dry_runn.height) == (expected[-1], expected[-1])


def test_other_sizes_are_refused() -> None:
    with pytest.raises(InvalidOption) as raised:
        convert(sample("png"), "icns", sizes="16,48")

    assert (raised.value.param, raised.value.reason) == ("sizes", "out_of_range")
    assert (raised.value.details or {})["available"] == [16, 32, 64, 128, 256]


def test_broken_files_are_blamed() -> None:
    image = photo((48, 48))
    data = _icns(ih32=b"".join(_packed(band.tobytes()) for band in image.split()))
    found = [outcome(one) for one in broken(data, 16)]

    assert set(found) <= BLAMED | {"picture"}
    assert found[:3] == ["corrupt_input"] * 3
    assert outcome(_icns(name=b"no picture")) == "corrupt_input"
