"""The seccomp filters, tried and interpreted, and what `convertd doctor` says about refused layers."""

import errno
import fcntl
import json
import os
import socket
import struct
import subprocess
import sys
from pathlib import Path

import pytest

from engine.sandbox import LAYERS, advise, seccomp
from plugins._browser import chromium
from plugins._office import libreoffice
from tests.support.executors.refused_calls import EXPECTED_REFUSALS, refused_calls
from tests.support.samples.pairs import plans_of_all_steps

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
seccomp.restrict(several_processes=len(sys.argv) > 2)
print(json.dumps([error(*call) for call in json.loads(sys.argv[1])]))
"""
_NOWHERE = -1  # a descriptor, process or address that is not there
_CALL_NUMBERS = range(1000)  # kernels of today have fewer than 500
_PROBES = (335, 336)  # uretprobe and uprobe of x86-64: never filtered, and deadly outside a probe
# CLONE_PARENT, and namespaces: mount, cgroup, UTS, IPC, user, PID and network.
_REFUSED_CLONE_FLAGS = (0x8000, 0x20000, 0x2000000, 0x4000000, 0x8000000, 0x10000000, 0x20000000, 0x40000000)
_FIOASYNC = 0x5452
_SET_DUMPABLE, _SET_PARENT_DEATH_SIGNAL, _SET_NAME = 4, 1, 15  # prctl
_NEW_LISTENER = 8
_REFUSED_IOCTLS = (
    *(_FIOASYNC, 0x8901, 0x8902),  # FIOSETOWN and SIOCSPGRP
    *(0x40305828, 0x4030582A, 0x40049409),  # FS_IOC_RESVSP, FS_IOC_RESVSP64 and FICLONE
    *(0, 0x5400, 0x5402, 0x5453, 0xFFFFFFFF),
)
_REFUSED_FCNTLS = (
    *(fcntl.F_SETOWN, fcntl.F_SETSIG, 15, fcntl.F_NOTIFY, fcntl.F_SETLEASE),  # 15 is F_SETOWN_EX
    *(fcntl.F_SETLK, fcntl.F_SETLKW, fcntl.F_OFD_SETLK, 1031),  # 1031 is F_SETPIPE_SZ
)
_ARCHITECTURES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
_ONLY_X86 = """
    access arch_prctl chmod dup2 epoll_create epoll_wait fork getdents getpgrp lstat mkdir open pipe poll readlink rmdir
    select stat time unlink vfork
"""
# Calls that no conversion may make, one of each kind.
_DANGEROUS = """
    socket socketpair connect bind sendto sendmsg kill tkill rt_sigqueueinfo pidfd_open pidfd_getfd ptrace
    process_vm_readv process_vm_writev kcmp setpriority sched_setaffinity shmget semget msgget mq_open
    setsid setpgid setuid setresuid setgroups capset personality keyctl unshare setns chroot pivot_root mount umount2
    mknod mknodat quotactl open_by_handle_at fanotify_init inotify_init1 chown fchownat utimes link symlink symlinkat
    memfd_create memfd_secret rename renameat2 flock splice vmsplice
    bpf perf_event_open userfaultfd io_uring_setup io_uring_enter init_module kexec_load reboot syslog
    landlock_create_ruleset landlock_restrict_self clone3 openat2 execveat
"""


def _errors(*calls: tuple[int | str | None, ...], several_processes: bool = False) -> list[int | None]:
    command = [sys.executable, "-c", _PROGRAM, json.dumps(calls), *(["several"] if several_processes else [])]
    try:
        return list(json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout))
    except subprocess.CalledProcessError as failed:
        pytest.fail(failed.stderr)


def _numbers(*calls: str) -> list[int]:
    """The numbers of those calls that this architecture has."""
    resolve = seccomp.libseccomp().seccomp_syscall_resolve_name
    return [number for call in calls if (number := resolve(call.encode())) >= 0]


def _number(call: str) -> int:
    (number,) = _numbers(call)
    return number


def test_all_names_are_known_on_some_architecture() -> None:
    """An unknown name, such as a misspelt one, would be left out of the filters."""
    resolve = seccomp.libseccomp().seccomp_syscall_resolve_name
    calls = {rule.call for rule in (*seccomp.RESTRICTIONS, *seccomp.NO_PROGRAMS)}

    assert [call for call in calls if resolve(call.encode()) == -1] == []


def test_the_list_has_the_calls_of_both_architectures() -> None:
    """Those that 64-bit ARM lacks are old: it has another call for each, such as dup3 and openat."""
    resolve = seccomp.libseccomp().seccomp_syscall_resolve_name_arch
    missing = {rule.call for rule in seccomp.RESTRICTIONS if resolve(_ARCHITECTURES["aarch64"], rule.call.encode()) < 0}

    assert missing == set(_ONLY_X86.split())


def test_calls_that_are_not_listed_fail_as_on_a_kernel_without_them() -> None:
    listed = _numbers(*(rule.call for rule in seccomp.RESTRICTIONS))
    numbers = [number for number in _CALL_NUMBERS if number not in (*listed, *_PROBES)]

    assert set(_numbers(*_DANGEROUS.split())) <= {*numbers}
    assert _errors(*((number, _NOWHERE) for number in numbers)) == [errno.ENOSYS] * len(numbers)


def test_ignored_calls_return_success_and_unsupported_ones_fail_as_on_a_simple_file_system() -> None:
    ignored = _numbers(*seccomp.IGNORED, "utimensat")
    unsupported = _numbers(*seccomp.UNSUPPORTED)

    assert _errors(*((number, _NOWHERE, _NOWHERE, _NOWHERE) for number in ignored)) == [None] * len(ignored)
    assert _errors(*((number, _NOWHERE) for number in unsupported)) == [errno.EOPNOTSUPP] * len(unsupported)


def test_some_calls_are_refused_by_their_arguments() -> None:
    beyond_int = 1 << 32  # the kernel ignores the upper half of an int
    calls: dict[tuple[int | str | None, ...], int | None] = {
        (_number("utimensat"), _NOWHERE, None, None): errno.ENOSYS,
        **{(_number("fcntl"), _NOWHERE, command): errno.ENOSYS for command in _REFUSED_FCNTLS},
        (_number("fcntl"), _NOWHERE, fcntl.F_SETOWN | beyond_int): errno.ENOSYS,
        (_number("fcntl"), _NOWHERE, fcntl.F_SETFL, os.O_ASYNC): errno.ENOSYS,
        (_number("fcntl"), _NOWHERE, fcntl.F_SETFL, os.O_NONBLOCK): errno.EBADF,  # allowed by the filter
        (_number("fcntl"), _NOWHERE, fcntl.F_GETFL): errno.EBADF,
        (_number("fcntl"), _NOWHERE, fcntl.F_GETFL | beyond_int): errno.EBADF,
        **{(_number("ioctl"), _NOWHERE, command): errno.ENOSYS for command in _REFUSED_IOCTLS},
        (_number("ioctl"), _NOWHERE, _FIOASYNC | beyond_int): errno.ENOSYS,
        **{(_number("ioctl"), _NOWHERE, command): errno.EBADF for command in seccomp._IOCTLS},
        (_number("prctl"), _SET_DUMPABLE, 1): errno.ENOSYS,
        (_number("prctl"), _SET_PARENT_DEATH_SIGNAL, 0): errno.ENOSYS,
        (_number("prctl"), _SET_NAME, None): errno.EFAULT,  # allowed, but has no name
        (_number("seccomp"), 1, 1, None): errno.EFAULT,  # allowed, but has no program
        (_number("seccomp"), 1, _NEW_LISTENER, None): errno.ENOSYS,
        (_number("openat"), _NOWHERE, None, os.O_RDWR | os.O_TMPFILE): errno.ENOSYS,
        (_number("openat"), _NOWHERE, None, os.O_RDWR | os.O_DIRECTORY): errno.EFAULT,  # allowed, but has no name
        **{(_number("clone"), flag): errno.ENOSYS for flag in _REFUSED_CLONE_FLAGS},
        (_number("tgkill"), os.getpid()): errno.ENOSYS,
        (_number("tgkill"), "own"): errno.EINVAL,  # allowed, but names no thread
        (_number("prlimit64"), os.getpid()): errno.ENOSYS,
        (_number("prlimit64"), 0): None,
    }

    for number in _numbers("open"):
        calls[number, None, os.O_RDWR | os.O_TMPFILE] = errno.ENOSYS
        calls[number, None, os.O_RDWR | os.O_DIRECTORY] = errno.EFAULT
    for number in _numbers("arch_prctl"):
        calls[number, 0x5003, 0] = errno.ENOSYS  # ARCH_SHSTK_UNLOCK

    assert _errors(*calls) == list(calls.values())


def test_a_program_of_several_processes_has_pairs_of_sockets_and_no_others() -> None:
    unix = socket.AF_UNIX
    internet = socket.AF_INET
    stream = socket.SOCK_STREAM
    calls: dict[tuple[int | None, ...], int] = {
        (_number("socketpair"), unix, stream, 0): errno.EFAULT,  # allowed, but has no place for the pair
        (_number("socketpair"), internet, stream, 0): errno.ENOSYS,
        (_number("socket"), unix, stream, 0): errno.ENOSYS,
        (_number("socket"), internet, stream, 0): errno.ENOSYS,
        (_number("sendmsg"), _NOWHERE, 0): errno.EBADF,
        (_number("unlinkat"), _NOWHERE, None, 0): errno.EFAULT,
        (_number("prctl"), _SET_DUMPABLE, 1): errno.ENOSYS,
        **{(number,): errno.ENOSYS for number in _numbers("connect", "bind", "listen", "accept4", "ptrace", "kill")},
    }

    assert _errors(*calls, several_processes=True) == list(calls.values())
    assert _errors((_number("sendmsg"), _NOWHERE, 0), (_number("socketpair"), unix, stream, 0)) == [errno.ENOSYS] * 2


def test_conversions_make_no_other_calls() -> None:
    """Otherwise, the list of the filter lacks a call that a new version of a library makes, or this list does."""
    others = {*libreoffice.PROGRAMS, *chromium.PROGRAMS}  # LibreOffice makes many, Chromium has a filter of its own
    plans = (plan for plan in plans_of_all_steps() if not others & {*plan.programs})
    refused = refused_calls([(plan.source.name, plan.target.name) for plan in plans])

    assert "clone3" in refused  # the C library tries it before clone
    assert {call: plans for call, plans in refused.items() if call not in EXPECTED_REFUSALS} == {}


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
                is_true = {
                    _JUMP_IF_EQUAL: register == value,
                    _JUMP_IF_ABOVE: register > value,
                    _JUMP_IF_AT_LEAST: register >= value,
                }[code]
                position += if_true if is_true else if_false


def test_only_listed_calls_are_allowed() -> None:
    """A kernel with more calls than those of today has them refused."""
    program = seccomp.compile_filters().restrictions
    actions = {number: _action(program, number) for number in _CALL_NUMBERS}

    assert {number for number in _CALL_NUMBERS if actions[number] == seccomp._ALLOW} == {
        *_numbers(*seccomp.ALLOWED, "clone", "fcntl", "open", "openat", "prlimit64")  # these with arguments of 0
    }
    assert set(actions.values()) == {
        *(seccomp._ALLOW, seccomp._ERRNO, seccomp._ERRNO | errno.ENOSYS, seccomp._ERRNO | errno.EOPNOTSUPP)
    }


def test_the_second_filter_denies_programs_only() -> None:
    program = seccomp.compile_filters().no_programs

    denied = {number for number in _CALL_NUMBERS if _action(program, number) != seccomp._ALLOW}

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

    assert json.loads(done.stdout) == [errno.ENOSYS]


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        (
            {
                "proc/sys/kernel/apparmor_restrict_unprivileged_userns": "1\n",
                "proc/sys/user/max_user_namespaces": "9\n",
            },
            "sysctl -w kernel.apparmor_restrict_unprivileged_userns=0,",
        ),
        ({"proc/sys/kernel/unprivileged_userns_clone": "0\n"}, "sysctl -w kernel.unprivileged_userns_clone=1,"),
        ({"proc/sys/user/max_user_namespaces": "0\n"}, "sysctl -w user.max_user_namespaces=10000,"),
        ({"proc/sys/kernel/apparmor_restrict_unprivileged_userns": "0\n"}, "--security-opt seccomp=unconfined"),
        ({}, "--security-opt seccomp=unconfined"),
    ],
)
def test_user_namespaces(tmp_path: Path, files: dict[str, str], expected: str) -> None:
    for name, content in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(content)

    found = advise(["network_namespace", "few_threads"], tmp_path)

    assert [expected in text for text in found.values()] == [True, True]


def test_landlock_can_be_switched_off(tmp_path: Path) -> None:
    (tmp_path / "sys/kernel/security").mkdir(parents=True)
    modules = tmp_path / "sys/kernel/security/lsm"

    modules.write_text("capability,yama,apparmor")
    assert "lsm=landlock,capability,yama,apparmor" in advise(["landlock"], tmp_path)["landlock"]
    modules.write_text("capability,landlock")
    assert "Linux 5.13" in advise(["landlock"], tmp_path)["landlock"]


def test_only_missing_layers_have_advice(tmp_path: Path) -> None:
    assert advise([], tmp_path) == {}
    assert advise(["rlimits", "no sockets"], tmp_path) == {}
    advised = advise(sorted(LAYERS), tmp_path).keys()
    assert advised == {"network_namespace", "few_threads", "own_user", "landlock", "seccomp"}
