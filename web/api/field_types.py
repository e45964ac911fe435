"""Types of request fields: how values are validated, and described in the documentation."""

import re
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Final, TypeVar

from pydantic import BaseModel, ConfigDict, Field, PlainValidator, ValidationError, ValidationInfo
from pydantic_core import PydanticCustomError

from engine.options import Option, read_boolean, unknown_option
from web.api.errors import InvalidParameter

_FROM_TEXT: Final = "from_text"  # validation context: all values are strings, as in forms, queries and headers


class RequestModel(BaseModel):
    """Fields of a request. JSON null counts as absent where null is the default.

    `validate` ignores unknown fields, as the queries and headers of requests may have them; `check_known` refuses them.
    """

    model_config = ConfigDict(frozen=True, extra="ignore", validate_by_name=False, arbitrary_types_allowed=True)


Model = TypeVar("Model", bound=RequestModel)


def field_names(model: type[RequestModel]) -> tuple[str, ...]:
    """The names of the model's fields in requests."""
    return tuple(field.alias or name for name, field in model.model_fields.items())


def check_known(names: Iterable[str], known: Collection[str], *, place: str = "") -> None:
    """Raises InvalidOption, reason `unknown_parameter`, for the first name that is not known."""
    for name in names:
        if name not in known:
            raise unknown_option(name, known, place=place)


def validate(model: type[Model], values: Mapping[str, object], *, from_text: bool = False) -> Model:
    """Returns the validated fields. With `from_text`, strings are read as JSON values where the type asks for it.

    Raises InvalidParameter for the first invalid field, with its name.
    """
    required = {field.alias or name for name, field in model.model_fields.items() if field.is_required()}
    present = {name: value for name, value in values.items() if value is not None or name not in required}
    try:
        return model.model_validate(present, context={_FROM_TEXT: from_text})
    except ValidationError as invalid:
        error = invalid.errors(include_url=False, include_input=False)[0]
    name = str(error["loc"][0])
    if error["type"] == "missing":
        raise InvalidParameter(f"{name} is missing.", reason="missing", param=name)
    message = f"{name} {error['msg']}"
    raise InvalidParameter(message, reason=error["type"], param=name, details=error.get("ctx"))


@dataclass(frozen=True)
class FieldDescription:
    """The documentation of a request field. `schema` is its JSON Schema without the alternative null."""

    name: str
    schema: Mapping[str, Any]
    description: str
    example: object
    required: bool


def describe(model: type[RequestModel]) -> list[FieldDescription]:
    """The fields of the model, in the order declared."""
    schema = model.model_json_schema()
    required = schema.get("required", [])
    return [_description(name, part, name in required) for name, part in schema.get("properties", {}).items()]


def _description(name: str, schema: dict[str, Any], required: bool) -> FieldDescription:
    kinds = [kind for kind in schema.pop("anyOf", []) if kind.get("type") != "null"]
    merged = {**(kinds[0] if kinds else {}), **schema}
    merged.pop("title", None)
    if merged.get("default", ...) is None:
        del merged["default"]
    (example,) = merged.pop("examples")
    return FieldDescription(name, merged, merged.pop("description"), example, required)


def describe_option(option: Option) -> FieldDescription:
    """The documentation of an option."""
    schema = dict(option.schema)
    description = schema.pop("description", "")
    examples = [*schema.pop("examples", ()), *schema.get("enum", ()), option.default, schema["type"] == "boolean"]
    example = next(example for example in examples if example is not None)
    if option.default is not None:
        schema["default"] = option.default
    return FieldDescription(option.name, schema, description, example, option.required)


def is_text(info: ValidationInfo) -> bool:
    """Whether all values are strings, as in forms, queries and headers."""
    return bool((info.context or {}).get(_FROM_TEXT))


def string(value: object) -> str:
    """The value. Raises PydanticCustomError unless it is a string."""
    if not isinstance(value, str):
        raise PydanticCustomError("malformed", "must be a string.")
    return value


def field_type(check: Callable[..., Any], schema: object) -> PlainValidator:
    """Values that `check` returns, which raises PydanticCustomError. `schema` is the type for their JSON Schema."""
    return PlainValidator(check, json_schema_input_type=schema)


def matching(pattern: str, expected: str) -> PlainValidator:
    """Strings that match `pattern` completely. `expected` completes the sentence "… must be"."""

    def check(value: object) -> str:
        text = string(value)
        if not re.fullmatch(pattern, text):
            raise PydanticCustomError("malformed", f"must be {expected}.")
        return text

    return field_type(check, Annotated[str, Field(pattern=f"^{pattern}$")])


def boolean(value: object, info: ValidationInfo) -> bool:
    """True or false. Raises PydanticCustomError."""
    if is_text(info):
        value = read_boolean(str(value))
    if not isinstance(value, bool):
        raise PydanticCustomError("malformed", "must be true or false.")
    return value


def integer(minimum: int, maximum: int) -> PlainValidator:
    """Integers from `minimum` to `maximum`: no booleans, no floats, no "80.5"."""

    def check(value: object, info: ValidationInfo) -> int:
        if isinstance(value, str) and is_text(info) and re.fullmatch(r"-?[0-9]{1,9}", value):
            value = int(value)
        if isinstance(value, int) and not isinstance(value, bool):
            if minimum <= value <= maximum:
                return value
            reason = "out_of_range"
        else:
            reason = "not_an_integer"
        limits = {"min": minimum, "max": maximum}
        raise PydanticCustomError(reason, "must be an integer from {min} to {max}.", limits)

    return field_type(check, Annotated[int, Field(ge=minimum, le=maximum)])


def one_of(*names: str) -> PlainValidator:
    """Strings that are one of these names."""

    def check(value: object) -> str:
        text = string(value)
        if text not in names:
            raise PydanticCustomError("unknown", f"must be one of {', '.join(names)}.", {"available": list(names)})
        return text

    return field_type(check, Annotated[str, Field(json_schema_extra={"enum": list(names)})])
