"""What a process may be told about itself: whose it is, with whom it dies, what it may never become."""

from __future__ import annotations

import errno
import os
import signal
import struct
from contextlib import suppress
from pathlib import Path

from engine.sandbox import libc, rlimits

_SET_PARENT_DEATH_SIGNAL, _SET_DUMPABLE, _SET_NO_NEW_PRIVILEGES = 1, 4, 38  # prctl
_CAPABILITIES_OF_THIS_PROCESS, _NONE = struct.pack("=Ii", 0x20080522, 0), bytes(24)  # capset; the first is a version
_NEW_IPC, _NEW_USER, _NEW_NETWORK = 0x08000000, 0x10000000, 0x40000000  # unshare

_POLITENESS = 5  # what is added to the niceness: the server answers first
_OOM_SCORE = b"500"  # what is added: jobs are killed before the server
_FIRST_USER = 0x70000000  # above what container managers give out; one user for each process id
_NOBODY = 65_534


def begin_session() -> None:
    """A session of its own, so that what it starts can be killed with it; it yields to the server in all things."""
    os.setsid()
    os.umask(0o077)
    os.nice(_POLITENESS)
    try:
        score = os.open("/proc/self/oom_score_adj", os.O_WRONLY)
        try:
            os.write(score, _OOM_SCORE)
        finally:
            os.close(score)
    except OSError:
        return


def die_with(parent: int) -> None:
    """Has the kernel kill this process when its parent ends. Raises OSError. Forgotten when the user changes."""
    libc.prctl(_SET_PARENT_DEATH_SIGNAL, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


def leave_network() -> None:
    """Moves this process and its children to a network where there is nothing. Raises OSError where refused.

    Without root's rights it takes a user namespace, which needs a process of one thread.
    """
    flags, user, group = _NEW_NETWORK | _NEW_IPC, os.geteuid(), os.getegid()
    if user == 0:
        libc.unshare(flags)
        return
    libc.unshare(flags | _NEW_USER)
    with suppress(OSError):  # who is nobody there makes no further user namespaces, and has its threads unbounded
        for name, text in (("setgroups", "deny"), ("uid_map", f"{user} {user} 1"), ("gid_map", f"{group} {group} 1")):
            Path("/proc/self", name).write_text(text)


def become_nobody(folder: str) -> None:
    """Changes to a user whom no other process has, and gives it the folder. Raises OSError for all but root."""
    if os.geteuid() != 0:
        raise OSError(errno.EPERM, "only root can change its user")
    user = _FIRST_USER + os.getpid()
    try:
        os.chown(folder, user, user)
    except OSError:  # in a container that knows few users
        user = _NOBODY
        os.chown(folder, user, user)
    os.setgroups([])
    os.setresgid(user, user, user)
    os.setresuid(user, user, user)


def bound_threads() -> None:
    """Bounds its threads, and processes, so that others can still start theirs. Raises OSError.

    The kernel counts those of a user, and never root's. Who has no user of its own takes a user namespace, where it is
    counted alone.
    """
    if os.getuid() == 0:
        raise OSError(errno.EPERM, "what root starts is not bounded")
    if os.getuid() < _FIRST_USER:
        libc.unshare(_NEW_USER)
    rlimits.bound_threads()


def drop_capabilities() -> None:
    """Gives up what root may do, or what a user namespace gives. Raises OSError."""
    libc.capset(_CAPABILITIES_OF_THIS_PROCESS, _NONE)


def hide() -> None:
    """Keeps processes of the same user from looking into this one. Raises OSError."""
    libc.prctl(_SET_DUMPABLE, 0)


def renounce_privileges() -> None:
    """No program that it starts gets more rights than it has. Raises OSError."""
    libc.prctl(_SET_NO_NEW_PRIVILEGES, 1)
