"""Steps that succeed but change the state of their process."""

import ctypes
import os
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path

_PR_SET_NAME = 15
_kept: list[object] = []


def _leave_file() -> None:
    Path("left").touch()


def _leave_thread() -> None:
    threading.Thread(target=time.sleep, args=(600,), daemon=True).start()


def _leave_child() -> None:
    _kept.append(os.posix_spawn("/bin/sleep", ["sleep", "600"], {}))


def _leave_orphan() -> None:
    os.system("sleep 600 &")


def _leave_descriptor() -> None:
    os.open("/dev/null", os.O_RDONLY)


def _change_environment() -> None:
    os.environ["LEFT"] = "1"


def _change_folder() -> None:
    os.chdir("/usr")


def _grow() -> None:
    _kept.append(bytearray(b"x") * (80 << 20))


def _grow_in_disguise() -> None:
    """Grows, with a name that looks like the memory in the status file of the process."""
    ctypes.CDLL(None).prctl(_PR_SET_NAME, b"RssAnon: 1 kB")
    _grow()


LEFTOVERS: Mapping[str, Callable[[], None]] = {
    "leave_file": _leave_file,
    "leave_thread": _leave_thread,
    "leave_child": _leave_child,
    "leave_orphan": _leave_orphan,
    "leave_descriptor": _leave_descriptor,
    "change_environment": _change_environment,
    "change_folder": _change_folder,
    "grow": _grow,
    "grow_in_disguise": _grow_in_disguise,
}
