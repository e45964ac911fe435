"""Letters that leave, with a real mail server at the other end or with none."""

from __future__ import annotations

import logging
import smtplib
import ssl
from pathlib import Path
from urllib.parse import quote

import pytest

from config.logs import TextFormatter
from tests.support.mail_server import ACCOUNT, MailServer, certificate, parsed
from tests.support.outbox import LINK, SENDER, saved_emails
from tests.support.server_process import free_port
from web.services.email import Email, OutboxTransport, SmtpTransport, verification_email

USER = ":".join(quote(part.decode(), safe="") for part in (ACCOUNT.login, ACCOUNT.password))
ANYWHERE = "0.0.0.0"  # leads here, and is no address of this machine by name


@pytest.fixture
def letter() -> Email:
    return verification_email("person@example.test", LINK)


async def send(url: str, letter: Email) -> None:
    mailer = SmtpTransport(url, SENDER)
    try:
        await mailer.send(letter)
    finally:
        await mailer.close()


async def test_smtp(letter: Email) -> None:
    with MailServer() as server:
        await send(server.url(), letter)
    assert server.envelopes[0].mail_from == "no-reply@example.org"
    assert server.envelopes[0].rcpt_tos == ["person@example.test"]
    assert server.messages[0]["Subject"] == letter.subject
    assert server.messages[0].get_content().replace("\r\n", "\n") == letter.text
    assert LINK.encode() in server.contents[0].split(b"\r\n")
    assert server.encrypted == [False]


async def test_starttls_and_a_password(letter: Email, tmp_path: Path) -> None:
    with MailServer(certificate=certificate(tmp_path), password=True) as server:
        await send(server.url(user=USER), letter)
    assert server.encrypted == [True]


async def test_smtps(letter: Email, tmp_path: Path) -> None:
    with MailServer(certificate=certificate(tmp_path), implicit=True, password=True) as server:
        await send(server.url("smtps", user=USER), letter)
    assert server.encrypted == [True]


async def test_a_wrong_password(letter: Email) -> None:
    with MailServer(password=True) as server:
        with pytest.raises(smtplib.SMTPAuthenticationError):
            await send(server.url(user="somebody:wrong"), letter)
        await send(server.url(user=USER), letter)
    assert len(server.messages) == 1


async def test_no_password_goes_elsewhere_in_the_clear(letter: Email) -> None:
    with MailServer(password=True) as server, pytest.raises(smtplib.SMTPNotSupportedError):
        await send(server.url(host=ANYWHERE, user=USER), letter)
    assert server.messages == []


@pytest.mark.parametrize("scheme", ["smtp", "smtps"])
async def test_certificates_of_elsewhere_are_checked(letter: Email, tmp_path: Path, scheme: str) -> None:
    server = MailServer(certificate=certificate(tmp_path), implicit=scheme == "smtps")
    with server, pytest.raises(ssl.SSLCertVerificationError):
        await send(server.url(scheme, host=ANYWHERE), letter)
    assert server.messages == []


async def test_failures_are_such_that_another_try_may_help(letter: Email) -> None:
    with pytest.raises(OSError, match="refused"):
        await send(f"smtp://127.0.0.1:{free_port()}", letter)
    with MailServer(refusals=1) as server, pytest.raises(OSError, match="451"):
        await send(server.url(), letter)


async def test_the_outbox(letter: Email, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    folder = tmp_path / "outbox"
    await OutboxTransport(folder, SENDER).send(letter)
    (file,) = saved_emails(folder)
    assert file.name.endswith(f"-{letter.id}.eml")
    assert LINK in file.read_text().splitlines()
    assert parsed(file.read_bytes())["To"] == "person@example.test"
    assert (folder.stat().st_mode & 0o777, file.stat().st_mode & 0o777) == (0o700, 0o600)
    shown = TextFormatter().format(caplog.records[0])
    assert shown.endswith(LINK)
    assert "person" not in shown


async def test_the_outbox_is_in_order(tmp_path: Path) -> None:
    mailer = OutboxTransport(tmp_path, SENDER)
    letters = [verification_email(f"person-{number}@example.test", LINK) for number in range(5)]
    for letter in letters:
        await mailer.send(letter)
    assert [parsed(file.read_bytes())["To"] for file in saved_emails(tmp_path)] == [letter.to for letter in letters]
