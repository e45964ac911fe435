"""Memory in bytes: what a conversion is likely to need, and what all of them may have."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from engine.gates import MAX_PIXELS

_LEAST = 256 << 20  # of a job: the codecs themselves, and small pictures
_SHARE = 0.7  # of the machine's memory; the rest is for the server, the database and the disk cache


@dataclass(frozen=True)
class _Pixel:
    """Bytes that a pixel takes: in well compressed files, and in memory while it is read or written."""

    file: float = 0.1
    reading: float = 8.0
    writing: float = 8.0


_RAW = _Pixel(file=0.5, reading=17)
_PIXELS: Mapping[str, _Pixel] = MappingProxyType(
    {
        "avif": _Pixel(file=0.05, reading=10.5, writing=28),
        "heic": _Pixel(file=0.05, reading=8.5, writing=30),
        "webp": _Pixel(file=0.05, reading=16, writing=10),
        "bmp": _Pixel(file=1),
        "psd": _Pixel(file=0.5),
        **dict.fromkeys(("arw", "cr2", "dng", "nef", "orf", "raf", "rw2"), _RAW),
    }
)


def needed(source: str, target: str, size: int) -> int:
    """What converting a file of `size` bytes between these formats takes, estimated without opening it.

    A file that hides more pixels than its size suggests meets the limit of its own process.
    """
    read, written = _PIXELS.get(source, _Pixel()), _PIXELS.get(target, _Pixel())
    pixels = min(size / read.file, MAX_PIXELS)
    return max(_LEAST, round(pixels * max(read.reading, written.writing)))


def budget(root: Path = Path("/")) -> int:
    """What all conversions may take together: a share of the machine's memory, or of what this process may use."""
    machine = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return round(_SHARE * min([machine, *_control_group_limits(root)]))


def _control_group_limits(root: Path) -> Iterator[int]:
    """The limits of this process's control groups and of those around them, of both versions."""
    membership = root / "proc/self/cgroup"
    for line in membership.read_text().splitlines() if membership.exists() else []:
        _, controllers, path = line.split(":", 2)
        if controllers == "":
            top, name = root / "sys/fs/cgroup", "memory.max"
        elif controllers == "memory":
            top, name = root / "sys/fs/cgroup/memory", "memory.limit_in_bytes"
        else:
            continue
        group = Path(path.lstrip("/"))
        for folder in (group, *group.parents):
            limit = top / folder / name
            if limit.exists() and (text := limit.read_text().strip()) != "max":
                yield int(text)
