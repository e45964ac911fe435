"""A server that is killed under load: every response is charged exactly once."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest

from storage.database import Database, Transaction
from storage.tables import accounts, api_keys, ledger_audit
from tests.support.requests import http
from tests.support.samples.generated import sample
from tests.support.servers.processes import serving

pytestmark = [pytest.mark.long, pytest.mark.both_databases]

_CREDITS, _CLIENTS, _ORDERS = 500, 4, 30


def _account(transaction: Transaction) -> str:
    account = accounts.create(transaction, "load@example.com", "Load", free_credits=_CREDITS)
    return api_keys.issue(transaction, account.id, "Load").text


def _used(transaction: Transaction) -> tuple[int, int]:
    account = accounts.find(transaction, "load@example.com")
    assert account is not None
    return account.used, account.held


def test_each_response_is_charged_once(tmp_path: Path, url: str, request: pytest.FixtureRequest) -> None:
    kills = request.config.getoption("--rounds")
    database = Database(url)
    key = database.run_blocking(_account)
    done: set[str] = set()
    waiting = {f"order {number}" for number in range(_ORDERS)}
    for kill in range(kills + 1):
        with serving(tmp_path, url) as (server, address):
            last = kill == kills
            ordering = [threading.Thread(target=_order, args=(address, key, waiting, done)) for _ in range(_CLIENTS)]
            for thread in ordering:
                thread.start()
            if not last:
                time.sleep(0.4)
                os.kill(server.pid, signal.SIGKILL)
            for thread in ordering:
                thread.join()
            if last:
                assert _eventually(lambda: database.run_blocking(_used)[1] == 0)
    assert done == {f"order {number}" for number in range(_ORDERS)}
    assert database.run_blocking(_used) == (_ORDERS, 0)
    assert database.run_blocking(ledger_audit.check) == ()
    database.close()


def _order(address: str, key: str, waiting: set[str], done: set[str]) -> None:
    """Sends queued conversions until the queue is empty or the server is gone; requeues those without a response."""
    with http.Client(timeout=30) as client:
        while waiting:
            try:
                order = waiting.pop()
            except KeyError:
                return
            try:
                response = _post(client, address, key, order)
            except httpx.TransportError:
                waiting.add(order)
                return
            if response.status_code == 200:
                done.add(order)
            else:  # the claim of the killed attempt is still leased, or the queue is full
                assert response.status_code in (409, 429, 500), response.text
                waiting.add(order)
                time.sleep(0.2)


def _post(client: httpx.Client, address: str, key: str, order: str) -> httpx.Response:
    return client.post(
        f"{address}/api/v1/convert",
        files={"file": ("a.png", sample("png"))},
        data={"output_format": "jpeg"},
        headers={"Authorization": f"Bearer {key}", "Idempotency-Key": order},
    )


def _eventually(holds: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + 10
    while not holds() and time.monotonic() < deadline:
        time.sleep(0.1)
    return holds()
