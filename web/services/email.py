"""What convertd writes to people: plain text in ASCII, with one link on a line of its own."""

from __future__ import annotations

import asyncio
import logging
import smtplib
import ssl
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.headerregistry import Address
from email.message import EmailMessage
from email.utils import format_datetime, parseaddr
from ipaddress import ip_address
from pathlib import Path
from typing import Protocol
from urllib.parse import unquote, urlsplit

from storage.ids import new_id


@dataclass(frozen=True)
class Email:
    """A letter to one address. What it says and to whom is kept out of its repr, for the sake of logs."""

    to: str = field(repr=False)
    subject: str
    text: str = field(repr=False)
    link: str = field(repr=False)
    id: str = field(default_factory=lambda: new_id("mail"))


def verification_email(to: str, link: str) -> Email:
    """Asks a new client to confirm the address, within 24 hours."""
    return Email(to, "Confirm your e-mail address", _VERIFICATION.format(link=link), link)


def replacement_email(to: str, link: str) -> Email:
    """Offers another key to a client that has an account, within 24 hours."""
    return Email(to, "Your convertd account", _REPLACEMENT.format(link=link), link)


def compose(letter: Email, sender: str) -> EmailMessage:
    """The letter as it travels. Raises an error where an address is not exactly one."""
    name, address = parseaddr(sender)
    message = EmailMessage()
    message["From"] = origin = Address(name, addr_spec=address)
    message["To"] = Address(addr_spec=letter.to)
    message["Subject"] = letter.subject
    message["Date"] = format_datetime(datetime.now(UTC))
    message["Message-ID"] = f"<{letter.id}@{origin.domain}>"
    message["Auto-Submitted"] = "auto-generated"
    # Any other encoding would break the link in two.
    message.set_content(letter.text, cte="7bit")
    return message


_VERIFICATION = """\
Welcome to convertd.

Open this link to confirm your address and to receive your API key:

{link}

The link works once, within 24 hours. The key is shown only once:
keep it in a safe place.

If you did not ask for an API key, ignore this letter. Without the
link, nothing happens.
"""

_REPLACEMENT = """\
Somebody asked for a convertd API key with your address, which has an
account already.

If that was you, open this link to receive a new key for it:

{link}

The link works once, within 24 hours. The key is shown only once:
keep it in a safe place. Your credits stay as they are.

If you did not ask for a key, ignore this letter. Without the link,
nothing changes.
"""


log = logging.getLogger("convertd.mail")

_THREADS = 2  # of their own, so that a slow mail server takes none from those who read and write files
_TIMEOUT = 10.0  # seconds that a mail server may take for an answer


class EmailTransport(Protocol):
    """A way for letters to leave."""

    async def send(self, letter: Email) -> None:
        """Tries once. Raises OSError where another try may help, SMTPException included."""

    async def close(self) -> None:
        """Gives back what it holds."""


class SmtpTransport:
    """Hands letters to the mail server of a URL: smtp:// with STARTTLS where that is offered, or smtps://.

    Certificates are checked, and passwords not sent without TLS, except on this machine.
    """

    def __init__(self, url: str, sender: str) -> None:
        self._server = urlsplit(url)
        self._host = self._server.hostname or ""
        self._sender = sender
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="mail")

    async def send(self, letter: Email) -> None:
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
            with smtplib.SMTP_SSL(self._host, port, timeout=_TIMEOUT, context=context) as client:
                yield client
        else:
            with smtplib.SMTP(self._host, port, timeout=_TIMEOUT) as client:
                client.ehlo_or_helo_if_needed()
                if client.has_extn("starttls"):
                    client.starttls(context=context)
                yield client

    def _context(self) -> ssl.SSLContext:
        context = ssl.create_default_context()
        if _is_loopback(self._host):
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        return context

    def _login(self, client: smtplib.SMTP) -> None:
        if not isinstance(client.sock, ssl.SSLSocket) and not _is_loopback(self._host):
            log.error("the mail server offers no TLS: the password is not sent")
            raise smtplib.SMTPNotSupportedError
        client.login(unquote(self._server.username or ""), unquote(self._server.password or ""))


class OutboxTransport:
    """Puts letters into a folder and their links into the log, for development."""

    def __init__(self, folder: Path, sender: str) -> None:
        self._folder = folder
        self._sender = sender

    async def send(self, letter: Email) -> None:
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


def _is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False


_RETRY_DELAYS = (2.0, 10.0)  # seconds between tries
_CAPACITY = 1000  # letters on their way
_CLOSE_TIMEOUT = 10.0  # seconds


class EmailQueue:
    """Takes letters and returns at once. Each is tried again after every one of `pauses`, then given up.

    `ended` is told of each whether it was sent.
    """

    def __init__(
        self,
        mailer: EmailTransport,
        *,
        pauses: Sequence[float] = _RETRY_DELAYS,
        capacity: int = _CAPACITY,
        ended: Callable[[bool], None] = lambda sent: None,
    ) -> None:
        self._mailer = mailer
        self._ended = ended
        self._pauses = pauses
        self._capacity = capacity
        self._closing = asyncio.Event()
        self._deliveries: set[asyncio.Task[None]] = set()

    @property
    def waiting(self) -> int:
        """How many letters are on their way."""
        return len(self._deliveries)

    def post(self, letter: Email) -> None:
        """Sends the letter in the background. One that cannot be sent is only logged."""
        if len(self._deliveries) >= self._capacity:
            self._give_up(letter, "too many letters are waiting")
            return
        delivery = asyncio.create_task(self._deliver(letter))
        self._deliveries.add(delivery)
        delivery.add_done_callback(self._deliveries.discard)

    async def close(self, seconds: float = _CLOSE_TIMEOUT) -> None:
        """Sends what waits without further pauses, and gives up what is not gone in so many seconds."""
        self._closing.set()
        if self._deliveries:
            _, late = await asyncio.wait(self._deliveries, timeout=seconds)
            for delivery in late:
                delivery.cancel()
            await asyncio.gather(*late, return_exceptions=True)
        await self._mailer.close()

    async def _deliver(self, letter: Email) -> None:
        try:
            await self._try(letter)
        except asyncio.CancelledError:
            self._give_up(letter, "the server stops")
            raise
        except Exception as error:  # its text may hold the address
            self._give_up(letter, type(error).__name__, getattr(error, "smtp_code", None))
        else:
            self._ended(True)
            log.info("letter sent", extra={"fields": {"letter": letter.id}})

    async def _try(self, letter: Email) -> None:
        for pause in self._pauses:
            with suppress(OSError):
                return await self._mailer.send(letter)
            with suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await self._closing.wait()
        return await self._mailer.send(letter)

    def _give_up(self, letter: Email, reason: str, status: int | None = None) -> None:
        self._ended(False)
        fields = {"letter": letter.id, "reason": reason, "status": status}
        log.error("letter not sent", extra={"fields": fields})
