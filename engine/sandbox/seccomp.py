"""Seccomp: allows the system calls that conversions make, and refuses all others, also calls of later kernels.

A refused call fails with ENOSYS, as on a kernel without it: libraries then use an older one. libseccomp compiles the
rules to two filters, once and before processes are forked. `restrict` installs the first in every task,
`forbid_programs` the second in tasks that start no programs.
"""

import ctypes
import errno
import fcntl
import os
import socket
import struct
from array import array
from collections.abc import Iterable
from functools import cache
from itertools import starmap
from typing import Any, NamedTuple

from engine.sandbox import libc

_MEMORY = "brk mmap munmap mremap mprotect madvise"
_THREADS = """
    futex set_robust_list set_tid_address rseq exit exit_group
    sched_yield sched_getaffinity getcpu gettid getpid getppid
"""
_SIGNALS = "rt_sigaction rt_sigprocmask rt_sigreturn sigaltstack restart_syscall"
_TIME = "clock_gettime clock_getres clock_nanosleep nanosleep gettimeofday time times getrusage"
_DESCRIPTORS = """
    read pread64 readv preadv write pwrite64 writev pwritev lseek ftruncate fadvise64 fstat fstatfs getdents getdents64
    dup dup2 dup3 pipe pipe2 close close_range poll ppoll select pselect6 recvmsg getsockname getsockopt
    eventfd2 epoll_create epoll_create1 epoll_ctl epoll_wait epoll_pwait timerfd_create timerfd_settime
"""
_PATHS = """
    stat lstat newfstatat statx statfs access faccessat faccessat2 readlink readlinkat getcwd chdir mkdir mkdirat
"""
_SYSTEM = """
    uname sysinfo getrandom getrlimit getpriority getuid geteuid getgid getegid getresuid getresgid getgroups
    getpgrp getpgid getsid
"""
PROGRAMS = ("execve", "fork", "vfork")
"""Calls that `forbid_programs` refuses with EPERM."""

ALLOWED = (
    *" ".join((_MEMORY, _THREADS, _SIGNALS, _TIME, _DESCRIPTORS, _PATHS, _SYSTEM)).split(),
    "wait4",
    "waitid",
    *PROGRAMS,
)
"""Calls that conversions make, and their variants of other architectures and of other versions of the C library."""

IGNORED = ("unlink", "unlinkat", "rmdir", "chmod", "fchmod", "fchmodat", "fsync", "fdatasync")
"""Calls that return 0 without effect: programs do not handle a refusal, and the task's folder is removed anyway.

Deleted files that are open would keep disk space, unseen by the quota. Landlock does not cover modes.
"""

OF_SEVERAL_PROCESSES = ("sendmsg", "sendto", "shutdown", "unlink", "unlinkat", "rmdir")
"""Further calls of programs with several processes, which talk through pairs of sockets, and share deleted files.

No call makes another socket, so that these reach nothing but the processes of the same program.
"""

UNSUPPORTED = (
    "fallocate",
    "getxattr",
    "lgetxattr",
    "fgetxattr",
    "listxattr",
    "llistxattr",
    "flistxattr",
    "setxattr",
    "lsetxattr",
    "fsetxattr",
    "removexattr",
    "lremovexattr",
    "fremovexattr",
)
"""Calls that fail with EOPNOTSUPP, as on a file system without extended attributes and preallocation.

Both take disk space that neither the limits of the process nor the disk quota count. Libraries do without.
"""

# With CLONE_PARENT, the new process would be no descendant of this one. The others create namespaces: cgroup, UTS, IPC,
# user, PID, network, mount and time.
_CLONE_PARENT = 0x00008000
_CLONE_THREAD = 0x00010000
_CLONE_REFUSED = _CLONE_PARENT | 0x7E020080
_O_TMPFILE = 0x00400000  # without O_DIRECTORY, which Python's constant includes
_NULL = 0
_INT = 0xFFFFFFFF  # the lower half of an argument, which is all that the kernel reads of an int
_IOCTLS = (
    0x5401,  # TCGETS, as TCGETS2 and TIOCGWINSZ, asks whether a file is a terminal
    0x802C542A,  # TCGETS2
    0x5413,  # TIOCGWINSZ
    0x541B,  # FIONREAD
    0x5421,  # FIONBIO
    0x5450,  # FIONCLEX
    0x5451,  # FIOCLEX
)
_FCNTLS = (fcntl.F_DUPFD, fcntl.F_DUPFD_CLOEXEC, fcntl.F_GETFD, fcntl.F_SETFD, fcntl.F_GETFL)
_PRCTLS = (15, 16, 23)  # PR_SET_NAME and PR_GET_NAME of threads, and PR_CAPBSET_READ
_PR_SET_NO_NEW_PRIVS = 38
_ARCH_SET_FS = 0x1002  # used at the start of a program
_PID_PLACEHOLDER = 0x7FFFFFFD  # no process has this ID; `restrict` puts its own in place
_PID = struct.Struct("=I")

# Constants of libseccomp and of the kernel.
_NOT_EQUAL = 1
_MASKED_EQUAL = 7
_BAD_ARCHITECTURE_ACTION = 2
_OPTIMIZATION = 8
_BINARY_TREE = 2
_ALLOW = 0x7FFF0000
_KILL_PROCESS = 0x80000000
_ERRNO = 0x00050000
_NOTIFY = 0x7FC00000
_IGNORE = _ERRNO
_REFUSE = _ERRNO | errno.ENOSYS
_SET_MODE_FILTER = 1
_ALL_THREADS = 1
_NEW_LISTENER = 8


class _Comparison(ctypes.Structure):
    """libseccomp's struct scmp_arg_cmp. With _MASKED_EQUAL, the first operand is the mask."""

    _fields_ = (
        ("argument", ctypes.c_uint),
        ("operator", ctypes.c_int),
        ("first", ctypes.c_uint64),
        ("second", ctypes.c_uint64),
    )


class Rule(NamedTuple):
    """What the kernel does at a system call, if all comparisons hold. An argument can have one comparison."""

    call: str
    comparisons: tuple[tuple[int, int, int, int], ...] = ()
    action: int = _ALLOW


class Filters(NamedTuple):
    """The compiled filters, as BPF programs."""

    restrictions: bytes
    no_programs: bytes
    of_several_processes: bytes


def _bits(argument: int, mask: int, value: int) -> tuple[int, int, int, int]:
    """The comparison of some bits of an argument."""
    return argument, _MASKED_EQUAL, mask, value


RESTRICTIONS = (
    *(Rule(call) for call in ALLOWED),
    *(Rule(call, action=_IGNORE) for call in IGNORED),
    *(Rule(call, action=_ERRNO | errno.EOPNOTSUPP) for call in UNSUPPORTED),
    # The flags of clone3 and openat2 are behind a pointer, which a filter cannot follow: both are refused.
    Rule("clone", (_bits(0, _CLONE_REFUSED, 0),)),
    # The disk quota cannot see files without a name.
    *(Rule(call, (_bits(flags, _O_TMPFILE, 0),)) for call, flags in (("open", 1), ("openat", 2))),
    # Landlock does not cover times. Libraries leave them out to find out whether a file exists, which is refused.
    Rule("utimensat", ((2, _NOT_EQUAL, _NULL, 0),), _IGNORE),
    Rule("tgkill", (_bits(0, _INT, _PID_PLACEHOLDER),)),
    Rule("prlimit64", (_bits(0, _INT, 0),)),  # 0 is the calling process
    # Among the other commands are those that name the process to which the kernel sends a signal when a descriptor
    # becomes ready, those that take disk space, file locks, whose number has no limit, and those that undo layers.
    *(Rule("ioctl", (_bits(1, _INT, command),)) for command in _IOCTLS),
    *(Rule("fcntl", (_bits(1, _INT, command),)) for command in _FCNTLS),
    Rule("fcntl", (_bits(1, _INT, fcntl.F_SETFL), _bits(2, os.O_ASYNC, 0))),
    *(Rule("prctl", (_bits(0, _INT, command),)) for command in _PRCTLS),
    Rule("arch_prctl", (_bits(0, _INT, _ARCH_SET_FS),)),
    Rule("seccomp", (_bits(0, _INT, _SET_MODE_FILTER), _bits(1, _INT, _ALL_THREADS))),
)
SEVERAL_PROCESSES = (
    *(rule for rule in RESTRICTIONS if rule.call not in OF_SEVERAL_PROCESSES),
    *(Rule(call) for call in OF_SEVERAL_PROCESSES),
    Rule("socketpair", (_bits(0, _INT, socket.AF_UNIX),)),
    Rule("prctl", (_bits(0, _INT, _PR_SET_NO_NEW_PRIVS),)),
)
NO_PROGRAMS = (
    Rule("clone", (_bits(0, _CLONE_THREAD, 0),), _ERRNO | errno.EPERM),
    *(Rule(call, action=_ERRNO | errno.EPERM) for call in PROGRAMS),
)


@cache
def compile_filters() -> Filters:
    """Compiles the filters; a fork server does so once for its children. Raises OSError without libseccomp 2.5."""
    return Filters(
        compile_rules(RESTRICTIONS, _REFUSE),
        compile_rules(NO_PROGRAMS, _ALLOW),
        compile_rules(SEVERAL_PROCESSES, _REFUSE),
    )


def restrict(*, several_processes: bool = False) -> None:
    """Refuses the system calls that no conversion needs, or no program of `several_processes`. Raises OSError."""
    filters = compile_filters()
    program = filters.of_several_processes if several_processes else filters.restrictions
    _install_in_all_threads(_with_process_id(program))


def restrict_and_notify() -> int:
    """Does the same in this thread and those it starts, and reports the refused calls.

    Returns a descriptor with a notification of each call, which waits until a process or a thread outside answers. See
    SECCOMP_RET_USER_NOTIF in the manual page seccomp_unotify(2). Raises OSError.
    """
    return _install(_with_process_id(compile_rules(RESTRICTIONS, _NOTIFY)), _NEW_LISTENER)


def forbid_programs() -> None:
    """Denies starting programs and processes, but not threads. Raises OSError."""
    _install_in_all_threads(compile_filters().no_programs)


def compile_rules(rules: Iterable[Rule], default: int) -> bytes:
    """Returns a filter that has the action `default` for other calls, and kills a process that uses x32 or a foreign
    architecture.

    Leaves out calls that this architecture has not. Raises OSError without libseccomp 2.5.
    """
    library = libseccomp()
    context = library.seccomp_init(default)
    try:
        _check(library.seccomp_attr_set(context, _BAD_ARCHITECTURE_ACTION, _KILL_PROCESS))
        _check(library.seccomp_attr_set(context, _OPTIMIZATION, _BINARY_TREE))  # every call passes the filter
        for call, comparisons, action in rules:
            number = library.seccomp_syscall_resolve_name(call.encode())
            array_of_comparisons = (_Comparison * len(comparisons))(*starmap(_Comparison, comparisons))
            if number >= 0:
                _check(library.seccomp_rule_add_array(context, action, number, len(comparisons), array_of_comparisons))
        with os.fdopen(os.memfd_create("seccomp"), "r+b") as file:
            _check(library.seccomp_export_bpf(context, file.fileno()))
            file.seek(0)
            return file.read()
    finally:
        library.seccomp_release(context)


@cache
def libseccomp() -> Any:
    """Loads libseccomp. Raises OSError if it is not installed."""
    library = ctypes.CDLL("libseccomp.so.2")
    library.seccomp_init.argtypes = (ctypes.c_uint32,)
    library.seccomp_init.restype = ctypes.c_void_p
    library.seccomp_release.argtypes = (ctypes.c_void_p,)
    library.seccomp_attr_set.argtypes = (ctypes.c_void_p, ctypes.c_int, ctypes.c_uint32)
    library.seccomp_rule_add_array.argtypes = (
        ctypes.c_void_p,
        ctypes.c_uint32,
        ctypes.c_int,
        ctypes.c_uint,
        ctypes.POINTER(_Comparison),
    )
    library.seccomp_export_bpf.argtypes = (ctypes.c_void_p, ctypes.c_int)
    library.seccomp_syscall_resolve_name.argtypes = (ctypes.c_char_p,)
    return library


def _check(result: int) -> None:
    if result < 0:
        raise OSError(-result, os.strerror(-result))


def _with_process_id(program: bytes) -> bytes:
    return program.replace(_PID.pack(_PID_PLACEHOLDER), _PID.pack(os.getpid()))


def _install_in_all_threads(program: bytes) -> None:
    if _install(program, _ALL_THREADS):  # the thread that has another filter, so that no thread gets this one
        raise OSError(errno.EBUSY, "a thread has a filter of its own")


def _install(program: bytes, flags: int) -> int:
    number = libseccomp().seccomp_syscall_resolve_name(b"seccomp")
    instructions = array("Q", program)  # one item per instruction
    address, length = instructions.buffer_info()
    return libc.syscall(number, _SET_MODE_FILTER, flags, struct.pack("@HP", length, address))
