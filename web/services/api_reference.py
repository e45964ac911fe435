"""The API reference of the docs page, derived from the OpenAPI document."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from web.services.code_samples import LANGUAGES, Call

Schema: TypeAlias = Mapping[str, Any]

_METHODS = ("get", "post", "put", "patch", "delete")
_FORM, _JSON = "multipart/form-data", "application/json"
_BINARY = ("binary", "application/octet-stream")


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


def endpoints(document: Schema, base_url: str) -> tuple[Endpoint, ...]:
    """All endpoints, in the order of the document."""
    reader = _Reader(document, base_url)
    return tuple(
        reader.endpoint(path, method, {**item, **item[method]})
        for path, item in document.get("paths", {}).items()
        for method in _METHODS
        if method in item
    )


class _Reader:
    """Reads endpoints and resolves references within one document."""

    def __init__(self, document: Schema, base_url: str) -> None:
        self._document = document
        self._base_url = base_url

    def endpoint(self, path: str, method: str, operation: Schema) -> Endpoint:
        fields = tuple(self._fields(operation))
        identity = operation.get("operationId", f"{method}-{path}")
        security = operation.get("security", self._document.get("security", []))
        needs_key = bool(security) and {} not in security
        call = self._call(path, method, operation, needs_key=needs_key)
        return Endpoint(
            id=re.sub(r"\W+", "-", identity),
            method=method.upper(),
            path=path,
            tag=next(iter(operation.get("tags", [])), "Other"),
            summary=operation.get("summary", ""),
            description=operation.get("description", ""),
            needs_key=needs_key,
            fields=fields,
            responses=tuple(self._responses(operation)),
            samples={language: write(call) for language, write in LANGUAGES.items()},
        )

    def _resolve(self, schema: Schema) -> Schema:
        while "$ref" in schema:
            target: Any = self._document
            for part in schema["$ref"].removeprefix("#/").split("/"):
                target = target[part.replace("~1", "/").replace("~0", "~")]
            schema = target
        return schema

    def _fields(self, operation: Schema) -> Iterator[Field]:
        for parameter in map(self._resolve, operation.get("parameters", [])):
            schema = self._resolve(parameter.get("schema", {}))
            description = parameter.get("description") or schema.get("description", "")
            required = parameter.get("required", False)
            yield Field(parameter["name"], self._type(schema), parameter["in"], required, description)
        media_type, schema = self._body(operation)
        yield from self._properties(schema, "form" if media_type == _FORM else "body")

    def _body(self, operation: Schema) -> tuple[str | None, Schema]:
        content = self._resolve(operation.get("requestBody", {})).get("content", {})
        for media_type in (_FORM, _JSON):
            if media_type in content:
                return media_type, self._resolve(content[media_type].get("schema", {}))
        return None, {}

    def _properties(self, schema: Schema, location: str) -> Iterator[Field]:
        required = schema.get("required", [])
        for name, declared in schema.get("properties", {}).items():
            resolved = self._resolve(declared)
            description = self._description(declared) or self._description(resolved)
            yield Field(name, self._type(resolved), location, name in required, description)

    def _description(self, schema: Schema) -> str:
        """The description of the schema, or of its first alternative."""
        first, *_ = schema.get("anyOf", [{}])
        return str(schema.get("description") or first.get("description", ""))

    def _type(self, schema: Schema) -> str:
        if _is_file(schema):
            return "file"
        types = schema.get("type", "")
        types = [types] if isinstance(types, str) else types
        alternatives = [*schema.get("anyOf", []), *schema.get("oneOf", [])]
        types = [*types, *(self._type(self._resolve(alternative)) for alternative in alternatives)]
        if "array" in types and "items" in schema:
            item = self._type(self._resolve(schema["items"]))
            types = [f"{item}[]" if name == "array" else name for name in types]
        if "enum" in schema:
            return " | ".join(json.dumps(value) for value in schema["enum"])
        bounds = f" {schema['minimum']} to {schema['maximum']}" if {"minimum", "maximum"} <= {*schema} else ""
        return " or ".join(dict.fromkeys(filter(None, types))) + bounds

    def _responses(self, operation: Schema) -> Iterator[Response]:
        for status, declared in operation.get("responses", {}).items():
            response = self._resolve(declared)
            media = response.get("content", {}).get(_JSON, {})
            schema = self._resolve(media.get("schema", {}))
            data = self._resolve(schema.get("properties", {}).get("data", {}))
            fields = tuple(self._properties(data, "data")) if status.startswith("2") else ()
            example = _example(media) or _example(schema) if status.startswith("2") else None
            encoded = None if example is None else json.dumps(example, indent=2, ensure_ascii=False)
            yield Response(status, response.get("description", ""), fields, encoded)

    def _call(self, path: str, method: str, operation: Schema, *, needs_key: bool) -> Call:
        media_type, schema = self._body(operation)
        values: dict[str, Any] = {}
        files: list[tuple[str, str]] = []
        for name, declared in schema.get("properties", {}).items():
            resolved = self._resolve(declared)
            if _is_file(resolved):
                if name in schema.get("required", []):
                    files += [(name, _sample_file(resolved))] * (2 if "items" in resolved else 1)
            elif name in schema.get("required", []) or name == "quality":
                values[name] = _example(declared) or _example(resolved) or "…"
        url = re.sub(r"\{(\w+)\}", lambda part: part[1].upper(), path)
        prefix = self._base_url.removesuffix("/api/v1")
        successes = [
            self._resolve(response) for status, response in operation.get("responses", {}).items() if status == "200"
        ]
        content = successes[0].get("content", {}) if successes else {}
        first = next(iter(content), _JSON)
        return Call(
            method=method.upper(),
            url=(prefix if url.startswith("/api/") or self._is_rooted(path) else self._base_url) + url,
            form={name: str(value) for name, value in values.items()} if media_type == _FORM else {},
            files=tuple(files),
            body=values if media_type == _JSON else None,
            needs_key=needs_key,
            saves=_output_file(content, values) if first not in (_JSON, "text/csv") else None,
        )

    def _is_rooted(self, path: str) -> bool:
        """Whether the path has its own server entry: the base URL without `/api/v1`."""
        return bool(self._document["paths"][path].get("servers"))


def _is_file(schema: Schema) -> bool:
    item = schema.get("items", schema)
    return schema.get("format") in _BINARY or any(
        part.get("format") in _BINARY or "contentMediaType" in part for part in (schema, item)
    )


def _example(holder: Schema) -> Any:
    examples = holder.get("examples")
    if isinstance(examples, Mapping):
        return next((example.get("value") for example in examples.values()), None)
    return examples[0] if examples else holder.get("example")


def _sample_file(schema: Schema) -> str:
    """The name of a file for a field, or for each file of a field with several."""
    media_type = schema.get("items", schema).get("contentMediaType")
    return "page.pdf" if media_type == "application/pdf" else "photo.heic"


def _output_file(content: Schema, values: Mapping[str, Any]) -> str:
    """The name of the file that a binary response with one of the media types is written to."""
    if "output_format" not in values and "application/pdf" in content:
        return "result.pdf"
    return f"result.{values.get('output_format', 'file')}"
