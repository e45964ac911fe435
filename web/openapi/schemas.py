"""Shapes as JSON Schema, and examples of what has one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from copy import deepcopy
from typing import Any

from pydantic import TypeAdapter
from pydantic.json_schema import GenerateJsonSchema

from web.openapi.problems import PROBLEMS
from web.shapes import errors
from web.shapes.service import Meta, PlainMeta

_COMPONENTS = "#/components/schemas/"

Schema = dict[str, Any]


class _Generate(GenerateJsonSchema):
    """Titles would only say again what things are called."""

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False


class Schemas:
    """The schemas of the shapes, the error codes and the envelopes."""

    def __init__(self, shapes: Iterable[Any]) -> None:
        details = (problem.details for problem in PROBLEMS.values() if problem.details)
        self._by_shape, definitions = TypeAdapter.json_schemas(
            [
                (shape, "serialization", TypeAdapter(shape))
                for shape in {*shapes, *details, errors.Problem, Meta, PlainMeta}
            ],
            ref_template=f"{_COMPONENTS}{{model}}",
            schema_generator=_Generate,
        )
        self.components: Schema = definitions["$defs"]
        common = self.components.pop("Problem")
        for code in PROBLEMS:
            self.components[error_name(code)] = self._error(common, code)

    def of(self, shape: Any) -> Schema:
        """The schema of a shape that was given."""
        return self._by_shape[shape, "serialization"]

    def enveloped(self, shape: Any, *, public: bool) -> Schema:
        """The schema of the shape as `data`."""
        meta = self.of(PlainMeta if public else Meta)
        return {"type": "object", "required": ["data", "meta"], "properties": {"data": self.of(shape), "meta": meta}}

    def example(self, schema: Mapping[str, Any]) -> Any:
        """A value of the schema, made of the examples in it."""
        if "$ref" in schema:
            return self.example(self.components[schema["$ref"].removeprefix(_COMPONENTS)])
        for key in ("examples", "enum", "anyOf"):
            if key in schema:
                first = schema[key][0]
                return self.example(first) if key == "anyOf" else deepcopy(first)
        if "const" in schema:
            return schema["const"]
        if schema.get("type") == "object":
            required, properties = schema.get("required", ()), schema.get("properties", {})
            return {
                name: self.example(part) for name, part in properties.items() if name in required or "examples" in part
            }
        if schema.get("type") == "array":
            return [self.example(schema["items"])]
        return {"boolean": False, "integer": schema.get("minimum", 0), "string": "…", "null": None}.get(schema["type"])

    def _error(self, common: Schema, code: str) -> Schema:
        """The envelope of the errors of that code."""
        problem, properties = PROBLEMS[code], deepcopy(common["properties"])
        properties["code"] = {"const": code}
        properties["message"]["examples"] = [problem.message]
        if code != "invalid_parameter":
            del properties["param"]["examples"]
        del properties["reason"], properties["details"]
        if problem.reasons:
            properties["reason"] = {"enum": [*problem.reasons], "description": _listed(problem.reasons)}
        if problem.details:
            properties["details"] = self.of(problem.details)
        error = {"type": "object", "required": common["required"], "properties": properties}
        return {
            "type": "object",
            "description": problem.advice,
            "required": ["error"],
            "properties": {"error": error},
        }


def error_name(code: str) -> str:
    """What the schema of a code is called."""
    return "".join(word.capitalize() for word in code.split("_")) + "Error"


def reference(component: str) -> Schema:
    """Where the schema of that name stands."""
    return {"$ref": f"{_COMPONENTS}{component}"}


def _listed(reasons: Mapping[str, str]) -> str:
    return "\n".join(f"- `{reason}`: {meaning}" for reason, meaning in reasons.items())
