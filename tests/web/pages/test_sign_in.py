"""Signing in to the dashboard with a link that is sent by email, and the pages of an account that is signed in."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from storage.database import Transaction
from storage.tables import models
from tests.conftest import MakeUrl
from tests.support.requests import http
from tests.support.requests.account_requests import posted, signed_in
from tests.support.requests.log_lines import captured_log
from tests.support.samples.forms import image
from tests.support.samples.pdf_documents import document
from tests.support.servers.in_process import Running, Servers, eventually
from tests.support.servers.mail_server import email_to, emails_to
from web.services.accounts.changes import SIGN_IN_LINK

UNKNOWN = "ab" * 32


@pytest.fixture(scope="module")
def server(servers: Servers, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """A separate server: failed sign-ins and emails are counted per address."""
    with servers.running(tmp_path_factory.mktemp("sign-in"), rate_limit_anonymous=10_000) as running:
        yield running


def account(server: Running) -> tuple[str, str]:
    """The key and the email address of a new account."""
    key = server.account()
    return key, str(server.request("GET", "/account", key).json()["data"]["email"])


def asked(server: Running, email: str) -> httpx.Response:
    return posted(server, "/dashboard/sign-in-email", {"email": email})


def link_sent_to(server: Running, email: str, number: int = 1) -> str:
    """The token of the link in the email with this number."""
    text = email_to(server, email, number)
    (token,) = re.findall(rf"^http://localhost:8000{SIGN_IN_LINK}#token=([0-9a-f]{{64}})$", text, re.MULTILINE)
    assert "works once, within 15 minutes" in text
    return str(token)


def followed(server: Running, token: str) -> httpx.Response:
    return posted(server, SIGN_IN_LINK, {"token": token})


def owner(server: Running, session: httpx.Response) -> str:
    """The email address on the dashboard of a session that has begun."""
    assert (session.status_code, session.headers["Location"]) == (303, "/dashboard")
    cookie = session.headers["Set-Cookie"]
    assert all(part in cookie for part in ("HttpOnly", "Path=/", "Max-Age=43200", "SameSite=Lax"))
    page = http.get(f"{server.url}/dashboard", headers={"Cookie": cookie.partition(";")[0]}).text
    (email,) = re.findall(r'<span title="([^"]+)">', page)
    return str(email)


class TestLinks:
    def test_a_link_works_once_and_outlives_the_keys(self, server: Running) -> None:
        key, email = account(server)
        assert "If the address has an account" in asked(server, email.upper()).text
        token = link_sent_to(server, email)
        session = followed(server, token.upper())
        server.request("POST", f"/account/keys/{_key_id(server, key)}/rotate", key, json={"grace_period_seconds": 0})
        assert owner(server, session) == email
        again = followed(server, token)
        assert (again.status_code, "has been used" in again.text) == (404, True)
        assert "Set-Cookie" not in again.headers

    def test_opening_the_link_does_not_use_it(self, server: Running) -> None:
        _, email = account(server)
        asked(server, email)
        token = link_sent_to(server, email)
        for method in ("HEAD", "GET"):
            assert http.request(method, f"{server.url}{SIGN_IN_LINK}").status_code == 200
        elsewhere = http.post(f"{server.url}{SIGN_IN_LINK}", data={"token": token}, headers={"Origin": "http://a.test"})
        assert elsewhere.status_code == 400
        assert owner(server, followed(server, token)) == email

    def test_nobody_learns_which_address_has_an_account(self, server: Running) -> None:
        _, email = account(server)
        known, unknown = asked(server, email), asked(server, "nobody@example.test")
        assert (known.status_code, known.text) == (unknown.status_code, unknown.text)
        varying = {"x-request-id", "x-ratelimit-remaining", "x-ratelimit-reset", "ratelimit", "date"}
        first, second = (
            {name: value for name, value in answer.headers.items() if name not in varying}
            for answer in (known, unknown)
        )
        assert first == second
        assert link_sent_to(server, email)
        assert emails_to(server.data_dir, "nobody@example.test") == []
        rows = server.database.run_blocking(Transaction.all, models.Verification.select())
        assert {row.purpose for row in rows} == {"sign_in"}
        assert {"nobody@example.test", email} <= {row.email for row in rows}

    @pytest.mark.parametrize("token", ["", "x", UNKNOWN, UNKNOWN + "0", "' OR 1=1"])
    def test_other_tokens(self, server: Running, token: str) -> None:
        answer = followed(server, token)
        assert (answer.status_code, "Set-Cookie" in answer.headers) == (404, False)

    def test_an_invalid_address(self, server: Running) -> None:
        answer = asked(server, "nobody")
        assert (answer.status_code, "email must be an email address." in answer.text) == (400, True)

    def test_emails_are_limited_with_those_of_registrations(self, server: Running) -> None:
        _, email = account(server)
        for number in range(4):
            assert asked(server, email.replace("@", f"+{number}@")).status_code == 200
        assert posted(server, "/register", {"email": email, "name": "Name"}).status_code == 200
        refused = asked(server, email)
        assert (refused.status_code, int(refused.headers["Retry-After"]) > 0) == (429, True)
        assert eventually(lambda: len(emails_to(server.data_dir, email)) == 1)  # The registration sends one.

    def test_guesses_are_limited(self, servers: Servers, data_dir: Path) -> None:
        with servers.running(data_dir) as server:
            statuses = [followed(server, UNKNOWN).status_code for _ in range(31)]
        assert statuses == [404] * 30 + [429]

    def test_only_a_server_that_sends_email_offers_links(self, servers: Servers, tmp_path: Path) -> None:
        with servers.running(tmp_path, base_url="https://convert.example/api/v1") as server:
            headers = {"Host": "convert.example", "Origin": "https://convert.example"}
            assert "sign-in-email" not in http.get(f"{server.url}/dashboard", headers=headers).text
            form = {"email": "a@example.test"}
            refused = http.post(f"{server.url}/dashboard/sign-in-email", data=form, headers=headers)
        assert refused.status_code == 500

    def test_no_log_and_no_table_has_the_token(self, server: Running) -> None:
        _, email = account(server)
        with captured_log() as lines:
            asked(server, email)
            token = link_sent_to(server, email)
            session = followed(server, token).headers["Set-Cookie"].partition(";")[0].partition("=")[2]
        links = server.database.run_blocking(Transaction.all, models.Verification.select())
        sessions = server.database.run_blocking(Transaction.all, models.DashboardSession.select())
        rows = [vars(row) for row in (*links, *sessions)]
        for secret in (token, session):
            assert secret not in str(rows)
        assert session not in "".join(lines.texts)

    def test_any_server_with_the_database_knows_link_and_session(
        self, servers: Servers, tmp_path: Path, new_postgres_url: MakeUrl
    ) -> None:
        shared: dict[str, Any] = {"database_url": new_postgres_url(), "blob_url": f"file://{tmp_path / 'blobs'}"}
        with servers.running(tmp_path / "a", **shared) as first, servers.running(tmp_path / "b", **shared) as second:
            _, email = account(first)
            asked(first, email)
            token = link_sent_to(first, email)
            session = followed(second, token)
            assert owner(first, session) == email
            assert followed(first, token).status_code == 404


def _key_id(server: Running, key: str) -> str:
    return str(server.request("GET", "/account/keys", key).json()["data"]["keys"][0]["key_id"])


class TestPages:
    """The pages of an account that is signed in."""

    @pytest.mark.parametrize("path", ["/dashboard", "/dashboard/jobs", "/dashboard/webhooks"])
    def test_show_whose_they_are_and_offer_no_key(self, server: Running, path: str) -> None:
        key, email = account(server)
        with signed_in(server, key) as client:
            page, without = client.get(path).text, http.get(f"{server.url}{path}").text
        assert email in page.partition("<main")[0]
        assert "Sign out" in page
        assert "Get an API key" not in page
        assert "Sign out" not in without
        assert "Get an API key" in without

    def test_a_request_row_opens(self, server: Running) -> None:
        key, _ = account(server)
        headers = {"Authorization": f"Bearer {key}"}
        form = {"fit": "cover", "width": "10", "height": "10", "half_size": "true"}
        assert server.convert(image(), "webp", headers=headers, **form).status_code == 200
        assert server.convert(b"no file", "webp", headers=headers).status_code == 400
        server.request("GET", "/account", key)
        with signed_in(server, key) as client:
            shown = client.get("/dashboard").text
        plain, failed, converted, *_ = re.findall(r"<tr>(?:(?!<tr>).)*?mono id.*?</tr>", shown)
        assert "<details>" not in plain
        facts = re.findall(r"<dt>(.*?)</dt><dd>(.*?)</dd>", converted)
        assert {("formats", "jpeg → webp"), ("width", "10"), ("credits", "1")} <= {*facts}
        assert ("warning", '<a href="/docs/warnings#option_ignored">option_ignored</a>') in facts
        assert re.search(r"<dt>conversion</dt><dd>\d+ of \d+ ms</dd>", converted)
        assert 'href="/docs/errors#invalid_file_type"' in failed
        assert ("reason", "unrecognized") in re.findall(r"<dt>(.*?)</dt><dd>(.*?)</dd>", failed)

    def test_passwords_are_not_recorded(self, server: Running) -> None:
        key, _ = account(server)
        files, form = {"file": ("a.pdf", document("a", 1))}, {"user_password": "sesame", "pages": "1"}
        server.request("POST", "/pdf/protect", key, files=files, data=form)
        server.convert(document("a", 1), "png", password="sesame", headers={"Authorization": f"Bearer {key}"})
        with signed_in(server, key) as client:
            assert "sesame" not in client.get("/dashboard").text
        rows = server.database.run_blocking(Transaction.all, models.Request.select())
        assert any(json.loads(row.details or "{}").get("input_format") == "pdf" for row in rows)
        assert not any("sesame" in (row.details or "") for row in rows)
