"""Huge pages for what a process has loaded: its forks have a shorter table to copy, and it finds its memory sooner."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from engine.sandbox import kernel

_SIZE = 2 << 20  # bytes; where a system's are of another size, it refuses
# Memory of its own that a process may write, as the kernel lists it, and that comes from no file.
_OWN = re.compile(r"([0-9a-f]+)-([0-9a-f]+) rw-p \S+ \S+ 0 *(?:\[heap\])?$", re.MULTILINE)


def gather() -> None:
    """Moves this process's own memory to huge pages where the system has them. Copies tens of megabytes."""
    for start in _places(Path("/proc/self/maps").read_text()):
        with suppress(OSError):  # nothing there, or none to be had
            kernel.collapse(start, _SIZE)


def _places(maps: str) -> Iterator[int]:
    """Where a huge page fits, given what `/proc/self/maps` says."""
    for found in _OWN.finditer(maps):
        start, end = (int(address, 16) for address in found.groups())
        yield from range(-(-start // _SIZE) * _SIZE, end - _SIZE + 1, _SIZE)
