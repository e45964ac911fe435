"""Random ids."""

from __future__ import annotations

import re
import secrets
import string

ALPHABET = string.digits + string.ascii_uppercase + string.ascii_lowercase
_LENGTH = 22  # of 62 characters: 130 bits
_BITS = 6  # enough for a character
_SURPLUS = 64  # bits; so many more than needed that no text is likelier than another


def random_text(length: int) -> str:
    """So many random letters and digits."""
    number, text = secrets.randbits(length * _BITS + _SURPLUS), ""
    for _ in range(length):
        number, digit = divmod(number, len(ALPHABET))
        text += ALPHABET[digit]
    return text


def new_id(kind: str) -> str:
    """An id that nobody can guess: `key_` and so on, then letters and digits."""
    return f"{kind}_{random_text(_LENGTH)}"


def is_id(kind: str, text: str) -> bool:
    """Whether the text has the form of such an id. What comes from clients is asked this before any look-up."""
    return re.fullmatch(rf"{kind}_[0-9A-Za-z]{{{_LENGTH}}}", text) is not None
