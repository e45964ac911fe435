"""Operations: the declared inputs, responses and errors of a resource's methods.

The HTTP layer reads requests as declared; the OpenAPI document is generated from the declarations.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Final, Literal, TypeVar

from engine.options import Option
from engine.registry import Registry
from web.api.fields import RequestModel, field_names
from web.api.headers import DOWNLOAD_HEADERS

Tag = Literal["Conversion", "Files", "Batches", "PDF", "Account", "Credits", "Registration", "Catalogue", "Service"]
Access = Literal["key", "address", "not_cross_site", "open", "form", "session", "trial", "preview"]
"""Who may send requests to a resource.

`open`: everyone, without a rate limit. `key`: clients with an API key, rate-limited by account. All others are
rate-limited by address: `address`: everyone. `not_cross_site`: everyone but pages of other sites. `form`: browsers,
whose forms must come from a page of this server. `session`, `trial` and `preview` are forms that also need a session of
the dashboard, a trial conversion or a preview that is left. With an API key, previews may be of larger files.
"""
Method = TypeVar("Method", bound=Callable[..., Any])

API: Final = "/api/v1"
"""The path prefix of the API."""

CONVERSION_OPTIONS: Final = "conversion"
"""The options of all conversions."""

ZIP: Final = "application/zip"
"""The media type of results with several files."""

ALL_TARGETS: Final = ("*/*",)
"""The media types of all results."""

JSON_FORM: Final = "/json"
"""What the path of a negotiated operation ends with where its response is always JSON."""

CONVERSION_ERRORS: Final = (
    "invalid_file_type",
    "unsupported_conversion",
    "file_too_large",
    "no_credits",
    "processing_failed",
)
"""The error codes of conversions."""

_ATTRIBUTE: Final = "__operation__"
_FILE_HEADERS: Final = ("Content-Disposition", "X-Warnings", *DOWNLOAD_HEADERS)
_RANGE_HEADERS: Final = ("Accept-Ranges", "ETag")
_CACHE_HEADERS: Final = ("Cache-Control", "ETag")


@dataclass(frozen=True)
class FileField:
    """The field of a multipart form with one file, or `minimum` to `maximum` files. `aliases` are alternative names."""

    name: str
    description: str
    minimum: int = 1
    maximum: int = 1
    aliases: tuple[str, ...] = ()
    media_type: str = "application/octet-stream"

    @cached_property
    def names(self) -> tuple[str, ...]:
        return (self.name, *self.aliases)


@dataclass(frozen=True)
class FormFields:
    """A multipart form: files and text fields."""

    file: FileField
    fields: type[RequestModel] = RequestModel

    @cached_property
    def text_names(self) -> tuple[str, ...]:
        """The names of the text fields."""
        return field_names(self.fields)


@dataclass(frozen=True)
class Response:
    """A successful response.

    `schema` is the type of its JSON: of `data` in the envelope, or of the whole body if `enveloped` is false. Responses
    without a schema have a body only with `media_types`. `headers` are sent in addition to the common ones.
    """

    status: int
    description: str
    schema: Any = None
    enveloped: bool = True
    media_types: tuple[str, ...] = ()
    headers: tuple[str, ...] = ()


def json_response(schema: Any, description: str = "") -> Response:
    """JSON in the envelope. The default description is the schema's docstring."""
    return Response(200, description or inspect.getdoc(schema) or "", schema)


def file_response(media_types: tuple[str, ...] = ALL_TARGETS) -> Response:
    """The bytes of a result."""
    return Response(200, "The file.", media_types=media_types, headers=(*_FILE_HEADERS, *_RANGE_HEADERS))


def download_responses() -> tuple[Response, ...]:
    """The bytes of a stored result, a range of them, or 304."""
    part = Response(206, "The requested range of the file.", media_types=ALL_TARGETS)
    return (
        file_response(),
        replace(part, headers=(*_FILE_HEADERS, *_RANGE_HEADERS, "Content-Range")),
        Response(304, "The client's copy is current.", headers=_RANGE_HEADERS),
    )


def cacheable(response: Response) -> tuple[Response, ...]:
    """The response, or 304."""
    not_modified = Response(304, "The client's copy is current.", headers=_CACHE_HEADERS)
    return replace(response, headers=_CACHE_HEADERS), not_modified


@dataclass(frozen=True, kw_only=True)
class Operation:
    """Decorates a method of a handler, whose docstring is the documentation: a summary line, then a description.

    `codes` are error codes in addition to those that the other arguments imply. `options` is CONVERSION_OPTIONS, or the
    name of a tool: the body has these options as further fields. If `queued` is set, the request is refused before its
    body arrives while the job queue is full. If `negotiated` is set, the response is a file, or for
    clients that accept JSON, that of the operation at the same path with JSON_FORM.
    """

    id: str
    tag: Tag
    responses: tuple[Response, ...]
    codes: tuple[str, ...] = ()
    query: type[RequestModel] | None = None
    headers: type[RequestModel] | None = None
    json: type[RequestModel] | None = None
    form: FormFields | None = None
    options: str | None = None
    queued: bool = False
    negotiated: bool = False

    def __call__(self, method: Method) -> Method:
        setattr(method, _ATTRIBUTE, self)
        return method

    def options_of(self, registry: Registry) -> Mapping[str, Option]:
        """The options that the body may have, by name."""
        if self.options is None:
            return {}
        return registry.options if self.options == CONVERSION_OPTIONS else registry.tool_options(self.options)


def operation_of(handler: type, method: str) -> Operation | None:
    """The operation of the handler's method; None if the method has none. HEAD has the operation of GET."""
    name = "get" if method == "HEAD" else method.lower()
    operation = getattr(getattr(handler, name, None), _ATTRIBUTE, None)
    return operation if isinstance(operation, Operation) else None
