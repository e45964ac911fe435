"""Registration, the verification email, and the exchange of its token for an API key."""

import re
import secrets
from pathlib import Path
from typing import Any

import httpx
import pytest

from storage.tables import accounts
from tests.support.requests import http
from tests.support.requests.checks import dressed, problem
from tests.support.samples.forms import BROWSER_HEADERS
from tests.support.servers.in_process import Running, Servers
from tests.support.servers.outbox import email_to, emails_to, token_sent_to

UNKNOWN = "ab" * 32


def register(server: Running, **body: Any) -> httpx.Response:
    return http.post(f"{server.api}/register", json=body)


def verify(server: Running, token: str, **headers: str) -> httpx.Response:
    return http.get(f"{server.api}/verify", params={"token": token}, headers=headers)


def test_register_and_verify(server: Running) -> None:
    response = register(server, email="Ann@Example.test", name="  Ann's app ")
    assert response.status_code == 200
    dressed(response)
    data = response.json()["data"]
    assert (data["email"], data["verification_sent"]) == ("Ann@example.test", True)
    assert isinstance(data["message"], str)

    token = token_sent_to(server, "Ann@example.test")
    shown = verify(server, token)
    assert shown.status_code == 200
    assert shown.headers["Cache-Control"] == "no-store"
    key = shown.json()["data"]
    assert set(key) == {
        *("api_key", "key_id", "key_prefix", "email", "name", "tier", "credits_remaining", "message"),
    }
    assert re.fullmatch(r"cvd_live_[0-9A-Za-z]{38}", key["api_key"])
    assert key["api_key"].startswith(key["key_prefix"])
    assert (key["name"], key["tier"], key["credits_remaining"]) == ("Ann's app", "free", 50)

    account = http.get(f"{server.api}/account", headers={"Authorization": f"Bearer {key['api_key']}"})
    assert account.json()["data"]["email"] == "Ann@example.test"
    problem(verify(server, token), 404, "not_found")


def test_known_address_gets_the_same_response_and_another_key(server: Running) -> None:
    first = register(server, email="bob@example.test", name="Bob")
    old = verify(server, token_sent_to(server, "bob@example.test")).json()["data"]
    second = register(server, email="BOB@example.test", name="Bob")
    assert second.status_code == first.status_code == 200
    answers = [{**response.json()["data"], "email": ""} for response in (first, second)]
    assert answers[0] == answers[1]
    assert set(first.headers) == set(second.headers)
    assert "already" in email_to(server, "bob@example.test", 2)

    new = verify(server, token_sent_to(server, "bob@example.test", 2)).json()["data"]
    assert (new["email"], new["credits_remaining"]) == ("bob@example.test", 50)
    assert new["api_key"] != old["api_key"]
    for key in (old, new):
        response = http.get(f"{server.api}/account", headers={"Authorization": f"Bearer {key['api_key']}"})
        assert response.status_code == 200


def test_only_json_get_requests_use_the_token(server: Running) -> None:
    register(server, email="cleo@example.test", name="Cleo")
    token = token_sent_to(server, "cleo@example.test")
    for headers in ({}, BROWSER_HEADERS):
        response = http.head(f"{server.api}/verify", params={"token": token}, headers=headers)
        assert (response.status_code, response.content) == (303 if headers else 200, b"")
        assert response.headers["Cache-Control"] == "no-store"
    for headers in (BROWSER_HEADERS, {"Accept": "*/*", "Sec-Fetch-Mode": "navigate"}, {"Accept": "text/html"}):
        response = verify(server, token, **headers)
        assert response.status_code == 303
        assert response.headers["Location"] == f"/developers/verify#token={token}"
        assert response.headers["Cache-Control"] == "no-store"
        assert response.headers["Referrer-Policy"] == "no-referrer"
        assert "cvd_live_" not in response.text
    verified = verify(server, token.upper(), Accept="application/json, text/html")
    assert verified.json()["data"]["api_key"].startswith("cvd_live_")


@pytest.mark.parametrize("query", ["", "?token=", "?token=abc", f"?token={'g' * 64}", f"?token={UNKNOWN}0"])
def test_malformed_tokens(server: Running, query: str) -> None:
    for headers in ({}, BROWSER_HEADERS):
        problem(http.get(f"{server.api}/verify{query}", headers=headers), 400, "invalid_parameter", param="token")


def test_unknown_tokens(server: Running) -> None:
    problem(verify(server, UNKNOWN), 404, "not_found")


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"email": "nobody", "name": "Application"}, "email"),
        ({"email": "a@example.test", "name": "a\u0007b"}, "name"),
    ],
)
def test_invalid_fields(server: Running, body: dict[str, Any], param: str) -> None:
    problem(register(server, **body), 400, "invalid_parameter", param=param)


def test_five_emails_per_hour_and_mailbox(server: Running) -> None:
    for email in (
        "dora@example.test",
        "DORA@example.test",
        "dora+1@example.test",
        "dora+2@example.test",
        "dora+@Example.test",
    ):
        assert register(server, email=email, name="D.").is_success
    for email in ("Dora@example.test", "dora+3@example.test"):
        refused = register(server, email=email, name="D.")
        problem(refused, 429, "rate_limit_exceeded", reason="registrations")
        assert 3_500 < int(refused.headers["Retry-After"]) <= 3_600
    assert register(server, email="emil@example.test", name="Emil").is_success


def test_fifty_registrations_per_day_and_ip_address(servers: Servers, data_dir: Path) -> None:
    proxy = "127.0.0.1"
    with servers.running(data_dir, trusted_proxies=(proxy,)) as server, http.Client(base_url=server.api) as client:
        for number in range(50):
            body = {"email": f"person{number}@example.test", "name": "Person"}
            assert client.post("/register", json=body).is_success
        late = {"email": "late@example.test", "name": "Late"}
        for _ in range(6):  # they do not count for the email address, which others could block otherwise
            refused = client.post("/register", json=late)
            problem(refused, 429, "rate_limit_exceeded")
            assert int(refused.headers["Retry-After"]) > 86_000
        assert client.post("/register", json=late, headers={"X-Forwarded-For": "192.0.2.1"}).is_success


@pytest.mark.parametrize(("once", "credits"), [(True, [50, 0, 0]), (False, [50, 50, 50])], ids=["once", "each"])
def test_free_credits_of_a_mailbox(servers: Servers, data_dir: Path, credits: list[int], *, once: bool) -> None:
    with servers.running(data_dir, mailbox_credits_once=once) as server:
        for email, expected in zip(
            ("fay@example.test", "fay+1@example.test", "FAY+2@example.test"), credits, strict=True
        ):
            register(server, email=email, name="Fay")
            account = verify(server, token_sent_to(server, email)).json()["data"]
            assert account["credits_remaining"] == expected
            assert account["api_key"]


def test_the_address_of_the_client_is_kept_until_the_account_is_deleted(server: Running) -> None:
    register(server, email="gil@example.test", name="Gil")
    verify(server, token_sent_to(server, "gil@example.test"))
    account = server.database.run_blocking(accounts.find, "gil@example.test")
    assert account is not None
    assert account.address == "127.0.0.1"
    server.database.run_blocking(accounts.delete, "gil@example.test")
    assert server.database.run_blocking(accounts.get, account.id).address is None


@pytest.mark.parametrize(
    "headers", [{"Sec-Fetch-Site": "cross-site"}, {"Sec-Fetch-Site": "same-site"}, {"Origin": "https://evil.example"}]
)
def test_pages_of_other_sites_cannot_register(server: Running, headers: dict[str, str]) -> None:
    email = f"kim-{secrets.token_hex(4)}@example.test"
    body = f'{{"email": "{email}", "name": "Kim"}}'.encode()
    sent = http.post(f"{server.api}/register", content=body, headers={"Content-Type": "text/plain", **headers})
    problem(sent, 400, "invalid_parameter", reason="cross_site", param="Origin")
    assert emails_to(server.data_dir, email) == []
    own = http.post(f"{server.api}/register", content=body, headers={"Origin": server.url})
    assert own.status_code == 200


def test_nobody_registers_without_email(servers: Servers, data_dir: Path) -> None:
    with servers.running(data_dir, base_url="https://convert.example/api/v1") as server:
        response = register(server, email="lea@example.test", name="Lea")
        problem(response, 500, "server_error", reason="email_not_configured", retryable=False)
        page = http.post(
            f"{server.url}/register",
            data={"email": "lea@example.test", "name": "Lea"},
            headers={"Host": "convert.example", "Sec-Fetch-Site": "same-origin", **BROWSER_HEADERS},
        )
        assert (page.status_code, "does not send email" in page.text) == (500, True)
    assert not (data_dir / "outbox").exists()
