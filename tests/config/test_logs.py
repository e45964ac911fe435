"""Log lines: their format, masked secrets, and the background thread that writes them."""

import errno
import json
import logging
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from io import StringIO
from typing import Any, TextIO

import pytest

from config.logs import BackgroundHandler, JsonFormatter, OutageFilter, TextFormatter

CAPACITY = 100
KEY = "cvd_live_" + "k" * 38


def record(message: str, **fields: Any) -> logging.LogRecord:
    found = logging.LogRecord("convertd.access", logging.INFO, "", 0, message, (), None)
    found.created = 1_790_000_000
    found.fields = fields
    return found


def test_text() -> None:
    line = TextFormatter().format(record("GET /healthz", status=200, ms=3, account=None))
    assert line == "2026-09-21 14:13:20 INFO convertd.access GET /healthz status=200 ms=3"


def test_json() -> None:
    entry = json.loads(JsonFormatter().format(record("GET /healthz", status=200)))
    assert entry == {
        "time": "2026-09-21 14:13:20",
        "level": "info",
        "logger": "convertd.access",
        "message": "GET /healthz",
        "status": 200,
    }


@pytest.mark.parametrize("formatter", [TextFormatter(), JsonFormatter()])
def test_secrets_are_masked(formatter: logging.Formatter) -> None:
    line = formatter.format(record(f"Authorization: Bearer {KEY} and {KEY} at /verify?token=abc123"))
    assert KEY not in line
    assert "abc123" not in line


@pytest.mark.parametrize("secret", ["sk_live_51Abc", "rk_test_51Abc", "whsec_Abc"])
def test_secrets_of_stripe_are_masked(secret: str) -> None:
    assert TextFormatter().format(record(f"no such key: {secret}")).endswith("no such key: ***")


@pytest.mark.parametrize("formatter", [TextFormatter(), JsonFormatter()])
def test_unscrubbed_records_keep_their_secrets(formatter: logging.Formatter) -> None:
    link = record("/verify?token=abc123")
    link.unscrubbed = True
    assert "token=abc123" in formatter.format(link)


def test_a_message_cannot_forge_a_line() -> None:
    assert "\n" not in TextFormatter().format(record("a\n2026-09-21 INFO forged\x1b[31m"))


def test_tracebacks_are_kept() -> None:
    try:
        raise ValueError("why")
    except ValueError as error:
        found = record("failed")
        found.exc_info = (type(error), error, error.__traceback__)
    assert "ValueError: why" in TextFormatter().format(found)
    assert "ValueError: why" in json.loads(JsonFormatter().format(found))["traceback"]


@pytest.fixture
def pipe() -> Iterator[tuple[TextIO, TextIO]]:
    """The writing and the reading end of a pipe."""
    out, into = os.pipe()
    with os.fdopen(into, "w") as writing, os.fdopen(out) as reading:
        yield writing, reading


def logger(stream: TextIO) -> tuple[logging.Logger, BackgroundHandler]:
    handler = BackgroundHandler(stream, capacity=CAPACITY)
    log = logging.Logger("test")
    log.addHandler(handler)
    return log, handler


def test_lines_of_many_threads_are_written_in_order() -> None:
    stream = StringIO()
    log, handler = logger(stream)

    def write(name: str) -> None:
        for number in range(20):
            log.info("%s %d", name, number)

    threads = [threading.Thread(target=write, args=(name,)) for name in "abcd"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    handler.close()
    lines = stream.getvalue().splitlines()
    for name in "abcd":
        assert [line for line in lines if line[0] == name] == [f"{name} {number}" for number in range(20)]


def test_logging_does_not_wait_for_a_slow_reader(pipe: tuple[TextIO, TextIO]) -> None:
    writing, reading = pipe
    log, handler = logger(writing)
    count = 40 * CAPACITY
    for number in range(count):
        log.info("%d %s", number, "x" * 4000)  # more than any pipe holds
    log.removeHandler(handler)
    closing = threading.Thread(target=handler.close)
    closing.start()
    written, lost = list[int](), 0
    while len(written) + lost < count:
        line = reading.readline()
        if line.endswith("x\n"):
            written.append(int(line.split()[0]))
        else:
            lost += int(line.split()[0])
    closing.join()
    assert written == sorted(written)
    assert lost > 0


def test_logging_continues_without_a_reader(pipe: tuple[TextIO, TextIO]) -> None:
    writing, reading = pipe
    log, handler = logger(writing)
    reading.close()
    for number in range(3):
        log.info("%d", number)
        handler.flush()
    handler.close()
    with suppress(BrokenPipeError):
        writing.close()


def test_the_last_lines_of_a_process_are_written() -> None:
    program = """
import errno, logging, config.logs as logs
logs.configure("text")
for number in range(9):
    logging.getLogger("a").error("%d", number, exc_info=OSError(errno.ENOSPC, "full", f"/file{number}"))
logging.getLogger("a").info("the last")
"""
    ended = subprocess.run((sys.executable, "-c", program), capture_output=True, text=True, check=True)
    assert [line[20:] for line in ended.stderr.splitlines()] == ["ERROR a 0: full", "INFO a the last"]


def test_an_outage_is_logged_once_a_minute() -> None:
    now, stream = 0.0, StringIO()
    log, handler = logger(stream)
    handler.addFilter(OutageFilter(lambda: now))
    handler.setFormatter(TextFormatter())
    for now in (0.0, 1.0, 59.9, 60.0, 119.0, 121.0, 122.0):
        for code in (errno.ENOSPC, errno.EMFILE, errno.ENOENT):
            log.error("failed", exc_info=OSError(code, os.strerror(code)))
        for name in "ab":
            log.warning("%s is gone: %f", name, now, extra={"outage": True, "fields": {"name": name}})
        log.warning("shown")
    handler.close()
    lines = [line for line in stream.getvalue().splitlines() if line.startswith("2")]
    assert sum(line.endswith("shown") for line in lines) == sum(line.endswith("failed") for line in lines) == 7
    for text, name, dropped in (
        ("No space left", "", (2, 1)),
        ("Too many open", "", (2, 1)),
        ("gone", " name=a", (5, 3)),
    ):
        found = [line for line in lines if text in line]
        assert [line.partition(name + " repeated=")[2] for line in found] == ["", *map(str, dropped)]
    assert stream.getvalue().count("FileNotFoundError") == 7


def test_lines_of_dask_have_the_same_format() -> None:
    program = """
import distributed, logging, config.logs as logs
logs.configure("json")
for name in ("distributed.worker", "distributed.client", "tornado.application"):
    logging.getLogger(name).warning("hidden")
    logging.getLogger(name).error("shown")
"""
    ended = subprocess.run((sys.executable, "-c", program), capture_output=True, text=True, check=True)
    assert [json.loads(line)["message"] for line in ended.stderr.splitlines()] == ["shown"] * 3


@pytest.mark.parametrize("log_format", ["text", "json"])
def test_lines_logged_at_exit_are_written(log_format: str) -> None:
    program = f"""
import logging, threading, config.logs as logs
logs.configure({log_format!r})
def log(name):
    for number in range(1000):
        logging.getLogger(name).info("line %d", number)
threads = [threading.Thread(target=log, args=(name,)) for name in "ab"]
for thread in threads:
    thread.start()
"""
    ended = subprocess.run((sys.executable, "-c", program), capture_output=True, text=True, check=True, timeout=60)
    assert len(ended.stderr.splitlines()) == 2000


def test_closing_does_not_await_a_blocked_reader(pipe: tuple[TextIO, TextIO], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("config.logs.FLUSH_TIMEOUT", 0.1)
    log, handler = logger(pipe[0])
    log.info("x" * 1_000_000)
    handler.close()
    assert len(pipe[1].readline()) == 1_000_001


def test_closing_twice(pipe: tuple[TextIO, TextIO]) -> None:
    log, handler = logger(pipe[0])
    log.info("once")
    handler.close()
    handler.close()
    assert pipe[1].readline() == "once\n"


def test_a_record_that_cannot_be_formatted_does_not_stop_the_log(capsys: pytest.CaptureFixture[str]) -> None:
    stream = StringIO()
    log, handler = logger(stream)
    log.info("%d", "text")
    log.info("next")
    handler.close()
    assert stream.getvalue() == "next\n"
    assert "Logging error" in capsys.readouterr().err
