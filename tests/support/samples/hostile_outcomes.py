"""Hostile files and their allowed outcomes, as pairs of code and reason."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

DONE = ("done", "")
CORRUPT = ("processing_failed", "corrupt_input")
TIMEOUT = ("processing_failed", "timeout")
MEMORY = ("processing_failed", "out_of_memory")
PIXELS, FRAMES, PAGES = (("file_too_large", reason) for reason in ("pixels", "frames", "pages"))
EXTERNAL = UNRECOGNIZED = ("invalid_file_type", "unrecognized")
BYTES, ELEMENTS, SCANS = (("file_too_large", reason) for reason in ("bytes", "elements", "scans"))

Outcome = tuple[str, str]


@dataclass(frozen=True)
class Canary:
    """Resources that must not be accessed: a URL that counts requests, and a file."""

    url: str
    file: Path


@dataclass(frozen=True)
class Hostile:
    """A hostile file, its target format, and the allowed outcomes as pairs of code and reason."""

    name: str
    make: Callable[[Canary], bytes]
    allowed: tuple[Outcome, ...]
    target: str = "png"
    long: bool = False  # runs to its deadline, or takes seconds to make
