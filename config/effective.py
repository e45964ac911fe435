"""The settings in effect, for an operator to read: each with its source, and no secret among them."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from typing import Any

from pydantic import SecretStr

from config.names import TOML_VARIABLE, variable
from config.settings import Settings

_HIDDEN = "***"
_PASSWORD = re.compile(r"(?<=://)([^/@]*?)(:[^/]*)?@")  # to the last @: a password may hold one
_QUERY = re.compile(r"\?.*", re.DOTALL)


@dataclass(frozen=True)
class Effective:
    """A setting: its full name, its value without secrets, and where that came from."""

    name: str
    value: str | int | None
    source: str


def effective(settings: Settings) -> list[Effective]:
    """All settings of this process, in the order in which they are declared."""
    given = {name.upper() for name in os.environ}
    found = []
    for field in Settings.model_fields:
        name = variable(field)
        source = "default" if field not in settings.model_fields_set else os.environ.get(TOML_VARIABLE, "")
        found.append(Effective(name, _shown(getattr(settings, field)), "environment" if name in given else source))
    return found


def _shown(value: Any) -> str | int | None:
    if value is None or isinstance(value, int):
        return value
    if isinstance(value, SecretStr):
        secret = value.get_secret_value()
        return _without_password(secret) if "://" in secret else _HIDDEN
    if isinstance(value, tuple):
        return ",".join(map(str, value))
    return _without_password(str(value))


def _without_password(text: str) -> str:
    """URLs without what may be secret in them; other texts as they are."""
    if "://" not in text:
        return text
    return _QUERY.sub(
        f"?{_HIDDEN}", _PASSWORD.sub(lambda found: f"{found[1]}:{_HIDDEN}@" if found[2] else found[0], text)
    )
