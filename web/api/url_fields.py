"""Fields with URLs: files that the server fetches."""

import json
import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Annotated, ClassVar

from pydantic import Field, ValidationInfo
from pydantic_core import PydanticCustomError

from web.api.field_types import URL, RequestModel, field_type, is_text

_MAX_HEADERS = 20
_HEADER_NAME = r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,100}"
_HEADER_VALUE = r"[!-~]([ !-~]{0,4094}[!-~])?"
_OWN_HEADERS = frozenset(  # set by the server itself
    {"host", "connection", "content-length", "transfer-encoding", "te", "trailer", "upgrade", "expect"}
    | {"accept-encoding", "range", "keep-alive", "proxy-connection"}
)


def _headers(value: object, info: ValidationInfo) -> Mapping[str, str]:
    """Header lines, as a JSON object or its text in a form."""
    if is_text(info) and isinstance(value, str):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            value = None
    if not isinstance(value, dict) or not all(isinstance(line, str) for line in value.values()):
        raise PydanticCustomError("malformed", "must be a JSON object of strings.")
    valid = all(re.fullmatch(_HEADER_NAME, name) and re.fullmatch(_HEADER_VALUE, line) for name, line in value.items())
    if not valid or len(value) > _MAX_HEADERS or any(name.lower() in _OWN_HEADERS for name in value):
        raise PydanticCustomError("malformed", f"must be at most {_MAX_HEADERS} headers of a request, without its own.")
    return MappingProxyType(value)


def _urls(value: object, info: ValidationInfo) -> tuple[str, ...]:
    """URLs, as a JSON list, or in a form also separated by commas."""
    if is_text(info) and isinstance(value, str):
        try:
            is_json = value.lstrip().startswith("[")
            value = json.loads(value) if is_json else [url.rstrip() for url in re.split(r",\s*+(?=https?:)", value)]
        except (ValueError, RecursionError):
            value = None
    if not isinstance(value, list) or not value or not all(isinstance(url, str) for url in value):
        raise PydanticCustomError("malformed", "must be a list of URLs.")
    return tuple(value)


UrlHeaders = Annotated[
    Mapping[str, str],
    field_type(_headers, dict[str, str]),
    Field(
        description="Headers of the request to the URL, as JSON. After a redirect to another host, they are not sent.",
        examples=[{"Authorization": "Bearer 0123"}],
    ),
]


class ExportFields(RequestModel):
    """Where the result is also sent."""

    export_url: (
        Annotated[
            str,
            URL,
            Field(
                description="A presigned URL, such as of S3, to which the server also sends the result by PUT. If that "
                "fails three times, the conversion has failed and is not charged.",
                examples=["https://bucket.example/result.webp?signature=0123"],
            ),
        ]
        | None
    ) = None
    export_headers: (
        Annotated[
            Mapping[str, str],
            field_type(_headers, dict[str, str]),
            Field(
                description="Headers of the request to `export_url`, as JSON.",
                examples=[{"x-ms-blob-type": "BlockBlob"}],
            ),
        ]
        | None
    ) = None


class UrlFields(RequestModel):
    """A file that the server fetches instead of receiving it."""

    name: ClassVar[str] = "url"

    url: (
        Annotated[
            str,
            URL,
            Field(
                description="Where the server gets the file, instead of `file`: a public http or https URL.",
                examples=["https://media.example/photo.jpg"],
            ),
        ]
        | None
    ) = None
    url_headers: UrlHeaders | None = None

    @property
    def given(self) -> tuple[str, ...]:
        """The URLs."""
        return () if self.url is None else (self.url,)


class UrlsFields(RequestModel):
    """Files that the server fetches instead of receiving them."""

    name: ClassVar[str] = "urls"

    urls: (
        Annotated[
            tuple[str, ...],
            field_type(_urls, list[str]),
            Field(
                description="Where the server gets the files, instead of `files[]`: public http or https URLs, as a "
                "JSON list or separated by commas.",
                examples=[["https://media.example/1.pdf", "https://media.example/2.pdf"]],
            ),
        ]
        | None
    ) = None
    url_headers: UrlHeaders | None = None

    @property
    def given(self) -> tuple[str, ...]:
        """The URLs."""
        return self.urls or ()
