"""Open files by descriptor: blocking work on them in threads, and their content in blocks."""

import asyncio
import os
from collections.abc import AsyncIterator, Callable
from typing import Concatenate, ParamSpec, TypeVar

BLOCK = 256 << 10
"""Bytes per read."""

_P = ParamSpec("_P")
_T = TypeVar("_T")


async def run_in_thread(
    descriptor: int, work: Callable[Concatenate[int, _P], _T], /, *args: _P.args, **kwargs: _P.kwargs
) -> _T:
    """Runs `work` in a thread on a duplicate of the descriptor, so that the caller may close its own if cancelled."""
    duplicate = os.dup(descriptor)

    def run() -> _T:
        try:
            return work(duplicate, *args, **kwargs)
        finally:
            os.close(duplicate)

    # Shielded: a cancelled thread that has not started would not close the duplicate.
    return await asyncio.shield(asyncio.get_running_loop().run_in_executor(None, run))


async def read_blocks(descriptor: int, start: int, end: int) -> AsyncIterator[bytes]:
    """Yields a file's bytes from `start` up to but excluding `end`, at most BLOCK at a time. Reads in threads."""
    while start < end and (block := await run_in_thread(descriptor, os.pread, min(BLOCK, end - start), start)):
        yield block
        start += len(block)


def write_all(descriptor: int, data: bytes | bytearray) -> None:
    """Writes all bytes at the file's position. Blocks if the file is on a disk."""
    unwritten = memoryview(data)
    while unwritten:
        unwritten = unwritten[os.write(descriptor, unwritten) :]


def copy(source: int, target: int, size: int) -> None:
    """Copies the first `size` bytes of the source, or all if there are fewer, to the target's position. Blocks."""
    copied = 0
    while sent := os.sendfile(target, source, copied, size - copied):
        copied += sent
