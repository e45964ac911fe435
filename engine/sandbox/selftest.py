"""The self-test of the sandbox: attempts actions that must fail in a sandboxed process."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryFile


def run_selftest() -> dict[str, bool]:
    """Runs all checks in this process, and returns whether each passed."""
    return {
        "no sockets": _is_denied(lambda: socket.socket().close()),
        "no processes": _is_denied(_fork),
        "no programs": _is_denied(lambda: os.execv("/nonexistent", ["nonexistent"])),
        "no foreign files": _is_denied(lambda: Path("/etc/passwd").read_bytes()),
        "own folder": not _is_denied(_write),
    }


def _is_denied(action: Callable[[], object]) -> bool:
    try:
        action()
    except PermissionError:
        return True
    except OSError:
        return False
    return False


def _fork() -> None:
    if (child := os.fork()) == 0:
        os._exit(0)
    os.waitpid(child, 0)


def _write() -> None:
    with TemporaryFile() as file:
        file.write(b"x")
