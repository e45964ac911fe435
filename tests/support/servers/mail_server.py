"""A real mail server on a free port, optionally with temporary refusals, TLS, or a password."""

from __future__ import annotations

import ssl
import subprocess
from dataclasses import dataclass, field
from email import message_from_bytes, policy
from email.message import EmailMessage
from pathlib import Path
from types import TracebackType
from typing import Any

from aiosmtpd.controller import Controller
from aiosmtpd.smtp import SMTP, AuthResult, Envelope, LoginPassword, Session

from tests.support.servers.server_process import free_port

_OPENSSL = (
    *("openssl", "req", "-x509", "-nodes", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"),
    *("-subj", "/CN=test", "-addext", "subjectAltName=IP:127.0.0.1"),
)

ACCOUNT = LoginPassword(b"post@example.test", b"p@ss:word/")


@dataclass
class MailServer:
    """Accepts emails after `refusals` temporary refusals. Records each with its envelope and the use of TLS."""

    refusals: int = 0
    certificate: Path | None = None  # that of a server with STARTTLS
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


def certificate(folder: Path) -> Path:
    """A certificate for 127.0.0.1 with its key, signed by itself."""
    file = folder / "certificate.pem"
    subprocess.run(
        [*_OPENSSL, "-keyout", file, "-out", folder / "public"],
        check=True,
        capture_output=True,
    )
    file.write_bytes(file.read_bytes() + (folder / "public").read_bytes())
    return file
