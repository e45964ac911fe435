"""The documents that describe the API: OpenAPI, the tools, and the reference of the docs page, made from OpenAPI."""

import hashlib
import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from mimetypes import guess_extension
from typing import Any, Literal, TypeAlias

from engine.registry import Registry
from web.api.operations import JSON_FORM
from web.api.values import below
from web.docs.catalogue import DocumentedOption, documented_options, tools_catalogue
from web.docs.code_samples import LANGUAGES, Call

Schema: TypeAlias = Mapping[str, Any]
MakeOpenApi: TypeAlias = Callable[[], dict[str, Any]]

_FORM, _JSON = "multipart/form-data", "application/json"
_BYTES, _EVENTS = "application/octet-stream", "text/event-stream"


@dataclass(frozen=True)
class Field:
    """A field of a request or a response; `location` is path, query, header, form, body or data."""

    name: str
    type: str
    location: str
    required: bool
    description: str


@dataclass(frozen=True)
class Response:
    """A response by status, with the fields of its `data` and an example in JSON if there is one."""

    status: str
    description: str
    fields: tuple[Field, ...]
    example: str | None


@dataclass(frozen=True)
class Endpoint:
    """A method of a path, with code samples by language."""

    id: str
    method: str
    path: str
    tag: str
    summary: str
    description: str
    needs_key: bool
    fields: tuple[Field, ...]
    responses: tuple[Response, ...]
    samples: Mapping[str, str]


@dataclass(frozen=True)
class CachedJson:
    """A JSON document that does not change: its values, encoding and ETag."""

    data: dict[str, Any]
    encoded: bytes
    etag: str


def cached_json(data: dict[str, Any]) -> CachedJson:
    """Encodes a document and computes its ETag."""
    # Weak: responses with the same data differ in their request id.
    encoded = json.dumps(data, ensure_ascii=False, separators=(",", ":")).encode()
    return CachedJson(data, encoded, f'W/"{hashlib.sha256(encoded).hexdigest()[:32]}"')


@dataclass(frozen=True)
class ApiDocuments:
    """The OpenAPI document, the tools, and what the docs pages show: the endpoints and the table of options."""

    openapi: CachedJson
    tools: CachedJson
    reference: tuple[Endpoint, ...]
    options: tuple[DocumentedOption, ...]

    @classmethod
    def make(cls, registry: Registry, make_openapi: MakeOpenApi, base_path: str = "") -> "ApiDocuments":
        """Makes all documents, which takes about half a second of CPU time."""
        openapi, tools = make_openapi(), below(base_path, tools_catalogue(registry))
        return cls(cached_json(openapi), cached_json(tools), endpoints(openapi), documented_options(registry))


def endpoints(document: Schema) -> tuple[Endpoint, ...]:
    """All endpoints, in the order of the document. Those that only send JSON are part of those that also send files."""
    reader, paths = _Reader(document), document["paths"]
    return tuple(
        reader.endpoint(path, method, operation)
        for path, item in paths.items()
        for method, operation in item.items()
        if method != "servers" and not (path.endswith(JSON_FORM) and path.removesuffix(JSON_FORM) in paths)
    )


def calls(document: Schema) -> Iterator[tuple[str, Schema, Call]]:
    """The path of each operation, what the document says of it, and a request to it."""
    reader = _Reader(document)
    for path, item in document["paths"].items():
        for method, operation in item.items():
            if method != "servers":
                yield path, operation, reader.call(path, method, operation)


class _Reader:
    """Reads endpoints and resolves references within one document."""

    def __init__(self, document: Schema) -> None:
        self._document = document

    def endpoint(self, path: str, method: str, operation: Schema) -> Endpoint:
        call = self.call(path, method, operation)
        return Endpoint(
            id=operation["operationId"],
            method=method.upper(),
            path=path,
            tag=operation["tags"][0],
            summary=operation["summary"],
            description=operation.get("description", ""),
            needs_key=call.needs_key,
            fields=tuple(self._fields(operation)),
            responses=(*self._responses(operation), *self._json_responses(path + JSON_FORM, method)),
            samples={language: write(call) for language, write in LANGUAGES.items()},
        )

    def _resolve(self, schema: Schema) -> Schema:
        if "$ref" not in schema:
            return schema
        _, *names = schema["$ref"].split("/")
        target: Any = self._document
        for name in names:
            target = target[name]
        return self._resolve(target)

    def _fields(self, operation: Schema) -> Iterator[Field]:
        for parameter in operation.get("parameters", ()):
            type_, place = self._type(parameter["schema"]), parameter["in"]
            yield Field(parameter["name"], type_, place, parameter["required"], parameter["description"])
        media_type, schema = self._body(operation)
        yield from self._properties(schema, "form" if media_type == _FORM else "body")

    def _body(self, operation: Schema) -> tuple[str | None, Schema]:
        """The media type of the request's body and the schema of its fields, including the schemas it refers to."""
        content = operation.get("requestBody", {}).get("content", {})
        if not content:
            return None, {}
        ((media_type, media),) = content.items()
        parts = [media["schema"], *(self._resolve(part) for part in media["schema"].get("allOf", ()))]
        return media_type, {
            "properties": {name: _given(field) for part in parts for name, field in part.get("properties", {}).items()},
            "required": [name for part in parts for name in part.get("required", ())],
        }

    def _properties(self, schema: Schema, location: str) -> Iterator[Field]:
        required = schema.get("required", ())
        for name, declared in schema.get("properties", {}).items():
            resolved = self._resolve(declared)
            description = declared.get("description") or resolved.get("description", "")
            yield Field(name, self._type(resolved), location, name in required, description)

    def _type(self, schema: Schema) -> str:
        if _is_file(schema):
            return "file"
        types = schema.get("type", [])
        types = [types] if isinstance(types, str) else types
        types = [*types, *(self._type(self._resolve(alternative)) for alternative in schema.get("anyOf", ()))]
        if "items" in schema:
            item = self._type(self._resolve(schema["items"]))
            types = [f"{item}[]" if name == "array" else name for name in types]
        if "enum" in schema:
            return " | ".join(json.dumps(value) for value in schema["enum"])
        bounds = f" {schema['minimum']} to {schema['maximum']}" if {"minimum", "maximum"} <= {*schema} else ""
        return " or ".join(dict.fromkeys(filter(None, types))) + bounds

    def _responses(self, operation: Schema) -> Iterator[Response]:
        for status, declared in operation["responses"].items():
            response = self._resolve(declared)
            fields = tuple[Field, ...]()
            example = None
            if status.startswith("2") and _JSON in response["content"]:
                media = response["content"][_JSON]
                data = self._resolve(media["schema"]).get("properties", {}).get("data", {})
                fields = tuple(self._properties(self._resolve(data), "data"))
                example = json.dumps(media["example"], indent=2, ensure_ascii=False)
            yield Response(status, response["description"], fields, example)

    def _json_responses(self, path: str, method: str) -> Iterator[Response]:
        """The successful responses of the operation that only sends JSON, if there is one."""
        operation = self._document["paths"].get(path, {}).get(method)
        if operation is not None:
            yield from (response for response in self._responses(operation) if response.status.startswith("2"))

    def call(self, path: str, method: str, operation: Schema) -> Call:
        media_type, schema = self._body(operation)
        (server,) = self._document["paths"][path].get("servers", self._document["servers"])
        content = operation["responses"]["200"]["content"]
        values = self._values(media_type, schema, operation)
        return Call(
            method=method.upper(),
            url=server["url"] + re.sub(r"\{(\w+)\}", lambda part: part[1].upper(), path) + _query(operation),
            form={name: _text(value) for name, value in values.items()} if media_type == _FORM else {},
            files=tuple(self._files(media_type, operation)),
            body=values if media_type == _JSON else None,
            needs_key="security" not in operation,
            saves=None if _JSON in content or _EVENTS in content else _output_file(content, values),
            shows=self._shown(content),
        )

    def _values(self, media_type: str | None, schema: Schema, operation: Schema) -> dict[str, Any]:
        """The values of an example: those of a form, or of fields in JSON that are required or conversions have."""
        properties = schema.get("properties", {})
        if media_type == _FORM:
            example = operation["requestBody"]["content"][_FORM]["example"]
            return {name: value for name, value in example.items() if not _is_file(properties[name])}
        chosen = (*schema.get("required", ()), "output_format", "quality")
        return {name: declared["examples"][0] for name, declared in properties.items() if name in chosen}

    def _files(self, media_type: str | None, operation: Schema) -> Iterator[tuple[str, str]]:
        """Field and name of each file of a form's example."""
        if media_type == _FORM:
            _, schema = self._body(operation)
            for name, value in operation["requestBody"]["content"][_FORM]["example"].items():
                if _is_file(schema["properties"][name]):
                    yield from ((name, file) for file in ([value] if isinstance(value, str) else value))

    def _shown(self, content: Schema) -> Literal["data", "json", "text"]:
        if _JSON not in content:
            return "text"
        return "data" if "data" in self._resolve(content[_JSON]["schema"]).get("properties", {}) else "json"


def _given(schema: Schema) -> Schema:
    """The schema of a field without null, which means the same as a field that is not given."""
    if isinstance(schema.get("type"), list):
        kinds = [kind for kind in schema["type"] if kind != "null"]
        values = {"enum": [value for value in schema["enum"] if value is not None]} if "enum" in schema else {}
        return {**schema, **values, "type": kinds if len(kinds) > 1 else kinds[0]}
    return schema


def _text(value: object) -> str:
    """The value as a field of a form: strings as they are, other values as JSON."""
    return value if isinstance(value, str) else json.dumps(value)


def _is_file(schema: Schema) -> bool:
    return "contentMediaType" in schema.get("items", schema)


def _query(operation: Schema) -> str:
    """The required parameters of the query."""
    names = [one["name"] for one in operation.get("parameters", ()) if one["in"] == "query" and one["required"]]
    return "?" + "&".join(f"{name}={name.upper()}" for name in names) if names else ""


def _output_file(content: Schema, values: Mapping[str, Any]) -> str:
    """The name of the file that a binary response with one of the media types is written to.

    A response without media types of its own is a JSON file, which the document does not list.
    """
    if "output_format" in values or "image/webp" in content:
        return f"result.{values.get('output_format', 'webp')}"
    extensions = (guess_extension(media_type) for media_type in content if media_type != _BYTES)
    return f"result{next(filter(None, extensions), '.json')}"
