"""Seccomp: system calls that a process gives up for good, written as a program for the kernel's packet filter."""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import struct
from collections.abc import Iterable

from engine.sandbox import kernel, syscalls
from engine.sandbox.syscalls import Numbers

_PROCESSORS = {"x86_64": (0, 0xC000003E, 317), "aarch64": (1, 0xC00000B7, 277)}  # column, audit code, seccomp's number
_SET_MODE_FILTER, _ALL_THREADS = 1, 1

_LOAD, _RETURN = 0x20, 0x06
_JUMP, _JUMP_IF_EQUAL, _JUMP_IF_AT_LEAST, _JUMP_IF_ANY_BIT = 0x05, 0x15, 0x35, 0x45
_NUMBER, _PROCESSOR, _FIRST_ARGUMENT = 0, 4, 16  # where they lie in what the filter is given
_ALLOW, _KILL, _REFUSE = 0x7FFF0000, 0x80000000, 0x00050000
_X32 = 0x40000000  # calls of the third x86 interface, which has numbers of its own

_CLONE_THREAD = 0x00010000
# Cgroup, UTS, IPC, user, PID and network, mount, time.
_CLONE_NAMESPACES = 0x02000000 | 0x04000000 | 0x08000000 | 0x10000000 | 0x20000000 | 0x40000000 | 0x00020000 | 0x80


def restrict() -> None:
    """Gives up what no conversion needs; programs may still be started. Raises OSError where it is not possible."""
    column, _, _ = _processor()
    denied = _numbers(syscalls.DENIED.values(), column)
    clone, tgkill, prlimit = (syscalls.CLONE[column], syscalls.TGKILL[column], syscalls.PRLIMIT[column])
    _install(
        [
            *_answer(_numbers([syscalls.CLONE3], column), _REFUSE | errno.ENOSYS),  # libraries fall back to clone
            *_only_with(clone, _JUMP_IF_ANY_BIT, _CLONE_NAMESPACES, refused=True),
            *_only_with(tgkill, _JUMP_IF_EQUAL, os.getpid()),
            *_only_with(prlimit, _JUMP_IF_EQUAL, 0),  # the caller itself
            *_answer(denied, _REFUSE | errno.EPERM),
        ]
    )


def forbid_programs() -> None:
    """Gives up starting programs and processes; threads stay. Raises OSError where it is not possible."""
    column, _, _ = _processor()
    _install(
        [
            *_only_with(syscalls.CLONE[column], _JUMP_IF_ANY_BIT, _CLONE_THREAD),
            *_answer(_numbers(syscalls.PROGRAMS.values(), column), _REFUSE | errno.EPERM),
        ]
    )


def _processor() -> tuple[int, int, int]:
    try:
        return _PROCESSORS[platform.machine()]
    except KeyError:
        raise OSError(errno.ENOSYS, "no filter for this processor") from None


def _numbers(calls: Iterable[Numbers], column: int) -> list[int]:
    return [number for call in calls if (number := call[column]) is not None]


def _instruction(code: int, value: int, if_true: int = 0, if_false: int = 0) -> bytes:
    return struct.pack("=HBBI", code, if_true, if_false, value)


def _answer(numbers: list[int], answer: int) -> list[bytes]:
    """Gives that answer to calls of these numbers, at most 255."""
    count = len(numbers)
    tests = [_instruction(_JUMP_IF_EQUAL, number, if_true=count - index) for index, number in enumerate(numbers)]
    return [*tests, _instruction(_JUMP, 1), _instruction(_RETURN, answer)]


def _only_with(number: int | None, test: int, value: int, *, refused: bool = False) -> list[bytes]:
    """Refuses the call unless its first argument passes the test, or if it does."""
    assert number is not None  # every processor has these
    body = [
        _instruction(_LOAD, _FIRST_ARGUMENT),
        _instruction(test, value, if_true=not refused, if_false=refused),
        _instruction(_RETURN, _REFUSE | errno.EPERM),
        _instruction(_LOAD, _NUMBER),
    ]
    return [_instruction(_JUMP_IF_EQUAL, number, if_false=len(body)), *body]


def _install(rules: list[bytes]) -> None:
    column, audit_code, number = _processor()
    kill = _instruction(_RETURN, _KILL)
    program = [
        _instruction(_LOAD, _PROCESSOR),
        _instruction(_JUMP_IF_EQUAL, audit_code, if_true=1),
        kill,
        _instruction(_LOAD, _NUMBER),
        *([_instruction(_JUMP_IF_AT_LEAST, _X32, if_false=1), kill] if column == 0 else []),
        *rules,
        _instruction(_RETURN, _ALLOW),
    ]
    code = ctypes.create_string_buffer(b"".join(program))
    described = struct.pack("@HP", len(program), ctypes.addressof(code))
    kernel.syscall(number, _SET_MODE_FILTER, _ALL_THREADS, described)
