"""Values of the API: dataclasses whose fields make both the JSON and its schema."""

from dataclasses import dataclass
from typing import Annotated

from pydantic import Field, TypeAdapter

from storage.field_types import Timestamp
from web.api.values import Flat, Inline, to_json


@dataclass(frozen=True)
class Image:
    width: int | None
    tags: tuple[str, ...]


@dataclass(frozen=True)
class Row:
    id: str
    created_at: Timestamp
    secret: Annotated[str, Field(exclude=True)] = ""


@dataclass(frozen=True)
class Resource(Flat):
    row: Inline[Row]
    image: Inline[Image | None]
    status: str = "new"


@dataclass(frozen=True)
class Copy(Flat):
    resource: Inline[Resource]
    id: str


_ROW = Row("a", 0, "secret")
_FIELDS = ["id", "created_at", "width", "tags", "status"]


def test_inlined_fields_take_the_place_of_their_dataclass() -> None:
    assert to_json(Resource(_ROW, Image(3, ("x",)))) == {
        "id": "a",
        "created_at": "1970-01-01 00:00:00",
        "width": 3,
        "tags": ["x"],
        "status": "new",
    }


def test_the_fields_of_an_absent_value_are_null_or_empty() -> None:
    assert to_json(Resource(_ROW, None)) == {
        "id": "a",
        "created_at": "1970-01-01 00:00:00",
        "width": None,
        "tags": [],
        "status": "new",
    }


def test_own_fields_replace_inlined_ones() -> None:
    copy = to_json(Copy(Resource(_ROW, None, "old"), "b"))
    assert (copy["id"], copy["status"]) == ("b", "old")


def test_the_schema_describes_the_json() -> None:
    schema = TypeAdapter(Copy).json_schema(mode="serialization")
    assert {*schema["properties"]} == {*_FIELDS}
    assert schema["properties"]["width"]["anyOf"] == [{"type": "integer"}, {"type": "null"}]
    assert schema["properties"]["created_at"]["examples"] == ["2026-11-21 05:23:00"]
