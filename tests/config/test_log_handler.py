"""The handler of log records: lines arrive in order, and nobody waits for whoever takes them."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from io import StringIO
from typing import TextIO

import pytest

from config.logs import BackgroundHandler

CAPACITY = 100


@pytest.fixture
def pipe() -> Iterator[tuple[TextIO, TextIO]]:
    """What is written to, and where it comes out."""
    out, into = os.pipe()
    with os.fdopen(into, "w") as writing, os.fdopen(out) as reading:
        yield writing, reading


def logger(stream: TextIO) -> tuple[logging.Logger, BackgroundHandler]:
    handler = BackgroundHandler(stream, capacity=CAPACITY)
    log = logging.Logger("test")
    log.addHandler(handler)
    return log, handler


def test_the_lines_of_many_threads_arrive() -> None:
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


def test_nobody_waits_for_a_reader_that_stands_still(pipe: tuple[TextIO, TextIO]) -> None:
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


def test_a_reader_that_has_gone_harms_nobody(pipe: tuple[TextIO, TextIO]) -> None:
    writing, reading = pipe
    log, handler = logger(writing)
    reading.close()
    for number in range(3):
        log.info("%d to nobody", number)
        handler.flush()
    handler.close()
    with suppress(BrokenPipeError):
        writing.close()


def test_the_last_lines_of_a_process_are_written() -> None:
    program = "import logging, config.logs as logs; logs.configure('text'); logging.getLogger('a').info('the last')"
    ended = subprocess.run((sys.executable, "-c", program), capture_output=True, text=True, check=True)
    assert ended.stderr.endswith("INFO a the last\n")
