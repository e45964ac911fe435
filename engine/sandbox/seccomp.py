"""The system calls that no conversion needs, with their numbers on each processor (None where it has none)."""

from __future__ import annotations

import errno
import os
import struct
from array import array
from collections.abc import Mapping
from typing import TypeAlias

from engine.sandbox import libc

Numbers: TypeAlias = tuple[int | None, int | None]
"""On x86_64, and on aarch64."""

PROGRAMS: Mapping[str, Numbers] = {
    "execve": (59, 221),
    "execveat": (322, 281),
    "fork": (57, None),
    "vfork": (58, None),
}

UTIMENSAT: Numbers = (280, 88)

PRETENDED: Mapping[str, Numbers] = {
    "unlink": (87, None),  # of a file that is open, which would go on taking room where nobody sees it
    "unlinkat": (263, 35),
    "rmdir": (84, None),
    "chmod": (90, None),  # which goes by the user alone, as do a file's times: Landlock has no say in them
    "fchmod": (91, 52),
    "fchmodat": (268, 53),
    "fchmodat2": (452, 452),
    "utimensat": UTIMENSAT,
}
"""What return as if they had been made: whoever makes them expects no refusal, and the job's folder goes anyway."""

CLONE: Numbers = (56, 220)
CLONE3: Numbers = (435, 435)
OPEN: Numbers = (2, None)
OPENAT: Numbers = (257, 56)
OPENAT2: Numbers = (437, 437)
FCNTL: Numbers = (72, 25)
TGKILL: Numbers = (234, 131)
PRLIMIT: Numbers = (302, 261)

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
    "memfd_create": (319, 279),  # files in memory, which no bound of a process counts
    "memfd_secret": (447, 447),
    "rename": (82, None),  # what it takes the place of can be open, and is seen no more
    "renameat": (264, 38),
    "renameat2": (316, 276),
    "utime": (132, None),
    "utimes": (235, None),
    "futimesat": (261, None),
    "chown": (92, None),
    "fchown": (93, 55),
    "lchown": (94, None),
    "fchownat": (260, 54),
    "setxattr": (188, 5),  # more that may lie on a disk, and that no file's size tells
    "lsetxattr": (189, 6),
    "fsetxattr": (190, 7),
    "setxattrat": (463, 463),
    "removexattr": (197, 14),
    "lremovexattr": (198, 15),
    "fremovexattr": (199, 16),
    "removexattrat": (466, 466),
    "inotify_init": (253, None),  # tells the names of others' files
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
        *_answer(_numbers(CLONE3, OPENAT2), _REFUSE | errno.ENOSYS),
        *_only_without(CLONE, _CLONE_NAMESPACES),
        *_only_without(OPEN, _NAMELESS, argument=1, error=errno.EOPNOTSUPP),
        *_only_without(OPENAT, _NAMELESS, argument=2, error=errno.EOPNOTSUPP),
        *_only_with(TGKILL, _JUMP_IF_EQUAL, _NOBODY),
        *_only_with(PRLIMIT, _JUMP_IF_EQUAL, 0),  # the caller itself
        # A file that is ready sends any signal to whoever owns it.
        *_only_other(FCNTL, _SET_OWNER, argument=1),
        *_only_other(FCNTL, _SET_OWNER_OF_KIND, argument=1),
        *_only_other(FCNTL, _SET_SIGNAL, argument=1),
        *_answer(_numbers(*DENIED.values()), _REFUSE | errno.EPERM),
        # Who asks whether there is a file by touching it is to be told the truth.
        *_only_other(UTIMENSAT, _NOW, argument=2),
        *_answer(_numbers(*PRETENDED.values()), _DONE),
    ]
)
_NO_PROGRAMS = _program(
    [
        *_only_with(CLONE, _JUMP_IF_ANY_BIT, _CLONE_THREAD),
        *_answer(_numbers(*PROGRAMS.values()), _REFUSE | errno.EPERM),
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
    libc.syscall(_SECCOMP, _SET_MODE_FILTER, _ALL_THREADS, struct.pack("@HP", length, address))
