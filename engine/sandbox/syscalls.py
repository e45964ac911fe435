"""The system calls that no conversion needs, with their numbers on each processor (None where it has none)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

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
