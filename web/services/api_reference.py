"""The reference of the docs, read from an OpenAPI document: what people want to see of each endpoint."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from web.services.code_samples import LANGUAGES, Call

Schema: TypeAlias = Mapping[str, Any]

_VERBS = ("get", "post", "put", "patch", "delete")
_FORM, _JSON = "multipart/form-data", "application/json"
_BINARY = ("binary", "application/octet-stream")


@dataclass(frozen=True)
class Field:
    """A field of a request or an answer; `where` is path, query, header, form or body."""

    name: str
    type: str
    where: str
    required: bool
    description: str


@dataclass(frozen=True)
class Answer:
    """An answer by its status, with the fields of its `data` and an example in JSON, where there are any."""

    status: str
    description: str
    fields: tuple[Field, ...]
    example: str | None


@dataclass(frozen=True)
class Endpoint:
    """A verb of a path, with programs that call it by language."""

    id: str
    method: str
    path: str
    tag: str
    summary: str
    description: str
    needs_key: bool
    fields: tuple[Field, ...]
    answers: tuple[Answer, ...]
    samples: Mapping[str, str]


def endpoints(document: Schema, base_url: str) -> tuple[Endpoint, ...]:
    """Every endpoint, in the order of the document."""
    reader = _Reader(document, base_url)
    found = []
    for path, item in document.get("paths", {}).items():
        for verb in _VERBS:
            if verb in item:
                found.append(reader.endpoint(path, verb, {**item, **item[verb]}))
    return tuple(found)


class _Reader:
    """Follows references of one document."""

    def __init__(self, document: Schema, base_url: str) -> None:
        self._document = document
        self._base_url = base_url

    def endpoint(self, path: str, verb: str, operation: Schema) -> Endpoint:
        fields = tuple(self._fields(operation))
        identity = operation.get("operationId", f"{verb}-{path}")
        security = operation.get("security", self._document.get("security", []))
        needs_key = bool(security) and {} not in security
        call = self._call(path, verb, operation, needs_key=needs_key)
        return Endpoint(
            id=re.sub(r"\W+", "-", identity),
            method=verb.upper(),
            path=path,
            tag=next(iter(operation.get("tags", [])), "Other"),
            summary=operation.get("summary", ""),
            description=operation.get("description", ""),
            needs_key=needs_key,
            fields=fields,
            answers=tuple(self._answers(operation)),
            samples={language: write(call) for language, write in LANGUAGES.items()},
        )

    def _look_up(self, schema: Schema) -> Schema:
        while "$ref" in schema:
            found: Any = self._document
            for part in schema["$ref"].removeprefix("#/").split("/"):
                found = found[part.replace("~1", "/").replace("~0", "~")]
            schema = found
        return schema

    def _fields(self, operation: Schema) -> Iterator[Field]:
        for parameter in map(self._look_up, operation.get("parameters", [])):
            schema = self._look_up(parameter.get("schema", {}))
            told = parameter.get("description") or schema.get("description", "")
            yield Field(parameter["name"], self._type(schema), parameter["in"], parameter.get("required", False), told)
        media_type, schema = self._body(operation)
        yield from self._properties(schema, "form" if media_type == _FORM else "body")

    def _body(self, operation: Schema) -> tuple[str | None, Schema]:
        content = self._look_up(operation.get("requestBody", {})).get("content", {})
        for media_type in (_FORM, _JSON):
            if media_type in content:
                return media_type, self._look_up(content[media_type].get("schema", {}))
        return None, {}

    def _properties(self, schema: Schema, where: str) -> Iterator[Field]:
        required = schema.get("required", [])
        for name, found in schema.get("properties", {}).items():
            one = self._look_up(found)
            yield Field(name, self._type(one), where, name in required, self._told(found) or self._told(one))

    def _told(self, schema: Schema) -> str:
        """The description, or that of its first kind."""
        first, *_ = schema.get("anyOf", [{}])
        return str(schema.get("description") or first.get("description", ""))

    def _type(self, schema: Schema) -> str:
        if _is_file(schema):
            return "file"
        kinds = schema.get("type", "")
        kinds = [kinds] if isinstance(kinds, str) else kinds
        several = [*schema.get("anyOf", []), *schema.get("oneOf", [])]
        kinds = [*kinds, *(self._type(self._look_up(one)) for one in several)]
        if "array" in kinds and "items" in schema:
            inside = self._type(self._look_up(schema["items"]))
            kinds = [f"{inside}[]" if kind == "array" else kind for kind in kinds]
        if "enum" in schema:
            return " | ".join(json.dumps(value) for value in schema["enum"])
        bounds = f" {schema['minimum']} to {schema['maximum']}" if {"minimum", "maximum"} <= {*schema} else ""
        return " or ".join(dict.fromkeys(filter(None, kinds))) + bounds

    def _answers(self, operation: Schema) -> Iterator[Answer]:
        for status, found in operation.get("responses", {}).items():
            response = self._look_up(found)
            media = response.get("content", {}).get(_JSON, {})
            schema = self._look_up(media.get("schema", {}))
            data = self._look_up(schema.get("properties", {}).get("data", {}))
            fields = tuple(self._properties(data, "data")) if status.startswith("2") else ()
            example = _example(media) or _example(schema) if status.startswith("2") else None
            shown = None if example is None else json.dumps(example, indent=2, ensure_ascii=False)
            yield Answer(status, response.get("description", ""), fields, shown)

    def _call(self, path: str, verb: str, operation: Schema, *, needs_key: bool) -> Call:
        media_type, schema = self._body(operation)
        given: dict[str, Any] = {}
        files: list[tuple[str, str]] = []
        for name, found in schema.get("properties", {}).items():
            one = self._look_up(found)
            if _is_file(one):
                files += [(name, "page.pdf" if "/pdf/" in path else "photo.heic")] * (2 if "items" in one else 1)
            elif name in schema.get("required", []) or name == "quality":
                given[name] = _example(found) or _example(one) or "…"
        url = re.sub(r"\{(\w+)\}", lambda part: part[1].upper(), path)
        prefix = self._base_url.removesuffix("/api/v1")
        successes = [self._look_up(one) for status, one in operation.get("responses", {}).items() if status == "200"]
        content = successes[0].get("content", {}) if successes else {}
        first = next(iter(content), _JSON)
        return Call(
            method=verb.upper(),
            url=(prefix if url.startswith("/api/") or self._is_rooted(path) else self._base_url) + url,
            form={name: str(value) for name, value in given.items()} if media_type == _FORM else {},
            files=tuple(files),
            body=given if media_type == _JSON else None,
            needs_key=needs_key,
            saves=_result(path, given) if first not in (_JSON, "text/csv") else None,
        )

    def _is_rooted(self, path: str) -> bool:
        """Whether the path has a server of its own, the address without the version."""
        return bool(self._document["paths"][path].get("servers"))


def _is_file(schema: Schema) -> bool:
    inside = schema.get("items", schema)
    return schema.get("format") in _BINARY or any(
        one.get("format") in _BINARY or "contentMediaType" in one for one in (schema, inside)
    )


def _example(holder: Schema) -> Any:
    examples = holder.get("examples")
    if isinstance(examples, Mapping):
        return next((one.get("value") for one in examples.values()), None)
    return examples[0] if examples else holder.get("example")


def _result(path: str, given: Mapping[str, Any]) -> str:
    """The file that a binary answer goes to."""
    return "result.pdf" if "/pdf/" in path else f"result.{given.get('output_format', 'file')}"
