"""Email delivery: texts, transports, and a background queue with retries that is flushed on shutdown.

Messages are plain text with one link on a line of its own.
"""

import asyncio
import logging
import ssl
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.headerregistry import Address
from email.message import EmailMessage
from email.utils import format_datetime, parseaddr
from pathlib import Path
from textwrap import fill
from typing import Protocol
from urllib.parse import unquote, urlsplit

from aiosmtplib import SMTP, SMTPException, SMTPNotSupported

from config.settings import is_loopback
from storage.ids import new_id
from storage.tables.webhooks import DisabledReason
from web.locale.languages import ENGLISH, Language, gettext_noop

log = logging.getLogger("convertd.email")

_SMTP_TIMEOUT = 10.0  # seconds for each step of the protocol
RETRY_DELAYS = (2.0, 10.0)  # seconds
CAPACITY = 1000  # emails
CLOSE_TIMEOUT = 2.5  # seconds

_VERIFICATION = gettext_noop("""\
Welcome to convertd.

Open this link to confirm your email address and see your API key:

{link}

The link works once, within 24 hours. The API key is shown only once:
keep it in a safe place.
{credits_rule}
If you did not ask for an API key, ignore this email.
""")

_REPLACEMENT = gettext_noop("""\
Someone asked for a convertd API key with your email address, which
already has an account.

If that was you, open this link to see a new API key for the account:

{link}

The link works once, within 24 hours. The API key is shown only once:
keep it in a safe place. Your credits do not change.

If you did not ask for an API key, ignore this email.
""")


_SIGN_IN = gettext_noop("""\
Open this link to sign in to the dashboard of your convertd account:

{link}

The link works once, within 15 minutes.

If you did not ask for it, ignore this email: nobody can sign in
without the link.
""")

_INVITATION = gettext_noop("""\
You are invited to convertd. Open this link to sign in to your account:

{link}

The link works once, within 7 days.
""")

_DISABLED_WEBHOOK = gettext_noop("""\
The webhook of your convertd account at

{host}

receives no more events, because {reason}.

To use it again, delete it and create another one. Your webhooks are here:

{link}
""")

_DISABLED_BECAUSE = {
    "gone": gettext_noop("it responded with the status 410 (Gone)"),
    "failing": gettext_noop("all deliveries of the last five days failed"),
}


@dataclass(frozen=True)
class Email:
    """An email to one address. Its repr omits address and content, since it may be logged."""

    to: str = field(repr=False)
    subject: str
    text: str = field(repr=False)
    link: str = field(repr=False)
    id: str = field(default_factory=lambda: new_id("mail"))


def verification_email(to: str, link: str, credits_rule: str = "", language: Language = ENGLISH) -> Email:
    """The email that confirms a new client's address. `credits_rule` is a sentence about the free credits."""
    paragraph = f"\n{fill(language.translate(credits_rule), 70)}\n" if credits_rule else ""
    text = language.translate(_VERIFICATION).format(link=link, credits_rule=paragraph)
    return Email(to, language.translate("Confirm your email address"), text, link)


def replacement_email(to: str, link: str, language: Language = ENGLISH) -> Email:
    """The email that offers a new API key to the owner of an existing account."""
    return Email(
        to, language.translate("Your convertd account"), language.translate(_REPLACEMENT).format(link=link), link
    )


def sign_in_email(to: str, link: str, language: Language = ENGLISH) -> Email:
    """The email with which the owner of an account signs in to the dashboard."""
    return Email(to, language.translate("Sign in to convertd"), language.translate(_SIGN_IN).format(link=link), link)


def invitation_email(to: str, link: str, language: Language = ENGLISH) -> Email:
    """The email that invites the owner of an address to the account that was made for it."""
    return Email(
        to, language.translate("Your convertd account"), language.translate(_INVITATION).format(link=link), link
    )


def disabled_webhook_email(to: str, host: str, reason: DisabledReason, link: str, language: Language) -> Email:
    """The email about a webhook that was disabled."""
    because = language.translate(_DISABLED_BECAUSE[reason])
    text = language.translate(_DISABLED_WEBHOOK).format(host=host, reason=because, link=link)
    return Email(to, language.translate("A webhook was disabled"), text, link)


def compose(email: Email, sender: str, signature: str = "") -> EmailMessage:
    """The MIME message, which ends with the signature.

    Raises ValueError, IndexError or HeaderParseError unless `to` is exactly one address.
    """
    name, address = parseaddr(sender)
    message = EmailMessage()
    message["From"] = origin = Address(name, addr_spec=address)
    message["To"] = Address(addr_spec=email.to)
    message["Subject"] = email.subject
    message["Date"] = format_datetime(datetime.now(UTC))
    message["Message-ID"] = f"<{email.id}@{origin.domain}>"
    message["Auto-Submitted"] = "auto-generated"
    text = f"{email.text}\n-- \n{signature}\n" if signature else email.text
    message.set_content(text, cte="7bit" if text.isascii() else "8bit")  # others break the link into two lines
    return message


class EmailTransport(Protocol):
    """A way to deliver email."""

    async def send(self, email: Email) -> None:
        """Makes one attempt. Raises OSError or SMTPException if another attempt may succeed."""


class SmtpTransport:
    """Delivers to the mail server of a URL: smtp:// with STARTTLS if the server offers it, or smtps://.

    Unless the server is on this machine, its certificate is verified, and a password is sent over TLS only.
    """

    def __init__(self, url: str, sender: str, signature: str = "") -> None:
        self._server = urlsplit(url)
        self._sender = sender
        self._signature = signature
        self._local = is_loopback(self._server.hostname)
        self._tls = ssl.create_default_context()
        if self._local:
            self._tls.check_hostname = False
            self._tls.verify_mode = ssl.CERT_NONE

    async def send(self, email: Email) -> None:
        message = compose(email, self._sender, self._signature)
        client = SMTP(
            hostname=self._server.hostname,
            port=self._server.port,
            use_tls=self._server.scheme == "smtps",
            tls_context=self._tls,
            timeout=_SMTP_TIMEOUT,
        )
        try:
            await client.connect()
            if self._server.username:
                await self._log_in(client)
            await client.send_message(message, recipients=[email.to])
            with suppress(SMTPException):  # the message is delivered
                await client.quit()
        finally:
            client.close()

    async def _log_in(self, client: SMTP) -> None:
        if not self._local and client.get_transport_info("sslcontext") is None:
            log.error("the mail server offers no TLS: the password is not sent")
            raise SMTPNotSupported("The mail server offers no TLS.")
        await client.login(unquote(self._server.username or ""), unquote(self._server.password or ""))


class OutboxTransport:
    """Writes emails to a folder and their links to the log, for development."""

    def __init__(self, folder: Path, sender: str, signature: str = "") -> None:
        self._folder = folder
        self._sender = sender
        self._signature = signature

    async def send(self, email: Email) -> None:
        name = f"{datetime.now(UTC):%Y%m%d-%H%M%S-%f}-{email.id}.eml"
        path = await asyncio.to_thread(self._write, name, compose(email, self._sender, self._signature).as_bytes())
        log.info("email written to %s: %s", path, email.link, extra={"unscrubbed": True})

    def _write(self, name: str, content: bytes) -> Path:
        self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        unfinished = self._folder / f".{name}"
        unfinished.touch(mode=0o600)
        unfinished.write_bytes(content)
        return unfinished.replace(self._folder / name)


class EmailQueue:
    """Sends emails in the background, with one retry after each of RETRY_DELAYS.

    Holds at most CAPACITY emails. Calls `on_result` once per email: whether it was sent. Without a transport, it is
    not `enabled`, and drops all.
    """

    def __init__(self, transport: EmailTransport | None, on_result: Callable[[bool], None] = lambda sent: None) -> None:
        self._transport = transport
        self._on_result = on_result
        self._closing = asyncio.Event()
        self._deliveries: set[asyncio.Task[None]] = set()

    @property
    def enabled(self) -> bool:
        """Whether emails can be sent."""
        return self._transport is not None

    @property
    def waiting(self) -> int:
        """Number of emails that are neither sent nor dropped."""
        return len(self._deliveries)

    def enqueue(self, email: Email) -> None:
        """Queues an email and returns at once. A failed delivery is only logged."""
        if self._transport is None or len(self._deliveries) >= CAPACITY:
            self._drop(email, "queue full" if self._transport else "no mail server")
            return
        delivery = asyncio.create_task(self._deliver(self._transport, email))
        self._deliveries.add(delivery)
        delivery.add_done_callback(self._deliveries.discard)

    async def close(self, max_wait: float = CLOSE_TIMEOUT) -> None:
        """Flushes the queue, retrying without delays. Drops emails that are not sent within `max_wait` seconds."""
        self._closing.set()
        if self._deliveries:
            _, late = await asyncio.wait(self._deliveries, timeout=max_wait)
            for delivery in late:
                delivery.cancel()
            await asyncio.gather(*late, return_exceptions=True)

    async def _deliver(self, transport: EmailTransport, email: Email) -> None:
        try:
            await self._send(transport, email)
        except asyncio.CancelledError:
            self._drop(email, "shutdown")
            raise
        except Exception as error:  # only its type is logged: its text may contain the address
            self._drop(email, type(error.__cause__ or error).__name__, getattr(error, "code", None))
        else:
            self._on_result(True)
            log.info("email sent", extra={"fields": {"email_id": email.id}})

    async def _send(self, transport: EmailTransport, email: Email) -> None:
        for delay in RETRY_DELAYS:
            with suppress(OSError, SMTPException):
                return await transport.send(email)
            with suppress(TimeoutError):
                async with asyncio.timeout(delay):
                    await self._closing.wait()
        return await transport.send(email)

    def _drop(self, email: Email, reason: str, status: int | None = None) -> None:
        self._on_result(False)
        log.error("email not sent", extra={"fields": {"email_id": email.id, "reason": reason, "status": status}})
