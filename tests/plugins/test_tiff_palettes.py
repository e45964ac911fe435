"""TIFF with palettes, and gray in old-style JPEG."""

import struct
from io import BytesIO
from typing import Any

import numpy as np
import pytest
import tifffile
from numpy.typing import NDArray
from PIL import Image

from plugins._jpeg.segments import read_segments
from tests.support.results.conversions import convert, opened
from tests.support.samples.generated import saved
from tests.support.samples.rasters import photo

_GRAY: NDArray[np.uint8] = np.asarray(photo((96, 64)).convert("L"))


def _written(array: NDArray[Any], **parameters: Any) -> bytes:
    file = BytesIO()
    tifffile.imwrite(file, array, metadata=None, **parameters)
    return file.getvalue()


def _pixels(data: bytes, mode: str = "RGB") -> NDArray[np.float64]:
    """The pixels of the PNG of a file."""
    return np.asarray(opened(convert(data, "png").data).convert(mode), float)


_PALETTE = np.array([[10 * index, 255 - index, 7] for index in range(24)])


@pytest.mark.parametrize("unit", [1, 257])
def test_a_palette_has_8_or_16_bits(unit: int) -> None:
    indexes = np.arange(24, dtype=np.uint8).reshape(4, 6)
    palette = np.zeros((256, 3), np.uint16)
    palette[:24] = _PALETTE * unit

    found = _pixels(_written(indexes, photometric="palette", colormap=palette.T))

    np.testing.assert_array_equal(found, _PALETTE[indexes])
    bilevel = _written(
        indexes < 9, photometric="minisblack", extratags=[(320, "H", 6, (0, 2 * unit, 9, 9, 7, 7), True)]
    )
    data = bilevel.replace(struct.pack("<HHIH", 262, 3, 1, 1), struct.pack("<HHIH", 262, 3, 1, 3))
    assert set(_pixels(data)[..., 0].ravel()) == {0, 2}


@pytest.mark.parametrize(("kind", "scale"), [(0, 1.0), (1, 2.0), (2, 1.0)])
def test_a_palette_with_transparency(kind: int, scale: float) -> None:
    indexes = np.dstack((np.arange(12, dtype=np.uint8).reshape(3, 4), np.full((3, 4), 128, np.uint8)))
    palette = np.zeros((256, 3), np.uint16)
    palette[:24] = _PALETTE // 4 * 257
    tags = [(320, "H", 768, tuple(palette.T.ravel().tolist()), True)]
    gray = _written(indexes, photometric="minisblack", planarconfig="contig", extrasamples=[kind], extratags=tags)
    data = gray.replace(struct.pack("<HHIH", 262, 3, 1, 1), struct.pack("<HHIH", 262, 3, 1, 3))

    found = _pixels(data, "RGBA")

    assert (found[..., 3] == 128).all()
    assert np.abs(found[..., :3] - _PALETTE[indexes[..., 0]] // 4 * scale).max() <= 1


@pytest.mark.parametrize("parts", ["file", "header", "tables"])
def test_gray_by_old_style_jpeg(parts: str) -> None:
    jpeg = saved(Image.fromarray(_GRAY), "JPEG", quality=90)
    segments = {(code, *jpeg[start + 4 : start + 5]): jpeg[start + 4 : end] for code, start, end in read_segments(jpeg)}
    scan = jpeg.index(b"\xff\xda") + 10
    blobs = {
        "file": (jpeg,),
        "header": (jpeg[scan:-2], jpeg[:scan]),
        "tables": (jpeg[scan:-2], *(segments[key][1:] for key in ((0xDB, 0), (0xC4, 0), (0xC4, 0x10)))),
    }[parts]
    starts = [
        10 + 12 * (13 if parts == "tables" else 12) + 4 + sum(map(len, blobs[:index])) for index in range(len(blobs))
    ]
    entries = [(256, 96), (257, 64), (258, 8), (259, 6), (262, 1), (273, starts[0]), (277, 1), (278, 64)]
    entries += [(279, len(blobs[0])), (512, 1)]
    places = [*zip((519, 520, 521), starts[1:], strict=False)]
    entries += places if parts == "tables" else [(513, starts[-1]), (514, len(blobs[-1]))]
    directory = b"".join(struct.pack("<HHII", tag, 4, 1, value) for tag, value in entries)
    data = b"II*\0" + struct.pack("<IH", 8, len(entries)) + directory + bytes(4) + b"".join(blobs)

    assert np.abs(_pixels(data, "L") - _GRAY).mean() < 2
