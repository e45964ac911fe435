"""The OpenAPI 3.1 document, built from the operations that handlers declare."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from types import MappingProxyType
from typing import Any

from engine.registry import Registry
from web.api.error_catalogue import ERROR_CATALOGUE
from web.api.errors import STATUS
from web.api.field_types import FieldDescription, RequestModel, describe
from web.api.headers import header_components, header_refs
from web.api.operations import ALL_TARGETS, ZIP, Access, Operation, Response
from web.api.output_fields import PRESET_NAME
from web.api.values import API
from web.docs.openapi_bodies import RequestBodies
from web.docs.openapi_schemas import DESCRIPTION, SECURITY, SUMMARY, TAGS, Schemas, error_name, reference

_TEXT = {"type": "string"}
_JSON = "application/json"
_BYTES = "application/octet-stream"
_ANY = "*/*"
# Generated clients accept the media types of all responses: with JSON among them, they would get it instead of a file.
# So where the client decides, JSON has a name of its own in the document, by which they read it.
_JSON_OF_FILES = "application/vnd.convertd+json"
_PATTERNS = MappingProxyType({"name": f"^{PRESET_NAME}$"})
_ALWAYS_POSSIBLE = ("invalid_parameter", "server_error", "not_ready")

_PATH_PARAMETERS: Mapping[str, tuple[str, str]] = MappingProxyType(
    {
        "file_id": ("The id of a file of this account.", "file_0Ab1Cd2Ef3Gh4Ij5Kl6Mn7"),
        "batch_id": ("The id of a batch of this account.", "batch_0Ab1Cd2Ef3Gh4Ij5Kl6Mn7"),
        "input_format": ("An input format.", "jpeg"),
        "output_format": ("An output format.", "webp"),
        "name": ("The name of a preset of this account.", "thumbnails"),
        "job_id": ("The id of a job of this account.", "job_0Ab1Cd2Ef3Gh4Ij5Kl6Mn7"),
        "token": ("The rest of the link.", "file_0Ab1Cd2Ef3Gh4Ij5Kl6Mn7.1795238640.Zq3xKfX0v9yJm2Lw8Rt5Ub1Nc7Hd4Gs6Pa"),
        "webhook_id": ("The id of a webhook of this account.", "webhook_0Ab1Cd2Ef3Gh4Ij5Kl6Mn7"),
        "delivery_id": ("The id of a delivery: its `webhook-id`.", "delivery_0Ab1Cd2Ef3Gh4Ij5Kl6Mn7"),
        "key_id": ("The id of an API key of this account.", "key_0Ab1Cd2Ef3Gh4Ij5Kl6Mn7"),
    }
)

_CONDITIONAL_HEADERS: Mapping[int, Mapping[str, tuple[str, str]]] = MappingProxyType(
    {
        206: {
            "Range": ("The range of the file to return. One range only.", "bytes=0-99"),
            "If-Range": ("`Range` applies only if this is the file's `ETag`.", '"file_0Ab1Cd2Ef3Gh4Ij5Kl6Mn7"'),
        },
        304: {"If-None-Match": ("The `ETag` of the client's copy: returns 304 if it is current.", '"5f2b9c"')},
    }
)
"""Request headers, by the status of the response that they cause."""


@dataclass(frozen=True)
class DocumentedOperation:
    """A method of a path. `path` has its variables in braces; `headers` are sent with all its responses."""

    method: str
    path: str
    variables: tuple[str, ...]
    operation: Operation
    access: Access
    headers: tuple[str, ...]


def document(operations: Sequence[DocumentedOperation], registry: Registry, base_url: str) -> dict[str, Any]:
    """The document for clients that reach the API at `base_url`."""
    schemas = Schemas(response.schema for op in operations for response in op.operation.responses if response.schema)
    bodies = RequestBodies(schemas.components)
    responses = _Responses(schemas, (ZIP, *(target.media_type for _, target in registry.pairs())))
    used_tags = {op.operation.tag for op in operations}
    paths: dict[str, Any] = {}
    for op in operations:
        outside = {} if op.path.startswith(API) else {"servers": [{"url": base_url.removesuffix(API)}]}
        paths.setdefault(op.path.removeprefix(API), outside)[op.method.lower()] = _operation(op, bodies, responses)
    return {
        "openapi": "3.1.1",
        "info": {
            "title": "convertd",
            "version": version("convertd"),
            "summary": SUMMARY,
            "description": DESCRIPTION,
            "license": {"name": "AGPL-3.0-or-later", "identifier": "AGPL-3.0-or-later"},
        },
        "servers": [{"url": base_url}],
        "security": [{"apiKey": []}],
        "tags": [{"name": name, "description": text} for name, text in TAGS.items() if name in used_tags],
        "paths": paths,
        "components": {
            "securitySchemes": {"apiKey": {"type": "http", "scheme": "bearer", "description": SECURITY}},
            "headers": header_components(),
            "responses": dict(sorted(responses.components.items())),
            "schemas": dict(sorted((schemas.components | bodies.components).items())),
        },
    }


def _operation(op: DocumentedOperation, bodies: RequestBodies, responses: _Responses) -> dict[str, Any]:
    summary, _, description = op.operation.documentation.partition("\n\n")
    parameters, body = _parameters(op), bodies.of(op.operation)
    return {
        "operationId": op.operation.id,
        "tags": [op.operation.tag],
        "summary": summary,
        **(
            {"description": " ".join(line.strip() for line in description.splitlines() if line.strip())}
            if description
            else {}
        ),
        **({} if op.access == "key" else {"security": []}),
        **({"parameters": parameters} if parameters else {}),
        **({"requestBody": body} if body else {}),
        "responses": responses.of(op),
    }


def _parameters(op: DocumentedOperation) -> list[dict[str, Any]]:
    statuses = {response.status for response in op.operation.responses}
    conditional = {
        name: text
        for status, names in _CONDITIONAL_HEADERS.items()
        if status in statuses
        for name, text in names.items()
    }
    return [
        *(_parameter("path", name, _text(name), *_PATH_PARAMETERS[name], required=True) for name in op.variables),
        *(_field_parameter("query", field) for field in _fields(op.operation.query)),
        *(_field_parameter("header", field) for field in _fields(op.operation.headers)),
        *(_parameter("header", name, _TEXT, *text) for name, text in conditional.items()),
    ]


def _text(name: str) -> dict[str, Any]:
    return {**_TEXT, "pattern": _PATTERNS[name]} if name in _PATTERNS else _TEXT


def _fields(model: type[RequestModel] | None) -> list[FieldDescription]:
    return [] if model is None else describe(model)


def _field_parameter(place: str, field: FieldDescription) -> dict[str, Any]:
    return _parameter(place, field.name, field.schema, field.description, field.example, required=field.required)


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


class _Responses:
    """Builds response objects. `targets` are the media types of all results."""

    def __init__(self, schemas: Schemas, targets: Iterable[str]) -> None:
        self._schemas = schemas
        self._targets = sorted(targets)
        self.components: dict[str, Any] = {}
        """Responses that operations refer to, and method_not_allowed, which every path can return."""
        self._error_reference("method_not_allowed")

    def of(self, op: DocumentedOperation) -> dict[str, Any]:
        """All responses of the operation by status."""
        return {**self._successes(op), **self._errors(op)}

    def _successes(self, op: DocumentedOperation) -> dict[str, Any]:
        always, declared = {*op.headers}, op.operation.responses
        if op.operation.repeatable:
            always.add("Idempotency-Replayed")
        if op.operation.follows_preferences:
            always.add("Preference-Applied")
        by_status: dict[str, Any] = {}
        for status in sorted({response.status for response in declared}):
            responses = [response for response in declared if response.status == status]
            names = always | {name for response in responses for name in response.headers}
            if op.access == "key" and status != 304:
                names.add("X-Credits-Remaining")
            content: dict[str, Any] = {}
            for response in responses:
                content |= self._content(response, op)
            description = " ".join(dict.fromkeys(response.description for response in responses))
            by_status[str(status)] = {"description": description, "headers": header_refs(names)}
            if content:
                by_status[str(status)]["content"] = content
        return by_status

    def _errors(self, op: DocumentedOperation) -> dict[str, Any]:
        possible, by_status = _error_codes(op), dict[int, list[str]]()
        for code in (code for code in ERROR_CATALOGUE if code in possible):
            by_status.setdefault(STATUS[code], []).append(code)
        negotiated = op.operation.negotiated
        media_types = _json_types(op)
        return {
            str(status): self._error(codes, self._headers_of_errors(op, codes), media_types)
            if op.headers or len(codes) > 1 or negotiated
            else self._error_reference(codes[0])
            for status, codes in sorted(by_status.items())
        }

    def _headers_of_errors(self, op: DocumentedOperation, codes: list[str]) -> set[str]:
        replayed = op.operation.repeatable and "processing_failed" in codes
        return {*op.headers, *(["Idempotency-Replayed"] if replayed else [])}

    def _content(self, response: Response, op: DocumentedOperation) -> dict[str, Any]:
        if response.schema is None:
            return self._file_content(response, negotiated=op.operation.negotiated)
        if response.enveloped:
            schema = self._schemas.enveloped(response.schema, public=op.access != "key")
        else:
            schema = self._schemas.of(response.schema)
        return {name: {"schema": schema, "example": self._schemas.example(schema)} for name in _json_types(op)}

    def _file_content(self, response: Response, *, negotiated: bool) -> dict[str, Any]:
        media_types = [*(self._targets if response.media_types == ALL_TARGETS else response.media_types)]
        if not media_types or media_types[0].startswith("text/"):
            return {media_type: {"schema": _TEXT} for media_type in media_types}
        # Some generators of clients know no other media type of bytes, or only look at the first.
        media_types = [_BYTES, *media_types, *([_ANY] if negotiated else [])]
        media_types = [name for name in media_types if name != _JSON]  # which would be read as a response of the API
        return {media_type: {"schema": {"type": "string", "format": "binary"}} for media_type in media_types}

    def _error_reference(self, code: str) -> dict[str, Any]:
        name = error_name(code)
        self.components.setdefault(name, self._error([code]))
        return {"$ref": f"#/components/responses/{name}"}

    def _error(
        self, codes: list[str], always: Iterable[str] = (), media_types: Sequence[str] = (_JSON,)
    ) -> dict[str, Any]:
        schemas = [reference(error_name(code)) for code in codes]
        names = {*always, *(name for code in codes for name in ERROR_CATALOGUE[code].headers)}
        examples = {code: {"value": self._schemas.example(schema)} for code, schema in zip(codes, schemas, strict=True)}
        return {
            "description": "\n\n".join(f"`{code}`: {ERROR_CATALOGUE[code].advice}" for code in codes),
            "headers": header_refs(names),
            "content": {
                name: {"schema": schemas[0] if len(codes) == 1 else {"anyOf": schemas}, "examples": examples}
                for name in media_types
            },
        }


def _json_types(op: DocumentedOperation) -> tuple[str, ...]:
    """The media types of the JSON that an operation responds with."""
    return (_JSON_OF_FILES, _ANY) if op.operation.negotiated else (_JSON,)


def _error_codes(op: DocumentedOperation) -> set[str]:
    """The error codes that the operation may return."""
    operation = op.operation
    codes = {*_ALWAYS_POSSIBLE, *operation.codes}
    if op.access != "open":
        codes.add("rate_limit_exceeded")
    if op.access == "key":
        codes |= {"invalid_api_key", "key_not_verified"}
    if operation.json is not None or operation.form:
        codes |= {"file_too_large", "request_timeout"}
    if operation.repeatable:
        codes |= {"idempotency_conflict", "idempotency_key_reused"}
    if op.variables:
        codes.add("not_found")
    if any(response.status == 206 for response in operation.responses):
        codes.add("range_not_satisfiable")
    return codes
