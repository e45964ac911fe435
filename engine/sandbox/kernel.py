"""System calls that Python has no function for."""

from __future__ import annotations

import ctypes
import os

_LIBC = ctypes.CDLL(None, use_errno=True)
_LIBC.syscall.restype = ctypes.c_long

_COLLAPSE = 25  # madvise


def syscall(number: int, *arguments: int | bytes | ctypes.Array[ctypes.c_char] | None) -> int:
    """Makes the call; bytes and buffers go as pointers. Raises OSError."""
    passed = [ctypes.c_long(value) if isinstance(value, int) else value for value in arguments]
    return _checked(_LIBC.syscall(ctypes.c_long(number), *passed))


def prctl(option: int, value: int) -> int:
    """Raises OSError."""
    return _checked(_LIBC.prctl(option, *(ctypes.c_ulong(part) for part in (value, 0, 0, 0))))


def unshare(flags: int) -> None:
    """Raises OSError; with a user namespace also where this process has more than one thread."""
    _checked(_LIBC.unshare(flags))


def collapse(address: int, size: int) -> None:
    """Gathers the pages there in huge ones. Raises OSError, where the system is older than Linux 6.1 among others."""
    _checked(_LIBC.madvise(ctypes.c_void_p(address), ctypes.c_size_t(size), _COLLAPSE))


def _checked(result: int) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result
