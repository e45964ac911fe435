"""Languages: the catalogues are complete, and pages and emails are in the language that their reader has chosen."""

import re
from pathlib import Path
from typing import Any

import pytest

from tests.support.requests import http
from tests.support.requests.account_requests import posted, signed_in
from tests.support.samples.forms import BROWSER_HEADERS
from tests.support.servers.in_process import Running, Servers
from tests.support.servers.mail_server import email_to, parsed
from web.locale.languages import ENGLISH, LANGUAGES, Language
from web.locale.messages import SCRIPTS, TEMPLATES, Message
from web.services.accounts.email import compose, disabled_webhook_email, sign_in_email
from web.translations import messages, read_catalogue

NAMES = {"convertd", "Word", "UTC", "ZIP", "OpenAPI", "API v1", "ms"}
_PLACE = re.compile(r"\{\w+\}")
_TAG = re.compile(r"</?\w+>")


def _forms(text: Any) -> tuple[str, ...]:
    """The forms of a text of a catalogue, for one and for several."""
    return tuple(text) if isinstance(text, tuple) else (text,)


def test_catalogues_have_each_text_and_no_other(servers: Servers) -> None:
    texts = set(messages(servers.registry))
    for language in LANGUAGES.values():
        if language is not ENGLISH:
            _check(language, texts)


def _check(language: Language, texts: set[Message]) -> None:
    catalogue = {_forms(entry.id): entry for entry in read_catalogue(language.code) if entry.id}

    assert set(catalogue) == texts, "run: python -m web.translations"
    for message, entry in catalogue.items():
        forms = _forms(entry.string)
        assert all(forms), (language.code, message)
        assert not entry.fuzzy, (language.code, message)
        for form in forms:
            assert any({*_PLACE.findall(form)} == {*_PLACE.findall(text)} for text in message), message
            assert sorted(_TAG.findall(form)) == sorted(_TAG.findall(message[0])), message
        compiled = [language.translate(*message, count=count) for count in (1, 2)]  # type: ignore[arg-type, misc]
        assert compiled == [forms[0], forms[-1]], "run: python -m web.translations"


@pytest.mark.parametrize("path", sorted(TEMPLATES.glob("*.html")), ids=lambda path: path.name)
def test_templates_mark_their_texts(path: Path) -> None:
    if path.name == "docs_layout.html":
        return
    source = re.sub(r"<(code|text)\b.*?</\1>", "", path.read_text(), flags=re.DOTALL)
    source = re.sub(r"\{%.*?%\}|\{\{.*?\}\}", "", source, flags=re.DOTALL)

    shown = [text.strip() for text in re.sub(r"<[^>]*>", "\n", source).splitlines()]
    attributes = re.findall(r'\b(?:aria-label|placeholder|title|data-label|alt)="([^"]*)"', source)
    found = {text.removesuffix(" - convertd") for text in (*shown, *attributes) if re.search(r"[A-Za-z]{2}", text)}

    assert {text for text in found - NAMES if "://" not in text and not text.startswith("cvd_")} <= {"- convertd"}


@pytest.mark.parametrize("path", sorted(SCRIPTS.glob("*.js")), ids=lambda path: path.name)
def test_scripts_mark_their_texts(path: Path) -> None:
    if path.name != "docs.js":  # the documentation is English
        shown = r"(?:textContent|label|title|text|hint|alt)(?:: | = )|announce\(|Error\(|aria-label\", "
        literal = r"""["`](?:[A-Z][a-z]|[^"`\n]*\$\{[^`]*\} [a-z]{2,})"""

        assert re.findall(f"(?:{shown}){literal}.*", path.read_text()) == []


def _heading(response: Any) -> str:
    return str(re.findall("<h1>(.*?)</h1>", response.text)[0])


@pytest.mark.parametrize(
    ("header", "code"),
    [
        ("", "en"),
        ("de-AT, en;q=0.5", "de"),
        ("en, de", "en"),
        ("nl, pt-BR;q=0.8, en;q=0.7", "pt"),
        ("fr;q=0.1, nl, ja;q=0", "fr"),
        ("ja;q=0, nl", "en"),
        ("*", "en"),
        ("xx, -, ;q=1, DE", "de"),
    ],
)
def test_pages_are_in_the_language_that_the_browser_prefers(server: Running, header: str, code: str) -> None:
    for _ in range(2):  # rendered, and remembered
        page = http.get(server.url, headers={"Accept-Language": header})

        assert page.headers["Content-Language"] == code
        assert f'<html lang="{code}">' in page.text
        assert {"Accept-Language", "Cookie"} <= {*page.headers["Vary"].split(", ")}
        assert _heading(page) == LANGUAGES[code].translate("Convert files. Edit PDFs.")
        assert ("data-texts=" in page.text) == (code != "en")


def test_a_link_of_the_page_chooses_the_language(server: Running) -> None:
    with http.Client(base_url=server.url, headers={**BROWSER_HEADERS, "Accept-Language": "fr"}) as client:
        shared = client.get("/status?lang=de")
        assert (_heading(shared), shared.headers.get("Set-Cookie")) == ("Dieser Server ist bereit", None)
        assert _heading(client.get("/status")) == "Ce serveur est prêt"

        base = re.findall('<link rel="canonical" href="(.*?)/status', shared.text)[0]
        assert f'<link rel="canonical" href="{base}/status?lang=de">' in shared.text
        assert f'<link rel="alternate" hreflang="ja" href="{base}/status?lang=ja">' in shared.text
        chosen = client.get("/status?lang=de", headers={"Referer": f"{server.url}/"})
        assert _heading(chosen) == "Dieser Server ist bereit"
        assert "HttpOnly" in chosen.headers["Set-Cookie"]

        assert _heading(client.get("/status")) == "Dieser Server ist bereit"
        assert _heading(client.get("/nothing")) == "Seite nicht gefunden"
        assert "Diese Seite gibt es nicht." in client.get("/checkout/none").text
        assert client.get("/status?lang=%ff").headers["Content-Language"] == "de"


def test_the_language_of_an_account_holds_for_its_emails(server: Running) -> None:
    key = server.account()
    with signed_in(server, key) as client:
        page = client.get("/dashboard?lang=es", headers={"Referer": f"{server.url}/dashboard"})
        email = re.findall(r"[\w.+-]+@[\w.-]+", page.text.partition("<main")[2])[0]
    with signed_in(server, key) as elsewhere:
        assert elsewhere.get("/dashboard", headers={"Accept-Language": "ja"}).headers["Content-Language"] == "es"

    posted(server, "/dashboard/sign-in-email", {"email": email})
    assert email_to(server, email).startswith("Abra este enlace para iniciar sesión")


def test_an_email_is_in_the_language_of_the_request(server: Running) -> None:
    form = {"email": "yuki@example.test", "name": "Yuki"}
    http.post(f"{server.url}/register", data=form, headers={"Origin": server.url, "Accept-Language": "ja"})

    assert email_to(server, form["email"]).startswith("convertd へようこそ。")


def test_emails_in_other_languages() -> None:
    link = f"https://example.com/verify#token={'0' * 64}"
    email = sign_in_email("yuki@example.test", link, LANGUAGES["ja"])
    read = parsed(compose(email, "convertd <no-reply@example.com>").as_bytes())

    assert link in read.get_content().splitlines()
    assert read["Subject"] == "convertd へのサインイン"
    disabled = disabled_webhook_email("a@example.test", "hooks.example", "gone", link, LANGUAGES["de"])
    assert "weil er mit dem Status 410 (Gone) geantwortet hat." in disabled.text


def test_numbers_dates_and_sizes() -> None:
    german = LANGUAGES["de"]
    french = LANGUAGES["fr"]
    japanese = LANGUAGES["ja"]

    assert [one.number(1234.5, ",.1f") for one in (ENGLISH, german, french)] == ["1,234.5", "1.234,5", "1\u202f234,5"]
    assert [one.format_time(86399) for one in (ENGLISH, german, japanese)] == [
        "1970-01-01 23:59",
        "01.01.1970 23:59",
        "1970/01/01 23:59",
    ]
    assert [one.size(1536) for one in (ENGLISH, german, french)] == ["1.5 kB", "1,5 kB", "1,5\u00a0ko"]
