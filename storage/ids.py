"""Random ids."""

import re
import secrets
import string

ALPHABET = string.digits + string.ascii_uppercase + string.ascii_lowercase
_LENGTH = 22  # base-62 characters: 130 bits
_BITS_PER_CHARACTER = 6
_EXTRA_BITS = 64  # make the bias of the modulo negligible


def random_text(length: int) -> str:
    """Returns `length` random ASCII alphanumerics."""
    number, text = secrets.randbits(length * _BITS_PER_CHARACTER + _EXTRA_BITS), ""
    for _ in range(length):
        number, digit = divmod(number, len(ALPHABET))
        text += ALPHABET[digit]
    return text


def new_id(kind: str) -> str:
    """Returns a random id: the kind, an underscore, 22 ASCII alphanumerics."""
    return f"{kind}_{random_text(_LENGTH)}"


def is_id(kind: str, text: str) -> bool:
    """Whether the text has the form of an id of this kind. Checked before ids from clients are looked up."""
    return re.fullmatch(rf"{kind}_[0-9A-Za-z]{{{_LENGTH}}}", text) is not None
