"""The seccomp filters, tried with harmless arguments in a process that has installed them, and interpreted."""

import errno
import fcntl
import json
import os
import struct
import subprocess
import sys

import pytest

from engine.sandbox import seccomp

# Prints the error number of each call, given by its number and arguments.
_PROGRAM = """
import json, os, sys
from engine.sandbox import libc, privileges, seccomp
def error(number, *arguments):
    try:
        libc.syscall(number, *(os.getpid() if argument == "own" else argument for argument in arguments))
    except OSError as error:
        return error.errno
privileges.set_no_new_privs()
seccomp.restrict()
print(json.dumps([error(*call) for call in json.loads(sys.argv[1])]))
"""
_NOWHERE = -1  # a descriptor, process or address that is not there
_NEW_USER, _CLONE_PARENT = 0x10000000, 0x00008000
_FIOASYNC = 0x5452
_DENIED_IOCTLS = (
    *(_FIOASYNC, 0x8901, 0x8902),  # FIOSETOWN and SIOCSPGRP
    *(0x40305828, 0x4030582A, 0x40049409),  # FS_IOC_RESVSP, FS_IOC_RESVSP64 and FICLONE
    *(0, 0x5400, 0x5402, 0x5453, 0xFFFFFFFF),
)
_DENIED_FCNTLS = (
    *(fcntl.F_SETOWN, fcntl.F_SETSIG, 15, fcntl.F_NOTIFY, fcntl.F_SETLEASE),  # 15 is F_SETOWN_EX
    *(fcntl.F_SETLK, fcntl.F_SETLKW, fcntl.F_OFD_SETLK, 1031),  # 1031 is F_SETPIPE_SZ
)


def _errors(*calls: tuple[int | str | None, ...]) -> list[int | None]:
    command = [sys.executable, "-c", _PROGRAM, json.dumps(calls)]
    try:
        return list(json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout))
    except subprocess.CalledProcessError as failed:
        pytest.fail(failed.stderr)


def _numbers(*calls: str) -> list[int]:
    """The numbers of those calls that this architecture has."""
    return [number for call in calls if (number := seccomp.call_number(call)) is not None]


def _number(call: str) -> int:
    (number,) = _numbers(call)
    return number


def test_all_names_are_known_on_some_architecture() -> None:
    """An unknown name, such as a misspelt one, would be left out of the filters."""
    resolve = seccomp.libseccomp().seccomp_syscall_resolve_name
    calls = {rule.call for rule in (*seccomp.RESTRICTIONS, *seccomp.NO_PROGRAMS)}

    assert {call for call in calls if resolve(call.encode()) == -1} <= {*seccomp.RECENT}


def test_denied_calls_fail() -> None:
    numbers = _numbers(*seccomp.DENIED)

    assert len(numbers) > 100
    assert _errors(*((number, _NOWHERE) for number in numbers)) == [errno.EPERM] * len(numbers)


def test_ignored_calls_return_success() -> None:
    numbers = _numbers(*seccomp.IGNORED, "utimensat")

    assert _errors(*((number, _NOWHERE, _NOWHERE, _NOWHERE) for number in numbers)) == [None] * len(numbers)


def test_some_calls_are_denied_by_their_arguments() -> None:
    beyond_int = 1 << 32  # the kernel ignores the upper half of an int
    calls: dict[tuple[int | str | None, ...], int | None] = {
        (_number("clone3"), 0): errno.ENOSYS,
        (_number("openat2"), 0): errno.ENOSYS,
        (_number("utimensat"), _NOWHERE, None, None): errno.EPERM,
        **{(_number("fcntl"), _NOWHERE, command): errno.EPERM for command in _DENIED_FCNTLS},
        (_number("fcntl"), _NOWHERE, fcntl.F_SETOWN | beyond_int): errno.EPERM,
        (_number("fcntl"), _NOWHERE, fcntl.F_SETFL, os.O_ASYNC): errno.EPERM,
        (_number("fcntl"), _NOWHERE, fcntl.F_SETFL, os.O_NONBLOCK): errno.EBADF,  # allowed by the filter
        (_number("fcntl"), _NOWHERE, fcntl.F_GETFL): errno.EBADF,
        **{(_number("ioctl"), _NOWHERE, command): errno.EPERM for command in _DENIED_IOCTLS},
        (_number("ioctl"), _NOWHERE, _FIOASYNC | beyond_int): errno.EPERM,
        **{(_number("ioctl"), _NOWHERE, command): errno.EBADF for command in seccomp._IOCTLS},
        (_number("fallocate"), _NOWHERE, 0, 0): errno.EOPNOTSUPP,
        (_number("openat"), _NOWHERE, None, os.O_RDWR | os.O_TMPFILE): errno.EOPNOTSUPP,
        (_number("openat"), _NOWHERE, None, os.O_RDWR | os.O_DIRECTORY): errno.EFAULT,  # allowed, but has no name
        (_number("clone"), _NEW_USER): errno.EPERM,
        (_number("clone"), _CLONE_PARENT): errno.EPERM,
        (_number("tgkill"), os.getpid()): errno.EPERM,
        (_number("tgkill"), "own"): errno.EINVAL,  # allowed, but names no thread
        (_number("prlimit64"), os.getpid()): errno.EPERM,
        (_number("prlimit64"), 0): None,
    }

    for number in _numbers("open"):
        calls[number, None, os.O_RDWR | os.O_TMPFILE] = errno.EOPNOTSUPP
        calls[number, None, os.O_RDWR | os.O_DIRECTORY] = errno.EFAULT

    assert _errors(*calls) == list(calls.values())


_ARCHITECTURES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
_LOAD, _AND, _RETURN = 0x20, 0x54, 0x06
_JUMP, _JUMP_IF_EQUAL, _JUMP_IF_ABOVE, _JUMP_IF_AT_LEAST = 0x05, 0x15, 0x25, 0x35
_X32 = 0x40000000


def _action(program: bytes, number: int, architecture: int = _ARCHITECTURES[os.uname().machine]) -> int:
    """The action of a BPF program for a call whose arguments are 0."""
    instructions = list(struct.iter_unpack("=HBBI", program))
    data = {0: number, 4: architecture}
    position = register = 0
    while True:
        code, if_true, if_false, value = instructions[position]
        position += 1
        match code:
            case _ if code == _RETURN:
                return int(value)
            case _ if code == _LOAD:
                register = data.get(value, 0)
            case _ if code == _AND:
                register &= value
            case _ if code == _JUMP:
                position += value
            case _:
                holds = {
                    _JUMP_IF_EQUAL: register == value,
                    _JUMP_IF_ABOVE: register > value,
                    _JUMP_IF_AT_LEAST: register >= value,
                }[code]
                position += if_true if holds else if_false


def test_no_other_call_is_denied() -> None:
    restricted = _numbers(*seccomp.DENIED, *seccomp.IGNORED, "utimensat", "clone3", "openat2", "tgkill")
    restricted += _numbers("fallocate", "ioctl")
    program = seccomp.compile_filters().restrictions

    assert {number for number in range(1000) if _action(program, number) != seccomp._ALLOW} == {*restricted}


def test_the_second_filter_denies_programs_only() -> None:
    program = seccomp.compile_filters().no_programs

    denied = {number for number in range(1000) if _action(program, number) != seccomp._ALLOW}

    assert denied == {*_numbers(*seccomp.PROGRAMS, "clone")}


def test_foreign_architectures_are_killed() -> None:
    for program in seccomp.compile_filters():
        assert _action(program, 0, 0x40000003) == seccomp._KILL_PROCESS  # i386
        if os.uname().machine == "x86_64":
            assert _action(program, _X32) == seccomp._KILL_PROCESS
            assert _action(program, _X32 | 999) == seccomp._KILL_PROCESS


_PROGRAM_WITH_A_THREAD = """
import os, threading
from engine.sandbox import privileges, seccomp
installed, errors = threading.Event(), []
def signal_parent():
    installed.wait()
    try:
        os.kill(os.getppid(), 0)
    except OSError as error:
        errors.append(error.errno)
thread = threading.Thread(target=signal_parent)
thread.start()
privileges.set_no_new_privs()
seccomp.restrict()
installed.set()
thread.join()
print(errors)
"""


def test_threads_that_run_already_are_restricted() -> None:
    """A thread of a library could otherwise do what the others may not."""
    done = subprocess.run([sys.executable, "-c", _PROGRAM_WITH_A_THREAD], capture_output=True, text=True, check=True)

    assert json.loads(done.stdout) == [errno.EPERM]
