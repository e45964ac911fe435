"""The request bodies of the OpenAPI document, and the options in them as component schemas with names."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from engine.options import Option
from web.api.field_types import FieldDescription, RequestModel, describe, describe_option
from web.api.operations import FileField, FormFields, Operation, camel_case
from web.api.values import nullable
from web.docs.openapi_schemas import Schema, reference

_CONVERSION = "Convert"
_JSON = {"contentType": "application/json"}  # Items of an array would be parts of their own.
_PRESET = "Preset"  # Its options are all but secret ones.


class RequestBodies:
    """Builds request bodies. Other component schemas have the names `taken`."""

    def __init__(self, taken: Collection[str]) -> None:
        self._taken = taken
        self.components: dict[str, Any] = {}
        """The options of conversions, the options of each tool that has some, and the enumerations in them."""

    def of(self, operation: Operation) -> Schema | None:
        """The request body of an operation, if it has one."""
        if operation.form is not None:
            return self._form(operation, operation.form)
        return None if operation.json is None else self._json(operation, operation.json)

    def _form(self, operation: Operation, form: FormFields) -> Schema:
        own = [field for field in describe(form.fields) if field.name not in form.left_out]
        fields = [*own, *(describe(form.urls) if form.urls else ())]
        files = {file.name: _file(file) for file in form.files}
        texts = {field.name: _property(field, field.schema) for field in fields}
        required = [file.name for file in form.files if file.minimum and not (form.urls and file is form.file)]
        schema = self._schema(operation, files, texts, [*required, *_required(fields)])
        encoding = {file.name: {"contentType": file.media_type} for file in form.files}
        encoding |= dict.fromkeys(_json_options(operation), _JSON)
        content = {"schema": schema, "encoding": encoding, "example": _file_names(form) | _example(operation, fields)}
        return {"required": True, "content": {"multipart/form-data": content}}

    def _json(self, operation: Operation, model: type[RequestModel]) -> Schema:
        fields = describe(model)
        required = _required(fields)
        schema = self._schema(operation, {}, _nullable_properties(fields), required)
        all_fields = {field.name: field.example for field in fields}
        example = _example(operation, fields) if operation.options else all_fields
        return {"required": bool(required), "content": {"application/json": {"schema": schema, "example": example}}}

    def _schema(self, operation: Operation, files: Schema, fields: Schema, required: Sequence[str]) -> Schema:
        """The schema of a body with these properties and the options of the operation, and no others."""
        options = operation.options
        if not options:
            return {**_object({**files, **fields}, required), "additionalProperties": False}
        tool = operation.tool
        subject = _class_name(tool.name) if tool else _PRESET if operation.without_secrets else _CONVERSION
        name = f"{subject}Options"
        if name not in self.components:
            description = f"The options of the tool `{tool.name}`." if tool else "The options of all conversions."
            self.components[name] = self._component(subject, description, [*options.values()])
        # With all properties beside the reference, generators of clients would take the schema for what it refers to.
        parts = [_object(fields, ()), reference(name)]
        # An encoding is that of a property of this very schema.
        encoded = {one: self.components[name]["properties"][one] for one in _json_options(operation)} if files else {}
        return {**_object({**files, **encoded}, required), "allOf": parts, "unevaluatedProperties": False}

    def _component(self, subject: str, description: str, options: Sequence[Option]) -> Schema:
        fields = [describe_option(option) for option in options]
        properties = {field.name: _property(field, self._named(subject, field)) for field in fields}
        return {**_object(properties, _required(fields)), "description": description}

    def _named(self, subject: str, field: FieldDescription) -> Mapping[str, Any]:
        """The schema of the field, with a reference to a component if its values are an enumeration.

        The component has the name of the field or, if another component has it, of the `subject` and the field.
        """
        if "enum" not in field.schema:
            return field.schema
        values = {key: field.schema[key] for key in ("type", "enum")}
        name = _class_name(field.name)
        if name in self._taken or self.components.get(name, values) != values:
            name = f"{subject}{name}"
        self.components[name] = values
        return reference(name) | {key: value for key, value in field.schema.items() if key not in values}


def _file_names(form: FormFields) -> Schema:
    """The names of the files of a complete request."""
    needed = [file for file in form.files if file is form.file or file.minimum]
    return {file.name: [file.example] * 2 if file.maximum > 1 else file.example for file in needed}


def _example(operation: Operation, fields: Sequence[FieldDescription]) -> Schema:
    """The fields of a complete request but for files, with values as in JSON."""
    chosen = operation.tool.example if operation.tool else ("output_format", "quality")
    options = [describe_option(option) for option in operation.options.values()]
    return {field.name: field.example for field in (*fields, *options) if field.required or field.name in chosen}


def _json_options(operation: Operation) -> list[str]:
    """The options that are JSON in a part of a form."""
    return [one.name for one in operation.options.values() if one.schema["type"] in ("array", "object")]


def _object(properties: Schema, required: Sequence[str]) -> Schema:
    """The schema of an object with these properties, and possibly others."""
    parts = {"properties": properties, "required": [*required]}
    return {"type": "object", **{name: part for name, part in parts.items() if part}}


def _required(fields: Sequence[FieldDescription]) -> list[str]:
    return [field.name for field in fields if field.required]


def _nullable_properties(fields: Sequence[FieldDescription]) -> Schema:
    """The properties of JSON: fields that are neither required nor have a default may be null."""
    return {
        field.name: described if field.required or "default" in field.schema else nullable(described)
        for field in fields
        for described in [_property(field, field.schema)]
    }


def _property(field: FieldDescription, schema: Mapping[str, Any]) -> Schema:
    return {**schema, "description": field.description, "examples": [field.example]}


def _file(file: FileField) -> Schema:
    schema: Schema = {"type": "string", "format": "binary", "contentMediaType": file.media_type}
    if file.maximum > 1:
        schema = {"type": "array", "items": schema, "minItems": file.minimum, "maxItems": file.maximum}
    return schema | {"description": file.description}


def _class_name(text: str) -> str:
    """The name of a component: `color_space` -> `ColorSpace`."""
    name = camel_case(text)
    return name[:1].upper() + name[1:]
