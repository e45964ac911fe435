"""The OpenAPI 3.1 document, built from the routes and the operations that handlers declare."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from types import MappingProxyType
from typing import Any, TypeAlias

from engine.registry import Registry
from web import openapi_schemas
from web.api import headers
from web.api.error_catalogue import ERROR_CATALOGUE
from web.api.errors import STATUS
from web.api.fields import IDEMPOTENCY_KEY, AnyField
from web.api.headers import header_refs
from web.api.operations import EVERY_TARGET, FileField, FormFields, Operation, Response, operation_of
from web.http.handler import Handler, PublicHandler, UncountedHandler
from web.openapi_schemas import Schemas, error_name, reference
from web.services.serializers import API

Route: TypeAlias = tuple[str, type[Handler]]
"""A pattern of paths, and what answers there."""

_VERBS = ("GET", "POST", "PUT", "PATCH", "DELETE")


@dataclass(frozen=True)
class _Verb:
    """A verb of a path, whose variables have these names."""

    name: str
    path: str
    path_names: tuple[str, ...]
    handler: type[Handler]
    operation: Operation


def document(routes: Sequence[Route], registry: Registry, base_url: str) -> dict[str, Any]:
    """The document of these routes, for clients that reach them at `base_url`."""
    verbs = [*_verbs(routes)]
    schemas = Schemas(answer.shape for verb in verbs for answer in verb.operation.answers if answer.shape)
    responses = Responses(schemas, (plan.target.media_type for plan in registry.catalogue()))
    paths: dict[str, Any] = {}
    for verb in verbs:
        outside = {} if verb.path.startswith(API) else {"servers": [{"url": base_url.removesuffix(API)}]}
        item = paths.setdefault(verb.path.removeprefix(API), outside)
        item[verb.name.lower()] = _described(verb, responses)
    return {
        "openapi": "3.1.1",
        "info": {
            "title": "convertd",
            "version": version("convertd"),
            "summary": openapi_schemas.SUMMARY,
            "description": openapi_schemas.DESCRIPTION,
            "license": {"name": "AGPL-3.0-or-later", "identifier": "AGPL-3.0-or-later"},
        },
        "servers": [{"url": base_url}],
        "security": [{"apiKey": []}],
        "tags": [{"name": name, "description": description} for name, description in openapi_schemas.TAGS.items()],
        "paths": paths,
        "components": {
            "securitySchemes": {
                "apiKey": {"type": "http", "scheme": "bearer", "description": openapi_schemas.SECURITY}
            },
            "headers": headers.header_components(),
            "responses": dict(sorted(responses.components.items())),
            "schemas": dict(sorted(schemas.components.items())),
        },
    }


def _verbs(routes: Sequence[Route]) -> Iterator[_Verb]:
    """All verbs that are declared as operations."""
    for pattern, handler in routes:
        for name in _VERBS:
            operation = operation_of(handler, name)
            if operation is not None:
                # The variables of a path are called as the verb's arguments are.
                _, *variables = inspect.signature(getattr(handler, name.lower())).parameters
                path = re.sub(r"\([^)]*\)", "{}", pattern).format(*(f"{{{variable}}}" for variable in variables))
                yield _Verb(name, path, tuple(variables), handler, operation)


def _described(verb: _Verb, responses: Responses) -> dict[str, Any]:
    declared = verb.operation
    summary, _, description = (inspect.getdoc(getattr(verb.handler, verb.name.lower())) or "").partition("\n\n")
    parameters, body = request_parameters(declared, verb.path_names), request_body(declared)
    return {
        "operationId": declared.id,
        "tags": [declared.tag],
        "summary": summary,
        **({"description": " ".join(description.split("\n"))} if description else {}),
        **({"security": []} if is_public(verb.handler) else {}),
        **({"parameters": parameters} if parameters else {}),
        **({"requestBody": body} if body else {}),
        "responses": responses.of(verb.handler, declared, verb.path_names),
    }


_TEXT = {"type": "string"}

_PATH: Mapping[str, tuple[str, str]] = MappingProxyType(
    {
        "file_id": ("A file of this account.", "file_0Ab1Cd2Ef3Gh4Ij5Kl6Mn7"),
        "batch_id": ("A batch of this account.", "batch_0Ab1Cd2Ef3Gh4Ij5Kl6Mn7"),
        "key_id": ("A key of this account.", "key_0Ab1Cd2Ef3Gh4Ij5Kl6Mn7"),
    }
)

_CONDITIONS: Mapping[int, Mapping[str, tuple[str, str]]] = MappingProxyType(
    {
        206: {
            "Range": ("The part of the file to send; one range only.", "bytes=0-99"),
            "If-Range": ("`Range` counts only if this is the file's `ETag`.", '"file_0Ab1Cd2Ef3Gh4Ij5Kl6Mn7"'),
        },
        304: {"If-None-Match": ("The `ETag` of what the client has: answered with 304 if it is the same.", '"5f2b9c"')},
    }
)
"""The headers of requests by which answers of a status come about."""


def request_parameters(operation: Operation, path_names: tuple[str, ...]) -> list[dict[str, Any]]:
    """What stands in path, query and headers."""
    conditions = {
        name: told
        for status, names in _CONDITIONS.items()
        if any(answer.status == status for answer in operation.answers)
        for name, told in names.items()
    }
    return [
        *(_parameter("path", name, _TEXT, *_PATH[name], required=True) for name in path_names),
        *(_declared("query", field) for field in operation.query),
        *(_declared("header", field) for field in operation.headers),
        *(_parameter("header", name, _TEXT, *told) for name, told in conditions.items()),
    ]


def request_body(operation: Operation) -> dict[str, Any] | None:
    """The body that the operation takes, if it takes one."""
    if operation.form is not None:
        return _form(operation.form)
    return None if operation.json is None else _json(operation.json)


def _declared(place: str, field: AnyField) -> dict[str, Any]:
    schema = {**field.kind.schema, **_default(field)}
    return _parameter(place, field.name, schema, field.description, field.example, required=field.required)


def _parameter(
    place: str, name: str, schema: Mapping[str, Any], description: str, example: object, *, required: bool = False
) -> dict[str, Any]:
    return {
        "name": name,
        "in": place,
        "required": required,
        "description": description,
        "schema": dict(schema),
        "example": example,
    }


def _form(form: FormFields) -> dict[str, Any]:
    properties = {form.file.name: _file(form.file), **{field.name: _property(field) for field in form.fields}}
    required = [form.file.name, *(field.name for field in form.fields if field.required)]
    schema = {"type": "object", "required": required, "properties": properties}
    encoding = {form.file.name: {"contentType": form.file.media_type}}
    return {"required": True, "content": {"multipart/form-data": {"schema": schema, "encoding": encoding}}}


def _file(file: FileField) -> dict[str, Any]:
    one: dict[str, Any] = {"type": "string", "format": "binary", "contentMediaType": file.media_type}
    if file.most > 1:
        one = {"type": "array", "items": one, "minItems": file.least, "maxItems": file.most}
    return one | {"description": file.description}


def _json(fields: tuple[AnyField, ...]) -> dict[str, Any]:
    required = [field.name for field in fields if field.required]
    properties = {field.name: _nullable(field) for field in fields}
    schema = {"type": "object", **({"required": required} if required else {}), "properties": properties}
    example = {field.name: field.example for field in fields}
    return {"required": bool(required), "content": {"application/json": {"schema": schema, "example": example}}}


def _property(field: AnyField) -> dict[str, Any]:
    return {**field.kind.schema, "description": field.description, "examples": [field.example], **_default(field)}


def _nullable(field: AnyField) -> dict[str, Any]:
    schema = _property(field)
    return schema | {"type": [schema["type"], "null"]} if field.default is None else schema


def _default(field: AnyField) -> dict[str, Any]:
    return {} if field.required or field.default is None else {"default": field.default}


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
            found[str(status)] = {"description": description, "headers": header_refs(names)}
            if content:
                found[str(status)]["content"] = content
        return found

    def _errors(self, codes: set[str], handler: type[Handler]) -> dict[str, Any]:
        by_status: dict[int, list[str]] = {}
        for code in (code for code in ERROR_CATALOGUE if code in codes):
            by_status.setdefault(STATUS[code], []).append(code)
        return {
            str(status): self._error(several, handler.always)
            if handler.always or len(several) > 1
            else self._referred(several[0])
            for status, several in sorted(by_status.items())
        }

    def _content(self, answer: Response, *, public: bool) -> dict[str, Any]:
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
        names = {*always, *(name for code in codes for name in ERROR_CATALOGUE[code].headers)}
        examples = {code: {"value": self._schemas.example(schema)} for code, schema in zip(codes, schemas, strict=True)}
        return {
            "description": "\n\n".join(f"`{code}`: {ERROR_CATALOGUE[code].advice}" for code in codes),
            "headers": header_refs(names),
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
