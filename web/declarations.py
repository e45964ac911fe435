"""Declarations of what requests carry: each both checks a value and describes it in the API's document."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeAlias, TypeVar, cast

from web.errors import InvalidParameter

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
