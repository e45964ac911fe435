"""Logging: one line per record on standard error, as text or JSON, with secrets masked."""

import errno
import json
import logging
import re
import sys
import time
from collections.abc import Callable, Hashable
from contextlib import suppress
from queue import SimpleQueue
from threading import Thread
from typing import Any, Literal, TextIO

_SECRETS = re.compile(
    r"""
      cvd_(?:live|test)_\w+ | [sr]k_(?:live|test)_\w+ | whsec_\w+     # API keys, Stripe's included
    | (?<=token=)[\w-]+                                    # tokens in the links of emails
    | (?<=Bearer\ )\S+
    | (?<=://)[^\s/@]{0,200}:[^\s/]{0,200}(?=@)             # users and passwords in URLs
    | \b[\w.+%-]{1,64}@[\w-]+\.[\w.-]+                    # email addresses
    """,
    re.IGNORECASE | re.VERBOSE,
)
_MARKERS = ("cvd_live_", "cvd_test_", "k_live_", "k_test_", "whsec_", "token=", "bearer ", "@")  # each secret has one
FLUSH_TIMEOUT = 5.0  # seconds
_REPETITION = 60.0  # seconds between records of an outage
# Every request may have them until the machine is repaired. A traceback adds nothing.
_OF_THE_MACHINE = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO, errno.EMFILE, errno.ENFILE)
_VERBOSE_LIBRARIES = (
    "tornado",
    "python_multipart",
    "asyncio",
    "httpx",
    "mcp",
    "stripe",
    "pikepdf",
    "fontTools",
    "opentelemetry",
    "tornado.application",
    "distributed",
    "distributed.client",
    "distributed.gc",  # distributed configures each
)


def configure(log_format: Literal["text", "json"], *, background: bool = True) -> None:
    """Writes all log records to standard error, in a background thread unless this process is to have one thread.

    The values of a record's `fields` attribute are shown by name. Secrets are masked unless a record's `unscrubbed`
    attribute is true, as for the links of emails that developers need. Records of an outage are limited.
    """
    # Not shown in any format, so not collected for each record.
    logging.logThreads = logging.logProcesses = logging.logMultiprocessing = False
    logging._srcfile = None
    handler = BackgroundHandler(sys.stderr) if background else logging.StreamHandler()
    handler.setFormatter(JsonFormatter() if log_format == "json" else TextFormatter())
    handler.addFilter(OutageFilter())
    logging.basicConfig(level=logging.INFO, handlers=[handler], force=True)
    quiet_libraries()


def quiet_libraries() -> None:
    """Logs only the errors of libraries, in our format. Called again after the import of a library that sets levels."""
    for name in _VERBOSE_LIBRARIES:
        logger = logging.getLogger(name)
        logger.setLevel(logging.ERROR)
        logger.handlers.clear()  # distributed has handlers with a format of its own
        logger.propagate = True


class OutageFilter(logging.Filter):
    """Passes one record a minute of each error of the machine, such as a full disk, without its traceback.

    And of each message whose records have a true attribute `outage`. The field `repeated` is the number of records that
    were dropped since the last one. `clock` returns seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._clock = clock
        self._latest: dict[Hashable, tuple[float, int]] = {}  # when one was passed, and how many were dropped since

    def filter(self, record: logging.LogRecord) -> bool:
        error = record.exc_info[1] if record.exc_info else None
        kind: Hashable = (record.name, record.msg)
        if isinstance(error, OSError) and error.errno in _OF_THE_MACHINE:
            kind = error.strerror
            record.exc_info = None
            record.msg = f"{record.getMessage()}: {error.strerror}"
            record.args = ()
        elif not getattr(record, "outage", False):
            return True
        passed, dropped = self._latest.get(kind, (-_REPETITION, 0))
        is_due = self._clock() - passed >= _REPETITION
        self._latest[kind] = (self._clock(), 0) if is_due else (passed, dropped + 1)
        record.fields = {**_fields(record), "repeated": dropped or None}
        return is_due


class _Formatter(logging.Formatter):
    """Formats times in UTC and whole seconds."""

    converter = staticmethod(time.gmtime)
    default_msec_format = None


class TextFormatter(_Formatter):
    """`2026-01-31 12:00:00 INFO convertd.access POST /api/v1/convert status=200 ms=81`."""

    def format(self, record: logging.LogRecord) -> str:
        fields = "".join(f" {name}={value}" for name, value in _fields(record).items() if value is not None)
        line = f"{self.formatTime(record)} {record.levelname} {record.name} {record.getMessage()}{fields}"
        if not line.isprintable():  # nearly all lines are
            line = "".join(char if char.isprintable() else "?" for char in line)
        trace = [self.formatException(record.exc_info)] if record.exc_info else []
        return _scrubbed(record, "\n".join([line, *trace]))


class JsonFormatter(_Formatter):
    """One JSON object per line, with the record's `fields` as additional keys."""

    def format(self, record: logging.LogRecord) -> str:
        entry = {
            "time": self.formatTime(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **_fields(record),
        }
        if record.exc_info:
            entry["traceback"] = self.formatException(record.exc_info)
        return _scrubbed(record, json.dumps(entry, default=str))


def _fields(record: logging.LogRecord) -> dict[str, Any]:
    fields = getattr(record, "fields", {})
    return dict(fields) if isinstance(fields, dict) else {}


def _scrubbed(record: logging.LogRecord, text: str) -> str:
    if getattr(record, "unscrubbed", False):
        return text
    lowered = text.lower()
    # Most lines have no marker, and searching for them is a hundred times as fast as the pattern.
    return _SECRETS.sub("***", text) if any(marker in lowered for marker in _MARKERS) else text


class BackgroundHandler(logging.Handler):
    """Formats and writes records in a background thread, so that a slow reader of the stream does not delay requests.

    At most `capacity` records wait. Further ones are dropped; their number is logged once there is space. Records
    and their arguments must not change after logging.
    """

    def __init__(self, stream: TextIO, *, capacity: int = 10_000) -> None:
        super().__init__()
        self._records = SimpleQueue[logging.LogRecord | None]()
        self._capacity = capacity
        self._stream = stream
        self._dropped = 0
        # A daemon: if the stream is blocked at exit, the thread is left behind.
        self._thread: Thread | None = Thread(target=self._write, name="log", daemon=True)
        self._thread.start()

    def emit(self, record: logging.LogRecord) -> None:
        if self._records.qsize() >= self._capacity:
            self._dropped += 1
            return
        if self._dropped:
            self._log_dropped()
        self._records.put(record)

    def close(self) -> None:
        """Writes the waiting records, for at most 5 seconds. Called by `logging` at exit."""
        if self._thread is not None:
            if self._dropped:
                self._log_dropped()
            self._records.put(None)
            self._thread.join(FLUSH_TIMEOUT)
            self._thread = None
        super().close()

    def _log_dropped(self) -> None:
        message = f"{self._dropped} log records were dropped: the log is not read fast enough."
        values = {"name": "convertd.logs", "levelno": logging.WARNING, "levelname": "WARNING", "msg": message}
        self._records.put(logging.makeLogRecord(values))
        self._dropped = 0

    def _write(self) -> None:
        while (record := self._records.get()) is not None:
            try:
                line = self.format(record)
            except Exception:
                self.handleError(record)
            else:
                with suppress(OSError, ValueError):  # the reader is gone, or the stream is closed
                    self._stream.write(f"{line}\n")
                    self._stream.flush()
