"""Seccomp: denies or ignores system calls that no conversion needs.

libseccomp compiles the rules to two filters, once and before processes are forked. `restrict` installs the first in
every job, `forbid_programs` the second in jobs that start no programs.
"""

import ctypes
import errno
import fcntl
import os
import struct
from array import array
from collections.abc import Collection, Iterable, Iterator, Mapping
from functools import cache
from typing import Any, NamedTuple

from engine.sandbox import libc

_NETWORK = "socket socketpair connect bind listen accept accept4 sendto sendmsg sendmmsg"
_OTHER_PROCESSES = """
    kill tkill rt_sigqueueinfo rt_tgsigqueueinfo pidfd_open pidfd_getfd pidfd_send_signal ptrace
    process_vm_readv process_vm_writev process_madvise process_mrelease kcmp
    setpriority ioprio_set sched_setparam sched_setscheduler sched_setaffinity sched_setattr
    shmget shmat shmctl semget semctl semop semtimedop msgget msgctl msgsnd msgrcv mq_open mq_unlink
"""
_IDENTITY = """
    setsid setpgid setuid setgid setreuid setregid setresuid setresgid setfsuid setfsgid setgroups
    capset personality add_key request_key keyctl
"""
_MOUNTS = """
    unshare setns chroot pivot_root mount umount2 mount_setattr move_mount open_tree fsopen fsconfig fsmount fspick
    mknod mknodat quotactl quotactl_fd swapon swapoff acct
"""
_OTHER_FILES = """
    open_by_handle_at name_to_handle_at fanotify_init inotify_init inotify_init1
    chown fchown lchown fchownat utime utimes futimesat
"""
# They use memory or disk space that neither the limits of the process nor the disk quota count, such as a file
# that is open and has been replaced.
_UNCOUNTED = """
    memfd_create memfd_secret rename renameat renameat2
    setxattr lsetxattr fsetxattr setxattrat removexattr lremovexattr fremovexattr removexattrat
"""
_KERNEL = """
    bpf perf_event_open userfaultfd io_uring_setup io_uring_enter io_uring_register
    init_module finit_module delete_module kexec_load kexec_file_load reboot syslog vhangup
    settimeofday clock_settime clock_adjtime adjtimex sethostname setdomainname modify_ldt ioperm iopl
"""
DENIED = tuple(" ".join((_NETWORK, _OTHER_PROCESSES, _IDENTITY, _MOUNTS, _OTHER_FILES, _UNCOUNTED, _KERNEL)).split())
"""Calls that fail with EPERM in every job."""

IGNORED = ("unlink", "unlinkat", "rmdir", "chmod", "fchmod", "fchmodat", "fchmodat2")
"""Calls that return 0 without effect: libraries do not handle a refusal, and the job's folder is removed anyway.

Deleted files that are open would keep disk space, unseen by the quota. Landlock does not cover modes.
"""

PROGRAMS = ("execve", "execveat", "fork", "vfork")
"""Calls that `forbid_programs` denies."""

# Calls that can be unknown to the installed libseccomp. Their numbers are the same on all architectures.
RECENT: Mapping[str, int] = {
    "mount_setattr": 442,
    "quotactl_fd": 443,
    "memfd_secret": 447,
    "process_mrelease": 448,
    "fchmodat2": 452,
    "setxattrat": 463,
    "removexattrat": 466,
}

_CLONE_PARENT, _CLONE_THREAD = 0x00008000, 0x00010000
# Cgroup, UTS, IPC, user, PID, network, mount and time.
_CLONE_NAMESPACES = (0x02000000, 0x04000000, 0x08000000, 0x10000000, 0x20000000, 0x40000000, 0x00020000, 0x80)
_O_TMPFILE = 0x00400000  # without O_DIRECTORY, which Python's constant includes
_NULL = 0
_COMMAND_BITS = 32  # ioctl, fcntl
_INT = 0xFFFFFFFF  # the lower half of an argument, which is all that the kernel reads of an int
_IOCTLS = (
    *(0x5401, 0x802C542A, 0x5413),  # TCGETS, TCGETS2 and TIOCGWINSZ, which ask whether a file is a terminal
    *(0x541B, 0x5421, 0x5450, 0x5451),  # FIONREAD, FIONBIO, FIONCLEX and FIOCLEX
)
_FCNTLS = (fcntl.F_DUPFD, fcntl.F_DUPFD_CLOEXEC, fcntl.F_GETFD, fcntl.F_SETFD, fcntl.F_GETFL, fcntl.F_SETFL)
_PID_PLACEHOLDER = 0x7FFFFFFD  # no process has this ID, and no rule this mask; `restrict` puts its own in place
_PID = struct.Struct("=I")

# Constants of libseccomp and of the kernel.
_NOT_EQUAL, _EQUAL, _MASKED_EQUAL = 1, 4, 7
_BAD_ARCHITECTURE_ACTION, _OPTIMIZATION, _BINARY_TREE = 2, 8, 2
_ALLOW, _KILL_PROCESS, _ERRNO = 0x7FFF0000, 0x80000000, 0x00050000
_SET_MODE_FILTER, _ALL_THREADS = 1, 1


class _Comparison(ctypes.Structure):
    """libseccomp's struct scmp_arg_cmp. With _MASKED_EQUAL, the first operand is the mask."""

    _fields_ = (
        ("argument", ctypes.c_uint),
        ("operator", ctypes.c_int),
        ("first", ctypes.c_uint64),
        ("second", ctypes.c_uint64),
    )


class Rule(NamedTuple):
    """Makes a system call return an error, or 0 without effect if `error` is 0; only if all comparisons hold.

    An argument can have one comparison.
    """

    call: str
    error: int
    comparisons: tuple[tuple[int, int, int, int], ...] = ()


class Filters(NamedTuple):
    """The compiled filters, as BPF programs."""

    restrictions: bytes
    no_programs: bytes


def _other_commands(call: str, allowed: Collection[int]) -> Iterator[Rule]:
    """Yields rules that deny all commands, the second argument of `call`, except those `allowed`.

    libseccomp has no list of alternatives. These rules deny each block of commands, which agree in their higher bits,
    that has no allowed one and is the half of a block that has.
    """
    for size in range(_COMMAND_BITS):
        for block in {command >> size ^ 1 for command in allowed} - {command >> size for command in allowed}:
            yield Rule(call, errno.EPERM, ((1, _MASKED_EQUAL, _INT >> size << size, block << size),))


RESTRICTIONS = (
    # Their flags are behind a pointer, which a filter cannot follow; libraries fall back to clone and openat.
    Rule("clone3", errno.ENOSYS),
    Rule("openat2", errno.ENOSYS),
    # With CLONE_PARENT, the new process would be no descendant of this one.
    *(Rule("clone", errno.EPERM, ((0, _MASKED_EQUAL, flag, flag),)) for flag in (*_CLONE_NAMESPACES, _CLONE_PARENT)),
    # The disk quota cannot see files without a name.
    Rule("open", errno.EOPNOTSUPP, ((1, _MASKED_EQUAL, _O_TMPFILE, _O_TMPFILE),)),
    Rule("openat", errno.EOPNOTSUPP, ((2, _MASKED_EQUAL, _O_TMPFILE, _O_TMPFILE),)),
    # Takes any amount of disk space at once, beyond the limit on the size of a file. Libraries write instead.
    Rule("fallocate", errno.EOPNOTSUPP),
    Rule("tgkill", errno.EPERM, ((0, _NOT_EQUAL, _PID_PLACEHOLDER, 0),)),
    Rule("prlimit64", errno.EPERM, ((0, _NOT_EQUAL, 0, 0),)),  # 0 is the calling process
    # Among the others are those that name the process to which the kernel sends a signal when a descriptor becomes
    # ready, those that take disk space, and file locks, whose number has no limit.
    *_other_commands("ioctl", _IOCTLS),
    *_other_commands("fcntl", _FCNTLS),
    Rule("fcntl", errno.EPERM, ((1, _MASKED_EQUAL, _INT, fcntl.F_SETFL), (2, _MASKED_EQUAL, os.O_ASYNC, os.O_ASYNC))),
    # Denied if no times are given, because libraries use it then to find out whether a file exists. Landlock does
    # not cover times.
    Rule("utimensat", errno.EPERM, ((2, _EQUAL, _NULL, 0),)),
    Rule("utimensat", 0, ((2, _NOT_EQUAL, _NULL, 0),)),
    *(Rule(call, errno.EPERM) for call in DENIED),
    *(Rule(call, 0) for call in IGNORED),
)
NO_PROGRAMS = (
    Rule("clone", errno.EPERM, ((0, _MASKED_EQUAL, _CLONE_THREAD, 0),)),
    *(Rule(call, errno.EPERM) for call in PROGRAMS),
)


@cache
def compile_filters() -> Filters:
    """Compiles the filters; a fork server does so once for its children. Raises OSError without libseccomp 2.5."""
    return Filters(compile_rules(RESTRICTIONS), compile_rules(NO_PROGRAMS))


def restrict() -> None:
    """Denies the system calls that no conversion needs, except those to start programs. Raises OSError."""
    _install(compile_filters().restrictions.replace(_PID.pack(_PID_PLACEHOLDER), _PID.pack(os.getpid())))


def forbid_programs() -> None:
    """Denies starting programs and processes, but not threads. Raises OSError."""
    _install(compile_filters().no_programs)


def compile_rules(rules: Iterable[Rule]) -> bytes:
    """Returns a filter that allows all other calls, and kills a process that uses x32 or a foreign architecture.

    Raises OSError without libseccomp 2.5.
    """
    library = libseccomp()
    context = library.seccomp_init(_ALLOW)
    try:
        _check(library.seccomp_attr_set(context, _BAD_ARCHITECTURE_ACTION, _KILL_PROCESS))
        _check(library.seccomp_attr_set(context, _OPTIMIZATION, _BINARY_TREE))  # every call passes the filter
        for rule in rules:
            number = call_number(rule.call)
            comparisons = [_Comparison(*comparison) for comparison in rule.comparisons]
            array_of_comparisons = (_Comparison * len(comparisons))(*comparisons)
            if number is not None:
                action = _ERRNO | rule.error
                _check(library.seccomp_rule_add_array(context, action, number, len(comparisons), array_of_comparisons))
        with os.fdopen(os.memfd_create("seccomp"), "r+b") as file:
            _check(library.seccomp_export_bpf(context, file.fileno()))
            file.seek(0)
            return file.read()
    finally:
        library.seccomp_release(context)


def call_number(call: str) -> int | None:
    """Returns the number of a system call on this architecture, or None if it has no such call."""
    number = int(libseccomp().seccomp_syscall_resolve_name(call.encode()))
    return number if number >= 0 else RECENT.get(call)


@cache
def libseccomp() -> Any:
    """Loads libseccomp. Raises OSError if it is not installed."""
    library = ctypes.CDLL("libseccomp.so.2")
    library.seccomp_init.argtypes = (ctypes.c_uint32,)
    library.seccomp_init.restype = ctypes.c_void_p
    library.seccomp_release.argtypes = (ctypes.c_void_p,)
    library.seccomp_attr_set.argtypes = (ctypes.c_void_p, ctypes.c_int, ctypes.c_uint32)
    library.seccomp_rule_add_array.argtypes = (
        *(ctypes.c_void_p, ctypes.c_uint32, ctypes.c_int, ctypes.c_uint),
        ctypes.POINTER(_Comparison),
    )
    library.seccomp_export_bpf.argtypes = (ctypes.c_void_p, ctypes.c_int)
    library.seccomp_syscall_resolve_name.argtypes = (ctypes.c_char_p,)
    return library


def _check(result: int) -> None:
    if result < 0:
        raise OSError(-result, os.strerror(-result))


def _install(program: bytes) -> None:
    number = call_number("seccomp")
    instructions = array("Q", program)  # one item per instruction
    address, length = instructions.buffer_info()
    libc.syscall(-1 if number is None else number, _SET_MODE_FILTER, _ALL_THREADS, struct.pack("@HP", length, address))
