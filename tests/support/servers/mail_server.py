"""A real mail server on a free port, with temporary refusals, TLS or a password, and the outbox without one."""

from __future__ import annotations

import re
import ssl
from dataclasses import dataclass, field
from email import message_from_bytes, policy
from email.message import EmailMessage
from pathlib import Path
from types import TracebackType
from typing import Any

from aiosmtpd.controller import Controller
from aiosmtpd.smtp import SMTP, AuthResult, Envelope, LoginPassword, Session

from benchmarks.processes import free_port
from tests.support.servers.in_process import Running, eventually

SENDER = "convertd <no-reply@example.org>"
LINK = f"https://convert.example.org/api/v1/verify?token={'0123456789abcdef' * 4}"
ACCOUNT = LoginPassword(b"post@example.test", b"p@ss:word/")


@dataclass
class MailServer:
    """Accepts emails after `refusals` temporary refusals. Records each with its envelope and the use of TLS."""

    refusals: int = 0
    certificate: Path | None = None  # only for STARTTLS
    implicit: bool = False  # TLS from the first byte
    password: bool = False
    tries: int = 0
    envelopes: list[Envelope] = field(default_factory=list)
    encrypted: list[bool] = field(default_factory=list)

    def __post_init__(self) -> None:
        context = None
        if self.certificate is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(self.certificate)
        options: dict[str, Any] = {"ssl_context": context} if self.implicit else {"tls_context": context}
        if self.password:
            options |= {"authenticator": self._knows, "auth_require_tls": False}
        self.port = free_port()
        self._controller = Controller(self, "127.0.0.1", self.port, **options)

    def __enter__(self) -> MailServer:
        self._controller.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._controller.stop()

    def url(self, scheme: str = "smtp", host: str = "127.0.0.1", user: str = "") -> str:
        return f"{scheme}://{user and user + '@'}{host}:{self.port}"

    @property
    def messages(self) -> list[EmailMessage]:
        return [parsed(content) for content in self.contents]

    @property
    def contents(self) -> list[bytes]:
        return [envelope.original_content or b"" for envelope in self.envelopes]

    async def handle_DATA(self, server: SMTP, session: Session, envelope: Envelope) -> str:  # noqa: N802
        self.tries += 1
        if self.tries <= self.refusals:
            return "451 Not now"
        self.envelopes.append(envelope)
        self.encrypted.append(session.ssl is not None or self.implicit)
        return "550 Never" if self.password and not session.authenticated else "250 OK"

    def _knows(self, server: SMTP, session: Session, envelope: Envelope, mechanism: str, data: object) -> AuthResult:
        return AuthResult(success=data == ACCOUNT, handled=False)


def parsed(content: bytes) -> EmailMessage:
    """A message as a mail program sees it."""
    return message_from_bytes(content, policy=policy.default)


def emails_to(data_dir: Path, email: str) -> list[str]:
    """Returns the emails to an address, oldest first."""
    outbox = data_dir / "outbox"
    read = [parsed(path.read_bytes()) for path in sorted(outbox.glob("[!.]*.eml"))] if outbox.is_dir() else []
    return [message.get_content() for message in read if message["To"] == email]


def email_to(server: Running, email: str, number: int = 1) -> str:
    """Waits for the email with this number to an address and returns its text."""
    assert eventually(lambda: len(emails_to(server.data_dir, email)) >= number)
    return emails_to(server.data_dir, email)[number - 1]


def token_in(text: str) -> str:
    (token,) = re.findall(r"^http://localhost:8000/api/v1/verify\?token=([0-9a-f]{64})$", text, re.MULTILINE)
    return str(token)


def token_sent_to(server: Running, email: str, number: int = 1) -> str:
    return token_in(email_to(server, email, number))


def saved_emails(folder: Path) -> list[Path]:
    return sorted(folder.iterdir())
