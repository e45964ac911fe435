"""A server that is killed during webhook deliveries: repeated events are credited once."""

from __future__ import annotations

import os
import signal
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from storage.database import Database, Transaction
from storage.tables import accounts, api_keys, ledger, ledger_audit, models
from tests.support.requests import http
from tests.support.servers.in_process import eventually
from tests.support.servers.processes import serving
from tests.support.servers.stripe_server import StripeServer, event, send

pytestmark = [pytest.mark.long, pytest.mark.both_databases]

_DELIVERIES = 20


def _account(transaction: Transaction) -> tuple[str, str]:
    account = accounts.create(transaction, "buyer@example.com", "Buyer", free_credits=0)
    return account.id, api_keys.issue(transaction, account.id, "Buyer").text


def _paid(transaction: Transaction) -> int:
    return len(transaction.all(models.Purchase.select().where(models.Purchase.state == "paid")))


def test_repeated_events_are_credited_once(
    tmp_path: Path, url: str, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    database = Database(url)
    account, key = database.run_blocking(_account)
    auth = {"Authorization": f"Bearer {key}"}
    rounds = request.config.getoption("--rounds")
    bodies: list[bytes] = []
    with StripeServer() as stripe:
        for name, value in stripe.settings.items():
            monkeypatch.setenv(f"CONVERTD_{name.upper()}", value)
        for number in range(rounds):
            with serving(tmp_path, url) as (server, address), ThreadPoolExecutor(_DELIVERIES) as clients:
                api = f"{address}/api/v1"
                assert all(send(api, body).is_success for body in bodies)
                response = http.post(f"{api}/credits/purchase", json={"pack": "starter"}, headers=auth, timeout=30)
                body = event("checkout.session.completed", stripe.paid(response.json()["data"]["session_id"]))
                bodies.append(body)
                deliveries = [clients.submit(send, api, body) for _ in range(_DELIVERIES)]
                assert eventually(lambda at=number: database.run_blocking(_paid) > at)  # type: ignore[misc]
                os.kill(server.pid, signal.SIGKILL)  # the transaction is committed; the response may not have been sent
                statuses = {d.result().status_code for d in deliveries if d.exception() is None}
                assert statuses <= {200}
        with serving(tmp_path, url) as (_, address), ThreadPoolExecutor(_DELIVERIES) as clients:
            answers = list(clients.map(lambda body: send(f"{address}/api/v1", body), bodies * 5))
            assert {response.status_code for response in answers} == {200}
    assert database.run_blocking(ledger.balance, account) == 500 * rounds
    assert database.run_blocking(ledger_audit.check) == ()
    database.close()
