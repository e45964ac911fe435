"""BMP whose samples are at any bits of its pixels."""

import struct

import numpy as np
import pytest
from numpy.typing import NDArray

from engine import CorruptInput
from engine.registry import load_registry
from tests.support.results.conversions import convert, opened

_REGISTRY = load_registry()
_BIT_FIELDS, _ALPHA_BIT_FIELDS = 3, 6
_HEADERS = [(40, _BIT_FIELDS), (40, _ALPHA_BIT_FIELDS), (52, _BIT_FIELDS), (56, _BIT_FIELDS), (108, 3), (124, 3)]
_LAYOUTS = {  # bits per pixel, and the first bit and number of bits of red, green, blue and alpha
    "RGB444": (16, (8, 4), (4, 4), (0, 4), (0, 0)),
    "ARGB4444": (16, (8, 4), (4, 4), (0, 4), (12, 4)),
    "ARGB1555": (16, (10, 5), (5, 5), (0, 5), (15, 1)),
    "BGR565": (16, (0, 5), (5, 6), (11, 5), (0, 0)),
    "RGB332": (16, (5, 3), (2, 3), (0, 2), (0, 0)),
    "RGB565": (16, (11, 5), (5, 6), (0, 5), (0, 0)),
    "ARGB8888": (32, (16, 8), (8, 8), (0, 8), (24, 8)),
    "RGB888 at odd bits": (32, (23, 8), (14, 8), (5, 8), (0, 0)),
    "ARGB2101010": (32, (20, 10), (10, 10), (0, 10), (30, 2)),
    "RGB of 17, 5 and 5 bits": (32, (0, 17), (24, 5), (17, 5), (0, 0)),
}


def _bmp(pixels: NDArray[np.unsignedinteger], masks: list[int], header: int, compression: int, top_down: bool) -> bytes:
    height, width = pixels.shape
    rows = [row.tobytes() for row in (pixels if top_down else pixels[::-1])]
    body = b"".join(row + bytes(-len(row) % 4) for row in rows)
    size = (width, -height if top_down else height)
    info = struct.pack("<IiiHHIIiiII", header, *size, 1, 8 * pixels.itemsize, compression, len(body), 3937, 3937, 0, 0)
    count = 4 if header >= 56 or compression == _ALPHA_BIT_FIELDS else 3
    info = (info + struct.pack(f"<{count}I", *masks[:count])).ljust(header, b"\0")
    offset = 14 + len(info)
    return struct.pack("<2sIII", b"BM", offset + len(body), 0, offset) + info + body


@pytest.mark.parametrize("layout", _LAYOUTS)
@pytest.mark.parametrize(("header", "compression"), _HEADERS)
def test_samples_are_read_at_any_bits(layout: str, header: int, compression: int) -> None:
    bits, *samples = _LAYOUTS[layout]
    pixels = np.random.default_rng(5).integers(0, 1 << bits, (7, 13), np.uint64).astype(f"<u{bits // 8}")
    masks = [((1 << count) - 1) << first for first, count in samples]
    values = [(pixels.astype(np.uint64) >> first) & ((1 << count) - 1) for first, count in samples]
    expected = [value * 255.0 / max(1, (1 << count) - 1) for value, (_, count) in zip(values, samples, strict=True)]
    if not masks[3] or (header < 56 and compression == _BIT_FIELDS):
        expected[3] = np.full(pixels.shape, 255.0)

    image = opened(convert(_bmp(pixels, masks, header, compression, top_down=header == 108), "png").data)

    assert np.abs(np.asarray(image.convert("RGBA")) - np.dstack(expected)).max() <= 1
    assert image.info["dpi"] == pytest.approx((100, 100), abs=0.1)


def test_damaged_masks_are_refused() -> None:
    pixels = np.zeros((4, 4), "<u2")
    for masks in ([0xF0F0, 0xF00, 0xF, 0], [0xFFFF0000, 0xF0, 0xF, 0]):
        whole = _bmp(pixels, masks, 40, _BIT_FIELDS, top_down=False)
        with pytest.raises(CorruptInput):
            opened(convert(whole if masks[0] < 1 << 16 else whole[:-8], "png").data)
