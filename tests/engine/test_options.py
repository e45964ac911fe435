"""Options, read from signatures, validated, and described as JSON Schema; page ranges."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, Literal, NotRequired, TypeAlias

import jsonschema_rs
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import AfterValidator, Field
from typing_extensions import TypedDict

from engine import InvalidOption, PageRanges, option_types
from engine.executor import Task
from engine.options import Option, arguments, join_options, options_schema, read_parameters, unknown_option
from engine.registry import load_registry

_REGISTRY = load_registry()


def _even(value: int) -> int:
    if value % 2:
        raise ValueError("must be even.")
    return value


Level: TypeAlias = Annotated[int, Field(ge=1, le=9, description="A level.")]


class Part(TypedDict):
    """A part of a list."""

    file: NotRequired[Annotated[int, Field(ge=0)]]
    turn: NotRequired[Literal[90, 180]]


Even: TypeAlias = Annotated[int, AfterValidator(_even)]


_TYPES: dict[str, Any] = {
    "level": Level,
    "size": Annotated[int, Field(ge=1000)],
    "ratio": Annotated[float, Field(gt=0, le=2)],
    "on": bool,
    "mode": Literal["fast", "small"],
    "angle": Literal[0, 90],
    "even": Even,
    "parts": Annotated[list[Part], Field(max_length=2, examples=[[{"file": 0}]])],
    "fields": Annotated[dict[str, str | bool], Field(description="Values by name.")],
    "pages": option_types.Pages,
    "background": option_types.Background,
    "secret": option_types.Password,
}


def _options(function: Callable[..., Any]) -> dict[str, Option]:
    return read_parameters(function).options


def test_the_keyword_only_parameters_of_a_step_are_its_options() -> None:
    def step(data: bytes, *, level: Level = 5, mode: Literal["a", "b"] | None = None, name: str) -> bytes:
        return data

    assert _options(step) == {
        "level": Option("level", Level, 5),
        "mode": Option("mode", Literal["a", "b"], None),
        "name": Option("name", str, required=True),
    }


def test_the_payload_may_have_a_type_that_is_not_imported() -> None:
    def step(document: missing.Document, *, level: Level = 5) -> missing.Document:  # type: ignore[name-defined] # noqa: F821
        return document

    assert list(_options(step)) == ["level"]


def _second_payload(data: bytes, options: object) -> bytes:
    return data


def _any_keyword(data: bytes, **options: int) -> bytes:
    return data


def _list(data: bytes, *, levels: tuple[int, ...]) -> bytes:
    return data


def _two_types(data: bytes, *, level: int | str = 1) -> bytes:
    return data


def _mixed(data: bytes, *, level: Literal[1, "one"] = 1) -> bytes:
    return data


@pytest.mark.parametrize("function", [_second_payload, _any_keyword, _list, _two_types, _mixed])
def test_other_parameters_are_refused(function: Callable[..., Any]) -> None:
    with pytest.raises(TypeError):
        read_parameters(function)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("level", 1),
        ("level", 9),
        ("ratio", 1),
        ("ratio", 0.5),
        ("on", False),
        ("mode", "fast"),
        ("angle", 90),
        ("even", 2),
        ("parts", [{"file": 1}, {"turn": 90}]),
        ("fields", {"name": "Ö", "on": False}),
        ("pages", "all"),
        ("pages", "3,1-2"),
        ("background", "#fff"),
        ("secret", "1"),
    ],
)
def test_valid_values(name: str, value: object) -> None:
    assert Option(name, _TYPES[name]).validate(value) == value


@pytest.mark.parametrize(
    ("name", "value", "reason", "message", "details"),
    [
        ("level", 0, "out_of_range", "level must be an integer from 1 to 9.", {"min": 1, "max": 9}),
        ("level", True, "not_an_integer", "level must be an integer from 1 to 9.", {"min": 1, "max": 9}),
        ("level", 5.0, "not_an_integer", "level must be an integer from 1 to 9.", {"min": 1, "max": 9}),
        ("level", "5", "not_an_integer", "level must be an integer from 1 to 9.", {"min": 1, "max": 9}),
        ("level", [5], "not_an_integer", "level must be an integer from 1 to 9.", {"min": 1, "max": 9}),
        ("size", 999, "out_of_range", "size must be an integer of at least 1000.", {"min": 1000}),
        ("ratio", 3, "out_of_range", "ratio must be a number of at most 2.", {"max": 2}),
        ("ratio", math.nan, "out_of_range", "ratio must be a number of at most 2.", {"max": 2}),
        ("ratio", "half", "malformed", "ratio must be a number of at most 2.", {"max": 2}),
        ("on", 1, "malformed", "on must be true or false.", {}),
        ("mode", "slow", "unknown", "mode must be one of fast, small.", {"available": ["fast", "small"]}),
        ("mode", 1, "unknown", "mode must be one of fast, small.", {"available": ["fast", "small"]}),
        ("angle", 45, "unknown", "angle must be one of 0, 90.", {"available": [0, 90]}),
        ("angle", False, "unknown", "angle must be one of 0, 90.", {"available": [0, 90]}),
        ("even", 3, "malformed", "even must be even.", {}),
        ("parts", "[]", "malformed", 'parts must be a list in JSON, such as [{"file": 0}].', {}),
        ("parts", [{}, {}, {}], "out_of_range", "parts must have a number of entries of at most 2.", {"max": 2}),
        ("parts", [{}, {"turn": 45}], "malformed", "parts[1].turn: Input should be 90 or 180.", {}),
        ("parts", [{"page": 1}], "malformed", "parts[0].page: Extra inputs are not permitted.", {}),
        ("parts", [{"file": "0"}], "malformed", "parts[0].file: Input should be a valid integer.", {}),
        ("fields", [], "malformed", "fields must be an object in JSON, such as {}.", {}),
        ("pages", 2.5, "malformed", "pages must be a string.", {}),
        ("pages", "0", "out_of_range", "pages must be numbers from 1, ranges from low to high.", {"value": "0"}),
        ("secret", "x" * 129, "out_of_range", "secret must have at most 128 characters.", {"max": 128}),
        (
            "background",
            "#ff",
            "malformed",
            "background must be text such as #ffffff. #rgb, #rrggbb, #rrggbbaa or a CSS color name; replaces "
            "transparency and pads `contain`.",
            {},
        ),
    ],
)
def test_invalid_values(name: str, value: object, reason: str, message: str, details: dict[str, Any]) -> None:
    with pytest.raises(InvalidOption) as raised:
        Option(name, _TYPES[name]).validate(value)

    error = raised.value
    assert (error.param, error.reason, str(error), error.details) == (name, reason, message, details)


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("level", "5", 5),
        ("ratio", "0.5", 0.5),
        ("ratio", "1", 1.0),
        ("ratio", "1.5e-1", 0.15),
        ("on", "true", True),
        ("on", "false", False),
        ("on", "True", True),
        ("angle", "90", 90),
        ("mode", "small", "small"),
        ("pages", "1", "1"),
        ("secret", "true", "true"),
        ("parts", '[{"file": 1}]', [{"file": 1}]),
        ("fields", '{"on": true}', {"on": True}),
        ("background", "#fff", "#fff"),
    ],
)
def test_text_is_read_as_json(name: str, text: str, value: object) -> None:
    found = Option(name, _TYPES[name]).validate(text, from_text=True)

    assert (found, type(found)) == (value, type(value))


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("level", "5.0"),
        ("level", ""),
        ("level", " 5"),
        ("ratio", "1e999"),
        ("level", "\u0665"),
        ("level", "9" * 5000),
        ("on", "2"),
        ("on", ""),
        ("parts", "[{"),
        ("parts", "[" * 5000),
        ("fields", '{"name": "\\ud800"}'),
        ("fields", '{"name": NaN}'),
    ],
)
def test_malformed_text(name: str, text: str) -> None:
    with pytest.raises(InvalidOption):
        Option(name, _TYPES[name]).validate(text, from_text=True)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("level", "1 to 9"),
        ("size", "at least 1000"),
        ("ratio", "at most 2"),
        ("on", "true, false"),
        ("mode", "fast, small"),
        ("angle", "0, 90"),
        ("even", "integer"),
        ("parts", 'JSON such as [{"file": 0}]'),
        ("pages", "text such as 2-5,8"),
        ("secret", "text"),
    ],
)
def test_values_as_text(name: str, text: str) -> None:
    assert Option(name, _TYPES[name]).values == text


def test_the_last_default_applies() -> None:
    first = {"level": Option("level", Level, 3), "on": Option("on", bool, required=True)}
    last = {"level": Option("level", Level, 7), "on": Option("on", bool)}

    joined = join_options([first, last, {"level": Option("level", Level)}])

    assert joined == {"level": Option("level", Level, 7), "on": Option("on", bool, required=True)}


def test_the_schema_accepts_what_validation_accepts() -> None:
    options = {name: Option(name, kind) for name, kind in _TYPES.items()}
    options["level"] = Option("level", Level, 5, required=True)
    schema = options_schema(options)
    validator = jsonschema_rs.Draft202012Validator(schema)

    level = {"type": "integer", "minimum": 1, "maximum": 9, "description": "A level.", "default": 5}
    assert schema["properties"]["level"] == level
    assert validator.is_valid({"level": 9, "mode": "fast", "background": "#fff", "parts": [{"turn": 90}]})
    wrong_part = {"level": 5, "parts": [{"turn": 45}]}
    for wrong in ({}, {"level": 10}, {"level": 5, "mode": "slow"}, {"level": 5, "color": 1}, wrong_part):
        assert not validator.is_valid(wrong)


def test_the_registry_validates_by_name() -> None:
    found = _REGISTRY.validate({"quality": "80", "password": "80", "pages": None}, from_text=True)

    assert found == {"quality": 80, "password": "80"}
    with pytest.raises(InvalidOption):
        _REGISTRY.validate({"quality": "80"})


def test_an_unknown_name_lists_the_known_ones() -> None:
    with pytest.raises(InvalidOption) as raised:
        _REGISTRY.validate({"qualitty": 80})

    error = raised.value
    assert (error.param, error.reason) == ("qualitty", "unknown_parameter")
    assert error.details["available"][0] == "quality"
    assert set(error.details["available"]) == set(_REGISTRY.options)


def test_a_long_unknown_name_is_cut() -> None:
    error = unknown_option("w" * 100_000, ["width", "height"])

    assert error.param == "w" * 50
    assert len(str(error)) < 200


def test_only_passwords_are_secret() -> None:
    secrets = [name for name, option in _REGISTRY.options.items() if option.secret]
    assert sorted(secrets) == ["cookies", "owner_password", "password", "user_password"]


@dataclass(frozen=True)
class _Frame:
    """A group of options."""

    width: Annotated[int, Field(ge=1, description="Width.")] | None = None
    color: Annotated[str, Field(description="Color.")] = "white"


def _frame(payload: bytes, *, frame: _Frame, level: int = 5) -> tuple[_Frame, int]:
    return frame, level


def test_a_dataclass_stands_for_several_options() -> None:
    options, groups, *_ = read_parameters(_frame)

    assert {name: option.default for name, option in options.items()} == {"width": None, "color": "white", "level": 5}
    assert options["width"].schema == {"type": "integer", "minimum": 1, "description": "Width."}
    given = arguments(groups, options, {"width": 3, "level": 2, "other": 1})
    assert given == {"frame": _Frame(3), "level": 2}
    assert _frame(b"", **given) == (_Frame(3, "white"), 2)
    assert arguments(groups, options, {}) == {"frame": _Frame()}


@pytest.mark.parametrize(
    ("text", "spans"),
    [
        ("2,5,8", ((2, 2), (5, 5), (8, 8))),
        ("3-5", ((3, 5),)),
        ("1,3, ", ((1, 1), (3, 3))),
        (" 8 , 2,2 ,5-5,1 - 3 ", ((8, 8), (2, 2), (2, 2), (5, 5), (1, 3))),
        ("1-999999999", ((1, 999999999),)),
        (" all ", ((1, None),)),
        ("4-,2 - ", ((4, None), (2, None))),
        ('[2, "5-6"]', ((2, 2), (5, 6))),
    ],
)
def test_text(text: str, spans: tuple[tuple[int, int | None], ...]) -> None:
    assert PageRanges.parse(text).spans == spans


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        ",",
        "1,,",
        ",1",
        "0",
        "-1",
        "two",
        "5-3",
        "1--2",
        "1.5",
        "+1",
        "1 2",
        "٣",
        "9" * 5000,
        "0-2",
        "[]",
        "[1",
        "[1.5]",
    ],
)
def test_malformed_pages(text: str) -> None:
    with pytest.raises(InvalidOption) as raised:
        PageRanges.parse(text)

    assert raised.value.param == "pages"


@pytest.mark.parametrize("spans", [((0, 1),), ((3, 2),)])
def test_only_valid_values_exist(spans: tuple[tuple[int, int], ...]) -> None:
    with pytest.raises(InvalidOption):
        PageRanges(spans)


@given(st.lists(st.integers(1, 30), min_size=1))
def test_any_order(numbers: list[int]) -> None:
    pages = PageRanges.parse(",".join(map(str, numbers)))

    assert pages.indexes(30) == [number - 1 for number in dict.fromkeys(numbers)]


def test_ranges_in_any_order() -> None:
    assert PageRanges.parse("7-9,8,1-2,2-3").indexes(9) == [6, 7, 8, 0, 1, 2]


def test_all_pages() -> None:
    assert PageRanges.parse("all").indexes(3) == [0, 1, 2]


def test_beyond_the_last_page() -> None:
    for text in ("2,1-999999999", "5", "9-", "1-,5-"):
        with pytest.raises(InvalidOption) as raised:
            PageRanges.parse(text).indexes(4)
        assert (raised.value.reason, raised.value.details["page_count"]) == ("out_of_range", 4)


def test_ranges_to_the_last_page() -> None:
    assert PageRanges.parse("3-,1").indexes(4) == [2, 3, 0]
    assert PageRanges.parse("4-,2,4").order(5) == [3, 4, 1, 3]


def test_a_password_is_never_shown() -> None:
    assert "secret" not in repr(Task(("pdf",), "png", {"password": "secret"}))
