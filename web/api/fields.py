"""Declarations of what requests carry: each both checks a value and describes it in the API's document."""

from __future__ import annotations

import re
import time
import unicodedata
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeAlias, TypeVar, cast

from email_validator import EmailNotValidError, validate_email

from config.pricing import PACKS, Pack
from engine.options import Pages
from storage.api_keys import MAX_GRACE
from web.api.errors import InvalidParameter
from web.api.times import Period, period

T = TypeVar("T")
Found = TypeVar("Found", covariant=True)


@dataclass(frozen=True, eq=False)
class Kind(Generic[Found]):
    """What values may be.

    `schema` is the JSON Schema of what is taken. `check` makes of a value what it stands for, and raises
    InvalidParameter with the field's name, which it is given first. Forms, queries and headers hold nothing but text,
    which `from_text` makes into what JSON would hold.
    """

    schema: Mapping[str, Any]
    check: Callable[[str, object], Found]
    from_text: Callable[[str], object] = str


class _Absent:
    """Stands where there is no value."""


ABSENT: Final = _Absent()


@dataclass(frozen=True, eq=False)
class Field(Generic[T]):
    """A named value of a request. Without a default it is required; null is like no value where None is the default."""

    name: str
    kind: Kind[T]
    description: str
    example: object
    default: T | _Absent = ABSENT

    @property
    def required(self) -> bool:
        return self.default is ABSENT

    def of(self, value: object) -> T:
        """What the value stands for; the default where it is ABSENT. Raises InvalidParameter."""
        if value is not ABSENT and (value is not None or self.default not in (None, ABSENT)):
            return self.kind.check(self.name, value)
        if isinstance(self.default, _Absent):
            raise InvalidParameter(f"{self.name} is missing.", reason="missing", param=self.name)
        return self.default

    def of_text(self, text: str | None) -> T:
        """The same of what a form, a query or a header holds."""
        return self.of(ABSENT if text is None else self.kind.from_text(text))


AnyField: TypeAlias = Field[Any]


class Values:
    """What the declared fields of a request stand for."""

    def __init__(self, values: Iterable[tuple[AnyField, object]]) -> None:
        self._values = dict(values)

    def __getitem__(self, field: Field[T]) -> T:
        """The field's value. Raises KeyError for a field that the operation does not declare."""
        return cast(T, self._values[field])


def text(name: str, value: object) -> str:
    """The value, which has to be a string. Raises InvalidParameter."""
    if not isinstance(value, str):
        raise InvalidParameter(f"{name} must be a string.", reason="malformed", param=name)
    return value


def matching(pattern: str, wanted: str) -> Kind[str]:
    """Strings that match as a whole; `wanted` ends the sentence "name must be"."""

    def check(name: str, value: object) -> str:
        found = text(name, value)
        if not re.fullmatch(pattern, found):
            raise InvalidParameter(f"{name} must be {wanted}.", reason="malformed", param=name)
        return found

    return Kind({"type": "string", "pattern": f"^{pattern}$"}, check)


def integer(least: int, most: int) -> Kind[int]:
    """Integers from `least` to `most`."""

    def check(name: str, value: object) -> int:
        whole = isinstance(value, int) and not isinstance(value, bool)
        if isinstance(value, int) and whole and least <= value <= most:
            return value
        message = f"{name} must be an integer from {least} to {most}."
        reason = "out_of_range" if whole else "not_an_integer"
        raise InvalidParameter(message, reason=reason, param=name, details={"min": least, "max": most})

    return Kind({"type": "integer", "minimum": least, "maximum": most}, check, _as_integer)


def _as_integer(written: str) -> int | str:
    """The integer that is written there; other text stays as it is, for the check to refuse."""
    return int(written) if re.fullmatch(r"-?[0-9]{1,9}", written) else written


_EMAIL_LENGTH = 254
_NAME_LENGTH = range(2, 101)
_CONTROL = ("Cc", "Cs", "Zl", "Zp")  # Unicode categories: surrogates cannot be stored, separators break lines
_PRINTED = r"\u0000-\u001f\u007f-\u009f\u2028\u2029"  # the same for JSON Schema
_NAME = rf"^\s*[^\s{_PRINTED}][^{_PRINTED}]{{0,98}}[^\s{_PRINTED}]\s*$"


def _email(name: str, value: object) -> str:
    """An address that mail can be sent to, its domain in lower case and ASCII; whether it exists is not asked."""
    address = text(name, value)
    try:
        found = validate_email(
            address.strip(" "),
            allow_smtputf8=False,
            check_deliverability=False,
            strict=True,
            test_environment=True,
        ).ascii_email
    except EmailNotValidError:
        found = None
    if found is None or len(found) > _EMAIL_LENGTH:
        raise InvalidParameter(f"{name} must be an e-mail address.", reason="malformed", param=name)
    return found


def _display_name(name: str, value: object) -> str:
    """What a client calls something, without blanks around it."""
    found = text(name, value).strip()
    if any(unicodedata.category(character) in _CONTROL for character in found):
        raise InvalidParameter(f"{name} must not hold control characters.", reason="malformed", param=name)
    if len(found) not in _NAME_LENGTH:
        least, most = _NAME_LENGTH[0], _NAME_LENGTH[-1]
        message = f"{name} must have {least} to {most} characters."
        raise InvalidParameter(message, reason="out_of_range", param=name, details={"min": least, "max": most})
    return found


_DISPLAY_NAME: Final = Kind[str]({"type": "string", "pattern": _NAME}, _display_name)

EMAIL: Final = Field[str](
    "email",
    Kind({"type": "string", "format": "email"}, _email),
    "The address that the letter with the link goes to.",
    "you@example.com",
)
NAME: Final = Field[str](
    "name",
    _DISPLAY_NAME,
    "What the application is called: 2 to 100 characters, without control characters. Blanks around it do not count.",
    "Photo shop",
)
KEY_NAME: Final = Field[str | None](
    "name", _DISPLAY_NAME, "What the key is called; by default as the account is.", "Laptop", default=None
)


_DAY = 86_400  # seconds


def _pack(name: str, value: object) -> Pack:
    found = PACKS.get(text(name, value))
    if found is None:
        message = f"{name} must be one of {', '.join(PACKS)}."
        raise InvalidParameter(message, reason="unknown", param=name, details={"available": list(PACKS)})
    return found


def _file_ids(name: str, value: object) -> tuple[str, ...]:
    """The ids in the order given; whether they exist is not asked."""
    if not isinstance(value, list) or not all(isinstance(one, str) for one in value):
        raise InvalidParameter(f"{name} must be a list of strings.", reason="malformed", param=name)
    return tuple(value)


_TEXT: Final = Kind[str]({"type": "string"}, text)

OUTPUT_FORMAT: Final = Field[str](
    "output_format",
    matching("[A-Za-z0-9]{1,20}", "the name of a format, such as jpeg"),
    "The format to convert to, in capitals or not; `jpg`, `tif` and `heif` are known too. "
    "`GET /formats` tells which there are.",
    "webp",
)
QUALITY: Final = Field[int | None](
    "quality",
    integer(1, 100),
    "How much a lossy format keeps. For a lossless one it is checked, ignored, and told in a warning.",
    80,
    default=None,
)
PASSWORD: Final = Field[str | None]("password", _TEXT, "Opens an encrypted PDF.", "secret", default=None)
PAGES: Final = Field[Pages](
    "pages",
    Kind({"type": "string", "minLength": 1}, lambda name, value: Pages.parse(text(name, value))),
    "The pages to delete, counted from 1, with commas between them; ranges such as `3-5` are taken too. "
    "One page at least has to stay.",
    "2,5,8-10",
)
FILE_IDS: Final = Field[tuple[str, ...]](
    "file_ids",
    Kind({"type": "array", "items": {"type": "string"}, "minItems": 1}, _file_ids),
    "The files of the batch to convert, all of them or some. What is named twice is converted once.",
    ["file_0Ab1Cd2Ef3Gh4Ij5Kl6Mn7"],
)
GRACE_PERIOD: Final = Field[int](
    "grace_period_seconds",
    integer(0, MAX_GRACE),
    "How many seconds the old key goes on working.",
    3600,
    default=_DAY,
)
TOKEN: Final = Field[str](
    "token",
    matching("[0-9A-Fa-f]{64}", "64 hexadecimal digits"),
    "The token in the link of the letter.",
    "0123456789abcdef" * 4,
)
PERIOD: Final = Field[Period | None](
    "period",
    Kind(
        {"type": "string", "anyOf": [{"pattern": "^[0-9]{4}-(0[1-9]|1[0-2])$"}, {"format": "date"}]},
        lambda name, value: period(text(name, value), int(time.time())),
    ),
    "A month `YYYY-MM`, or a day `YYYY-MM-DD` from which on to report; the current month by default.",
    "2026-11",
    default=None,
)
PACK: Final = Field[Pack](
    "pack", Kind({"type": "string", "enum": list(PACKS)}, _pack), "How many credits to buy.", "starter"
)
LANGUAGE: Final = Field[str | None](
    "language",
    matching("[A-Za-z]{2,3}(-[A-Za-z0-9]{2,8}){0,3}", "a language tag, such as en or pt-BR"),
    "The language of the checkout page; `en` by default, and where the provider does not have it.",
    "de",
    default=None,
)
IDEMPOTENCY_KEY: Final = Field[str | None](
    "Idempotency-Key",
    matching("[!-~]([ -~]{0,253}[!-~])?", "1 to 255 printable ASCII characters"),
    "Makes it safe to send the request again: within 24 hours the same request under the same key gets the same "
    "answer, and is carried out once.",
    "0b9d6c1e-5b1f-4c38-9a52-2f0f3c6a7d11",
    default=None,
)
STRIPE_SIGNATURE: Final = Field[str](
    "Stripe-Signature",
    _TEXT,
    "Shows that the event is Stripe's.",
    "t=1795238640,v1=5257a869e7ecebeda32affa62cdca3fa51cad7e77a0e56ff536d0ce8e108d8bd",
)
