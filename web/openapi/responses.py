"""What requests are answered, as the document shows it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from web.errors import STATUS
from web.fields import IDEMPOTENCY_KEY
from web.handler import Handler, PublicHandler, UncountedHandler
from web.openapi.headers import sent
from web.openapi.problems import PROBLEMS
from web.openapi.schemas import Schemas, error_name, reference
from web.operations import EVERY_TARGET, Answer, Operation

_JSON = "application/json"
_ANYWHERE = ("invalid_parameter", "server_error", "not_ready")  # any request can be malformed, or come at a bad time


class Responses:
    """Makes responses. `targets` are the media types of what can be converted to."""

    def __init__(self, schemas: Schemas, targets: Iterable[str]) -> None:
        self._schemas = schemas
        self._targets = sorted({*targets})
        self.components: dict[str, Any] = {}
        """What operations refer to, and what paths answer to other verbs."""
        self._referred("method_not_allowed")

    def of(self, handler: type[Handler], operation: Operation, path_names: tuple[str, ...]) -> dict[str, Any]:
        """All responses of the operation, by their status."""
        return {
            **self._successes(handler, operation),
            **self._errors(_codes(handler, operation, path_names), handler),
        }

    def _successes(self, handler: type[Handler], operation: Operation) -> dict[str, Any]:
        always, public = {*handler.always}, is_public(handler)
        if IDEMPOTENCY_KEY in operation.headers:
            always.add("Idempotency-Replayed")
        found: dict[str, Any] = {}
        for status in sorted({answer.status for answer in operation.answers}):
            answers = [answer for answer in operation.answers if answer.status == status]
            names = always | {name for answer in answers for name in answer.headers}
            if not public and status != 304:
                names.add("X-Credits-Remaining")
            content: dict[str, Any] = {}
            for answer in answers:
                content |= self._content(answer, public=public)
            description = " ".join(dict.fromkeys(answer.description for answer in answers))
            found[str(status)] = {"description": description, "headers": sent(names)}
            if content:
                found[str(status)]["content"] = content
        return found

    def _errors(self, codes: set[str], handler: type[Handler]) -> dict[str, Any]:
        by_status: dict[int, list[str]] = {}
        for code in (code for code in PROBLEMS if code in codes):
            by_status.setdefault(STATUS[code], []).append(code)
        return {
            str(status): self._error(several, handler.always)
            if handler.always or len(several) > 1
            else self._referred(several[0])
            for status, several in sorted(by_status.items())
        }

    def _content(self, answer: Answer, *, public: bool) -> dict[str, Any]:
        if answer.shape is None:
            chosen = self._targets if answer.media_types == EVERY_TARGET else answer.media_types
            return {media_type: {} for media_type in chosen}
        if answer.enveloped:
            schema = self._schemas.enveloped(answer.shape, public=public)
        else:
            schema = self._schemas.of(answer.shape)
        return {_JSON: {"schema": schema, "example": self._schemas.example(schema)}}

    def _referred(self, code: str) -> dict[str, Any]:
        name = error_name(code)
        self.components.setdefault(name, self._error([code]))
        return {"$ref": f"#/components/responses/{name}"}

    def _error(self, codes: list[str], always: Iterable[str] = ()) -> dict[str, Any]:
        schemas = [reference(error_name(code)) for code in codes]
        names = {*always, *(name for code in codes for name in PROBLEMS[code].headers)}
        examples = {code: {"value": self._schemas.example(schema)} for code, schema in zip(codes, schemas, strict=True)}
        return {
            "description": "\n\n".join(f"`{code}`: {PROBLEMS[code].advice}" for code in codes),
            "headers": sent(names),
            "content": {_JSON: {"schema": schemas[0] if len(codes) == 1 else {"anyOf": schemas}, "examples": examples}},
        }


def is_public(handler: type[Handler]) -> bool:
    """Whether the resource needs no key."""
    return issubclass(handler, PublicHandler | UncountedHandler)


def _codes(handler: type[Handler], operation: Operation, path_names: tuple[str, ...]) -> set[str]:
    """The codes of errors that the operation may answer with."""
    found = {*_ANYWHERE, *operation.codes}
    if not issubclass(handler, UncountedHandler):
        found.add("rate_limit_exceeded")
    if not is_public(handler):
        found |= {"invalid_api_key", "key_not_verified"}
    if operation.json is not None or operation.form:
        found |= {"file_too_large", "request_timeout"}
    if IDEMPOTENCY_KEY in operation.headers:
        found |= {"idempotency_conflict", "idempotency_key_reused"}
    if path_names:
        found.add("not_found")
    if any(answer.status == 206 for answer in operation.answers):
        found.add("range_not_satisfiable")
    return found
