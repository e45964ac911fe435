"""Damaged forms of a file: what is read from them is an image, or an error that blames the file."""

from collections.abc import Iterator

import numpy as np

from engine import ConversionError
from tests.support.results.conversions import convert

BLAMED = frozenset({"corrupt_input", "unrecognized", "empty_file", "pixels", "bytes", "frames", "pages", "memory"})
"""The reasons of errors that blame the file."""


def broken(data: bytes, header: int, seed: int = 1) -> Iterator[bytes]:
    """Eight damaged forms: cut, and with other bytes in the header of this size or after it."""
    rng = np.random.default_rng(seed)
    for end in (header - 1, (header + len(data)) // 2, len(data) - max(1, len(data) // 20)):
        yield data[:end]
    for value in (b"\xff", b"\x00"):
        yield data[: header // 2] + value * (header - header // 2) + data[header:]
    for start, end in ((4, header), (header, len(data)), (4, len(data))):
        changed = bytearray(data)
        for position in rng.integers(start, max(end, start + 1), 6):
            changed[min(int(position), len(changed) - 1)] ^= int(rng.integers(1, 256))
        yield bytes(changed)


def outcome(data: bytes, target: str = "png") -> str:
    """What becomes of a file that is no text: `image`, or the reason of the error."""
    try:
        convert(data, target, "damaged.bin")
    except ConversionError as error:
        return error.reason or error.code
    return "picture"
