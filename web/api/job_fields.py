"""The fields and the header by which a request is processed in the background."""

import re
import unicodedata
from dataclasses import dataclass
from typing import Annotated

from pydantic import Field, JsonValue
from pydantic_core import PydanticCustomError

from web.api.field_types import URL, RequestModel, field_type, string

CONTROL = ("Cc", "Cs", "Zl", "Zp")
"""Unicode categories of characters that no text may have: surrogates cannot be stored, separators break lines."""

TAG_LENGTH = 100  # characters
_MAX_WAIT = 60  # seconds
_SECONDS = re.compile(r'"?([0-9]{1,9})"?', re.ASCII)
_NO_CONTROL: dict[str, JsonValue] = {"pattern": r"^[^\x00-\x1f\x7f-\x9f\u2028\u2029]*$"}


def _tag(value: object) -> str:
    text = string(value)
    if any(unicodedata.category(character) in CONTROL for character in text):
        raise PydanticCustomError("malformed", "must not contain control characters.")
    if not 1 <= len(text) <= TAG_LENGTH:
        limits = {"min": 1, "max": TAG_LENGTH}
        raise PydanticCustomError("out_of_range", "must have {min} to {max} characters.", limits)
    return text


Tag = Annotated[
    str,
    field_type(_tag, Annotated[str, Field(min_length=1, max_length=TAG_LENGTH, json_schema_extra=_NO_CONTROL)]),
    Field(description="A text of yours, by which you find the job.", examples=["order-17"]),
]


class JobFields(RequestModel):
    """Fields of all requests that can be processed in the background."""

    tag: Tag | None = None
    webhook_url: (
        Annotated[
            str,
            URL,
            Field(
                description="Processes the request in the background, and sends the ended job to this URL. The message "
                "is signed by the secret of `POST /webhooks/secret`, and not signed before there is one.",
                examples=["https://app.example/hook"],
            ),
        ]
        | None
    ) = None


class PreferHeader(RequestModel):
    """The header by which clients choose how they get a response (RFC 7240)."""

    prefer: (
        Annotated[
            str,
            field_type(string, str),
            Field(
                description="`respond-async`: process the request in the background, and respond with the job. With "
                "`respond-async, wait=N`, the response is the ended job with status 200, and with the fields of its "
                "`result`, if it ends within N seconds (60).",
                examples=["respond-async"],
            ),
        ]
        | None
    ) = Field(default=None, alias="Prefer")


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
