"""A handler of log records that never has anybody wait: lines are put together and written in a thread."""

from __future__ import annotations

import logging
import threading
from collections import deque
from contextlib import suppress
from typing import TextIO

_PAUSE = 0.1  # seconds between writes: what is logged meanwhile goes out in one
_FAREWELL = 5  # seconds that whoever reads has for the last lines


class BackgroundHandler(logging.Handler):
    """Writes lines to a stream that may be slow, or stand still.

    At most `capacity` records wait; how many came in vain is told as soon as there is room.
    """

    def __init__(self, stream: TextIO, *, capacity: int = 10_000) -> None:
        super().__init__()
        self._stream = stream
        self._capacity = capacity
        self._waiting: deque[logging.LogRecord] = deque()
        self._lost = self._told = 0
        self._there = threading.Event()
        self._closing = threading.Event()
        self._writer = threading.Thread(target=self._write_all, name="log", daemon=True)
        self._writer.start()

    def emit(self, record: logging.LogRecord) -> None:
        """Takes it down. What it holds may not change any more."""
        if len(self._waiting) < self._capacity:
            self._waiting.append(record)
        else:
            self._lost += 1
        self._there.set()

    def close(self) -> None:
        """Writes what is left, as `logging` has it at the end of the process."""
        self._closing.set()
        self._there.set()
        self._writer.join(_FAREWELL)
        super().close()

    def _write_all(self) -> None:
        while not self._closing.is_set():
            self._there.wait()
            self._there.clear()
            self._write()
            self._closing.wait(_PAUSE)
        self._write()

    def _write(self) -> None:
        # Without the handler's lock, which whoever closes it may hold meanwhile.
        lines = [line for _ in range(len(self._waiting)) for line in self._lines(self._waiting.popleft())]
        lost = self._lost - self._told
        if lost:
            self._told += lost
            lines.append(f"{lost} lines of the log are lost: nobody took them.")
        with suppress(OSError, ValueError):  # there is nobody to tell
            self._stream.write("".join(f"{line}\n" for line in lines))
            self._stream.flush()

    def _lines(self, record: logging.LogRecord) -> list[str]:
        try:
            return [self.format(record)]
        except Exception:
            self.handleError(record)
            return []
