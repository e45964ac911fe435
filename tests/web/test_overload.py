"""A server with more to do than it can: whom it refuses costs it next to nothing."""

from __future__ import annotations

import sqlite3
from contextlib import ExitStack, closing
from pathlib import Path

import httpx
import pytest

from tests import plain
from tests.web.checks import problem
from tests.web.samples import FILE, FORM, TARGET, form
from tests.web.servers import Running, Servers, eventually
from tests.web.test_convert import Stuck, request

_MOST = 51  # conversions of one worker: the one that runs, and 50 that wait
_LIMIT = 10_000  # requests a minute
_MOMENT = 1.0  # seconds


def test_those_it_knows_are_refused_without_the_database(servers: Servers, data_dir: Path) -> None:
    with (
        servers.running(data_dir, executor=Stuck(), workers=1, rate_limit_paid=_LIMIT) as server,
        ExitStack() as waiting,
        closing(sqlite3.connect(data_dir / "convertd.db", isolation_level=None)) as other,
    ):
        stranger = server.account(purchased=1)
        for _ in range(_MOST):
            waiting.enter_context(server.connect()).sendall(request(server, form(FILE, TARGET)))
        assert eventually(lambda: _one_more_is_refused(server, waiting), 60)
        other.execute("BEGIN EXCLUSIVE")
        answer = _convert(server, server.key)
        problem(answer, 429, "rate_limit_exceeded", reason="queue_full")
        assert int(answer.headers["X-RateLimit-Remaining"]) < int(answer.headers["X-RateLimit-Limit"]) == _LIMIT
        with pytest.raises(httpx.ReadTimeout):
            _convert(server, stranger, _MOMENT)


def _one_more_is_refused(server: Running, waiting: ExitStack) -> bool:
    """Whoever is not stays in line, in place of one that the server had no time for."""
    connection = waiting.enter_context(server.connect())
    connection.sendall(request(server, form(FILE, TARGET)))
    connection.settimeout(_MOMENT)
    try:
        return connection.recv(65_536).startswith(b"HTTP/1.1 429 ")
    except TimeoutError:
        return False


def _convert(server: Running, key: str, timeout: float = 20) -> httpx.Response:
    headers = {**FORM, "Authorization": f"Bearer {key}"}
    return plain.post(f"{server.api}/convert", content=form(FILE, TARGET), headers=headers, timeout=timeout)
