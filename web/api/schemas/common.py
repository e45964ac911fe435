"""Types that several responses share, and the schema of errors."""

from __future__ import annotations

from typing import Annotated, Any, Final, NotRequired, TypeAlias

from pydantic import Field
from typing_extensions import TypedDict

from config.pricing import TierName

API: Final = "/api/v1"
"""The path prefix of the API."""

RequestId: TypeAlias = Annotated[
    str,
    Field(
        pattern="^req_[0-9A-Za-z]{22}$",
        description="The request's id in the server's log.",
        examples=["req_0Ab1Cd2Ef3Gh4Ij5Kl6Mn7"],
    ),
]
Reduction: TypeAlias = Annotated[
    float,
    Field(description="Size reduction in percent. Negative if the result is larger.", examples=[58.3]),
]
DownloadUrl: TypeAlias = Annotated[
    str,
    Field(
        description="Path to download the result. Needs the API key.",
        examples=["/api/v1/files/file_0Ab1Cd2Ef3Gh4Ij5Kl6Mn7/download"],
    ),
]
Tier: TypeAlias = Annotated[
    TierName, Field(description="`paid` from the first purchase of credits on.", examples=["free"])
]
Message: TypeAlias = Annotated[str, Field(description="A sentence for people.")]


class PublicMeta(TypedDict):
    """Metadata of a response to a request without an API key."""

    request_id: RequestId


class Meta(PublicMeta):
    """Metadata of a response."""

    credits_remaining: Annotated[int, Field(ge=0, description="The balance after this request.", examples=[49])]


class ErrorBody(TypedDict):
    """An error without the request id."""

    code: Annotated[str, Field(description="For programs.", examples=["invalid_parameter"])]
    message: Annotated[Message, Field(examples=["quality must be an integer from 1 to 100."])]
    retryable: Annotated[bool, Field(description="Whether the same request may succeed later.")]
    param: NotRequired[Annotated[str, Field(description="The invalid field.", examples=["quality"])]]
    reason: NotRequired[Annotated[str, Field(description="Narrows the code.", examples=["out_of_range"])]]
    details: NotRequired[Annotated[dict[str, Any], Field(description="Values that explain the error.")]]


class Error(ErrorBody):
    """An error. Codes are never renamed. Fields may be added."""

    request_id: RequestId
