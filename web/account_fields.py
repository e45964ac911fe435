"""The fields of requests that tell of people and what is theirs: a command has them too, and needs no more."""

from __future__ import annotations

import unicodedata
from typing import Final

from email_validator import EmailNotValidError, validate_email

from web.declarations import Field, Kind, text
from web.errors import InvalidParameter

_EMAIL_LENGTH = 254
_NAME_LENGTH = range(2, 101)
_CONTROL = ("Cc", "Cs", "Zl", "Zp")  # Unicode categories: surrogates cannot be stored, separators break lines
_PRINTED = r"\u0000-\u001f\u007f-\u009f\u2028\u2029"  # the same for JSON Schema
_NAME = rf"^\s*[^\s{_PRINTED}][^{_PRINTED}]{{0,98}}[^\s{_PRINTED}]\s*$"


def _email(name: str, value: object) -> str:
    """An address that mail can be sent to, its domain in lower case and ASCII; whether it exists is not asked."""
    address = text(name, value)
    try:
        found = validate_email(
            address.strip(" "),
            allow_smtputf8=False,
            check_deliverability=False,
            strict=True,
            test_environment=True,
        ).ascii_email
    except EmailNotValidError:
        found = None
    if found is None or len(found) > _EMAIL_LENGTH:
        raise InvalidParameter(f"{name} must be an e-mail address.", reason="malformed", param=name)
    return found


def _called(name: str, value: object) -> str:
    """What a client calls something, without blanks around it."""
    found = text(name, value).strip()
    if any(unicodedata.category(character) in _CONTROL for character in found):
        raise InvalidParameter(f"{name} must not hold control characters.", reason="malformed", param=name)
    if len(found) not in _NAME_LENGTH:
        least, most = _NAME_LENGTH[0], _NAME_LENGTH[-1]
        message = f"{name} must have {least} to {most} characters."
        raise InvalidParameter(message, reason="out_of_range", param=name, details={"min": least, "max": most})
    return found


_CALLED: Final = Kind[str]({"type": "string", "pattern": _NAME}, _called)

EMAIL: Final = Field[str](
    "email",
    Kind({"type": "string", "format": "email"}, _email),
    "The address that the letter with the link goes to.",
    "you@example.com",
)
NAME: Final = Field[str](
    "name",
    _CALLED,
    "What the application is called: 2 to 100 characters, without control characters. Blanks around it do not count.",
    "Photo shop",
)
KEY_NAME: Final = Field[str | None](
    "name", _CALLED, "What the key is called; by default as the account is.", "Laptop", default=None
)
