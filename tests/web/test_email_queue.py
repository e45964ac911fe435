"""Letters on their way: tried again, waited for, given up."""

from __future__ import annotations

import asyncio
import logging
import time
from pathlib import Path

import pytest

from config.settings import Settings
from tests.support.mail_server import MailServer
from tests.support.outbox import LINK, SENDER, saved_emails
from tests.support.server_process import free_port
from tests.support.servers import Servers, eventually
from web.app import assemble, listening
from web.services.email import Email, EmailQueue, EmailTransport, OutboxTransport, SmtpTransport, verification_email

TO = "person@example.test"


class Stuck:
    """A mail server that has all the time in the world."""

    async def send(self, letter: Email) -> None:
        await asyncio.Event().wait()

    async def close(self) -> None:
        pass


def email_queue(mailer: EmailTransport, pause: float = 0.05) -> EmailQueue:
    return EmailQueue(mailer, pauses=(pause, 2 * pause))


async def test_a_server_that_refuses_twice_and_then_accepts(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    letter = verification_email(TO, LINK)
    with MailServer(refusals=2) as server:
        box = email_queue(SmtpTransport(server.url(), SENDER))
        box.post(letter)
        assert await asyncio.to_thread(eventually, lambda: bool(server.messages))
        await box.close()
    assert server.tries == 3
    assert server.messages[0]["Message-ID"] == f"<{letter.id}@example.org>"
    assert [record.message for record in caplog.records if record.name == "convertd.mail"] == ["letter sent"]


async def test_a_letter_that_cannot_be_sent_is_logged_without_its_content(caplog: pytest.LogCaptureFixture) -> None:
    letter = verification_email(TO, LINK)
    with MailServer(refusals=9) as server:
        box = email_queue(SmtpTransport(server.url(), SENDER))
        box.post(letter)
        await box.close()
    assert server.tries == 3
    (record,) = caplog.records
    assert vars(record)["fields"] == {"letter": letter.id, "reason": "SMTPDataError", "status": 451}
    assert TO not in caplog.text
    assert LINK not in caplog.text


async def test_a_letter_that_is_none_is_not_tried(caplog: pytest.LogCaptureFixture) -> None:
    with MailServer() as server:
        box = email_queue(SmtpTransport(server.url(), SENDER))
        box.post(verification_email("a@b.test\r\nBcc: victim@example.test", LINK))
        await box.close()
    assert server.tries == 0
    assert "victim" not in caplog.text
    assert caplog.records[0].message == "letter not sent"


@pytest.mark.timing
async def test_posting_takes_no_time(tmp_path: Path) -> None:
    box = email_queue(OutboxTransport(tmp_path, SENDER))
    start = time.perf_counter()
    for _ in range(20):
        box.post(verification_email(TO, LINK))
    assert time.perf_counter() - start < 0.05
    assert saved_emails(tmp_path) == []
    await box.close()
    assert len(saved_emails(tmp_path)) == 20


async def test_closing_waits_for_letters_but_not_for_pauses() -> None:
    with MailServer(refusals=2) as server:
        box = email_queue(SmtpTransport(server.url(), SENDER), pause=60)
        box.post(verification_email(TO, LINK))
        assert await asyncio.to_thread(eventually, lambda: server.tries == 1)
        async with asyncio.timeout(10):
            await box.close()
    assert len(server.messages) == 1


async def test_closing_does_not_wait_for_ever(caplog: pytest.LogCaptureFixture) -> None:
    box = email_queue(Stuck())
    box.post(verification_email(TO, LINK))
    await box.close(0.1)
    assert vars(caplog.records[0])["fields"]["reason"] == "the server stops"


async def test_a_server_that_stops_sends_what_was_posted(servers: Servers, data_dir: Path) -> None:
    services = assemble(Settings(data_dir=data_dir), servers.registry, servers.executor)
    async with listening(services, "127.0.0.1", 0):
        services.email_queue.post(verification_email(TO, LINK))
    (file,) = saved_emails(data_dir / "outbox")
    assert LINK in file.read_text()


async def test_so_many_letters_wait(caplog: pytest.LogCaptureFixture) -> None:
    box = EmailQueue(Stuck(), capacity=2)
    for _ in range(3):
        box.post(verification_email(TO, LINK))
    assert [vars(record)["fields"]["reason"] for record in caplog.records] == ["too many letters are waiting"]
    await box.close(0)


async def test_nobody_listens(caplog: pytest.LogCaptureFixture) -> None:
    box = email_queue(SmtpTransport(f"smtp://127.0.0.1:{free_port()}", SENDER))
    box.post(verification_email(TO, LINK))
    await box.close()
    assert vars(caplog.records[0])["fields"]["reason"] == "ConnectionRefusedError"
