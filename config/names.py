"""Names of settings, and what is said of those that are none: a misspelt safety setting would protect nobody."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from difflib import get_close_matches

ENV_PREFIX = "CONVERTD_"
TOML_VARIABLE = "CONVERTD_CONFIG"

_OTHERS = frozenset(  # of the file, of clients and of the tests
    {TOML_VARIABLE, "CONVERTD_API_KEY", "CONVERTD_KEY", "CONVERTD_URL", "CONVERTD_TEST_CORPUS"}
)


def variable(field: str) -> str:
    """The variable of the environment that sets the field."""
    return ENV_PREFIX + field.upper()


def unknown(environment: Iterable[str], fields: Collection[str]) -> list[str]:
    """The variables that look like settings and are none, nor meant for anything else of ours."""
    known = {variable(field) for field in fields} | _OTHERS
    return sorted(name for name in environment if name.upper().startswith(ENV_PREFIX) and name.upper() not in known)


def complaint(name: str, fields: Collection[str]) -> str:
    """What is said of such a variable."""
    nearest = get_close_matches(name.upper(), [variable(field) for field in fields], n=1)
    return f"is no setting; did you mean {nearest[0]}?" if nearest else "is no setting"
