"""POST /credits/purchase, with Stripe, during its outages, and with the simulated checkout."""

import re
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from config.settings import is_loopback
from storage.tables import ledger_audit, models
from storage.tables.purchases import Purchase
from tests.support.requests import http
from tests.support.requests.checks import dressed, problem
from tests.support.servers.in_process import Running, Servers
from tests.support.servers.stripe_server import KEY, SECRET, StripeServer
from web.api.errors import CheckoutUnavailable
from web.services.payments.stripe import StripeCheckout


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
    data, requested = body["data"], stripe.orders[-1]
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
    assert stripe.orders[-1]["locale"] == spoken


@pytest.mark.parametrize("language", ["", "e", "auto", "german", "pt_BR", "de-", "de\n", "en;q=1", 7, ["de"], True])
def test_wrong_languages(selling: Running, language: object) -> None:
    problem(buy(selling, pack="pro", language=language), 400, "invalid_parameter", param="language", reason="malformed")


@pytest.mark.parametrize(
    ("pack", "reason"), [("huge", "unknown"), ("", "unknown"), ("Pro", "unknown"), (7, "malformed"), (None, "missing")]
)
def test_wrong_packs(selling: Running, stripe: StripeServer, pack: object, reason: str) -> None:
    tries = len(stripe.requests)
    problem(buy(selling, pack=pack), 400, "invalid_parameter", param="pack", reason=reason)
    assert len(stripe.requests) == tries


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
    tries, known = len(stripe.requests), len(stripe.sessions)
    assert buy(selling, pack="pro").status_code == 200
    assert (len(stripe.requests), len(stripe.sessions)) == (tries + 2, known + 1)


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


def checkout(server: Running, pack: str = "pro") -> tuple[dict[str, str], str]:
    """Returns the headers of a new account and the URL of its checkout on the server's port."""
    auth = {"Authorization": f"Bearer {server.account(credits=0)}"}
    data = http.post(f"{server.api}/credits/purchase", json={"pack": pack}, headers=auth).json()["data"]
    assert data["checkout_url"] == f"http://localhost:8000/checkout/{data['session_id']}"
    return auth, data["checkout_url"].replace("http://localhost:8000", server.url)


def account(server: Running, auth: dict[str, str]) -> tuple[int, str]:
    data = http.get(f"{server.api}/account", headers=auth).json()["data"]
    return data["credits_remaining"], data["tier"]


def test_payment(server: Running) -> None:
    auth, page = checkout(server)
    shown = http.get(page)
    assert shown.status_code == 200
    assert "simulation" in shown.text
    assert "15.00 EUR" in shown.text
    assert "{" not in shown.text.partition("<body>")[2]
    assert "form-action 'self'" in shown.headers["Content-Security-Policy"]
    assert "default-src 'none'" in shown.headers["Content-Security-Policy"]
    for _ in range(2):
        assert http.post(f"{page}/pay", data={"code": f" {server.checkout_code}\n"}).status_code == 303
        assert account(server, auth) == (2000, "paid")
    assert "is paid" in http.get(page).text
    assert server.database.run_blocking(ledger_audit.check) == ()


def test_decline_and_cancel(server: Running) -> None:
    auth, page = checkout(server)
    declined = http.post(f"{page}/decline")
    assert declined.status_code == 303
    assert "was declined" in http.get(server.url + declined.headers["Location"]).text
    cancelled = http.post(f"{page}/cancel")
    assert cancelled.headers["Location"].startswith("http://localhost:8000/dashboard?purchase=pur_")
    assert account(server, auth) == (0, "free")
    paid = http.post(f"{page}/pay", data={"code": server.checkout_code})
    assert paid.headers["Location"] in cancelled.headers["Location"]
    assert account(server, auth) == (2000, "paid")


def test_a_plain_proxy_does_not_let_others_buy(server: Running) -> None:
    """A proxy that adds no header, as a tunnel of bytes does: the request is like one of this machine."""
    auth, page = checkout(server)
    assert http.get(page).status_code == 200
    code = server.checkout_code
    for wrong in ({}, {"code": ""}, {"code": code[:-1]}, {"code": code.swapcase()}, {"code": "é" * len(code)}):
        refused = http.post(f"{page}/pay", data=wrong)
        assert refused.status_code == 400
        assert 'role="alert"' in refused.text
        assert code not in refused.text
    problem(
        http.post(f"{page}/pay", data={"code": code}, headers={"Host": "convert.example"}), 400, "invalid_parameter"
    )
    assert account(server, auth) == (0, "free")


def test_unknown_sessions(server: Running) -> None:
    for session in ("cs_simulated_0", "cs_simulated_" + "0" * 22, "%2e%2e", "cs_test_1"):
        problem(http.get(f"{server.url}/checkout/{session}"), 404, "not_found")
        problem(http.post(f"{server.url}/checkout/{session}/pay"), 404, "not_found")


def test_each_start_logs_a_new_code(servers: Servers, data_dir: Path, caplog: pytest.LogCaptureFixture) -> None:
    with servers.running(data_dir, simulated_checkout=True) as server:
        _, page = checkout(server)
        before = _logged_code(caplog)
        path = page.removeprefix(server.url)
    caplog.clear()
    with servers.running(data_dir, simulated_checkout=True) as server:
        codes = (before, _logged_code(caplog))
        pay = [http.post(f"{server.url}{path}/pay", data={"code": code}) for code in codes]

    assert [response.status_code for response in pay] == [400, 303]


def _logged_code(caplog: pytest.LogCaptureFixture) -> str:
    (code,) = re.findall(r"checkout is simulated: with the code (\w{12}), credits are free", caplog.text)
    return str(code)


def test_no_simulation_by_default(servers: Servers, data_dir: Path) -> None:
    with servers.running(data_dir, simulated_checkout=True) as before:
        auth, page = checkout(before)
        path = page.removeprefix(before.url)
    with servers.running(data_dir) as server:
        problem(http.post(f"{server.api}/credits/purchase", json={"pack": "pro"}, headers=auth), 500, "server_error")
        problem(http.get(server.url + path), 404, "not_found")
        problem(http.post(f"{server.url}{path}/pay", headers={"Host": "localhost"}), 404, "not_found")
        assert account(server, auth) == (0, "free")


@pytest.mark.parametrize(
    "host", ["localhost", "LOCALHOST", "127.0.0.1", "127.8.9.1", "::1", "[::1]", "::ffff:127.0.0.1"]
)
def test_loopback_hosts(host: str) -> None:
    assert is_loopback(host)


@pytest.mark.parametrize(
    "host", [None, "", "0.0.0.0", "::", "10.0.0.1", "localhost.example", "127.0.0.1.example", "1", "::2"]
)
def test_other_hosts(host: str | None) -> None:
    assert not is_loopback(host)
