"""The text of API keys: `cvd_live_`, 32 random characters, 6 of checksum."""

from __future__ import annotations

import hashlib
import re
import zlib

from storage.errors import InvalidKey
from storage.ids import ALPHABET, random_text

_PREFIX = "cvd_live_"
_RANDOM = 32  # characters: 190 bits
_CHECKSUM = 6
_SHOWN = 6  # characters of the random part that may be seen later
_FORM = re.compile(rf"{_PREFIX}[0-9A-Za-z]{{{_RANDOM + _CHECKSUM}}}")


def make_key() -> str:
    """A new key. Whoever gets it is the only one to have it: it is stored as its SHA-256."""
    text = _PREFIX + random_text(_RANDOM)
    return text + _checksum(text)


def parse_key(text: str) -> str:
    """The SHA-256, in hex, of a key. Raises InvalidKey, without a look at the database, for what is no key."""
    if not _FORM.fullmatch(text) or _checksum(text[:-_CHECKSUM]) != text[-_CHECKSUM:]:
        raise InvalidKey
    return digest(text)


def shown_prefix(text: str) -> str:
    """The beginning of a key, by which its owner can tell it from others."""
    return text[: len(_PREFIX) + _SHOWN]


def digest(secret: str) -> str:
    """The SHA-256, in hex. Keys and tokens are random and long enough to need no slow hash."""
    return hashlib.sha256(secret.encode()).hexdigest()


def _checksum(text: str) -> str:
    number = zlib.crc32(text.encode())
    digits = ""
    for _ in range(_CHECKSUM):
        number, digit = divmod(number, len(ALPHABET))
        digits = ALPHABET[digit] + digits
    return digits
