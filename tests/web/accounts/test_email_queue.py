"""EmailQueue: retries, shutdown and dropped emails."""

import asyncio
import logging
from pathlib import Path

import pytest

from config.settings import Settings
from tests.support.servers.in_process import Servers, eventually
from tests.support.servers.mail_server import LINK, SENDER, MailServer, saved_emails
from web.app import assemble, listening
from web.services.accounts import email
from web.services.accounts.email import Email, EmailQueue, OutboxTransport, SmtpTransport, verification_email

TO = "person@example.test"
_MAX_WAIT = 60.0  # seconds; servers wait for a shorter time


class Stuck:
    """A transport that never ends."""

    async def send(self, email: Email) -> None:
        await asyncio.Event().wait()


@pytest.fixture(autouse=True)
def short_delays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(email, "RETRY_DELAYS", (0.05, 0.1))


async def test_a_server_that_refuses_twice_and_then_accepts(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    sent = verification_email(TO, LINK)
    with MailServer(refusals=2) as server:
        queue = EmailQueue(SmtpTransport(server.url(), SENDER))
        queue.enqueue(sent)
        assert await asyncio.to_thread(eventually, lambda: bool(server.messages))
        await queue.close(_MAX_WAIT)
    assert server.tries == 3
    assert server.messages[0]["Message-ID"] == f"<{sent.id}@example.org>"
    assert [record.message for record in caplog.records if record.name == "convertd.email"] == ["email sent"]


async def test_a_dropped_email_is_logged_without_its_content(caplog: pytest.LogCaptureFixture) -> None:
    sent = verification_email(TO, LINK)
    with MailServer(refusals=9) as server:
        queue = EmailQueue(SmtpTransport(server.url(), SENDER))
        queue.enqueue(sent)
        await queue.close(_MAX_WAIT)
    assert server.tries == 3
    (record,) = caplog.records
    assert vars(record)["fields"] == {"email_id": sent.id, "reason": "SMTPDataError", "status": 451}
    assert TO not in caplog.text
    assert LINK not in caplog.text


async def test_an_invalid_email_is_not_sent(caplog: pytest.LogCaptureFixture) -> None:
    with MailServer() as server:
        queue = EmailQueue(SmtpTransport(server.url(), SENDER))
        queue.enqueue(verification_email("a@b.test\r\nBcc: victim@example.test", LINK))
        await queue.close(_MAX_WAIT)
    assert server.tries == 0
    assert "victim" not in caplog.text
    assert caplog.records[0].message == "email not sent"


async def test_enqueue_returns_before_the_email_is_sent(tmp_path: Path) -> None:
    queue = EmailQueue(OutboxTransport(tmp_path, SENDER))
    for _ in range(20):
        queue.enqueue(verification_email(TO, LINK))
    assert saved_emails(tmp_path) == []
    await queue.close(_MAX_WAIT)
    assert len(saved_emails(tmp_path)) == 20


async def test_closing_sends_queued_emails_without_retry_delays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(email, "RETRY_DELAYS", (60.0, 60.0))
    with MailServer(refusals=2) as server:
        queue = EmailQueue(SmtpTransport(server.url(), SENDER))
        queue.enqueue(verification_email(TO, LINK))
        assert await asyncio.to_thread(eventually, lambda: server.tries == 1)
        async with asyncio.timeout(10):
            await queue.close(_MAX_WAIT)
    assert len(server.messages) == 1


async def test_closing_drops_emails_after_its_timeout(caplog: pytest.LogCaptureFixture) -> None:
    queue = EmailQueue(Stuck())
    queue.enqueue(verification_email(TO, LINK))
    await queue.close(0.1)
    assert vars(caplog.records[0])["fields"]["reason"] == "shutdown"


async def test_a_server_that_stops_sends_queued_emails(servers: Servers, data_dir: Path) -> None:
    services = assemble(Settings(data_dir=data_dir), servers.registry, servers.executor)
    async with listening(services, "127.0.0.1", 0):
        services.email_queue.enqueue(verification_email(TO, LINK))
    await services.close()
    (file,) = saved_emails(data_dir / "outbox")
    assert LINK in file.read_text()


async def test_the_queue_is_bounded(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr(email, "CAPACITY", 2)
    queue = EmailQueue(Stuck())
    for _ in range(3):
        queue.enqueue(verification_email(TO, LINK))
    assert [vars(record)["fields"]["reason"] for record in caplog.records] == ["queue full"]
    await queue.close(0)
