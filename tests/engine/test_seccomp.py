"""What the filter answers, asked with harmless arguments in a process that has given up system calls."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import struct
import subprocess
import sys

import pytest

from engine.sandbox import seccomp

# Prints the error of each call that is given by its number, and its arguments.
_ASK = """
import json, os, sys
from engine.sandbox import libc, privileges, seccomp
def error(number, *arguments):
    try:
        libc.syscall(number, *(os.getpid() if argument == "own" else argument for argument in arguments))
    except OSError as error:
        return error.errno
privileges.renounce_privileges()
seccomp.restrict()
print(json.dumps([error(*call) for call in json.loads(sys.argv[1])]))
"""
_NOWHERE = -1  # a descriptor, process or address that is not there
_NEW_USER = 0x10000000
_SET_OWNER_OF_KIND = 15  # F_SETOWN_EX, which Python has no name for


def _errors(*calls: tuple[int | str | None, ...]) -> list[int | None]:
    asked = [sys.executable, "-c", _ASK, json.dumps(calls)]
    try:
        return list(json.loads(subprocess.run(asked, capture_output=True, text=True, check=True).stdout))
    except subprocess.CalledProcessError as failed:
        pytest.fail(failed.stderr)


def _number(call: seccomp.Numbers) -> int | None:
    return call[seccomp._COLUMN]


def test_every_call_of_the_list_is_refused() -> None:
    numbers = [number for call in seccomp.DENIED.values() if (number := _number(call)) is not None]

    assert _errors(*((number, _NOWHERE) for number in numbers)) == [errno.EPERM] * len(numbers)


def test_some_are_only_seemingly_made() -> None:
    numbers = [number for call in seccomp.PRETENDED.values() if (number := _number(call)) is not None]

    assert _errors(*((number, _NOWHERE, _NOWHERE, _NOWHERE) for number in numbers)) == [None] * len(numbers)


def test_some_are_refused_by_their_argument() -> None:
    openat = _number(seccomp.OPENAT)
    calls: dict[tuple[int | str | None, ...], int | None] = {
        (_number(seccomp.CLONE3), 0): errno.ENOSYS,
        (_number(seccomp.OPENAT2), 0): errno.ENOSYS,
        (_number(seccomp.UTIMENSAT), _NOWHERE, None, None): errno.EPERM,
        (_number(seccomp.FCNTL), _NOWHERE, fcntl.F_SETOWN): errno.EPERM,
        (_number(seccomp.FCNTL), _NOWHERE, _SET_OWNER_OF_KIND): errno.EPERM,
        (_number(seccomp.FCNTL), _NOWHERE, fcntl.F_SETSIG): errno.EPERM,
        (_number(seccomp.FCNTL), _NOWHERE, fcntl.F_GETFL): errno.EBADF,  # it passes
        (openat, _NOWHERE, None, os.O_RDWR | os.O_TMPFILE): errno.EOPNOTSUPP,
        (openat, _NOWHERE, None, os.O_RDWR | os.O_DIRECTORY): errno.EFAULT,  # for want of a name: it passes
        (_number(seccomp.CLONE), _NEW_USER): errno.EPERM,
        (_number(seccomp.TGKILL), os.getpid()): errno.EPERM,
        (_number(seccomp.TGKILL), "own"): errno.EINVAL,  # for want of a thread: the filter lets it pass
        (_number(seccomp.PRLIMIT), os.getpid()): errno.EPERM,
        (_number(seccomp.PRLIMIT), 0): None,
    }

    if (number := _number(seccomp.OPEN)) is not None:
        calls[number, None, os.O_RDWR | os.O_TMPFILE] = errno.EOPNOTSUPP
        calls[number, None, os.O_RDWR | os.O_DIRECTORY] = errno.EFAULT

    assert _errors(*calls) == list(calls.values())


def _answer(program: bytes, number: int) -> int:
    """What the kernel's packet filter would answer to a call whose arguments are 0."""
    instructions = list(struct.iter_unpack("=HBBI", program))
    given = {seccomp._NUMBER: number, seccomp._PROCESSOR: seccomp._AUDIT_CODE}
    at = loaded = 0
    while True:
        code, if_true, if_false, value = instructions[at]
        if code == seccomp._RETURN:
            return int(value)
        tests = {
            seccomp._JUMP_IF_EQUAL: loaded == value,
            seccomp._JUMP_IF_AT_LEAST: loaded >= value,
            seccomp._JUMP_IF_ANY_BIT: bool(loaded & value),
        }
        if code == seccomp._LOAD:
            loaded = given.get(value, 0)
        at += 1 + (value if code == seccomp._JUMP else 0)
        at += (if_true if tests[code] else if_false) if code in tests else 0


def test_no_other_call_is_refused() -> None:
    denied = [
        *seccomp.DENIED.values(),
        *seccomp.PRETENDED.values(),
        seccomp.CLONE3,
        seccomp.OPENAT2,
        seccomp.TGKILL,
    ]
    expected = set(map(_number, denied)) - {None}

    refused = {number for number in range(1000) if _answer(seccomp._RESTRICTIONS, number) != seccomp._ALLOW}

    assert refused == expected


def test_programs_are_all_that_is_refused_besides() -> None:
    expected = {*map(_number, seccomp.PROGRAMS.values()), _number(seccomp.CLONE)} - {None}

    assert {number for number in range(1000) if _answer(seccomp._NO_PROGRAMS, number) != seccomp._ALLOW} == expected
