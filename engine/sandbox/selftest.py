"""The self-test of the sandbox: attempts actions that must fail in a sandboxed process."""

import errno
import fcntl
import os
import socket
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryFile

_DENIALS = (errno.EPERM, errno.EACCES, errno.ENOSYS)  # the last for system calls that seccomp refuses
_FIOASYNC = 0x5452
_NULL = 0  # the descriptor of /dev/null


def run_selftest() -> dict[str, bool]:
    """Runs all checks in this process, and returns whether each passed."""
    return {
        "no sockets": _is_denied(lambda: socket.socket().close()),
        "no processes": _is_denied(_fork),
        "no programs": _is_denied(lambda: os.execv("/nonexistent", ["nonexistent"])),
        "no signals": all(map(_is_denied, (_signal_parent, _set_owner, _request_signals))),
        "no foreign files": _is_denied(lambda: Path("/etc/passwd").read_bytes()),
        "own folder": not _is_denied(_write),
    }


def _is_denied(action: Callable[[], object]) -> bool:
    try:
        action()
    except OSError as error:
        return error.errno in _DENIALS
    return False


def _fork() -> None:
    if (child := os.fork()) == 0:
        os._exit(0)
    os.waitpid(child, 0)


def _signal_parent() -> None:
    os.kill(os.getppid(), 0)  # needs the same permission as a signal


def _set_owner() -> None:
    """Makes the kernel send signals about a descriptor to its owner, which can be any process of the user."""
    fcntl.fcntl(_NULL, fcntl.F_SETOWN, os.getpid())


def _request_signals() -> None:
    """As `_set_owner`, by ioctl. Sockets have another one that sets the owner."""
    fcntl.ioctl(_NULL, _FIOASYNC, b"\0\0\0\0")


def _write() -> None:
    with TemporaryFile() as file:
        file.write(b"x")
