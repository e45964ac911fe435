"""A server that is killed under load: every response is charged exactly once."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import httpx
import pytest

from benchmarks.processes import ConvertdServer
from storage import accounts, api_keys, ledger_audit
from storage.database import Database
from storage.transaction import Transaction
from tests.support import http
from tests.support.samples import sample
from tests.support.servers import eventually

pytestmark = [pytest.mark.slow, pytest.mark.both_databases]

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
        with ConvertdServer(tmp_path, {"CONVERTD_DATABASE_URL": url}) as server:
            last = kill == kills
            ordering = [threading.Thread(target=_order, args=(server.api, key, waiting, done)) for _ in range(_CLIENTS)]
            for thread in ordering:
                thread.start()
            if not last:
                time.sleep(0.4)
                server.process.kill()
            for thread in ordering:
                thread.join()
            if last:
                assert eventually(lambda: database.run_blocking(_used)[1] == 0)
    assert done == {f"order {number}" for number in range(_ORDERS)}
    assert database.run_blocking(_used) == (_ORDERS, 0)
    assert database.run_blocking(ledger_audit.check) == ()
    database.close()


def _order(api: str, key: str, waiting: set[str], done: set[str]) -> None:
    """Sends queued conversions until the queue is empty or the server is gone; requeues those without a response."""
    with http.Client(timeout=30) as client:
        while waiting:
            try:
                order = waiting.pop()
            except KeyError:
                return
            try:
                response = _post(client, api, key, order)
            except httpx.TransportError:
                waiting.add(order)
                return
            if response.status_code == 200:
                done.add(order)
            else:  # the claim of the killed attempt is still leased, or the queue is full
                assert response.status_code in (409, 429, 500), response.text
                waiting.add(order)
                time.sleep(0.2)


def _post(client: httpx.Client, api: str, key: str, order: str) -> httpx.Response:
    return client.post(
        f"{api}/convert",
        files={"file": ("a.png", sample("png"))},
        data={"output_format": "jpeg"},
        headers={"Authorization": f"Bearer {key}", "Idempotency-Key": order},
    )
