"""Shapes as JSON Schema, and examples of what has one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from copy import deepcopy
from types import MappingProxyType
from typing import Any, get_args

from pydantic import TypeAdapter
from pydantic.json_schema import GenerateJsonSchema

from web.api.error_catalogue import ERROR_CATALOGUE
from web.api.operations import Tag
from web.api.schemas import common
from web.api.schemas.service import Meta, PlainMeta

_COMPONENTS = "#/components/schemas/"

Schema = dict[str, Any]


class _Generate(GenerateJsonSchema):
    """Titles would only say again what things are called."""

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False


class Schemas:
    """The schemas of the shapes, the error codes and the envelopes."""

    def __init__(self, shapes: Iterable[Any]) -> None:
        details = (problem.details for problem in ERROR_CATALOGUE.values() if problem.details)
        self._by_shape, definitions = TypeAdapter.json_schemas(
            [
                (shape, "serialization", TypeAdapter(shape))
                for shape in {*shapes, *details, common.Error, Meta, PlainMeta}
            ],
            ref_template=f"{_COMPONENTS}{{model}}",
            schema_generator=_Generate,
        )
        self.components: Schema = definitions["$defs"]
        shared = self.components.pop("Error")
        for code in ERROR_CATALOGUE:
            self.components[error_name(code)] = self._error(shared, code)

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
        problem, properties = ERROR_CATALOGUE[code], deepcopy(common["properties"])
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


SUMMARY = "Converts files between image, document and camera-RAW formats."

SECURITY = "`Authorization: Bearer cvd_live_…`. A key comes with an account: see `POST /register`."

DESCRIPTION = """\
Every conversion that succeeds costs one credit, and is answered with its result: there is nothing to poll.

**Answers.** A success is 200; its JSON has `data` and `meta`. An error has `error` with a `code` for programs, a
`message` for people, and `retryable`. Fields may be added; none is renamed. An unknown path is answered with 404
`not_found`, another verb with 405 `method_not_allowed` and `Allow`. Every path answers to OPTIONS, and to HEAD where it
answers to GET.

**Files or JSON.** Where both are offered, the answer is the file unless `Accept` names `application/json` and no other
type more dearly.

**Order of checks.** Path and verb, key, rate, size, parameters, resource, type of the file, pair of formats, credits.

**Rate limits.** Every answer says in its headers where the limit stands. With a 429, `Retry-After` says how many
seconds to wait; a request that was refused so is not counted.

**Repeating.** With an `Idempotency-Key` a request that costs credits can be sent again safely for 24 hours.

**Times** are `YYYY-MM-DD HH:MM:SS` in UTC. What is stored is erased when it expires, and then answered with 404.
"""

_TAGS = {
    "Conversion": "A file in, the converted file out.",
    "Files": "Store a file, convert it by its id, fetch the result.",
    "Batches": "Many files, converted in one call.",
    "PDF": "Merge documents, delete pages.",
    "Catalogue": "What can be converted into what on this server, without a key.",
    "Account": "Balance, limits, usage and keys.",
    "Credits": "Packs of credits, bought at a payment provider.",
    "Registration": "How to come by a key.",
    "Service": "How the service is, and what runs there.",
}

TAGS: Mapping[str, str] = MappingProxyType({name: _TAGS[name] for name in get_args(Tag)})
