"""Steps that use lazily imported modules without declaring it."""

import os
import stat
import time
from collections.abc import Callable, Mapping
from contextlib import suppress

from engine.lazy_import import lazy_import

_rawpy = lazy_import("rawpy")

WORKED, FAILED = "green", "red"  # colours of the decoded picture


def outcome(deed: str, argument: str) -> str:
    """Runs a deed. Returns the colour for its outcome. The step continues if a module is missing."""
    try:
        return WORKED if BORROWINGS[deed](argument) else FAILED
    except Exception:
        return FAILED


def _borrow(_argument: str) -> object:
    return _rawpy.imread


def _borrow_unnoticed(_argument: str) -> object:
    try:
        return _rawpy.imread
    except:  # noqa: E722  # as a plugin should not
        return None


def _borrow_slowly(seconds: str) -> object:
    time.sleep(float(seconds))
    found = _rawpy.imread
    time.sleep(float(seconds))
    return found


def _import(_argument: str) -> object:
    import pymupdf  # noqa: PLC0415  # as a plugin should not

    return pymupdf.Document


def _scribble(size: str) -> object:
    """Writes `size` bytes to the job's files before it uses the module, and truncates them afterwards."""
    for descriptor in range(3, 100):
        with suppress(OSError):
            if stat.S_ISREG(os.fstat(descriptor).st_mode):
                os.write(descriptor, bytes(int(size)))
    found = _rawpy.imread
    for descriptor in range(3, 100):
        with suppress(OSError):
            if stat.S_ISREG(os.fstat(descriptor).st_mode):
                os.ftruncate(descriptor, 0)
                os.lseek(descriptor, 0, os.SEEK_SET)
    return found


BORROWINGS: Mapping[str, Callable[[str], object]] = {
    "borrow": _borrow,
    "borrow_unnoticed": _borrow_unnoticed,
    "borrow_slowly": _borrow_slowly,
    "import": _import,
    "scribble": _scribble,
}
