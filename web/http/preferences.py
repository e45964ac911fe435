"""The preferences of a request: the header Prefer (RFC 7240)."""

import re
from dataclasses import dataclass

_MAX_WAIT = 60  # seconds
_SECONDS = re.compile(r'"?([0-9]{1,9})"?', re.ASCII)


@dataclass(frozen=True)
class Preferences:
    """Whether the request is to be processed in the background, and the seconds to wait for its end, if any."""

    respond_async: bool = False
    wait: int | None = None

    @property
    def applied(self) -> str:
        """The value of Preference-Applied for a response that follows all preferences."""
        waits = [] if self.wait is None else [f"wait={self.wait}"]
        return "respond-async" if self.respond_async else ", ".join(waits)


def parse_preferences(header: str) -> Preferences:
    """Reads a header. As the standard requires, unknown and malformed preferences are ignored; the first one counts."""
    found: dict[str, str] = {}
    for preference in header.lower().split(","):
        name, _, value = preference.partition(";")[0].partition("=")
        found.setdefault(name.strip(), value.strip())
    seconds = _SECONDS.fullmatch(found.get("wait", ""))
    return Preferences("respond-async" in found, None if seconds is None else min(int(seconds[1]), _MAX_WAIT))
