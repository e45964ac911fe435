"""The emails that a server without SMTP leaves in its outbox."""

import re
from pathlib import Path

from tests.support.servers.in_process import Running, eventually
from tests.support.servers.mail_server import parsed

SENDER = "convertd <no-reply@example.org>"
LINK = f"https://convert.example.org/api/v1/verify?token={'0123456789abcdef' * 4}"


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
