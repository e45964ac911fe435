"""Steps that succeed but change the state of their process."""

import ctypes
import os
import threading
import time
from pathlib import Path

_PR_SET_NAME = 15
_kept: list[object] = []


def is_leftover(name: str) -> bool:
    """Whether this module has a step of that name: the function with the name after an underscore."""
    return f"_{name}" in globals()


def leave(name: str) -> None:
    globals()[f"_{name}"]()


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


def _grow_a_little() -> None:
    """Grows to three times the usual size of an idle worker."""
    _kept.append(bytearray(b"x") * (16 << 20))


def _grow_in_disguise() -> None:
    """Grows, with a name that looks like the memory in the status file of the process."""
    ctypes.CDLL(None).prctl(_PR_SET_NAME, b"RssAnon: 1 kB")
    _grow()
