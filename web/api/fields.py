"""Request fields as pydantic types, and one model per request.

Validation, error messages, the OpenAPI document and the documentation pages are derived from these models.
"""

import re
import time
import unicodedata
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, Final, TypeVar

from email_validator import EmailNotValidError, validate_email
from pydantic import BaseModel, ConfigDict, Field, PlainValidator, ValidationError, ValidationInfo
from pydantic_core import PydanticCustomError

from config.pricing import DAY, PACKS, Pack
from engine.options import Option, read_boolean, unknown_option
from storage.tables.api_keys import MAX_GRACE
from web.api.errors import InvalidParameter

_EMAIL_LENGTH = 254  # characters
_NAME_LENGTH = range(2, 101)  # characters
CONTROL = ("Cc", "Cs", "Zl", "Zp")  # Unicode categories: surrogates cannot be stored, separators break lines
_PRINTED = r"\u0000-\u001f\u007f-\u009f\u2028\u2029"  # the same for JSON Schema
_NAME = rf"^\s*[^\s{_PRINTED}][^{_PRINTED}]{{0,98}}[^\s{_PRINTED}]\s*$"
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


def read_text(value: object) -> str:
    if not isinstance(value, str):
        raise PydanticCustomError("malformed", "must be a string.")
    return value


def field_type(check: Callable[..., Any], schema: object) -> PlainValidator:
    return PlainValidator(check, json_schema_input_type=schema)


def matching(pattern: str, expected: str) -> PlainValidator:
    """Strings that match `pattern` completely. `expected` completes the sentence "… must be"."""

    def check(value: object) -> str:
        text = read_text(value)
        if not re.fullmatch(pattern, text):
            raise PydanticCustomError("malformed", f"must be {expected}.")
        return text

    return field_type(check, Annotated[str, Field(pattern=f"^{pattern}$")])


def read_boolean_value(value: object, info: ValidationInfo) -> bool:
    if (info.context or {}).get(_FROM_TEXT):
        value = read_boolean(str(value))
    if not isinstance(value, bool):
        raise PydanticCustomError("malformed", "must be true or false.")
    return value


def integer(minimum: int, maximum: int) -> PlainValidator:
    """Integers from `minimum` to `maximum`: no booleans, no floats, no "80.5"."""

    def check(value: object, info: ValidationInfo) -> int:
        if isinstance(value, str) and (info.context or {}).get(_FROM_TEXT) and re.fullmatch(r"-?[0-9]{1,9}", value):
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


def _email(value: object) -> str:
    """A well-formed email address with its domain in lower-case ASCII. Its existence is not checked."""
    address = read_text(value)
    try:
        normalized = validate_email(
            address.strip(" "), allow_smtputf8=False, check_deliverability=False, strict=True, test_environment=True
        ).ascii_email
    except EmailNotValidError:
        normalized = None
    if normalized is None or len(normalized) > _EMAIL_LENGTH:
        raise PydanticCustomError("malformed", "must be an email address.")
    return normalized


def _display_name(value: object) -> str:
    """The name of an application or an API key, without blanks around it."""
    name = read_text(value).strip()
    if any(unicodedata.category(character) in CONTROL for character in name):
        raise PydanticCustomError("malformed", "must not contain control characters.")
    if len(name) not in _NAME_LENGTH:
        limits = {"min": _NAME_LENGTH[0], "max": _NAME_LENGTH[-1]}
        raise PydanticCustomError("out_of_range", "must have {min} to {max} characters.", limits)
    return name


def _pack(value: object) -> Pack:
    pack = PACKS.get(read_text(value))
    if pack is None:
        names = {"available": list(PACKS)}
        raise PydanticCustomError("unknown", f"must be one of {', '.join(PACKS)}.", names)
    return pack


@dataclass(frozen=True)
class Period:
    """A period from `start` to before `end`, in Unix time, with the name that the client used."""

    name: str
    start: int
    end: int


def parse_period(text: str | None, now: int) -> Period:
    """The calendar month `YYYY-MM`, or from the day `YYYY-MM-DD` to now. None is the current month.

    Raises InvalidParameter.
    """
    name = f"{datetime.fromtimestamp(now, UTC):%Y-%m}" if text is None else text
    try:
        if re.fullmatch(r"[0-9]{4}-[0-9]{2}", name):
            first = datetime.strptime(name, "%Y-%m").replace(tzinfo=UTC)
            next_month = (first + timedelta(days=31)).replace(day=1)
            return Period(name, int(first.timestamp()), int(next_month.timestamp()))
        if re.fullmatch(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", name):
            start = int(datetime.strptime(name, "%Y-%m-%d").replace(tzinfo=UTC).timestamp())
            return Period(name, start, max(start, now) + 1)  # includes the current second
    except (ValueError, OverflowError):
        pass  # no such day
    raise InvalidParameter("period must be a month YYYY-MM or a day YYYY-MM-DD.", reason="malformed", param="period")


_PERIOD_SCHEMA: Final = {"type": "string", "anyOf": [{"pattern": "^[0-9]{4}-(0[1-9]|1[0-2])$"}, {"format": "date"}]}

UsagePeriod = Annotated[
    Period,
    field_type(
        lambda value: parse_period(read_text(value), int(time.time())),
        Annotated[str, Field(json_schema_extra=_PERIOD_SCHEMA)],
    ),
    Field(
        description="A month `YYYY-MM`, or a day `YYYY-MM-DD` at which the period starts. The default is the current "
        "month.",
        examples=["2026-11"],
    ),
]
Language = Annotated[
    str,
    matching("[A-Za-z]{2,3}(-[A-Za-z0-9]{2,8}){0,3}", "a language tag, for example en or pt-BR"),
    Field(
        description="The language of the checkout page. `en` is the default, and used where the payment provider does "
        "not support the language.",
        examples=["de"],
    ),
]
DisplayName = Annotated[str, field_type(_display_name, Annotated[str, Field(pattern=_NAME)])]


class EmailFields(RequestModel):
    """An email address, for commands."""

    email: Annotated[
        str,
        field_type(_email, Annotated[str, Field(json_schema_extra={"format": "email"})]),
        Field(description="The address that the verification email is sent to.", examples=["you@example.com"]),
    ]


class RegistrationFields(EmailFields):
    """POST /register."""

    name: Annotated[
        DisplayName,
        Field(
            description="The name of the application: 2 to 100 characters, without control characters. Blanks around "
            "it are removed.",
            examples=["Photo shop"],
        ),
    ]


class VerificationQuery(RequestModel):
    """GET /verify."""

    token: Annotated[
        str,
        matching("[0-9A-Fa-f]{64}", "64 hexadecimal digits"),
        Field(description="The token from the link in the verification email.", examples=["0123456789abcdef" * 4]),
    ]


class UsageQuery(RequestModel):
    """GET /account/usage."""

    period: UsagePeriod | None = None


class NewKeyFields(RequestModel):
    """POST /account/keys."""

    name: (
        Annotated[
            DisplayName,
            Field(description="The name of the key. The default is the account's name.", examples=["Laptop"]),
        ]
        | None
    ) = None


class KeyRotationFields(RequestModel):
    """POST /account/keys/{key_id}/rotate."""

    grace_period_seconds: Annotated[
        int,
        integer(0, MAX_GRACE),
        Field(description="How long the replaced key stays valid, in seconds.", examples=[3600]),
    ] = DAY


class PurchaseFields(RequestModel):
    """POST /credits/purchase."""

    pack: Annotated[
        Pack,
        field_type(_pack, Annotated[str, Field(json_schema_extra={"enum": list(PACKS)})]),
        Field(description="The pack of credits to buy.", examples=["starter"]),
    ]
    language: Language | None = None


class IdempotencyHeader(RequestModel):
    """The header of requests that can be repeated safely."""

    idempotency_key: (
        Annotated[
            str,
            matching("[!-~]([ -~]{0,253}[!-~])?", "1 to 255 printable ASCII characters"),
            Field(
                description="Makes the request safe to repeat: for 24 hours, the same request with the same key "
                "returns the same response and is charged once.",
                examples=["0b9d6c1e-5b1f-4c38-9a52-2f0f3c6a7d11"],
            ),
        ]
        | None
    ) = Field(default=None, alias="Idempotency-Key")


class StripeHeader(RequestModel):
    """The header of Stripe's webhook events."""

    signature: Annotated[
        str,
        field_type(read_text, str),
        Field(
            description="The signature of the event.",
            examples=["t=1795238640,v1=5257a869e7ecebeda32affa62cdca3fa51cad7e77a0e56ff536d0ce8e108d8bd"],
        ),
    ] = Field(alias="Stripe-Signature")
