"""DDS: blocks compared with another decoder, pixels of every kind, and what is written."""

import struct
from io import BytesIO
from pathlib import Path

import imagecodecs
import numpy as np
import pytest
from PIL import Image

from tests.support.results.conversions import codes, convert, opened
from tests.support.samples.broken import BLAMED, broken, outcome
from tests.support.samples.corpus import format_files
from tests.support.samples.generated import sample, saved
from tests.support.samples.rasters import photo

_RNG = np.random.default_rng(1)
_SIZE = (9, 6)  # 3 x 2 blocks
_RGB, _LUMINANCE, _CODE, _ALPHA, _PALETTE, _ALPHA_PIXELS = 0x40, 0x20000, 4, 2, 0x20, 1


def _dds(
    body: bytes,
    flags: int = _CODE,
    code: bytes | int = 0,
    bits: int = 0,
    masks: tuple[int, ...] = (0, 0, 0, 0),
    caps: int = 0,
    extension: tuple[int, ...] = (),
) -> bytes:
    """A texture of _SIZE. `extension` has the format, the dimensions, flags, the number of images and the alpha."""
    width, height = _SIZE
    number = int.from_bytes(b"DX10" if extension else code, "little") if isinstance(code, bytes) else code
    header = struct.pack("<4s7I44x", b"DDS ", 124, 0x1007, height, width, 0, 1, 1)
    header += struct.pack("<4I4I5I", 32, flags, number, bits, *masks, 0x1000, caps, 0, 0, 0)
    return header + (struct.pack("<5I", *extension) if extension else b"") + body


def _rgba(data: bytes) -> np.ndarray:
    return np.asarray(opened(convert(data, "tga").data).convert("RGBA"))


@pytest.mark.parametrize(
    ("name", "number", "bands"),
    [(b"DXT1", 1, 4), (b"DXT3", 2, 4), (b"DXT5", 3, 4), (b"BC4U", 4, 1), (b"ATI2", 5, 2), (98, 7, 4)],
)
def test_blocks_are_those_of_another_decoder(name: bytes | int, number: int, bands: int) -> None:
    blocks = _RNG.bytes(6 * (8 if number in (1, 4) else 16))
    data = (
        _dds(blocks, code=name) if isinstance(name, bytes) else _dds(blocks, code=b"DX10", extension=(name, 3, 0, 1, 0))
    )

    found = _rgba(data)[..., :bands].squeeze().astype(int)

    shape = (8, 12, bands) if bands > 1 else (8, 12)
    expected = np.asarray(imagecodecs.bcn_decode(blocks, number, shape=shape))[:6, :9]
    assert np.abs(found - expected).max() <= 1  # they round colors between two others in other ways


def test_signed_blocks() -> None:
    middle, ends = bytes((0, 0, 0, 0, 0, 0, 0, 0)), bytes((127, 129, 0x88, 0xC6, 0xFA, 0x88, 0xC6, 0xFA))
    one, two = _dds(middle * 6, code=b"BC4S"), _dds((ends + middle) * 6, code=b"BC5S")

    assert set(_rgba(one)[..., 0].ravel()) <= {127, 128}
    red = _rgba(two)[..., 0]
    assert (red.min() <= 1, red.max()) == (True, 255)
    assert set(_rgba(two)[..., 1].ravel()) <= {127, 128}


def test_premultiplied_alpha() -> None:
    alpha, white = struct.pack("<Q", 0x8888888888888888), bytes((0xFF, 0xFF, 0, 0, 0, 0, 0, 0))
    gray = bytes((0x10, 0x84, 0, 0, 0, 0, 0, 0))

    assert _rgba(_dds((alpha + white) * 6, code=b"DXT3"))[0, 0].tolist() == [255, 255, 255, 136]
    assert _rgba(_dds((alpha + gray) * 6, code=b"DXT2"))[0, 0].tolist() == pytest.approx([247, 243, 247, 136], abs=4)
    extension = (74, 3, 0, 1, 2)
    blocks = (alpha + gray) * 6
    found = _rgba(_dds(blocks, code=b"DX10", extension=extension))
    np.testing.assert_array_equal(found, _rgba(_dds(blocks, code=b"DXT2")))


@pytest.mark.parametrize(
    ("flags", "bits", "masks"),
    [
        (_RGB, 24, (0xFF0000, 0xFF00, 0xFF, 0)),
        (_RGB, 32, (0xFF, 0xFF00, 0xFF0000, 0)),
        (_RGB | _ALPHA_PIXELS, 32, (0xFF0000, 0xFF00, 0xFF, 0xFF000000)),
        (_RGB | _ALPHA_PIXELS, 32, (0x3FF, 0xFFC00, 0x3FF00000, 0xC0000000)),
        (_RGB, 16, (0xF800, 0x7E0, 0x1F, 0)),
        (_RGB | _ALPHA_PIXELS, 16, (0xF00, 0xF0, 0xF, 0xF000)),
        (_RGB | _ALPHA_PIXELS, 16, (0x7C00, 0x3E0, 0x1F, 0x8000)),
        (_RGB, 8, (0xE0, 0x1C, 3, 0)),
        (_LUMINANCE, 8, (0xFF, 0, 0, 0)),
        (_LUMINANCE | _ALPHA_PIXELS, 16, (0xFF, 0, 0, 0xFF00)),
        (_LUMINANCE | _ALPHA_PIXELS, 8, (0xF, 0, 0, 0xF0)),
        (_ALPHA, 8, (0, 0, 0, 0xFF)),
    ],
)
def test_samples_at_any_bits(flags: int, bits: int, masks: tuple[int, ...]) -> None:
    pixels = _RNG.integers(0, 1 << bits, _SIZE[::-1], np.uint64)
    stored = pixels.astype("<u8").view(np.uint8).reshape(*pixels.shape, 8)[..., : bits // 8]

    found = _rgba(_dds(stored.tobytes(), flags, bits=bits, masks=masks))

    red, green, blue, alpha = masks
    expected = []
    for mask in (red, red, red, alpha) if not flags & _RGB else (red, green, blue, alpha):
        shift = (mask & -mask).bit_length() - 1
        expected.append((pixels & mask) / mask * 255 if mask else np.zeros(pixels.shape))
        assert mask == 0 or shift >= 0
    if not alpha:
        expected[3] = np.full(pixels.shape, 255)
    np.testing.assert_allclose(found, np.dstack(expected), atol=1)


@pytest.mark.parametrize(("number", "code"), [(11, 0), (56, 0), (None, 36)])
def test_16_bits_are_kept(number: int | None, code: int) -> None:
    bands = 1 if number == 56 else 4
    samples = _RNG.integers(0, 65536, (*_SIZE[::-1], bands), np.uint16)
    extension = () if number is None else (number, 3, 0, 1, 0)

    result = convert(_dds(samples.astype("<u2").tobytes(), code=code or b"DX10", extension=extension), "pam").data

    assert result.endswith(samples.astype(">u2").tobytes())


@pytest.mark.parametrize(("number", "kind", "bands"), [(10, "<f2", 4), (2, "<f4", 4), (6, "<f4", 3), (41, "<f4", 1)])
def test_floats_are_linear_light(number: int, kind: str, bands: int) -> None:
    values = np.full((*_SIZE[::-1], bands), 0.2159, kind)

    result = convert(_dds(values.tobytes(), code=b"DX10", extension=(number, 3, 0, 1, 0)), "png")
    bright = convert(_dds((values * 10).tobytes(), code=b"DX10", extension=(number, 3, 0, 1, 0)), "png")

    found = convert(result.data, "pam").data[-2 * bands :]
    assert np.frombuffer(found, ">u2")[:3].tolist() == pytest.approx([32902] * min(bands, 3), abs=20)
    assert (codes(result), codes(bright)) == (set(), {"tone_mapped"})


def test_palettes() -> None:
    colors, indexes = _RNG.integers(0, 256, (256, 4), np.uint8), _RNG.integers(0, 256, _SIZE[::-1], np.uint8)

    found = _rgba(_dds(colors.tobytes() + indexes.tobytes(), _PALETTE, bits=8))

    np.testing.assert_array_equal(found, colors[indexes])


@pytest.mark.parametrize("caps", [0x200, 0])
def test_additional_images_are_told(caps: int) -> None:
    extension = () if caps else (71, 3, 0, 5, 0)

    result = convert(_dds(bytes(48 * 6), code=b"DX10" if extension else b"DXT1", caps=caps, extension=extension), "png")

    assert codes(result) == {"pictures_dropped"}


@pytest.mark.parametrize("mode", ["L", "RGB", "RGBA"])
def test_other_readers_read_what_is_written(mode: str) -> None:
    for size in ((37, 23), (1, 1)):
        image = photo(size, mode)

        result = convert(saved(image, "PNG"), "dds")

        assert codes(result) == set()
        np.testing.assert_array_equal(np.asarray(Image.open(BytesIO(result.data))), np.asarray(image))
        np.testing.assert_array_equal(_rgba(result.data), np.asarray(image.convert("RGBA")))


@pytest.mark.parametrize("path", format_files("dds"), ids=lambda path: path.name)
def test_real_files(path: Path) -> None:
    data = path.read_bytes()
    if "bc6h" in path.name:  # Pillow does not encode the light
        light = np.asarray(imagecodecs.dds_decode(data), "<f4")
        assert convert(data, "pfm").data.endswith(light[::-1].tobytes())
        return
    found = _rgba(data).astype(int)

    assert np.abs(found - np.asarray(opened(data).convert("RGBA"), int)).max() <= 1


def test_broken_files_are_blamed() -> None:
    found = [outcome(one) for one in broken(sample("dds"), 128)]

    assert set(found) <= BLAMED | {"picture"}
    assert found[:3] == ["corrupt_input"] * 3


@pytest.mark.parametrize(
    "data",
    [
        _dds(bytes(400), code=b"YUY2"),
        _dds(bytes(400), code=b"DX10", extension=(107, 3, 0, 1, 0)),
        _dds(bytes(400), flags=0x200, bits=16),
        _dds(bytes(400), flags=_RGB, bits=12),
        _dds(bytes(400), flags=_RGB, bits=16, masks=(0xA000, 0, 0, 0)),
        _dds(bytes(47), code=b"DXT1"),
    ],
)
def test_unknown_kinds_are_blamed(data: bytes) -> None:
    assert outcome(data) == "corrupt_input"
