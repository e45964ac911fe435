"""Priority, user, capabilities and namespaces of this process. The functions raise OSError if the kernel refuses."""

import errno
import os
import signal
import struct
import time
from contextlib import suppress
from pathlib import Path

from engine.sandbox import libc, rlimits

# Options of prctl.
_PR_SET_PDEATHSIG = 1
_PR_SET_DUMPABLE = 4
_PR_SET_CHILD_SUBREAPER = 36
_PR_SET_NO_NEW_PRIVS = 38
_CAPSET_HEADER = struct.pack("=Ii", 0x20080522, 0)  # version 3; 0 is this process
_NO_CAPABILITIES = bytes(24)
# Flags of unshare.
_CLONE_NEWIPC = 0x08000000
_CLONE_NEWUSER = 0x10000000
_CLONE_NEWNET = 0x40000000

_NICENESS = 5  # added, so that the server has priority
LOW_PRIORITY = 10
"""The niceness of processes whose tasks take long. Beside others, they get a third of the time of those."""

# The kernel accepts one change of a group's niceness in 0.1 s, of all processes of all users but root.
_AUTOGROUP_ATTEMPTS = 10
_AUTOGROUP_INTERVAL = 0.1
_OOM_SCORE = 500  # added, so that tasks are killed before the server
_FIRST_USER = 0x70000000  # above the IDs that container managers assign; the process ID is added
_NOBODY = 65_534


def lower_session_priority() -> None:
    """Lowers the CPU priority of this process's session. Has no effect where sched_autogroup is off.

    With sched_autogroup the kernel schedules each session as a group. The niceness of its processes then counts within
    the group only.
    """
    for _ in range(_AUTOGROUP_ATTEMPTS):
        try:
            _write_proc("autogroup", _NICENESS)
        except BlockingIOError:
            time.sleep(_AUTOGROUP_INTERVAL)
        except OSError:  # the kernel has no such groups
            return
        else:
            return


def start_process_group() -> None:
    """Starts a process group, so that all descendants can be killed together, and lowers the process's priority."""
    # No session: it would be a scheduling group at the server's priority.
    os.setpgid(0, 0)
    os.umask(0o077)
    libc.prctl(_PR_SET_CHILD_SUBREAPER, 1)  # descendants whose parents end stay visible as children
    os.nice(_NICENESS)
    with suppress(OSError):
        _write_proc("oom_score_adj", _OOM_SCORE)


def _write_proc(name: str, value: int) -> None:
    """Sets a value of this process. Raises OSError."""
    file = os.open(f"/proc/self/{name}", os.O_WRONLY)
    try:
        os.write(file, b"%d" % value)
    finally:
        os.close(file)


def set_parent_death_signal(parent: int) -> None:
    """Makes the kernel kill this process when its parent ends. A change of user resets it."""
    libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


def enter_network_namespace() -> None:
    """Moves this process and its children to a network namespace without interfaces, and an IPC namespace.

    Without root this needs a user namespace, and a process with one thread.
    """
    flags = _CLONE_NEWNET | _CLONE_NEWIPC
    user = os.geteuid()
    group = os.getegid()
    if user == 0:
        libc.unshare(flags)
        return
    libc.unshare(flags | _CLONE_NEWUSER)
    with suppress(OSError):  # without the mapping, `limit_threads` cannot create its user namespace
        for name, text in (("setgroups", "deny"), ("uid_map", f"{user} {user} 1"), ("gid_map", f"{group} {group} 1")):
            Path("/proc/self", name).write_text(text)


def switch_to_private_uid(folder: str) -> None:
    """Changes to a user ID that no other process has, and makes that user the owner of `folder`. Needs root."""
    if os.geteuid() != 0:
        raise OSError(errno.EPERM, "only root can change its user")
    user = _FIRST_USER + os.getpid()
    try:
        os.chown(folder, user, user)
    except OSError:  # in a container that maps few user IDs
        user = _NOBODY
        os.chown(folder, user, user)
    os.setgroups([])
    os.setresgid(user, user, user)
    os.setresuid(user, user, user)


def limit_threads(*, several_processes: bool = False) -> None:
    """Limits the number of threads and processes, which is larger for a program of `several_processes`.

    The kernel counts them per user, and does not limit root. A process without a private user ID enters a user
    namespace, which has a count of its own.
    """
    if os.getuid() == 0:
        raise OSError(errno.EPERM, "the kernel does not limit root's processes")
    if os.getuid() < _FIRST_USER:
        libc.unshare(_CLONE_NEWUSER)
    rlimits.limit_threads(several_processes=several_processes)


def drop_capabilities() -> None:
    """Drops all capabilities, including those gained in a user namespace."""
    libc.capset(_CAPSET_HEADER, _NO_CAPABILITIES)


def set_undumpable() -> None:
    """Prevents other processes of the same user from tracing this one and reading its memory."""
    libc.prctl(_PR_SET_DUMPABLE, 0)


def set_no_new_privs() -> None:
    """Prevents programs that this process starts from gaining privileges."""
    libc.prctl(_PR_SET_NO_NEW_PRIVS, 1)
