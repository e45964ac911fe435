"""POST /webhooks/stripe: signatures, effects, repeated events, and a server that is killed during deliveries."""

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from benchmarks.processes import ConvertdServer
from storage.database import Database, Transaction
from storage.tables import ledger_audit, models, purchases
from tests.support.requests import http
from tests.support.requests.checks import dressed, problem
from tests.support.servers.in_process import Running, Servers, eventually
from tests.support.servers.load import charged, create_accounts
from tests.support.servers.stripe_server import SECRET, StripeServer, event, send, signature

OLD_SECRET = "whsec_before"
_DELIVERIES = 20


@pytest.fixture
def selling(servers: Servers, stripe: StripeServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """A server that sells through Stripe. Its ledger is audited after the test."""
    settings = {**stripe.settings, "stripe_webhook_secret": f"{SECRET}, {OLD_SECRET}"}
    with servers.running(tmp_path_factory.mktemp("data"), **settings) as running:
        yield running
        assert running.database.run_blocking(ledger_audit.check) == ()


class Buyer:
    """An account with 50 credits and an open checkout."""

    def __init__(self, server: Running, stripe: StripeServer, pack: str = "starter") -> None:
        self.server, self.stripe = server, stripe
        self.auth = {"Authorization": f"Bearer {server.account()}"}
        response = http.post(f"{server.api}/credits/purchase", json={"pack": pack}, headers=self.auth)
        self.session: str = response.json()["data"]["session_id"]

    def pays(self, kind: str = "checkout.session.completed", **changes: Any) -> bytes:
        """The event of a payment."""
        return event(kind, {**self.stripe.paid(self.session), **changes})

    def returned(self, kind: str, name: str, **fields: Any) -> bytes:
        """The event of a refund or a dispute."""
        about = {"id": name, "currency": "eur", "payment_intent": self.stripe.paid(self.session)["payment_intent"]}
        return event(kind, about | fields)

    @property
    def account(self) -> tuple[int, str]:
        """The balance and the tier."""
        data = http.get(f"{self.server.api}/account", headers=self.auth).json()["data"]
        return data["credits_remaining"], data["tier"]


@pytest.fixture
def buyer(selling: Running, stripe: StripeServer) -> Buyer:
    return Buyer(selling, stripe)


def test_a_pack_is_credited_once(selling: Running, buyer: Buyer) -> None:
    assert buyer.account == (50, "free")
    body = buyer.pays()
    for delivery in (body, body, buyer.pays("checkout.session.async_payment_succeeded")):
        response = send(selling.api, delivery)
        assert (response.status_code, response.json()["data"]) == (200, {"received": True})
        dressed(response)
        assert buyer.account == (550, "paid")


def test_forged_events(selling: Running, buyer: Buyer) -> None:
    body = buyer.pays()
    forged = {
        "of another secret": (body, signature(body, "whsec_guessed")),
        "of another body": (body.replace(b"500", b"501"), signature(body)),
        "too old": (body, signature(body, age=301)),
        "without a time": (body, signature(body).partition(",")[2]),
        "of another scheme": (body, signature(body).replace("v1=", "v0=")),
        "of no text": (b"\xff\xfe", "t=1,v1=00"),
        "beyond ASCII": (body, f"t={int(time.time())},v1=\xe9"),
        "of nothing": (body, ""),
    }
    for why, (content, header) in forged.items():
        headers = {b"Stripe-Signature": header.encode("latin-1")}
        response = http.post(f"{selling.api}/webhooks/stripe", content=content, headers=headers)
        assert response.status_code == 400, why
        problem(response, 400, "invalid_parameter", reason="invalid_signature", param="Stripe-Signature")
    problem(http.post(f"{selling.api}/webhooks/stripe", content=body), 400, "invalid_parameter")
    assert buyer.account == (50, "free")


def test_wrong_signatures_are_limited_and_valid_ones_are_not(selling: Running, buyer: Buyer) -> None:
    assert [send(selling.api, b"{}", "t=1,v1=00").status_code for _ in range(32)] == [400] * 30 + [429] * 2
    assert send(selling.api, buyer.pays()).status_code == 200
    assert buyer.account == (550, "paid")


def test_two_secrets_work_during_rotation(selling: Running, buyer: Buyer) -> None:
    body = buyer.pays()
    assert send(selling.api, body, signature(body, OLD_SECRET)).status_code == 200
    assert buyer.account == (550, "paid")


@pytest.mark.parametrize(
    "changes",
    [
        {"amount_total": 1},
        {"currency": "usd"},
        {"amount_total": None},
        {"payment_status": "unpaid"},
        {"payment_status": "no_payment_required"},
        {"id": "cs_test_another"},
        {"client_reference_id": "pur_another", "id": "cs_test_another"},
        {"client_reference_id": None, "id": "cs_test_another"},
    ],
)
def test_events_without_credits(selling: Running, buyer: Buyer, changes: dict[str, Any]) -> None:
    assert send(selling.api, buyer.pays(**changes)).status_code == 200
    assert buyer.account == (50, "free")


def test_live_and_test_mode_do_not_mix(selling: Running, buyer: Buyer) -> None:
    assert send(
        selling.api, event("checkout.session.completed", buyer.stripe.paid(buyer.session), livemode=True)
    ).is_success
    assert buyer.account == (50, "free")


def test_a_shop_in_live_mode_takes_no_test_events(servers: Servers, stripe: StripeServer, tmp_path: Path) -> None:
    """The keys of the test mode are known to more people, and its cards cost nothing."""
    settings = {**stripe.settings, "stripe_secret_key": "sk_live_of_the_tests"}
    with servers.running(tmp_path, **settings) as server:
        balance = server.request("GET", "/account").json()["data"]["credits_remaining"]
        purchase = server.database.run_blocking(_open_purchase)
        session = {"id": "cs_1", "client_reference_id": purchase, "payment_status": "paid", "payment_intent": "pi_1"}
        for live, credited in ((False, 0), (True, 500)):
            paid = {**session, "amount_total": 500, "currency": "eur"}
            assert send(server.api, event("checkout.session.completed", paid, livemode=live)).is_success
            now = server.request("GET", "/account").json()["data"]["credits_remaining"]
            assert now - balance == credited


def _open_purchase(transaction: Transaction) -> str:
    account = transaction.first(models.Account.select())
    assert account is not None
    return purchases.begin(transaction, account.id, "starter", 500, 500, "eur").purchase_id


def test_delayed_payments(selling: Running, stripe: StripeServer) -> None:
    for endings in (["failed"], ["succeeded"], ["failed", "succeeded"]):
        buyer = Buyer(selling, stripe)
        assert send(selling.api, buyer.pays(payment_status="unpaid")).is_success
        for ending in endings:
            status = "paid" if ending == "succeeded" else "unpaid"
            assert send(
                selling.api, buyer.pays(f"checkout.session.async_payment_{ending}", payment_status=status)
            ).is_success
        assert buyer.account == ((550, "paid") if "succeeded" in endings else (50, "free"))


def test_unrelated_events(selling: Running) -> None:
    for kind in ("customer.created", "checkout.session.expired", "charge.succeeded"):
        assert send(selling.api, event(kind, {"id": "x_1", "payment_status": "unpaid"})).status_code == 200
    for body in (b"[]", b"{", b"null", event("checkout.session.completed", {})):
        problem(send(selling.api, body), 400, "invalid_parameter", reason="malformed")


def test_an_event_that_is_too_large(selling: Running) -> None:
    body = event("customer.created", {"id": "cus_1", "padding": "x" * (256 << 10)})
    problem(send(selling.api, body), 413, "file_too_large")
    assert send(selling.api, event("customer.created", {"padding": "x" * (200 << 10)})).is_success


def test_refunds(selling: Running, buyer: Buyer) -> None:
    refund = buyer.returned("refund.created", "re_1", amount=200, status="pending")
    for body in (refund, buyer.pays(), refund):  # the refund is reported before the payment, and repeated
        assert send(selling.api, body).is_success
    assert buyer.account == (350, "paid")
    assert send(selling.api, buyer.returned("charge.refunded", "ch_1", amount_refunded=200)).is_success
    assert buyer.account == (350, "paid")
    assert send(selling.api, buyer.returned("refund.failed", "re_1", amount=200, status="failed")).is_success
    assert send(selling.api, refund).is_success
    assert buyer.account == (550, "paid")


def test_a_charge_that_is_refunded(selling: Running, buyer: Buyer) -> None:
    send(selling.api, buyer.pays())
    for refunded, left in ((100, 450), (500, 50)):
        assert send(selling.api, buyer.returned("charge.refunded", "ch_1", amount_refunded=refunded)).is_success
        assert buyer.account == (left, "paid")


def test_disputes(selling: Running, buyer: Buyer) -> None:
    send(selling.api, buyer.pays())
    steps = [
        ("created", "warning_needs_response", 550),
        ("updated", "needs_response", 50),
        ("closed", "lost", 50),
        ("updated", "appeal_under_review", 50),
        ("closed", "won", 550),
    ]
    for seconds, (kind, status, left) in enumerate(steps):
        about = {"id": "dp_1", "currency": "eur", "amount": 500, "status": status}
        about["payment_intent"] = buyer.stripe.paid(buyer.session)["payment_intent"]
        assert send(selling.api, event(f"charge.dispute.{kind}", about, created=seconds)).is_success
        assert buyer.account == (left, "paid")


def test_unrelated_reversals(selling: Running, buyer: Buyer) -> None:
    send(selling.api, buyer.pays())
    refund = {"id": "re_9", "amount": 100, "status": "succeeded", "currency": "eur"}
    for about in (refund, refund | {"payment_intent": "pi_of_a_shop"}):
        assert send(selling.api, event("refund.created", about)).is_success
    assert send(selling.api, buyer.returned("refund.created", "re_8", amount=500, currency="usd")).is_success
    assert buyer.account == (550, "paid")


def _paid(transaction: Transaction) -> int:
    return len(transaction.all(models.Purchase.select().where(models.Purchase.state == "paid")))


@pytest.mark.slow
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
                made = http.post(f"{server.api}/credits/purchase", json={"pack": "starter"}, headers=auth, timeout=30)
                body = event("checkout.session.completed", stripe.paid(made.json()["data"]["session_id"]))
                bodies.append(body)
                deliveries = [clients.submit(send, server.api, body) for _ in range(_DELIVERIES)]
                assert eventually(lambda at=number: database.run_blocking(_paid) > at)  # type: ignore[misc]
                server.process.kill()  # the transaction is committed; the response may not have been sent
                assert {d.result().status_code for d in deliveries if d.exception() is None} <= {200}
        with server, ThreadPoolExecutor(_DELIVERIES) as clients:
            answers = list(clients.map(lambda body: send(server.api, body), bodies * 5))
            assert {made.status_code for made in answers} == {200}
    database.close()
    credited = -charged(url)
    assert credited == 500 * rounds
