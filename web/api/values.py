"""Values that the API sends: dataclasses, from which both the JSON of a response and its JSON Schema are made.

And the envelope around them: the metadata of a response, and errors.
"""

from collections.abc import Mapping
from functools import cache
from typing import Annotated, Any, Final, NotRequired, TypeAlias, TypeVar, get_args, get_type_hints

from pydantic import Field, GetJsonSchemaHandler, SerializerFunctionWrapHandler, TypeAdapter, model_serializer
from pydantic_core import CoreSchema
from typing_extensions import TypedDict

API: Final = "/api/v1"
"""The path prefix of the API."""

RequestId: TypeAlias = Annotated[
    str,
    Field(
        pattern="^req_[0-9A-Za-z]{22}$",
        description="The request's id in the server's log.",
        examples=["req_0Ab1Cd2Ef3Gh4Ij5Kl6Mn7"],
    ),
]
KIND: Final = "What this is: a `result`, or a `job` that makes one in the background."
"""The description of the field that tells the two kinds of responses of one operation apart."""

Message: TypeAlias = Annotated[str, Field(description="A sentence for people.")]


class PublicMeta(TypedDict):
    """Metadata of a response to a request without an API key."""

    request_id: RequestId


class Meta(PublicMeta):
    """Metadata of a response."""

    credits_remaining: Annotated[int, Field(ge=0, description="The balance after this request.", examples=[49])]


class ErrorBody(TypedDict):
    """An error without the request id."""

    code: Annotated[str, Field(description="For programs.", examples=["invalid_parameter"])]
    message: Annotated[Message, Field(examples=["quality must be an integer from 1 to 100."])]
    retryable: Annotated[bool, Field(description="Whether the same request may succeed later.")]
    param: NotRequired[Annotated[str, Field(description="The invalid field.", examples=["quality"])]]
    reason: NotRequired[Annotated[str, Field(description="Narrows the code.", examples=["out_of_range"])]]
    details: NotRequired[Annotated[dict[str, Any], Field(description="Values that explain the error.")]]
    doc_url: Annotated[
        str, Field(description="The documentation of the code.", examples=["/docs/errors#invalid_parameter"])
    ]


class Error(ErrorBody):
    """An error. Codes are never renamed. Fields may be added."""

    request_id: RequestId


T = TypeVar("T")

_INLINE = "inline"

Inline: TypeAlias = Annotated[T, _INLINE]
"""A field of a Flat dataclass that holds a dataclass, or None, and whose own fields take its place in the JSON."""


class Flat:
    """A base of dataclasses with Inline fields.

    Fields of the class itself replace inlined ones of the same name. If an inlined value is None, its lists are empty
    and its other fields null, unless an earlier value has them.
    """

    @model_serializer(mode="wrap")
    def _flatten(self, serialize: SerializerFunctionWrapHandler) -> dict[str, Any]:
        values: dict[str, Any] = serialize(self)
        inlined: dict[str, Any] = {}
        kind: Any = type(self)
        for name, absent in _inlined(kind).items():
            part = values.pop(name)
            inlined = {**absent, **inlined} if part is None else inlined | part
        return inlined | values

    @classmethod
    def __get_pydantic_json_schema__(cls, core_schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        # The schema of the fields. The dictionary that `_flatten` returns has no schema of its own.
        schema = handler({name: part for name, part in core_schema.items() if name != "serialization"})
        own = handler.resolve_ref_schema(schema)
        properties: dict[str, Any] = {}
        required: list[str] = []
        kind: Any = cls
        for name in _inlined(kind):
            part = own["properties"].pop(name)
            optional = "anyOf" in part
            inner = handler.resolve_ref_schema(part["anyOf"][0] if optional else part)
            known = properties if optional else {}
            properties |= {
                key: nullable(one) if optional else one for key, one in inner["properties"].items() if key not in known
            }
            required += inner.get("required", ())
        own["properties"] = properties | own["properties"]
        own["required"] = [name for name in own["properties"] if name in {*required, *own.get("required", ())}]
        return schema


_LINKS = ("doc_url", "download_url", "endpoint", "register_url")


def below(base_path: str, value: Any) -> Any:
    """Returns JSON values with the base path before the paths in fields that are links."""
    if not base_path:
        return value
    if isinstance(value, Mapping):
        return {
            name: base_path + one
            if name in _LINKS and isinstance(one, str) and one[:1] == "/"
            else below(base_path, one)
            for name, one in value.items()
        }
    return [below(base_path, one) for one in value] if isinstance(value, list | tuple) else value


def to_json(value: Any) -> Any:
    """Returns a dataclass, or a collection of JSON values, as JSON values."""
    kind: Any = type(value)
    return _adapter(kind).dump_python(value, mode="json")


def to_json_text(value: Any) -> str:
    """Returns a dataclass, or a collection of JSON values, as the text of its JSON."""
    kind: Any = type(value)
    return _adapter(kind).dump_json(value).decode()


def from_json(kind: type[T], text: str) -> T:
    """Returns a value of the dataclass from the text of its JSON. Raises ValueError."""
    type_: Any = kind
    adapter: TypeAdapter[T] = _adapter(type_)
    return adapter.validate_json(text)


@cache
def _adapter(type_: Any) -> TypeAdapter[Any]:
    return TypeAdapter(type_)


@cache
def _inlined(type_: Any) -> Mapping[str, Mapping[str, Any]]:
    """The Inline fields of a class, each with the JSON of its fields for None."""
    found: dict[str, Mapping[str, Any]] = {}
    for name, hint in get_type_hints(type_, include_extras=True).items():
        if _INLINE in getattr(hint, "__metadata__", ()):
            inner = next(one for one in get_args(hint.__origin__) or (hint.__origin__,) if one is not type(None))
            properties = _adapter(inner).json_schema(mode="serialization")["properties"]
            found[name] = {key: [] if part.get("type") == "array" else None for key, part in properties.items()}
    return found


def nullable(schema: dict[str, Any]) -> dict[str, Any]:
    """The JSON Schema of the same values or null. Lists stay as they are: they are empty instead."""
    if schema.get("type") == "array" or "null" in str(schema.get("type")) or "anyOf" in schema:
        return schema
    if isinstance(schema.get("type"), str):
        values = {"enum": [*schema["enum"], None]} if "enum" in schema else {}
        return {**schema, "type": [schema["type"], "null"], **values}
    return {"anyOf": [schema, {"type": "null"}]}
