"""What requests carry, as the document shows it."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from web.declarations import AnyField
from web.operations import FileField, FormFields, Operation

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


def parameters(operation: Operation, path_names: tuple[str, ...]) -> list[dict[str, Any]]:
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


def body(operation: Operation) -> dict[str, Any] | None:
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
