"""A server that is killed during webhook deliveries: repeated events are credited once."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from benchmarks.processes import ConvertdServer
from storage.database import Database, Transaction
from storage.tables import models
from tests.support.requests import http
from tests.support.servers.in_process import eventually
from tests.support.servers.load import charged, create_accounts
from tests.support.servers.stripe_server import StripeServer, event, send

pytestmark = pytest.mark.slow

_DELIVERIES = 20


def _paid(transaction: Transaction) -> int:
    return len(transaction.all(models.Purchase.select().where(models.Purchase.state == "paid")))


@pytest.mark.parametrize("url", [pytest.param("sqlite", marks=pytest.mark.long), "postgresql"], indirect=True)
def test_repeated_events_are_credited_once(tmp_path: Path, url: str, request: pytest.FixtureRequest) -> None:
    database = Database(url)
    (key,) = create_accounts(url, 1)
    auth = {"Authorization": f"Bearer {key}"}
    rounds = request.config.getoption("--rounds")
    bodies: list[bytes] = []
    with StripeServer() as stripe:
        settings = {f"CONVERTD_{name.upper()}": value for name, value in stripe.settings.items()}
        server = ConvertdServer(tmp_path, {"CONVERTD_DATABASE_URL": url, **settings})
        for number in range(rounds):
            with server, ThreadPoolExecutor(_DELIVERIES) as clients:
                assert all(send(server.api, body).is_success for body in bodies)
                response = http.post(
                    f"{server.api}/credits/purchase", json={"pack": "starter"}, headers=auth, timeout=30
                )
                body = event("checkout.session.completed", stripe.paid(response.json()["data"]["session_id"]))
                bodies.append(body)
                deliveries = [clients.submit(send, server.api, body) for _ in range(_DELIVERIES)]
                assert eventually(lambda at=number: database.run_blocking(_paid) > at)  # type: ignore[misc]
                server.process.kill()  # the transaction is committed; the response may not have been sent
                statuses = {d.result().status_code for d in deliveries if d.exception() is None}
                assert statuses <= {200}
        with server, ThreadPoolExecutor(_DELIVERIES) as clients:
            answers = list(clients.map(lambda body: send(server.api, body), bodies * 5))
            assert {response.status_code for response in answers} == {200}
    database.close()
    credited = -charged(url)
    assert credited == 500 * rounds
