"""Email texts, headers that nobody can forge, and transports: a mail server, none, and a folder."""

import logging
import ssl
from collections.abc import Callable
from email.errors import HeaderParseError
from pathlib import Path
from urllib.parse import quote

import pytest
from aiosmtplib import SMTPAuthenticationError, SMTPDataError, SMTPNotSupported

from benchmarks.processes import free_port
from config.logs import TextFormatter
from tests.support.servers.mail_server import ACCOUNT, LINK, SENDER, MailServer, parsed
from tests.support.servers.receiver import make_certificate
from web.services.accounts.email import (
    Email,
    OutboxTransport,
    SmtpTransport,
    compose,
    replacement_email,
    verification_email,
)

both = pytest.mark.parametrize("write", [verification_email, replacement_email])
Write = Callable[[str, str], Email]
USER = ":".join(quote(part.decode(), safe="") for part in (ACCOUNT.login, ACCOUNT.password))
NOT_LOOPBACK = "0.0.0.0"  # reaches this machine without being a loopback address


@both
def test_headers_and_text_of_an_email(write: Write) -> None:
    email = write("Person@example.test", LINK)
    message = parsed(compose(email, SENDER).as_bytes())
    assert message["To"] == "Person@example.test"
    assert message["From"] == SENDER
    assert message["Subject"] == email.subject
    assert message["Message-ID"] == f"<{email.id}@example.org>"
    assert message["Auto-Submitted"] == "auto-generated"
    assert message["Date"].datetime is not None
    assert message.get_content() == email.text
    assert "24 hours" in email.text


@both
def test_the_link_is_on_a_line_of_its_own(write: Write) -> None:
    raw = compose(write("person@example.test", LINK), SENDER).as_bytes()
    assert LINK.encode() in raw.split(b"\n")
    assert raw.isascii()
    assert all(len(line) < 78 for line in raw.split(b"\n") if line != LINK.encode())


def test_the_two_emails_differ() -> None:
    first, second = verification_email("a@b.test", LINK), replacement_email("a@b.test", LINK)
    assert first.text != second.text
    assert first.subject != second.subject
    assert first.id != second.id


def test_the_repr_shows_neither_address_nor_link() -> None:
    shown = repr(verification_email("person@example.test", LINK))
    assert "person" not in shown
    assert "token" not in shown


def test_an_address_of_the_maximum_length() -> None:
    to = "l" * 64 + "@" + ".".join(["d" * 46] * 4) + "de"
    assert len(to) == 254
    assert parsed(compose(verification_email(to, LINK), SENDER).as_bytes())["To"] == to


@pytest.mark.parametrize(
    "to",
    [
        "a@b.test\r\nBcc: victim@example.test",
        "a@b.test\nBcc: victim@example.test",
        "a@b.test\rX: y",
        "a@b.test, victim@example.test",
        "a@b.test victim@example.test",
        "a@b.test\x00",
        "nobody",
        "",
    ],
)
def test_an_address_cannot_add_headers(to: str) -> None:
    with pytest.raises((ValueError, IndexError, HeaderParseError)):
        compose(verification_email(to, LINK), SENDER)


def test_a_subject_cannot_add_headers() -> None:
    with pytest.raises(ValueError, match="linefeed"):
        compose(Email("a@b.test", "Hello\r\nBcc: victim@example.test", "text", LINK), SENDER)


@pytest.fixture
def email() -> Email:
    return verification_email("person@example.test", LINK)


def emails_in(folder: Path) -> list[Path]:
    return sorted(folder.iterdir())


async def send(url: str, email: Email) -> None:
    await SmtpTransport(url, SENDER).send(email)


async def test_smtp(email: Email) -> None:
    with MailServer() as server:
        await send(server.url(), email)
    assert server.envelopes[0].mail_from == "no-reply@example.org"
    assert server.envelopes[0].rcpt_tos == ["person@example.test"]
    assert server.messages[0]["Subject"] == email.subject
    assert server.messages[0].get_content().replace("\r\n", "\n") == email.text
    assert LINK.encode() in server.contents[0].split(b"\r\n")
    assert server.encrypted == [False]


@pytest.mark.parametrize("scheme", ["smtp", "smtps"])
async def test_tls_and_a_password(email: Email, tmp_path: Path, scheme: str) -> None:
    certificate = make_certificate(tmp_path, "127.0.0.1")
    with MailServer(certificate=certificate, implicit=scheme == "smtps", password=True) as server:
        await send(server.url(scheme, user=USER), email)
    assert server.encrypted == [True]


async def test_a_wrong_password(email: Email) -> None:
    with MailServer(password=True) as server:
        with pytest.raises(SMTPAuthenticationError):
            await send(server.url(user="somebody:wrong"), email)
        await send(server.url(user=USER), email)
    assert len(server.messages) == 1


async def test_a_password_is_not_sent_without_tls_to_another_machine(email: Email) -> None:
    with MailServer(password=True) as server, pytest.raises(SMTPNotSupported):
        await send(server.url(host=NOT_LOOPBACK, user=USER), email)
    assert server.messages == []


@pytest.mark.parametrize("scheme", ["smtp", "smtps"])
async def test_certificates_of_other_machines_are_verified(email: Email, tmp_path: Path, scheme: str) -> None:
    server = MailServer(certificate=make_certificate(tmp_path, "127.0.0.1"), implicit=scheme == "smtps")
    with server, pytest.raises(OSError, match="certificate verify failed") as failed:
        await send(server.url(scheme, host=NOT_LOOPBACK), email)
    assert isinstance(failed.value.__cause__ or failed.value, ssl.SSLCertVerificationError)
    assert server.messages == []


async def test_temporary_failures_raise_errors_that_are_retried(email: Email) -> None:
    with pytest.raises(OSError, match="Connect call failed"):
        await send(f"smtp://127.0.0.1:{free_port()}", email)
    with MailServer(refusals=1) as server, pytest.raises(SMTPDataError, match="451"):
        await send(server.url(), email)


async def test_the_outbox(email: Email, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    folder = tmp_path / "outbox"
    await OutboxTransport(folder, SENDER).send(email)
    (file,) = emails_in(folder)
    assert file.name.endswith(f"-{email.id}.eml")
    assert LINK in file.read_text().splitlines()
    assert parsed(file.read_bytes())["To"] == "person@example.test"
    assert (folder.stat().st_mode & 0o777, file.stat().st_mode & 0o777) == (0o700, 0o600)
    shown = TextFormatter().format(caplog.records[0])
    assert shown.endswith(LINK)
    assert "person" not in shown


async def test_the_outbox_is_in_order(tmp_path: Path) -> None:
    transport = OutboxTransport(tmp_path, SENDER)
    emails = [verification_email(f"person-{number}@example.test", LINK) for number in range(5)]
    for email in emails:
        await transport.send(email)
    assert [parsed(file.read_bytes())["To"] for file in emails_in(tmp_path)] == [email.to for email in emails]
