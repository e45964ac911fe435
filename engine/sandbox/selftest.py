"""What a process tries in vain when its sandbox holds."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryFile


def attempt() -> dict[str, bool]:
    """What was proved, and whether it held, tried in this process."""
    return {
        "no sockets": _refused(lambda: socket.socket().close()),
        "no processes": _refused(_fork),
        "no programs": _refused(lambda: os.execv("/nonexistent", ["nonexistent"])),
        "no foreign files": _refused(lambda: Path("/etc/passwd").read_bytes()),
        "own folder": not _refused(_write),
    }


def _refused(deed: Callable[[], object]) -> bool:
    try:
        deed()
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
