"""Who runs the service: on web pages, in emails and on receipts."""

from collections.abc import Iterator
from email import message_from_bytes, policy
from pathlib import Path
from typing import Any

import pytest

from config.pricing import PACKS
from config.settings import SettingsError, load_settings
from tests.support.requests import http
from tests.support.requests.account_requests import signed_in
from tests.support.servers.in_process import Running, Servers, eventually
from tests.support.servers.stripe_server import StripeServer, event, send

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
def stripe() -> Iterator[StripeServer]:
    with StripeServer() as running:
        yield running


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


def _buy(server: Running, stripe: StripeServer) -> tuple[str, dict[str, Any]]:
    """Buys a pack, and returns the receipt and the session."""
    key = server.account()
    response = http.post(
        f"{server.api}/credits/purchase", json={"pack": "starter"}, headers={"Authorization": f"Bearer {key}"}
    )
    session = response.json()["data"]["session_id"]
    paid = stripe.paid(session)
    assert send(server.api, event("checkout.session.completed", paid)).status_code == 200
    with signed_in(server, key) as browser:
        return browser.get(f"/dashboard/purchases/{paid['client_reference_id']}").text, paid


def test_a_receipt_is_bookable(named: Running, stripe: StripeServer) -> None:
    receipt, session = _buy(named, stripe)

    for text in ("Müller &amp; Söhne", "VAT ID DE123456789", "Buyer &amp; Sons", "1 Main Street", "DE987654321"):
        assert text in receipt
    net = session["amount_total"] - session["total_details"]["amount_tax"]
    assert f"<td>{net / 100:.2f} EUR</td>" in receipt
    assert f"{session['total_details']['amount_tax'] / 100:.2f} EUR (19 %)" in receipt
    assert f"<td>{session['amount_total'] / 100:.2f} EUR</td>" in receipt
    assert session["client_reference_id"] in receipt
    assert session["amount_total"] == PACKS["starter"].price
    assert session["invoice"]


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
