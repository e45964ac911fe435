"""System calls that Python has no function for. All raise OSError."""

import ctypes
import os
from typing import TypeAlias

Argument: TypeAlias = int | bytes | None
"""An argument of a system call; bytes are passed as a pointer."""

_LIBC = ctypes.CDLL(None, use_errno=True)
_SYSCALL = _LIBC.syscall
_PRCTL = _LIBC.prctl
_CAPSET = _LIBC.capset
_UNSHARE = _LIBC.unshare
_SYSCALL.restype = ctypes.c_long
_SYSCALL.argtypes = (ctypes.c_long, *[ctypes.c_void_p] * 4)
_PRCTL.argtypes = (ctypes.c_int, *[ctypes.c_ulong] * 4)
_CAPSET.argtypes = (ctypes.c_void_p, ctypes.c_void_p)


def syscall(number: int, first: Argument = 0, second: Argument = 0, third: Argument = 0, fourth: Argument = 0) -> int:
    return _checked(_SYSCALL(number, first, second, third, fourth))


def prctl(option: int, value: int) -> int:
    return _checked(_PRCTL(option, value, 0, 0, 0))


def capset(header: bytes, data: bytes) -> None:
    _checked(_CAPSET(header, data))


def unshare(flags: int) -> None:
    """Raises OSError, with a user namespace also if this process has more than one thread."""
    _checked(_UNSHARE(flags))


def _checked(result: int) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result
