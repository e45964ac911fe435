"""POST /credits/purchase, with Stripe and during its outages."""

import re
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from storage.tables import models
from storage.tables.purchases import Purchase
from tests.support.requests import http
from tests.support.requests.checks import dressed, problem
from tests.support.servers.in_process import Running, Servers
from tests.support.servers.stripe_server import KEY, SECRET, StripeServer
from web.api.errors import CheckoutUnavailable
from web.services.payments.stripe import StripeCheckout


@pytest.fixture(scope="module")
def stripe() -> Iterator[StripeServer]:
    with StripeServer() as running:
        yield running


@pytest.fixture(scope="module")
def selling(servers: Servers, stripe: StripeServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """A server that sells through Stripe."""
    settings = {"base_url": "https://convert.example/api/v1", "rate_limit_paid": 10_000, **stripe.settings}
    with servers.running(tmp_path_factory.mktemp("data"), **settings) as running:
        yield running


def buy(server: Running, headers: dict[str, str] | None = None, **body: Any) -> httpx.Response:
    return http.post(f"{server.api}/credits/purchase", json=body, headers=headers or server.auth, timeout=40)


def rows(server: Running) -> list[models.Purchase]:
    return server.database.run_blocking(lambda transaction: transaction.all(models.Purchase.select()))


@pytest.mark.parametrize(
    ("pack", "credits", "price"), [("starter", 500, 500), ("pro", 2000, 1500), ("business", 10000, 5000)]
)
def test_a_checkout(selling: Running, stripe: StripeServer, pack: str, credits: int, price: int) -> None:
    response = buy(selling, pack=pack, language="de")
    assert response.status_code == 200, response.text
    dressed(response)
    assert response.headers["Cache-Control"] == "no-store"
    body = response.json()
    data, requested = body["data"], stripe.requests[-1]
    session = stripe.sessions[data["session_id"]]
    assert data["checkout_url"] == session["url"]
    values = (data["pack"], data["credits"], data["amount"], data["currency"], data["language"], data["status"])
    assert values == (pack, credits, price, "eur", "de", "open")
    assert re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d", data["expires_at"])
    assert body["meta"]["credits_remaining"] == 1_000_001
    assert (session["amount_total"], session["currency"], requested["mode"]) == (price, "eur", "payment")
    assert requested["client_reference_id"] == requested["metadata[purchase]"] == data["purchase_id"]
    assert requested["success_url"] == f"https://convert.example/dashboard?purchase={data['purchase_id']}"
    assert requested["cancel_url"].startswith(requested["success_url"])
    assert requested["line_items[0][quantity]"] == "1"
    assert 1800 < int(requested["expires_at"]) - time.time() < 86_400


@pytest.mark.parametrize(
    ("requested", "spoken"),
    [
        (None, "en"),
        ("fr", "fr"),
        ("PT-br", "pt-BR"),
        ("es-419", "es-419"),
        ("de-AT", "en"),
        ("tlh", "en"),
        ("zh-Hant-TW", "en"),
    ],
)
def test_languages(selling: Running, stripe: StripeServer, requested: str | None, spoken: str) -> None:
    response = buy(selling, pack="starter", language=requested) if requested else buy(selling, pack="starter")
    assert response.json()["data"]["language"] == spoken
    assert stripe.requests[-1]["locale"] == spoken


@pytest.mark.parametrize("language", ["", "e", "auto", "german", "pt_BR", "de-", "de\n", "en;q=1", 7, ["de"], True])
def test_wrong_languages(selling: Running, language: object) -> None:
    problem(buy(selling, pack="pro", language=language), 400, "invalid_parameter", param="language", reason="malformed")


@pytest.mark.parametrize(
    ("pack", "reason"), [("huge", "unknown"), ("", "unknown"), ("Pro", "unknown"), (7, "malformed"), (None, "missing")]
)
def test_wrong_packs(selling: Running, stripe: StripeServer, pack: object, reason: str) -> None:
    tries = stripe.tries
    problem(buy(selling, pack=pack), 400, "invalid_parameter", param="pack", reason=reason)
    assert stripe.tries == tries


class TestRepeating:
    def test_the_same_request(self, selling: Running, stripe: StripeServer) -> None:
        known, headers = len(stripe.sessions), {**selling.auth, "Idempotency-Key": "again"}
        first, second = (buy(selling, headers, pack="pro", language="de") for _ in range(2))
        assert first.json()["data"] == second.json()["data"]
        assert "Idempotency-Replayed" not in first.headers
        assert second.headers["Idempotency-Replayed"] == "true"
        assert len(stripe.sessions) == known + 1
        problem(buy(selling, headers, pack="starter", language="de"), 422, "idempotency_key_reused")
        other = {"Authorization": f"Bearer {selling.account()}", "Idempotency-Key": "again"}
        assert buy(selling, other, pack="starter").json()["data"]["pack"] == "starter"

    def test_at_the_same_time(self, selling: Running, stripe: StripeServer) -> None:
        known, headers = len(stripe.sessions), {**selling.auth, "Idempotency-Key": "at once"}
        stripe.trouble = [0.5]
        with ThreadPoolExecutor() as pool:
            answers = list(pool.map(lambda _: buy(selling, headers, pack="pro"), range(4)))
        for refused in (response for response in answers if response.status_code != 200):
            problem(refused, 409, "idempotency_conflict", retryable=True)
        assert 200 in [response.status_code for response in answers]
        assert len(stripe.sessions) == known + 1

    def test_failures_are_not_replayed(self, selling: Running, stripe: StripeServer) -> None:
        headers = {**selling.auth, "Idempotency-Key": "once more"}
        stripe.trouble = [402]
        problem(buy(selling, headers, pack="pro"), 500, "server_error", reason="checkout_unavailable")
        response = buy(selling, headers, pack="pro")
        assert response.status_code == 200
        assert "Idempotency-Replayed" not in response.headers


@pytest.mark.parametrize("key", ["", "k" * 256, "\u00e9"])
def test_wrong_idempotency_keys(selling: Running, key: str) -> None:
    headers = {name.encode(): value.encode() for name, value in selling.auth.items()}
    headers[b"Idempotency-Key"] = key.encode("latin-1")
    response = http.post(f"{selling.api}/credits/purchase", json={"pack": "pro"}, headers=headers)
    problem(response, 400, "invalid_parameter", param="Idempotency-Key", reason="malformed")


@pytest.mark.parametrize("trouble", [[500, 503, 500], [402], [400]])
def test_errors_of_stripe(selling: Running, stripe: StripeServer, trouble: list[int | float]) -> None:
    before = len(rows(selling))
    stripe.trouble = list(trouble)
    response = buy(selling, pack="pro")
    problem(response, 500, "server_error", reason="checkout_unavailable", retryable=True)
    assert not stripe.trouble
    assert len(rows(selling)) == before


def test_temporary_errors_of_stripe_are_retried(selling: Running, stripe: StripeServer) -> None:
    stripe.trouble = [500]
    tries, known = stripe.tries, len(stripe.sessions)
    assert buy(selling, pack="pro").status_code == 200
    assert (stripe.tries, len(stripe.sessions)) == (tries + 2, known + 1)


@pytest.mark.parametrize(
    "settings", [{"stripe_api_base": "http://127.0.0.1:9"}, {"stripe_secret_key": "sk_test_another"}]
)
def test_an_unreachable_address_or_a_wrong_key_of_stripe(
    servers: Servers, data_dir: Path, stripe: StripeServer, settings: dict[str, str]
) -> None:
    with servers.running(data_dir, **{**stripe.settings, **settings}) as server:
        response = buy(server, pack="pro")
        problem(response, 500, "server_error", reason="checkout_unavailable", retryable=True)
        assert "sk_test" not in response.text
        assert rows(server) == []


async def test_stripe_does_not_answer(stripe: StripeServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("web.services.payments.stripe.TOTAL_TIMEOUT", 0.3)
    provider = StripeCheckout(KEY, (SECRET,), stripe.url, "https://a.example")
    purchase = Purchase("pur_1", "acc_1", "pro", 2000, 1500, "eur", "opening", 0)
    stripe.trouble = [1.0]
    with pytest.raises(CheckoutUnavailable):
        await provider.open(purchase, "a@example.com", "en")
    await provider.close()


@pytest.mark.parametrize(("key", "live"), [("sk_test_1", False), ("rk_test_1", False), ("sk_live_1", True)])
async def test_live_keys(key: str, live: bool) -> None:
    provider = StripeCheckout(key, (SECRET,), "http://127.0.0.1:9", "https://a.example")
    assert provider.live == live
    await provider.close()


def test_no_checkout_without_keys(servers: Servers, data_dir: Path) -> None:
    with servers.running(data_dir) as server:
        for host in ("convert.example", "localhost", "127.0.0.1"):
            response = buy(server, {**server.auth, "Host": host}, pack="pro")
            problem(response, 500, "server_error", reason="checkout_not_configured", retryable=False)
        assert rows(server) == []
        problem(http.post(f"{server.api}/webhooks/stripe", content=b"{}"), 400, "invalid_parameter")
