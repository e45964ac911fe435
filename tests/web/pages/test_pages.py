"""The pages over plain HTTP: security headers, caching, errors, forms, and who runs the service."""

import re
import sys
from collections.abc import Iterator
from email import message_from_bytes, policy
from pathlib import Path
from typing import Any

import pytest
from tornado.template import Loader, Template

from config.pricing import DEFAULT_PACKS
from config.settings import SettingsError, load_settings
from tests.support.requests import http
from tests.support.requests.account_requests import posted, signed_in
from tests.support.requests.checks import dressed, problem
from tests.support.requests.log_lines import captured_log, entry_of
from tests.support.samples.forms import BROWSER_HEADERS
from tests.support.samples.pairs import every
from tests.support.servers.in_process import Running, Servers, eventually
from tests.support.servers.mail_server import emails_to, token_sent_to
from tests.support.servers.stripe_server import StripeServer, event, send
from web.http.responses import TextCache
from web.site.console import CONSOLE_PATH

PUBLIC_PAGES = ("/", "/docs", "/docs/options/size", "/status")
PAGES = (*PUBLIC_PAGES, "/register", "/developers/verify", "/dashboard")
_OPERATOR: dict[str, Any] = {
    "operator_name": "Müller & Söhne",
    "operator_address": "Hauptstraße 1, 10115 Berlin",
    "operator_contact": "help@example.com",
    "operator_terms_url": "https://example.com/terms",
    "operator_privacy_url": "https://example.com/privacy",
    "operator_vat_id": "DE123456789",
    "operator_source_url": "https://example.com/source",
}


@pytest.fixture(scope="module")
def server(servers: Servers, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """A separate server: failed sign-ins are counted per address."""
    with servers.running(tmp_path_factory.mktemp("pages"), rate_limit_paid=10_000) as running:
        yield running


@pytest.mark.parametrize("path", PAGES)
def test_security_headers(server: Running, path: str) -> None:
    response = http.get(server.url + path, headers=BROWSER_HEADERS)
    assert response.status_code == 200
    dressed(response)
    assert response.headers["Content-Type"] == "text/html; charset=utf-8"
    policy = response.headers["Content-Security-Policy"]
    assert policy.startswith("default-src 'none'; ")
    assert "unsafe" not in policy
    assert not re.search(r"<style|\sstyle=|\son\w+=|<script(?! type=\"module\" src=\"/static/)", response.text)
    assert not re.search(r"(?<!canonical. )(?<!hreflang=.{4} )(?<!x-default. )(src|href)=.(https?:)?//", response.text)
    assert response.headers["Cache-Control"] == ("no-cache" if path in PUBLIC_PAGES else "no-store")
    assert "Set-Cookie" not in response.headers
    german = http.head(server.url + path, headers={"Accept-Language": "de"})
    assert (german.status_code, german.headers["Content-Language"]) == (200, "en" if "/docs" in path else "de")


@pytest.mark.parametrize("path", every(3, PAGES))
def test_pages_have_the_rate_limit_of_addresses(servers: Servers, data_dir: Path, path: str) -> None:
    with servers.running(data_dir, rate_limit_anonymous=2) as limited:
        answers = [http.get(limited.url + path, headers=BROWSER_HEADERS) for _ in range(3)]
        assert [answer.status_code for answer in answers] == [200, 200, 429]
        assert [answer.headers["X-RateLimit-Remaining"] for answer in answers] == ["1", "0", "0"]
        assert "<h1>Too many requests</h1>" in answers[2].text
        assert http.get(f"{limited.url}/static/site.css").status_code == 200


@pytest.mark.parametrize("path", PUBLIC_PAGES)
def test_public_pages_are_rendered_once(server: Running, path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def answer(encoding: str = "gzip") -> str:
        response = http.get(server.url + path, headers={"Accept-Encoding": encoding})
        own = "" if path.startswith("/docs") else "Accept-Language, Cookie, "
        assert response.headers["Vary"] == f"{own}Accept-Encoding"
        assert response.headers.get("Content-Encoding", "identity") == encoding
        return response.text

    def remembered() -> bool:
        """Whether two pages were made in the same second."""
        with monkeypatch.context() as changed:
            before = answer()
            changed.setattr(Loader, "load", lambda _loader, _name: Template("another page"))
            return answer() == before == answer("identity")

    assert eventually(remembered)


def test_the_texts_that_were_used_last_are_kept() -> None:
    texts = TextCache()
    for number in range(64):
        texts.add(number, b"text")
    assert texts.get(0) is not None
    texts.add(64, b"another")
    assert [number for number in range(65) if texts.get(number) is None] == [1]


def test_verify_page_sends_no_referrer(server: Running) -> None:
    assert http.get(f"{server.url}/developers/verify").headers["Referrer-Policy"] == "no-referrer"


def test_assets_are_cached(server: Running) -> None:
    page = http.get(server.url).text
    assets = set(re.findall(r"/static/[\w.]+\?v=\w+", page))
    assert len(assets) >= 4
    for path in assets:
        response = http.get(server.url + path)
        assert response.status_code == 200
        assert "immutable" in response.headers["Cache-Control"]
        again = http.get(server.url + path, headers={"If-None-Match": response.headers["ETag"]})
        assert (again.status_code, again.content) == (304, b"")
        assert response.headers["X-Content-Type-Options"] == "nosniff"
        dressed(response)
        head = http.head(server.url + path)
        assert (head.headers["Content-Length"], head.content) == (response.headers["Content-Length"], b"")
    for path in ("/static/site.css", "/static/site.css?v=0"):
        assert http.get(server.url + path).headers["Cache-Control"] == "no-cache"
    assert http.get(f"{server.url}/static/site.css").headers["Content-Type"] == "text/css; charset=utf-8"
    assert http.get(f"{server.url}/static/try.js").headers["Content-Type"] == "text/javascript; charset=utf-8"
    for name in ("none.css", "..%2fapp.py", "%2e%2e", "", "../app.py", "%00", "a" * 300):
        problem(http.get(f"{server.url}/static/{name}"), 404, "not_found")


def test_static_files_answer_to_get_only_and_are_logged(server: Running) -> None:
    for verb in ("POST", "BREW"):
        problem(http.request(verb, f"{server.url}/static/site.css"), 405, "method_not_allowed")
    with captured_log() as lines:
        entry = entry_of(lines, http.get(f"{server.url}/static/site.css"))
    assert (entry["message"], entry["status"]) == ("GET /static/{}", 200)


def test_errors_are_html_for_browsers_and_json_otherwise(server: Running) -> None:
    problem(http.get(f"{server.url}/checkout/none"), 404, "not_found")
    shown = http.get(f"{server.url}/checkout/none", headers=BROWSER_HEADERS)
    assert shown.status_code == 404
    assert "No such page." in shown.text
    assert shown.headers["X-Request-Id"] in shown.text


@pytest.mark.parametrize("path", ["/nothing", "/dashboard/nothing", "/apis", "/static/none.css"])
def test_unknown_paths_are_a_page_for_browsers(server: Running, path: str) -> None:
    shown = http.get(server.url + path, headers=BROWSER_HEADERS)
    assert (shown.status_code, shown.headers["Content-Type"]) == (404, "text/html; charset=utf-8")
    assert "<h1>Page not found</h1>" in shown.text
    assert 'href="/docs/errors#not_found"' in shown.text
    assert "default-src 'none'" in shown.headers["Content-Security-Policy"]
    problem(http.get(server.url + path), 404, "not_found")


def test_unknown_methods_are_a_page_for_browsers(server: Running) -> None:
    shown = http.delete(f"{server.url}/docs", headers=BROWSER_HEADERS)
    assert (shown.status_code, shown.headers["Allow"]) == (405, "GET, HEAD, OPTIONS")
    assert "<h1>Method not allowed</h1>" in shown.text
    problem(http.delete(f"{server.url}/docs"), 405, "method_not_allowed")


@pytest.mark.parametrize(("method", "path", "status"), [("GET", "/nothing", 404), ("GET", "/convert", 405)])
def test_errors_of_the_api_are_json_for_browsers_too(server: Running, method: str, path: str, status: int) -> None:
    code = "not_found" if status == 404 else "method_not_allowed"
    problem(http.request(method, server.api + path, headers=BROWSER_HEADERS), status, code)


@pytest.mark.parametrize(
    ("name", "media_type", "start"),
    [
        ("favicon.ico", "image/vnd.microsoft.icon", b"\0\0\1\0"),
        ("robots.txt", "text/plain; charset=utf-8", b"User-agent: *\n"),
    ],
)
def test_files_that_browsers_and_crawlers_look_for(server: Running, name: str, media_type: str, start: bytes) -> None:
    response = http.get(f"{server.url}/{name}")
    assert (response.status_code, response.headers["Content-Type"]) == (200, media_type)
    assert response.headers["Cache-Control"] == "no-cache"
    assert response.content.startswith(start)


def test_status_page(server: Running) -> None:
    text = http.get(f"{server.url}/status").text
    assert "This server is ready" in text
    assert "pdf_merge" in text
    assert str(server.data_dir) not in text


class TestRegistration:
    def test_without_scripts(self, server: Running) -> None:
        form = {"email": "fay@example.test", "name": "Fay & <b>Co</b>"}
        response = posted(server, "/register", form)
        assert response.status_code == 200
        assert "fay@example.test" in response.text
        assert token_sent_to(server, "fay@example.test")

    @pytest.mark.parametrize(("field", "value"), [("email", '"><script>'), ("name", "x")])
    def test_invalid_input_is_reported_and_kept(self, server: Running, field: str, value: str) -> None:
        form = {"email": "gil@example.test", "name": "Gil's app", field: value}
        response = posted(server, "/register", form)
        assert response.status_code == 400
        assert f'id="{field}"' in response.text.partition("aria-invalid")[0].rpartition("<input")[2]
        assert "<script>" not in response.text
        assert "Gil" in response.text or "gil@example.test" in response.text
        assert emails_to(server.data_dir, "gil@example.test") == []


class TestForms:
    @pytest.mark.parametrize(
        "headers",
        [{"Sec-Fetch-Site": "cross-site"}, {"Sec-Fetch-Site": "same-site"}, {"Origin": "https://evil.example"}, {}],
    )
    @pytest.mark.parametrize("path", ["/register", "/dashboard/sign-in", "/dashboard/keys", "/dashboard/credits"])
    def test_cross_site_forms_are_rejected(self, server: Running, path: str, headers: dict[str, str]) -> None:
        form = {"email": "ivy@example.test", "name": "Ivy", "key": server.key}
        with http.Client(headers={"User-Agent": "a browser"}) as client:
            response = client.post(server.url + path, data=form, headers={"Cookie": "other=1", **headers})
        problem(response, 400, "invalid_parameter", reason="cross_site")
        assert "Set-Cookie" not in response.headers
        assert emails_to(server.data_dir, "ivy@example.test") == []

    @pytest.mark.parametrize("body", [b"key=%ff", b"a&" * 60, b"\xff", b"key=" + b"x" * 70_000])
    def test_malformed_bodies(self, server: Running, body: bytes) -> None:
        headers = {"Origin": server.url, "Content-Type": "application/x-www-form-urlencoded"}
        response = http.post(f"{server.url}/dashboard/sign-in", content=body, headers=headers)
        assert response.status_code in (400, 401, 413)


@pytest.fixture(scope="module")
def named(servers: Servers, stripe: StripeServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """A server with all settings about its operator, which sells through Stripe."""
    folder = tmp_path_factory.mktemp("named")
    with servers.running(folder, **_OPERATOR, **stripe.settings) as running:
        yield running


def _footer(server: Running, path: str) -> str:
    page = http.get(f"{server.url}{path}", headers={"Accept": "text/html"})
    assert page.status_code == (404 if path == "/no-such-page" else 200)
    return page.text[page.text.index("<footer") :]


@pytest.mark.parametrize("path", ["/", "/docs", "/status", "/no-such-page"])
def test_the_footer_of_every_page(named: Running, path: str) -> None:
    footer = _footer(named, path)

    for text in ("Müller &amp; Söhne", "Hauptstraße 1, 10115 Berlin", "VAT ID DE123456789"):
        assert text in footer
    for link in ("mailto:help@example.com", "https://example.com/terms", "https://example.com/privacy"):
        assert f'href="{link}"' in footer
    assert '<a href="https://example.com/source">source code</a>' in footer


def test_the_client_is_installed_from_the_source_code(named: Running) -> None:
    page = http.get(f"{named.url}/docs/sdks").text.partition('id="client"')[2].partition("</section>")[0]

    assert '<a href="https://example.com/source">source code</a>' in page
    assert "pip install ./web/client" in page


def test_the_footer_without_settings(server: Running) -> None:
    footer = _footer(server, "/")

    assert "convertd is free software under the AGPL." in footer
    assert not any(text in footer for text in ("None", "Contact", "Terms", "Privacy", "VAT"))


def test_emails_end_with_the_operator(named: Running) -> None:
    body = {"email": "new@example.com", "name": "New"}
    assert http.post(f"{named.api}/register", json=body).status_code == 200

    outbox = named.data_dir / "outbox"
    assert eventually(lambda: any(outbox.glob("2*.eml")))
    (path,) = outbox.glob("2*.eml")
    content = path.read_bytes()
    text = message_from_bytes(content, policy=policy.default).get_content()
    assert text.endswith("\n-- \nMüller & Söhne\nHauptstraße 1, 10115 Berlin\nhelp@example.com\n")
    assert [line for line in content.decode().splitlines() if "#token=" in line or "token=" in line]  # whole


def _buy(server: Running, stripe: StripeServer, language: str = "en") -> tuple[str, dict[str, Any]]:
    """Buys a pack, and returns the receipt in the language, and the session."""
    key = server.account()
    response = http.post(
        f"{server.api}/credits/purchase", json={"pack": "starter"}, headers={"Authorization": f"Bearer {key}"}
    )
    session = response.json()["data"]["session_id"]
    paid = stripe.paid(session)
    assert send(server.api, event("checkout.session.completed", paid)).status_code == 200
    with signed_in(server, key) as browser:
        page = f"/dashboard/purchases/{paid['client_reference_id']}"
        return browser.get(page, headers={"Accept-Language": language}).text, paid


def test_a_receipt_is_bookable(named: Running, stripe: StripeServer) -> None:
    receipt, session = _buy(named, stripe)

    for text in ("Müller &amp; Söhne", "VAT ID DE123456789", "Buyer &amp; Sons", "1 Main Street", "DE987654321"):
        assert text in receipt
    net = session["amount_total"] - session["total_details"]["amount_tax"]
    assert f"<td>{net / 100:.2f} EUR</td>" in receipt
    assert f"{session['total_details']['amount_tax'] / 100:.2f} EUR (19%)" in receipt
    assert f"<td>{session['amount_total'] / 100:.2f} EUR</td>" in receipt
    assert session["client_reference_id"] in receipt
    assert session["amount_total"] == DEFAULT_PACKS["starter"].amount
    assert session["invoice"]


def test_a_receipt_in_german(named: Running, stripe: StripeServer) -> None:
    receipt, session = _buy(named, stripe, "de")

    amount = f"{session['amount_total'] / 100:.2f}".replace(".", ",")
    for text in ("<h1>Beleg</h1>", "USt-IdNr. DE123456789", f"<td>{amount} EUR</td>", "EUR (19 %)", "bezahlt"):
        assert text in receipt


def test_a_receipt_without_vat(servers: Servers, stripe: StripeServer, tmp_path: Path) -> None:
    with servers.running(tmp_path / "data", **stripe.settings) as server:
        receipt, session = _buy(server, stripe)

    assert not session["automatic_tax"]["enabled"]
    assert "invoice" not in session
    assert not any(text in receipt for text in ("VAT", "Net", "Seller", "None"))


@pytest.mark.parametrize(
    ("name", "value"), [("CONTACT", "me"), ("TERMS_URL", "example.com/terms"), ("SOURCE_URL", "javascript:alert(1)")]
)
def test_invalid_settings(monkeypatch: pytest.MonkeyPatch, name: str, value: str) -> None:
    monkeypatch.setenv(f"CONVERTD_OPERATOR_{name}", value)

    with pytest.raises(SettingsError, match=f"CONVERTD_OPERATOR_{name}"):
        load_settings()


def test_the_console_is_absent_without_swagger_ui(
    servers: Servers, data_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "flask_swagger_ui", None)
    with servers.running(data_dir) as running:
        assert http.get(f"{running.url}{CONSOLE_PATH}").status_code == 404
        assert http.get(f"{running.url}/swagger-ui/swagger-ui.css").status_code == 404
        assert CONSOLE_PATH not in http.get(f"{running.url}/docs/search?q=pdf").text
