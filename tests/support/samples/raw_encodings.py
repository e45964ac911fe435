"""How cameras encode sensor samples: packed bits, lossless JPEG, and the packings of Olympus and Panasonic."""

import struct

import numpy as np
from numpy.typing import NDArray

from tests.support.samples.raw_parts import Samples, jpeg_segment


def packed_bits(values: NDArray[np.int64], lengths: NDArray[np.int64]) -> bytes:
    """The low `lengths` bits of each of `values`, one after the other, most significant bit first."""
    ends = np.cumsum(lengths)
    shifts = np.repeat(ends, lengths) - 1 - np.arange(ends[-1])
    bits = np.repeat(values, lengths) >> shifts & 1
    return np.packbits(bits.astype(np.uint8)).tobytes()


def lossless_jpeg(samples: Samples, precision: int) -> bytes:
    """Samples as a lossless JPEG of two components: even columns and odd columns."""
    height, width = samples.shape
    pairs = samples.astype(np.int64).reshape(height, width // 2, 2)
    predictions = np.empty_like(pairs)
    predictions[0, 0] = 1 << (precision - 1)
    predictions[1:, 0] = pairs[:-1, 0]
    predictions[:, 1:] = pairs[:, :-1]
    differences = (pairs - predictions).ravel()

    # Each difference is its bit length, as a Huffman code which always has four bits, then that many bits.
    lengths = np.frexp(np.abs(differences))[1].astype(np.int64)
    code_length, longest = 4, precision + 1
    tails = np.where(differences < 0, differences + (1 << lengths) - 1, differences)
    stream = packed_bits(lengths << lengths | tails, lengths + code_length)

    code_counts = bytes(longest + 1 if length == code_length else 0 for length in range(1, 17))
    components = bytes([1, 0x11, 0, 2, 0x11, 0])
    return (
        b"\xff\xd8"
        + jpeg_segment(0xC4, b"\0" + code_counts + bytes(range(longest + 1)))
        + jpeg_segment(0xC3, struct.pack(">BHHB", precision, height, width // 2, 2) + components)
        + jpeg_segment(0xDA, bytes([2, 1, 0, 2, 0, 1, 0, 0]))
        + stream.replace(b"\xff", b"\xff\0")
        + b"\xff\xd9"
    )


def olympus_packing(samples: Samples) -> bytes:
    """Twelve bits a sample, in words of four bytes, each written backwards."""
    values = samples.astype(np.int64).ravel()
    stream = np.frombuffer(packed_bits(values, np.full_like(values, 12)), dtype=">u4")
    return stream.astype("<u4").tobytes()


def panasonic_packing(samples: Samples) -> bytes:
    """Fourteen samples in sixteen bytes, in blocks of 16 KiB.

    The first two samples of a group are whole. The others are a change, shifted by one of four amounts, to
    the one two columns before. The largest shift fits every change: it replaces all but the low four bits.
    """
    groups = samples.astype(np.int64).reshape(-1, 14)
    low_bits = np.tile(groups[:, :2] & 0xF, 7)
    high_bits = np.clip((groups - low_bits + 8) >> 4, 1, 0xFF)
    high_bits[:, :2] = groups[:, :2] >> 4
    largest_shift = np.full(len(groups), 3)

    columns: list[NDArray[np.int64]] = []
    lengths: list[int] = []
    for index in range(14):
        if index % 3 == 2:
            columns.append(largest_shift)
            lengths.append(2)
        columns.append(high_bits[:, index])
        lengths.append(8)
        if index < 2:
            columns.append(low_bits[:, index])
            lengths.append(4)
    stream = packed_bits(np.stack(columns, axis=1).ravel(), np.tile(lengths, len(groups)))

    # A group is read from its last byte to its first, and a block starts in its own middle.
    backwards = np.frombuffer(stream, dtype=np.uint8).reshape(-1, 16)[:, ::-1].tobytes()
    block_size, block_start = 0x4000, 0x2008
    padded = backwards + bytes(-len(backwards) % block_size)
    blocks = np.frombuffer(padded, dtype=np.uint8).reshape(-1, block_size)
    return np.roll(blocks, -block_start, axis=1).tobytes()
