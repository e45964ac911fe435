"""The log of servers in this process."""

import json
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx

from config.logs import JsonFormatter, TextFormatter
from tests.support.servers.in_process import eventually

_FORMATTERS = (TextFormatter(), JsonFormatter())


class LogLines(logging.Handler):
    """Collects log records in both formats."""

    def __init__(self) -> None:
        super().__init__()
        self.texts: list[str] = []
        self.entries: list[dict[str, Any]] = []

    def emit(self, record: logging.LogRecord) -> None:
        if record.name == "httpx":  # the tests' own client
            return
        text, line = (formatter.format(record) for formatter in _FORMATTERS)
        self.texts += [text, line]
        self.entries.append(json.loads(line))

    def of(self, request_id: str, logger: str = "convertd.access") -> list[dict[str, Any]]:
        """The entries of that logger about a request."""
        return [e for e in self.entries if (e["logger"], e.get("request_id")) == (logger, request_id)]


@contextmanager
def captured_log() -> Iterator[LogLines]:
    """Collects what all loggers write, from level INFO on."""
    lines, root = LogLines(), logging.getLogger()
    level = root.level
    root.setLevel(logging.INFO)
    root.addHandler(lines)
    try:
        yield lines
    finally:
        root.removeHandler(lines)
        root.setLevel(level)


def entry_of(lines: LogLines, response: httpx.Response, logger: str = "convertd.access") -> dict[str, Any]:
    """Waits for the only entry about a request."""
    request_id = response.headers["X-Request-Id"]
    assert eventually(lambda: bool(lines.of(request_id, logger)))
    (entry,) = lines.of(request_id, logger)
    return entry
