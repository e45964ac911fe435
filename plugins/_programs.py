"""Programs that steps and tools run, and libraries of the system that they load."""

import ctypes
import os
import shutil
import stat
import sys
from pathlib import Path

_SYSTEM_PYTHON = Path("/usr/bin/python3")
_LOADER_CACHE = Path("/etc/ld.so.cache")


def find(name: str) -> tuple[str, ...]:
    """The path of an installed program, as a declaration of a step has it; empty if it is not installed."""
    path = shutil.which(name)
    return (str(Path(path).resolve()),) if path else ()


def find_python() -> tuple[str, ...]:
    """The path of a Python that tasks can run: this one, or the system's if this one is in a private folder of root.

    Tasks of root run as other users.
    """
    for path in (Path(sys.executable).resolve(), _SYSTEM_PYTHON.resolve()):
        is_open = os.geteuid() != 0 or all(folder.stat().st_mode & stat.S_IXOTH for folder in path.parents)
        if path.exists() and is_open:
            return (str(path),)
    return ()


def has_library(name: str) -> bool:
    """Whether the dynamic loader finds a library, which stays unloaded if the loader's cache names it.

    A loaded library, with all that it needs, would be a part of every process that loads the plugins.
    """
    try:
        if f"/{name}\0".encode() in _LOADER_CACHE.read_bytes():  # paths
            return True
    except OSError:  # other C libraries have no cache
        pass
    try:
        ctypes.CDLL(name)
    except OSError:
        return False
    return True
