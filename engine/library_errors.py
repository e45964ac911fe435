"""What exceptions of libraries mean. MuPDF is asked about only if it is loaded."""

import sys
from typing import Any

_MUPDF_NESTING = 60  # levels that MuPDF reads of any elements: it has several limits
_TOO_DEEP = ("nesting too deep", "stack overflow")  # the other limits of MuPDF are for sizes
_NO_MEMORY = "alloc"  # as in "malloc (1000 bytes) failed"


def lacks_memory(error: Exception) -> bool:
    """Whether memory could not be allocated."""
    mupdf = _mupdf()
    is_of_system = mupdf is not None and isinstance(error, mupdf.FzErrorSystem)
    return isinstance(error, MemoryError) or (is_of_system and _NO_MEMORY in str(error))


def max_nesting(error: Exception) -> int | None:
    """How many levels the library reads, if the error is that a file has more; otherwise None."""
    mupdf = _mupdf()
    if mupdf is not None and isinstance(error, mupdf.FzErrorLimit):
        return _MUPDF_NESTING if any(text in str(error) for text in _TOO_DEEP) else None
    return sys.getrecursionlimit() if isinstance(error, RecursionError) else None


def _mupdf() -> Any:
    return sys.modules.get("pymupdf.mupdf")
