"""Seccomp: denies or ignores system calls that no conversion needs, on x86_64 and aarch64.

The tables list system calls with their numbers. Two filters are assembled from them at import: `restrict` installs
the first in every job, `forbid_programs` the second in jobs that start no programs.
"""

from __future__ import annotations

import errno
import os
import struct
from array import array
from collections.abc import Mapping
from typing import TypeAlias

from engine.sandbox import libc

Numbers: TypeAlias = tuple[int | None, int | None]
"""The number of a system call on x86_64 and on aarch64; None if the architecture lacks it."""

CLONE: Numbers = (56, 220)
CLONE3: Numbers = (435, 435)
OPEN: Numbers = (2, None)
OPENAT: Numbers = (257, 56)
OPENAT2: Numbers = (437, 437)
FCNTL: Numbers = (72, 25)
TGKILL: Numbers = (234, 131)
PRLIMIT: Numbers = (302, 261)
UTIMENSAT: Numbers = (280, 88)

PROGRAMS: Mapping[str, Numbers] = {
    "execve": (59, 221),
    "execveat": (322, 281),
    "fork": (57, None),
    "vfork": (58, None),
}
"""Denied by `forbid_programs`."""

IGNORED: Mapping[str, Numbers] = {
    "unlink": (87, None),  # an open file would keep its disk space, unseen by the quota
    "unlinkat": (263, 35),
    "rmdir": (84, None),
    "chmod": (90, None),  # Landlock does not cover modes and times, only the user ID would
    "fchmod": (91, 52),
    "fchmodat": (268, 53),
    "fchmodat2": (452, 452),
    "utimensat": UTIMENSAT,
}
"""Return 0 without effect: libraries do not handle a refusal, and the job's folder is removed in any case."""

_NETWORK: Mapping[str, Numbers] = {
    "socket": (41, 198),
    "socketpair": (53, 199),
    "connect": (42, 203),
    "bind": (49, 200),
    "listen": (50, 201),
    "accept": (43, 202),
    "accept4": (288, 242),
    "sendto": (44, 206),
    "sendmsg": (46, 211),
    "sendmmsg": (307, 269),
}

_OTHER_PROCESSES: Mapping[str, Numbers] = {
    "kill": (62, 129),
    "tkill": (200, 130),
    "rt_sigqueueinfo": (129, 138),
    "rt_tgsigqueueinfo": (297, 240),
    "pidfd_open": (434, 434),
    "pidfd_getfd": (438, 438),
    "pidfd_send_signal": (424, 424),
    "ptrace": (101, 117),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "process_madvise": (440, 440),
    "process_mrelease": (448, 448),
    "kcmp": (312, 272),
    "setpriority": (141, 140),
    "ioprio_set": (251, 30),
    "sched_setparam": (142, 118),
    "sched_setscheduler": (144, 119),
    "sched_setaffinity": (203, 122),
    "sched_setattr": (314, 274),
    "shmget": (29, 194),
    "shmat": (30, 196),
    "shmctl": (31, 195),
    "semget": (64, 190),
    "semctl": (66, 191),
    "semop": (65, 193),
    "semtimedop": (220, 192),
    "msgget": (68, 186),
    "msgctl": (71, 187),
    "msgsnd": (69, 189),
    "msgrcv": (70, 188),
    "mq_open": (240, 180),
    "mq_unlink": (241, 181),
}

_IDENTITY: Mapping[str, Numbers] = {
    "setsid": (112, 157),
    "setpgid": (109, 154),
    "setuid": (105, 146),
    "setgid": (106, 144),
    "setreuid": (113, 145),
    "setregid": (114, 143),
    "setresuid": (117, 147),
    "setresgid": (119, 149),
    "setfsuid": (122, 151),
    "setfsgid": (123, 152),
    "setgroups": (116, 159),
    "capset": (126, 91),
    "personality": (135, 92),
    "add_key": (248, 217),
    "request_key": (249, 218),
    "keyctl": (250, 219),
}

_FILE_SYSTEMS: Mapping[str, Numbers] = {
    "unshare": (272, 97),
    "setns": (308, 268),
    "chroot": (161, 51),
    "pivot_root": (155, 41),
    "mount": (165, 40),
    "umount2": (166, 39),
    "mount_setattr": (442, 442),
    "move_mount": (429, 429),
    "open_tree": (428, 428),
    "fsopen": (430, 430),
    "fsconfig": (431, 431),
    "fsmount": (432, 432),
    "fspick": (433, 433),
    "mknod": (133, None),
    "mknodat": (259, 33),
    "open_by_handle_at": (304, 265),
    "name_to_handle_at": (303, 264),
    "fanotify_init": (300, 262),
    "quotactl": (179, 60),
    "quotactl_fd": (443, 443),
    "memfd_create": (319, 279),  # memory that no limit of the process counts
    "memfd_secret": (447, 447),
    "rename": (82, None),  # a replaced file can still be open, unseen by the quota
    "renameat": (264, 38),
    "renameat2": (316, 276),
    "utime": (132, None),
    "utimes": (235, None),
    "futimesat": (261, None),
    "chown": (92, None),
    "fchown": (93, 55),
    "lchown": (94, None),
    "fchownat": (260, 54),
    "setxattr": (188, 5),  # disk space that no file's size includes
    "lsetxattr": (189, 6),
    "fsetxattr": (190, 7),
    "setxattrat": (463, 463),
    "removexattr": (197, 14),
    "lremovexattr": (198, 15),
    "fremovexattr": (199, 16),
    "removexattrat": (466, 466),
    "inotify_init": (253, None),  # reveals names of other users' files
    "inotify_init1": (294, 26),
    "swapon": (167, 224),
    "swapoff": (168, 225),
    "acct": (163, 89),
}

_KERNEL: Mapping[str, Numbers] = {
    "bpf": (321, 280),
    "perf_event_open": (298, 241),
    "userfaultfd": (323, 282),
    "io_uring_setup": (425, 425),
    "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
    "init_module": (175, 105),
    "finit_module": (313, 273),
    "delete_module": (176, 106),
    "kexec_load": (246, 104),
    "kexec_file_load": (320, 294),
    "reboot": (169, 142),
    "syslog": (103, 116),
    "vhangup": (153, 58),
    "settimeofday": (164, 170),
    "clock_settime": (227, 112),
    "clock_adjtime": (305, 266),
    "adjtimex": (159, 171),
    "sethostname": (170, 161),
    "setdomainname": (171, 162),
    "modify_ldt": (154, None),
    "ioperm": (173, None),
    "iopl": (172, None),
}

DENIED: Mapping[str, Numbers] = {**_NETWORK, **_OTHER_PROCESSES, **_IDENTITY, **_FILE_SYSTEMS, **_KERNEL}
"""Fail with EPERM in every job."""

# Per architecture: the column in the tables, the audit code, and the number of the call `seccomp`.
_ARCHITECTURES = {"x86_64": (0, 0xC000003E, 317), "aarch64": (1, 0xC00000B7, 277)}
_UNSUPPORTED = (0, 0, -1)  # an invalid number, for which the kernel returns ENOSYS
_COLUMN, _AUDIT_CODE, _SECCOMP = _ARCHITECTURES.get(os.uname().machine, _UNSUPPORTED)
_SET_MODE_FILTER, _ALL_THREADS = 1, 1

# Classic BPF: operation codes, and offsets in the kernel's struct seccomp_data.
_LOAD, _RETURN = 0x20, 0x06
_JUMP, _JUMP_IF_EQUAL, _JUMP_IF_AT_LEAST, _JUMP_IF_ANY_BIT = 0x05, 0x15, 0x35, 0x45
_NUMBER, _ARCHITECTURE, _ARGUMENTS = 0, 4, 16
_ARGUMENT_SIZE = 8  # bytes, the lower half first
_ALLOW, _KILL, _ERRNO = 0x7FFF0000, 0x80000000, 0x00050000
_SUCCESS = _ERRNO  # error number 0: the call returns 0 without effect
_LINEAR_SEARCH_MAX = 8  # longer lists of numbers are searched in halves
_X32 = 0x40000000  # added to the numbers of the x32 interface

_O_TMPFILE = 0x00400000  # without O_DIRECTORY, which Python's constant includes
_F_SETOWN, _F_SETSIG, _F_SETOWN_EX = 8, 10, 15
_NULL = 0
_CLONE_THREAD = 0x00010000
# Cgroup, UTS, IPC, user, PID, network, mount and time.
_CLONE_NAMESPACES = 0x02000000 | 0x04000000 | 0x08000000 | 0x10000000 | 0x20000000 | 0x40000000 | 0x00020000 | 0x80


def _numbers(*calls: Numbers) -> list[int]:
    return [number for call in calls if (number := call[_COLUMN]) is not None]


def _instruction(code: int, value: int, if_true: int = 0, if_false: int = 0) -> bytes:
    return struct.pack("=HBBI", code, if_true, if_false, value)


def _return_for(numbers: list[int], action: int) -> list[bytes]:
    """Returns `action` for calls with one of the numbers. Searches in halves, because every call passes here."""
    if len(numbers) > _LINEAR_SEARCH_MAX:
        numbers, half = sorted(numbers), len(numbers) // 2
        below, above = _return_for(numbers[:half], action), _return_for(numbers[half:], action)
        branch = _instruction(_JUMP_IF_AT_LEAST, numbers[half], if_true=len(below) + 1)
        return [branch, *below, _instruction(_JUMP, len(above)), *above]
    count = len(numbers)
    tests = [_instruction(_JUMP_IF_EQUAL, number, if_true=count - index) for index, number in enumerate(numbers)]
    return [*tests, _instruction(_JUMP, 1), _instruction(_RETURN, action)]


def _deny_unless(call: Numbers, test: int, value: int) -> list[bytes]:
    """Denies the call unless its first argument passes the test."""
    return _check_argument(call, 0, _instruction(test, value, if_true=1), errno.EPERM)


def _deny_any_bit(call: Numbers, bits: int, *, argument: int = 0, error: int = errno.EPERM) -> list[bytes]:
    """Denies the call if the argument has any of the bits."""
    return _check_argument(call, argument, _instruction(_JUMP_IF_ANY_BIT, bits, if_false=1), error)


def _deny_equal(call: Numbers, value: int, *, argument: int) -> list[bytes]:
    """Denies the call if the argument equals the value."""
    return _check_argument(call, argument, _instruction(_JUMP_IF_EQUAL, value, if_false=1), errno.EPERM)


def _check_argument(call: Numbers, argument: int, test: bytes, error: int) -> list[bytes]:
    """Fails the call with `error` unless `test`, applied to the argument's lower half, skips an instruction."""
    body = [
        _instruction(_LOAD, _ARGUMENTS + argument * _ARGUMENT_SIZE),
        test,
        _instruction(_RETURN, _ERRNO | error),
        _instruction(_LOAD, _NUMBER),
    ]
    branches = [_instruction(_JUMP_IF_EQUAL, number, if_false=len(body)) for number in _numbers(call)]
    return [instruction for branch in branches for instruction in (branch, *body)]


def _program(rules: list[bytes]) -> bytes:
    """Returns a filter that allows what no rule decides, and kills processes that use another architecture or x32."""
    kill = _instruction(_RETURN, _KILL)
    return b"".join(
        [
            _instruction(_LOAD, _ARCHITECTURE),
            _instruction(_JUMP_IF_EQUAL, _AUDIT_CODE, if_true=1),
            kill,
            _instruction(_LOAD, _NUMBER),
            *([_instruction(_JUMP_IF_AT_LEAST, _X32, if_false=1), kill] if _COLUMN == 0 else []),
            *rules,
            _instruction(_RETURN, _ALLOW),
        ]
    )


_PID_PLACEHOLDER = 0xFFFFFFFF  # no process has this ID; `restrict` puts its own in place
_PID = struct.Struct("=I")
_RESTRICTIONS = _program(
    [
        # Their flags are behind a pointer, which a filter cannot follow; libraries fall back to clone and openat.
        *_return_for(_numbers(CLONE3, OPENAT2), _ERRNO | errno.ENOSYS),
        *_deny_any_bit(CLONE, _CLONE_NAMESPACES),
        # A file without a name is unseen by the quota.
        *_deny_any_bit(OPEN, _O_TMPFILE, argument=1, error=errno.EOPNOTSUPP),
        *_deny_any_bit(OPENAT, _O_TMPFILE, argument=2, error=errno.EOPNOTSUPP),
        *_deny_unless(TGKILL, _JUMP_IF_EQUAL, _PID_PLACEHOLDER),
        *_deny_unless(PRLIMIT, _JUMP_IF_EQUAL, 0),  # 0 is the calling process
        # The kernel can send any signal to the owner of a descriptor that becomes ready.
        *_deny_equal(FCNTL, _F_SETOWN, argument=1),
        *_deny_equal(FCNTL, _F_SETOWN_EX, argument=1),
        *_deny_equal(FCNTL, _F_SETSIG, argument=1),
        *_return_for(_numbers(*DENIED.values()), _ERRNO | errno.EPERM),
        # Denied, not ignored: with no times given, libraries use this call to find out whether a file exists.
        *_deny_equal(UTIMENSAT, _NULL, argument=2),
        *_return_for(_numbers(*IGNORED.values()), _SUCCESS),
    ]
)
_NO_PROGRAMS = _program(
    [
        *_deny_unless(CLONE, _JUMP_IF_ANY_BIT, _CLONE_THREAD),
        *_return_for(_numbers(*PROGRAMS.values()), _ERRNO | errno.EPERM),
    ]
)


def restrict() -> None:
    """Denies what no conversion needs; programs can still be started. Raises OSError if the kernel lacks seccomp."""
    _install(_RESTRICTIONS.replace(_PID.pack(_PID_PLACEHOLDER), _PID.pack(os.getpid())))


def forbid_programs() -> None:
    """Denies starting programs and processes, but not threads. Raises OSError if the kernel lacks seccomp."""
    _install(_NO_PROGRAMS)


def _install(program: bytes) -> None:
    instructions = array("Q", program)  # one item per instruction
    address, length = instructions.buffer_info()
    libc.syscall(_SECCOMP, _SET_MODE_FILTER, _ALL_THREADS, struct.pack("@HP", length, address))
