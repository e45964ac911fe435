"""A limit on the CPU time of a part of a step, whose work the size of a file does not show."""

import resource
import signal
import threading
import time
from collections.abc import Callable
from types import FrameType
from typing import TypeVar

from engine.errors import TooLarge

T = TypeVar("T")


class _Interrupted(BaseException):
    """Raised in code that has taken too long, which may catch every Exception."""


def call_within(share: float, function: Callable[[], T]) -> T:
    """Calls Python code, which may take this share of the CPU time that the job may still use.

    Raises TooLarge, reason `elements`, if it takes more. A job without a limit is not limited, nor is any other thread
    than the main one.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_CPU)
    if soft == resource.RLIM_INFINITY or threading.current_thread() is not threading.main_thread():
        return function()
    used = time.process_time()
    allowed = max(1, int((soft - used) * share))
    is_running = True

    def interrupt(_number: int, _frame: FrameType | None) -> None:
        if is_running:
            raise _Interrupted

    previous = signal.signal(signal.SIGXCPU, interrupt)
    try:
        resource.setrlimit(resource.RLIMIT_CPU, (min(int(used) + allowed, soft), hard))
        try:
            return function()
        finally:
            is_running = False  # The signal comes again each second, until the limit is raised.
    except _Interrupted as error:
        message = f"The file takes more than {allowed} s to lay out: it has too many elements, rules, boxes or pages."
        raise TooLarge(message, reason="elements", details={"max_layout_seconds": allowed}) from error
    finally:
        resource.setrlimit(resource.RLIMIT_CPU, (soft, hard))
        signal.signal(signal.SIGXCPU, previous)
