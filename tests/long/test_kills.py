"""Processes end while clients convert: no conversion is lost or charged twice."""

import asyncio
import random
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from benchmarks.postgres import PostgresServer, find_binaries
from benchmarks.processes import ConvertdServer, process_tree, send_signal
from tests.support.servers.load import Clients, assert_no_work_files, charged, create_accounts, repeat, sqlite_url

pytestmark = pytest.mark.long

_INTERVAL = 2.0  # seconds
_HOLD_TIMEOUT = 240  # seconds after which credits are released that could not be released at once


async def _convert_during(clients: Clients, seconds: float, action: Callable[[], object]) -> None:
    """Converts while the action repeats."""
    await clients.convert_while(asyncio.create_task(repeat(int(seconds / _INTERVAL), _INTERVAL, action)))


def test_the_processes_of_a_server_are_killed(tmp_path: Path, seconds: float) -> None:
    """For a minute, one of the fork server, its workers and their jobs is killed every two seconds.

    Every conversion succeeds after at most seven attempts, and is charged once.
    """
    (key,) = create_accounts(sqlite_url(tmp_path), 1)
    with ConvertdServer(tmp_path) as server:
        clients = Clients(server.api, key)

        def kill_process() -> None:
            if processes := process_tree(server.pid)[1:]:
                send_signal(random.choice(processes), signal.SIGKILL)

        asyncio.run(_convert_during(clients, seconds, kill_process))
        assert_no_work_files(server)
    assert set(clients.statuses) <= {200, 429, 500, 503}
    assert clients.most_attempts <= 7
    assert clients.wrong_results == 0
    assert charged(sqlite_url(tmp_path)) == clients.succeeded > 0


def test_postgresql_restarts(tmp_path: Path, seconds: float) -> None:
    """For a minute, PostgreSQL restarts every two seconds. Every conversion succeeds in the end and is charged once."""
    binaries = find_binaries()
    assert binaries is not None, "PostgreSQL is not installed here"
    with PostgresServer(binaries) as postgres:
        (key,) = create_accounts(postgres.url, 1)
        with ConvertdServer(tmp_path, {"CONVERTD_DATABASE_URL": postgres.url}) as server:
            clients = Clients(server.api, key)
            asyncio.run(_convert_during(clients, seconds, postgres.restart))
            assert_no_work_files(server)
            spent = charged(postgres.url, _HOLD_TIMEOUT)
    assert clients.wrong_results == 0
    assert spent == clients.succeeded > 0
