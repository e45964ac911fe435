"""Logging: one line per event on standard error, as text or as JSON, with secrets scrubbed."""

from __future__ import annotations

import json
import logging
import re
import sys
from datetime import UTC, datetime
from typing import Any, Literal

from config.log_handler import BackgroundHandler

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
