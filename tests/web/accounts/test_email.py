"""Email texts, and headers that an address or a subject cannot forge."""

from collections.abc import Callable
from email.errors import HeaderParseError

import pytest

from tests.support.servers.mail_server import parsed
from tests.support.servers.outbox import LINK, SENDER
from web.services.accounts.email import Email, compose, replacement_email, verification_email

both = pytest.mark.parametrize("write", [verification_email, replacement_email])
Write = Callable[[str, str], Email]


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
