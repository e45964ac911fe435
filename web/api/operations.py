"""Operations: what a verb of a resource takes and answers. Requests are read by it, and the document shows it."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Final, Literal, TypeVar

from web.api.fields import AnyField
from web.api.headers import DOWNLOAD_HEADERS

Tag = Literal["Conversion", "Files", "Batches", "PDF", "Account", "Credits", "Registration", "Catalogue", "Service"]
Verb = TypeVar("Verb", bound=Callable[..., Any])

EVERY_TARGET: Final = ("*/*",)
"""The media types of all that can be converted to."""

CONVERTS: Final = ("invalid_file_type", "unsupported_conversion", "file_too_large", "no_credits", "processing_failed")
"""The errors of what converts."""

_MARK: Final = "__operation__"
_SENT: Final = ("Content-Disposition", *DOWNLOAD_HEADERS)
_STORED: Final = ("Accept-Ranges", "ETag")
_KEPT: Final = ("Cache-Control", "ETag")
_AS_JSON: Final = "With `Accept: application/json` what was made."


@dataclass(frozen=True)
class FileField:
    """The part of a form that holds a file, or several. `aliases` are taken like `name`."""

    name: str
    description: str
    least: int = 1
    most: int = 1
    aliases: tuple[str, ...] = ()
    media_type: str = "application/octet-stream"

    @property
    def names(self) -> tuple[str, ...]:
        return (self.name, *self.aliases)


@dataclass(frozen=True)
class FormFields:
    """A multipart form: files, and text."""

    file: FileField
    fields: tuple[AnyField, ...] = ()


@dataclass(frozen=True)
class Response:
    """A success. `shape` describes its JSON: with `enveloped` the value of `data`, else all of it.

    Answers without a shape have a body only where there are `media_types`.
    """

    status: int
    description: str
    shape: Any = None
    enveloped: bool = True
    media_types: tuple[str, ...] = ()
    headers: tuple[str, ...] = ()


def described(shape: Any, description: str = "") -> Response:
    """JSON in the envelope of a success. Without a description it is that of the shape."""
    return Response(200, description or inspect.getdoc(shape) or "", shape)


def result(shape: Any, media_types: tuple[str, ...] = EVERY_TARGET) -> tuple[Response, ...]:
    """The bytes of a result, which may be stored or not, or its description."""
    return _file(media_types), described(shape, _AS_JSON)


def parts() -> tuple[Response, ...]:
    """The bytes of a stored result, whole or in part, or not at all where the client has them."""
    some = Response(206, "The part of the file that `Range` asks for.", media_types=EVERY_TARGET)
    return (
        _file(),
        replace(some, headers=(*_SENT, *_STORED, "Content-Range")),
        Response(304, "The client has the file.", headers=_STORED),
    )


def cacheable(answer: Response) -> tuple[Response, ...]:
    """The answer, or none where the client has it."""
    return replace(answer, headers=_KEPT), Response(304, "The client has it.", headers=_KEPT)


def _file(media_types: tuple[str, ...] = EVERY_TARGET) -> Response:
    return Response(200, "The file.", media_types=media_types, headers=(*_SENT, *_STORED))


@dataclass(frozen=True, kw_only=True)
class Operation:
    """A verb of a resource; it decorates the verb, whose docstring is what clients read of it.

    `codes` are the errors beside those that follow from what it takes.
    """

    id: str
    tag: Tag
    answers: tuple[Response, ...]
    codes: tuple[str, ...] = ()
    query: tuple[AnyField, ...] = ()
    headers: tuple[AnyField, ...] = ()
    json: tuple[AnyField, ...] | None = None
    form: FormFields | None = None

    def __call__(self, verb: Verb) -> Verb:
        setattr(verb, _MARK, self)
        return verb


def operation_of(handler: type, verb: str) -> Operation | None:
    """The operation that the handler's verb is declared as."""
    found = getattr(getattr(handler, verb.lower(), None), _MARK, None)
    return found if isinstance(found, Operation) else None
