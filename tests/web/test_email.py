"""What letters say, and that nobody writes them but convertd."""

from __future__ import annotations

from collections.abc import Callable
from email.errors import HeaderParseError

import pytest

from tests.support.mail_server import parsed
from tests.support.outbox import LINK, SENDER
from web.services.email import Email, compose, replacement_email, verification_email

both = pytest.mark.parametrize("write", [verification_email, replacement_email])
Write = Callable[[str, str], Email]


@both
def test_a_letter_as_it_is_read(write: Write) -> None:
    letter = write("Person@example.test", LINK)
    message = parsed(compose(letter, SENDER).as_bytes())
    assert message["To"] == "Person@example.test"
    assert message["From"] == SENDER
    assert message["Subject"] == letter.subject
    assert message["Message-ID"] == f"<{letter.id}@example.org>"
    assert message["Auto-Submitted"] == "auto-generated"
    assert message["Date"].datetime is not None
    assert message.get_content() == letter.text
    assert "24 hours" in letter.text


@both
def test_the_link_is_on_a_line_of_its_own(write: Write) -> None:
    raw = compose(write("person@example.test", LINK), SENDER).as_bytes()
    assert LINK.encode() in raw.split(b"\n")
    assert raw.isascii()
    assert all(len(line) < 78 for line in raw.split(b"\n") if line != LINK.encode())


def test_the_two_letters_differ() -> None:
    first, second = verification_email("a@b.test", LINK), replacement_email("a@b.test", LINK)
    assert first.text != second.text
    assert first.subject != second.subject
    assert first.id != second.id


def test_a_letter_does_not_show_what_it_says() -> None:
    shown = repr(verification_email("person@example.test", LINK))
    assert "person" not in shown
    assert "token" not in shown


def test_the_longest_address() -> None:
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
def test_no_address_writes_headers(to: str) -> None:
    with pytest.raises((ValueError, IndexError, HeaderParseError)):
        compose(verification_email(to, LINK), SENDER)


def test_no_subject_writes_headers() -> None:
    with pytest.raises(ValueError, match="linefeed"):
        compose(Email("a@b.test", "Hello\r\nBcc: victim@example.test", "text", LINK), SENDER)
