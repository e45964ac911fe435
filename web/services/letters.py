"""What convertd writes to people: plain text in ASCII, with one link on a line of its own."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.headerregistry import Address
from email.message import EmailMessage
from email.utils import format_datetime, parseaddr

from storage.ids import new_id


@dataclass(frozen=True)
class Letter:
    """A letter to one address. What it says and to whom is kept out of its repr, for the sake of logs."""

    to: str = field(repr=False)
    subject: str
    text: str = field(repr=False)
    link: str = field(repr=False)
    id: str = field(default_factory=lambda: new_id("mail"))


def verification(to: str, link: str) -> Letter:
    """Asks a new client to confirm the address, within 24 hours."""
    return Letter(to, "Confirm your e-mail address", _VERIFICATION.format(link=link), link)


def replacement(to: str, link: str) -> Letter:
    """Offers another key to a client that has an account, within 24 hours."""
    return Letter(to, "Your convertd account", _REPLACEMENT.format(link=link), link)


def compose(letter: Letter, sender: str) -> EmailMessage:
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
