"""Logging: one line per event on standard error, as text or as JSON, with secrets scrubbed."""

from __future__ import annotations

import json
import logging
import re
import sys
import threading
from collections import deque
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any, Literal, TextIO

_SECRETS = re.compile(
    r"""
      cvd_live_\w+ | [sr]k_(?:live|test)_\w+ | whsec_\w+     # keys, ours and Stripe's
    | (?<=token=)[\w-]+                                    # of a letter's link
    | (?<=Bearer\ )\S+
    | (?<=://)[^\s/@]{0,200}:[^\s/]{0,200}(?=@)             # of a URL
    | \b[\w.+%-]{1,64}@[\w-]+\.[\w.-]+                    # addresses of people
    """,
    re.IGNORECASE | re.VERBOSE,
)
_MARKS = ("cvd_live_", "k_live_", "k_test_", "whsec_", "token=", "bearer ", "@")  # one stands in whatever is secret
_CHATTY = ("tornado", "python_multipart", "asyncio", "httpx", "stripe", "pikepdf")


def configure(log_format: Literal["text", "json"]) -> None:
    """Sends all log records to standard error, without waiting for it.

    Values of the record's `fields` are shown by name. A record that is `unscrubbed` keeps its secrets: it is made
    for a developer to read them.
    """
    # What no line shows, every record would be asked for.
    logging.logThreads = logging.logProcesses = logging.logMultiprocessing = False
    logging._srcfile = None
    handler = BackgroundHandler(sys.stderr)
    handler.setFormatter(JsonFormatter() if log_format == "json" else TextFormatter())
    logging.basicConfig(level=logging.INFO, handlers=[handler], force=True)
    for name in _CHATTY:
        logging.getLogger(name).setLevel(logging.ERROR)


class TextFormatter(logging.Formatter):
    """`2026-01-31 12:00:00 INFO convertd.access POST /api/v1/convert status=200 ms=81`."""

    def format(self, record: logging.LogRecord) -> str:
        shown = "".join(f" {name}={value}" for name, value in _fields(record).items() if value is not None)
        line = f"{_time(record)} {record.levelname} {record.name} {record.getMessage()}{shown}"
        trace = [self.formatException(record.exc_info)] if record.exc_info else []
        return _scrubbed(record, "\n".join([_printable(line), *trace]))


class JsonFormatter(logging.Formatter):
    """One object a line; `fields` of the record stand beside the message."""

    def format(self, record: logging.LogRecord) -> str:
        entry = {
            "time": _time(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **_fields(record),
        }
        if record.exc_info:
            entry["traceback"] = self.formatException(record.exc_info)
        return _scrubbed(record, json.dumps(entry, default=str))


def _printable(line: str) -> str:
    # Nearly all are, and each costs its request time.
    return line if line.isprintable() else "".join(char if char.isprintable() else "?" for char in line)


def _fields(record: logging.LogRecord) -> dict[str, Any]:
    fields = getattr(record, "fields", {})
    return dict(fields) if isinstance(fields, dict) else {}


def _time(record: logging.LogRecord) -> str:
    return datetime.fromtimestamp(record.created, UTC).strftime("%Y-%m-%d %H:%M:%S")


def _scrubbed(record: logging.LogRecord, text: str) -> str:
    if getattr(record, "unscrubbed", False):
        return text
    lowered = text.lower()
    # Most lines have none, and to look for the marks takes a hundredth of the time.
    return _SECRETS.sub("***", text) if any(mark in lowered for mark in _MARKS) else text


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
