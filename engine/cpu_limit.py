"""Limits on the CPU time and the memory of a part of a step, whose work the size of a file does not show."""

import resource
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from contextvars import copy_context
from typing import TypeVar

from engine.errors import TooLarge
from engine.memory_estimate import MAX_BYTES

T = TypeVar("T")

_INTERVAL = 0.05  # seconds between two looks at the time and the memory
_MAX_GROWTH = MAX_BYTES // 2  # bytes; some libraries end the process if an allocation fails


def call_within(share: float, function: Callable[[], T]) -> T:
    """Calls a function, which may take this share of the CPU time that the task may still use.

    Raises TooLarge, reason `elements`, if it takes more, or if the process grows by half of a task's memory. The call
    then goes on in its thread until the process ends, which is when the task has failed. Code in C is limited as
    far as it releases the GIL. A task without a limit of its CPU time is not limited.
    """
    limit, _ = resource.getrlimit(resource.RLIMIT_CPU)
    if limit == resource.RLIM_INFINITY:
        return function()
    started = time.process_time()
    size = _peak_size()
    allowed = max(1, int((limit - started) * share))
    call = Future[T]()
    thread = threading.Thread(target=copy_context().run, args=(_settle, call, function), daemon=True)
    thread.start()
    while thread.is_alive():
        thread.join(_INTERVAL)
        if thread.is_alive() and time.process_time() - started > allowed:
            message = f"The file takes more than {allowed} s to lay out: too many elements, rules, boxes or pages."
            raise TooLarge(message, reason="elements", details={"max_layout_seconds": allowed})
        if thread.is_alive() and _peak_size() - size > _MAX_GROWTH:
            raise _too_large()
    try:
        return call.result()
    except MemoryError as error:
        raise _too_large() from error


def _too_large() -> TooLarge:
    message = (
        f"The file takes more than {_MAX_GROWTH} bytes of memory to lay out: too many elements, or too large ones."
    )
    return TooLarge(message, reason="elements", details={"max_layout_bytes": _MAX_GROWTH})


def _peak_size() -> int:
    """The largest resident size of this process, in bytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def _settle(call: Future[T], function: Callable[[], T]) -> None:
    try:
        call.set_result(function())
    except BaseException as error:  # raised again by result()
        call.set_exception(error)
