"""How letters leave: over SMTP, or into a folder where there is no mail server."""

from __future__ import annotations

import asyncio
import logging
import smtplib
import ssl
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import UTC, datetime
from email.message import EmailMessage
from ipaddress import ip_address
from pathlib import Path
from typing import Protocol
from urllib.parse import unquote, urlsplit

from web.services.letters import Letter, compose

log = logging.getLogger("convertd.mail")

_THREADS = 2  # of their own, so that a slow mail server takes none from those who read and write files
_PATIENCE = 10.0  # seconds that a mail server may take for an answer


class Mailer(Protocol):
    """A way for letters to leave."""

    async def send(self, letter: Letter) -> None:
        """Tries once. Raises OSError where another try may help, SMTPException included."""

    async def close(self) -> None:
        """Gives back what it holds."""


class SmtpMailer:
    """Hands letters to the mail server of a URL: smtp:// with STARTTLS where that is offered, or smtps://.

    Certificates are checked, and passwords not sent without TLS, except on this machine.
    """

    def __init__(self, url: str, sender: str) -> None:
        self._server = urlsplit(url)
        self._host = self._server.hostname or ""
        self._sender = sender
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="mail")

    async def send(self, letter: Letter) -> None:
        message = compose(letter, self._sender)
        await asyncio.get_running_loop().run_in_executor(self._threads, self._hand_over, message, letter.to)

    async def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _hand_over(self, message: EmailMessage, to: str) -> None:
        with self._connected() as client:
            if self._server.username:
                self._login(client)
            client.send_message(message, to_addrs=[to])

    @contextmanager
    def _connected(self) -> Iterator[smtplib.SMTP]:
        port, context = self._server.port or 0, self._context()
        if self._server.scheme == "smtps":
            with smtplib.SMTP_SSL(self._host, port, timeout=_PATIENCE, context=context) as client:
                yield client
        else:
            with smtplib.SMTP(self._host, port, timeout=_PATIENCE) as client:
                client.ehlo_or_helo_if_needed()
                if client.has_extn("starttls"):
                    client.starttls(context=context)
                yield client

    def _context(self) -> ssl.SSLContext:
        context = ssl.create_default_context()
        if _is_here(self._host):
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        return context

    def _login(self, client: smtplib.SMTP) -> None:
        if not isinstance(client.sock, ssl.SSLSocket) and not _is_here(self._host):
            log.error("the mail server offers no TLS: the password is not sent")
            raise smtplib.SMTPNotSupportedError
        client.login(unquote(self._server.username or ""), unquote(self._server.password or ""))


class OutboxMailer:
    """Puts letters into a folder and their links into the log, for development."""

    def __init__(self, folder: Path, sender: str) -> None:
        self._folder = folder
        self._sender = sender

    async def send(self, letter: Letter) -> None:
        name = f"{datetime.now(UTC):%Y%m%d-%H%M%S-%f}-{letter.id}.eml"
        path = await asyncio.to_thread(self._write, name, compose(letter, self._sender).as_bytes())
        log.info("a letter lies in %s: %s", path, letter.link, extra={"unscrubbed": True})

    async def close(self) -> None:
        """Holds nothing."""

    def _write(self, name: str, content: bytes) -> Path:
        self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        unfinished = self._folder / f".{name}"
        unfinished.touch(mode=0o600)
        unfinished.write_bytes(content)
        return unfinished.replace(self._folder / name)


def _is_here(host: str) -> bool:
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False
