"""Seccomp: system calls that a process gives up for good, written as a program for the kernel's packet filter."""

from __future__ import annotations

import errno
import os
import struct
from array import array

from engine.sandbox import kernel, syscalls
from engine.sandbox.syscalls import Numbers

# For each the column of its numbers, its audit code, and the number of seccomp.
_PROCESSORS = {"x86_64": (0, 0xC000003E, 317), "aarch64": (1, 0xC00000B7, 277)}
_OTHER_PROCESSOR = (0, 0, -1)  # there is no such system call, which is what the kernel answers then
_COLUMN, _AUDIT_CODE, _SECCOMP = _PROCESSORS.get(os.uname().machine, _OTHER_PROCESSOR)
_SET_MODE_FILTER, _ALL_THREADS = 1, 1

_ID = struct.Struct("=I")
_LOAD, _RETURN = 0x20, 0x06
_JUMP, _JUMP_IF_EQUAL, _JUMP_IF_AT_LEAST, _JUMP_IF_ANY_BIT = 0x05, 0x15, 0x35, 0x45
_NUMBER, _PROCESSOR, _ARGUMENTS = 0, 4, 16  # where they lie in what the filter is given
_ARGUMENT = 8  # bytes, of which the lower half comes first
_ALLOW, _KILL, _REFUSE = 0x7FFF0000, 0x80000000, 0x00050000
_FEW = 8  # numbers that are compared one by one
_X32 = 0x40000000  # calls of the third x86 interface, which has numbers of its own

_DONE = _REFUSE  # with no error: the call returns as if it had been made
_NAMELESS = 0x00400000  # of the flags of a file that is opened
_SET_OWNER, _SET_SIGNAL, _SET_OWNER_OF_KIND = 8, 10, 15  # what may be done with an open file
_NOW = 0  # in place of a file's times

_CLONE_THREAD = 0x00010000
# Cgroup, UTS, IPC, user, PID and network, mount, time.
_CLONE_NAMESPACES = 0x02000000 | 0x04000000 | 0x08000000 | 0x10000000 | 0x20000000 | 0x40000000 | 0x00020000 | 0x80


def _numbers(*calls: Numbers) -> list[int]:
    return [number for call in calls if (number := call[_COLUMN]) is not None]


def _instruction(code: int, value: int, if_true: int = 0, if_false: int = 0) -> bytes:
    return struct.pack("=HBBI", code, if_true, if_false, value)


def _answer(numbers: list[int], answer: int) -> list[bytes]:
    """Gives that answer to calls of these numbers, among which it searches by halves: every call is searched for."""
    if len(numbers) > _FEW:
        numbers, half = sorted(numbers), len(numbers) // 2
        below, above = _answer(numbers[:half], answer), _answer(numbers[half:], answer)
        choice = _instruction(_JUMP_IF_AT_LEAST, numbers[half], if_true=len(below) + 1)
        return [choice, *below, _instruction(_JUMP, len(above)), *above]
    count = len(numbers)
    tests = [_instruction(_JUMP_IF_EQUAL, number, if_true=count - index) for index, number in enumerate(numbers)]
    return [*tests, _instruction(_JUMP, 1), _instruction(_RETURN, answer)]


def _only_with(call: Numbers, test: int, value: int) -> list[bytes]:
    """Refuses the call unless its first argument passes the test."""
    return _by_argument(call, 0, _instruction(test, value, if_true=1), errno.EPERM)


def _only_without(call: Numbers, bits: int, *, argument: int = 0, error: int = errno.EPERM) -> list[bytes]:
    """Refuses the call if its argument of that place has any of the bits."""
    return _by_argument(call, argument, _instruction(_JUMP_IF_ANY_BIT, bits, if_false=1), error)


def _only_other(call: Numbers, value: int, *, argument: int) -> list[bytes]:
    """Refuses the call if its argument of that place is the value."""
    return _by_argument(call, argument, _instruction(_JUMP_IF_EQUAL, value, if_false=1), errno.EPERM)


def _by_argument(call: Numbers, argument: int, test: bytes, error: int) -> list[bytes]:
    """Refuses the call unless the test of its argument jumps over that."""
    body = [
        _instruction(_LOAD, _ARGUMENTS + argument * _ARGUMENT),
        test,
        _instruction(_RETURN, _REFUSE | error),
        _instruction(_LOAD, _NUMBER),
    ]
    own = [_instruction(_JUMP_IF_EQUAL, number, if_false=len(body)) for number in _numbers(call)]
    return [instruction for choice in own for instruction in (choice, *body)]


def _program(rules: list[bytes]) -> bytes:
    kill = _instruction(_RETURN, _KILL)
    return b"".join(
        [
            _instruction(_LOAD, _PROCESSOR),
            _instruction(_JUMP_IF_EQUAL, _AUDIT_CODE, if_true=1),
            kill,
            _instruction(_LOAD, _NUMBER),
            *([_instruction(_JUMP_IF_AT_LEAST, _X32, if_false=1), kill] if _COLUMN == 0 else []),
            *rules,
            _instruction(_RETURN, _ALLOW),
        ]
    )


_NOBODY = 0xFFFFFFFF  # an id that no process has: where that of the process belongs
_RESTRICTIONS = _program(
    [
        # What lies behind a pointer cannot be looked at: libraries fall back to clone, and to openat.
        *_answer(_numbers(syscalls.CLONE3, syscalls.OPENAT2), _REFUSE | errno.ENOSYS),
        *_only_without(syscalls.CLONE, _CLONE_NAMESPACES),
        *_only_without(syscalls.OPEN, _NAMELESS, argument=1, error=errno.EOPNOTSUPP),
        *_only_without(syscalls.OPENAT, _NAMELESS, argument=2, error=errno.EOPNOTSUPP),
        *_only_with(syscalls.TGKILL, _JUMP_IF_EQUAL, _NOBODY),
        *_only_with(syscalls.PRLIMIT, _JUMP_IF_EQUAL, 0),  # the caller itself
        # A file that is ready sends any signal to whoever owns it.
        *_only_other(syscalls.FCNTL, _SET_OWNER, argument=1),
        *_only_other(syscalls.FCNTL, _SET_OWNER_OF_KIND, argument=1),
        *_only_other(syscalls.FCNTL, _SET_SIGNAL, argument=1),
        *_answer(_numbers(*syscalls.DENIED.values()), _REFUSE | errno.EPERM),
        # Who asks whether there is a file by touching it is to be told the truth.
        *_only_other(syscalls.UTIMENSAT, _NOW, argument=2),
        *_answer(_numbers(*syscalls.PRETENDED.values()), _DONE),
    ]
)
_NO_PROGRAMS = _program(
    [
        *_only_with(syscalls.CLONE, _JUMP_IF_ANY_BIT, _CLONE_THREAD),
        *_answer(_numbers(*syscalls.PROGRAMS.values()), _REFUSE | errno.EPERM),
    ]
)


def restrict() -> None:
    """Gives up what no conversion needs; programs may still be started. Raises OSError where it is not possible."""
    _install(_RESTRICTIONS.replace(_ID.pack(_NOBODY), _ID.pack(os.getpid())))


def forbid_programs() -> None:
    """Gives up starting programs and processes; threads stay. Raises OSError where it is not possible."""
    _install(_NO_PROGRAMS)


def _install(program: bytes) -> None:
    instructions = array("Q", program)  # one to an item
    address, length = instructions.buffer_info()
    kernel.syscall(_SECCOMP, _SET_MODE_FILTER, _ALL_THREADS, struct.pack("@HP", length, address))
