"""Random ids."""

import re
import secrets
import string
import time

ALPHABET = string.digits + string.ascii_uppercase + string.ascii_lowercase
_LENGTH = 22  # base-62 characters: 130 bits
# Four values of a byte stand for each character. The other eight are left out: they would make some likelier.
_CHARACTERS = ALPHABET.encode() * 4
_OTHERS = bytes(range(len(_CHARACTERS), 256))
_SPARE = 32  # bytes that replace those left out


def random_text(length: int) -> str:
    """Returns `length` random ASCII alphanumerics."""
    values = secrets.token_bytes(2 * length + _SPARE)
    return values.translate(_CHARACTERS + _OTHERS, _OTHERS)[:length].decode()


def new_id(kind: str) -> str:
    """Returns a random id: the kind, an underscore, 22 ASCII alphanumerics."""
    return f"{kind}_{random_text(_LENGTH)}"


def ordered_id(kind: str, second: int) -> str:
    """Returns a random id for a row of this second of Unix time. Ids of a second are ordered by when they were made.

    Its first six characters are digits, the microseconds since the second began; the other 16 are random.
    """
    microseconds = time.time_ns() // 1000 - second * 1_000_000
    return f"{kind}_{min(max(microseconds, 0), 999_999):06}{random_text(_LENGTH - 6)}"


def is_id(kind: str, text: str) -> bool:
    """Whether the text has the form of an id of this kind. Checked before ids from clients are looked up."""
    return re.fullmatch(rf"{kind}_[0-9A-Za-z]{{{_LENGTH}}}", text) is not None
