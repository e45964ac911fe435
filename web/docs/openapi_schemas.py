"""The texts of the OpenAPI document, and its component schemas with examples."""

from collections.abc import Iterable, Mapping
from copy import deepcopy
from types import MappingProxyType
from typing import Any

from pydantic import TypeAdapter
from pydantic.json_schema import GenerateJsonSchema
from pydantic_core.core_schema import ComputedField, NullableSchema, WithDefaultSchema

from web.api.error_catalogue import ERROR_CATALOGUE
from web.api.operations import Tag
from web.api.values import Error, Meta, PublicMeta

_COMPONENTS = "#/components/schemas/"

Schema = dict[str, Any]

SUMMARY = "Converts files between image, document and camera-RAW formats."

SECURITY = "`Authorization: Bearer cvd_live_…`. Register to get an API key: see `POST /register`."

DESCRIPTION = """\
Every successful conversion costs one credit. The response is the result: there is nothing to poll.

**Responses.** A success has status 200; its JSON has `data` and `meta`. An error has `error` with a `code` for
programs, a `message` for people, and `retryable`. Fields may be added, but are never renamed. An unknown path returns
404 `not_found`, another method 405 `method_not_allowed` with `Allow`. Every path supports OPTIONS, and HEAD where it
supports GET.

**Files or JSON.** Where both are offered, the response is the file unless `Accept` names `application/json` and no
other concrete type with a higher weight.

**Order of checks.** Path and method, API key, rate limit, size, parameters, resource, file type, format pair, credits.

**Rate limits.** The headers of every response have the limit and the remaining requests. A 429 has `Retry-After` in
seconds and is not counted.

**Idempotency.** With an `Idempotency-Key`, a request that costs credits can be repeated safely for 24 hours.

**Times** are `YYYY-MM-DD HH:MM:SS` in UTC. Stored files are deleted when they expire, and then return 404.
"""

TAGS: Mapping[Tag, str] = MappingProxyType(
    {
        "Conversion": "Convert a file in one request.",
        "Files": "Upload a file, convert it by its id, download the result.",
        "Batches": "Convert many files in one request.",
        "Jobs": "Requests that are processed in the background: with the header `Prefer: respond-async` or the field "
        "`webhook_url`, each request that converts files.",
        "Presets": "Fields of requests that the account keeps under a name.",
        "PDF": "Tools that edit PDFs.",
        "Tools": "Other tools.",
        "Account": "Balance, limits, usage and API keys.",
        "Webhooks": "Signed messages to your servers when something happens, such as the end of a job.",
        "Credits": "Buy credits from the payment provider.",
        "Registration": "Get an API key.",
        "Catalogue": "The conversions that this server supports. No API key needed.",
        "Service": "Health and version of the service.",
    }
)


class _ComponentSchema(GenerateJsonSchema):
    """JSON Schema in the forms that generators of clients know, without titles, which would repeat the names."""

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False

    def field_is_required(self, field: Any, total: bool) -> bool:
        if field["type"] != "dataclass-field":
            return super().field_is_required(field, total)
        return "serialization_exclude_if" not in field  # sent with any value

    def default_schema(self, schema: WithDefaultSchema) -> Schema:
        return self.generate_inner(schema["schema"])

    def computed_field_schema(self, schema: ComputedField) -> Schema:
        return self.generate_inner(schema["return_schema"])

    def nullable_schema(self, schema: NullableSchema) -> Schema:
        """`type` with `null` instead of `anyOf`, but for references."""
        inner = self.generate_inner(schema["schema"])
        if not isinstance(inner.get("type"), str):
            return super().nullable_schema(schema)
        nullable = {**inner, "type": [inner["type"], "null"]}
        values = nullable.pop("enum", None) or [nullable.pop("const", None)]
        return nullable if values == [None] else {**nullable, "enum": [*values, None]}


class Schemas:
    """The component schemas: responses, error envelopes, and the schemas that these refer to."""

    def __init__(self, types: Iterable[Any]) -> None:
        details = (error.details for error in ERROR_CATALOGUE.values() if error.details)
        self._by_type, definitions = TypeAdapter.json_schemas(
            [(type_, "serialization", TypeAdapter(type_)) for type_ in {*types, *details, Error, Meta, PublicMeta}],
            ref_template=f"{_COMPONENTS}{{model}}",
            schema_generator=_ComponentSchema,
        )
        self.components: Schema = definitions["$defs"]
        used = _references([*self._by_type.values()], self.components)
        self.components = {name: schema for name, schema in self.components.items() if name in used}
        for component in self.components.values():
            for field in component.get("properties", {}).values():
                field.pop("readOnly", None)  # computed here; clients would leave it out of their models
        error = self.components.pop("Error")
        for code in ERROR_CATALOGUE:
            self.components[error_name(code)] = self._error_envelope(error, code)

    def of(self, type_: Any) -> Schema:
        """The schema of one of the types."""
        return self._by_type[type_, "serialization"]

    def enveloped(self, type_: Any, *, public: bool) -> Schema:
        """The schema of a success response with the type as `data`."""
        meta = self.of(PublicMeta if public else Meta)
        return {"type": "object", "required": ["data", "meta"], "properties": {"data": self.of(type_), "meta": meta}}

    def example(self, schema: Mapping[str, Any]) -> Any:
        """A value that matches the schema, made of its examples."""
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
        return {"boolean": False, "integer": schema.get("minimum", 0), "string": "…"}.get(str(schema["type"]))

    def _error_envelope(self, error: Schema, code: str) -> Schema:
        description, properties = ERROR_CATALOGUE[code], deepcopy(error["properties"])
        properties["code"] = {"type": "string", "const": code}
        properties["message"]["examples"] = [description.message]
        properties["doc_url"]["examples"] = [f"/docs/errors#{code}"]
        if code != "invalid_parameter":
            del properties["param"]["examples"]
        del properties["reason"], properties["details"]
        if description.reasons:
            meanings = "\n".join(f"- `{reason}`: {meaning}" for reason, meaning in description.reasons.items())
            properties["reason"] = {"type": "string", "enum": [*description.reasons], "description": meanings}
        if description.details:
            properties["details"] = self.of(description.details)
        return {
            "type": "object",
            "description": description.advice,
            "required": ["error"],
            "properties": {"error": {"type": "object", "required": error["required"], "properties": properties}},
        }


def _references(schema: Any, components: Schema) -> set[str]:
    """The names of the components to which a schema refers, and those to which these refer."""
    if isinstance(schema, list):
        return set().union(*(_references(part, components) for part in schema))
    if not isinstance(schema, dict):
        return set()
    name = str(schema.get("$ref", "")).removeprefix(_COMPONENTS)
    found = {name, *_references(components[name], components)} if name else set()
    return found.union(*(_references(part, components) for part in schema.values()))


def error_name(code: str) -> str:
    """The name of an error code's schema: `not_found` -> `NotFoundError`."""
    return "".join(word.capitalize() for word in code.split("_")) + "Error"


def reference(component: str) -> Schema:
    """A reference to the component schema of that name."""
    return {"$ref": f"{_COMPONENTS}{component}"}
