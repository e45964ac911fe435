"""Random ids."""

from __future__ import annotations

import secrets
import string

_ALPHABET = string.ascii_letters + string.digits
_LENGTH = 22  # of 62 characters: 130 bits


def new_id(kind: str) -> str:
    """An id that nobody can guess: `file_` and so on, then letters and digits."""
    return f"{kind}_" + "".join(secrets.choice(_ALPHABET) for _ in range(_LENGTH))
