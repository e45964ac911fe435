"""Transforms on test formats: which paths they take, when they run, and in which order."""

from dataclasses import replace
from typing import Annotated

import pytest
from pydantic import Field

from engine import FileFormat, Format, InvalidOption, Loss, Signature, conversion, pipeline, tool, transform
from engine.executor import Task
from engine.options import OptionValue
from engine.plugin_loader import Plugin
from engine.registry import Registry


def _file_format(name: str) -> FileFormat:
    return FileFormat(name, media_type=f"x/{name}", extensions=(name,), sniff=Signature((0, name.encode())))


_SCAN, _PRINT, _BOOK = _file_format("scan"), _file_format("print"), _file_format("book")
_PIXELS: Format[list[str]] = Format("pixels", list)
_TEXT: Format[str] = Format("text", str)


@conversion(_SCAN, _PIXELS)
def decode(data: bytes, *, size: int | None = None) -> list[str]:
    return [f"decoded for {size}"]


@conversion(_PIXELS, _PRINT)
def encode(pixels: list[str], *, level: Annotated[int, Field(ge=1, le=9)] = 5) -> bytes:
    return f"print {', '.join(pixels)}, level {level}".encode()


@conversion(_SCAN, _PRINT, cost=0.5)
def embed(data: bytes) -> bytes:
    return b"print embedded"


@conversion(_BOOK, _TEXT)
def read(data: bytes) -> str:
    return "text"


@conversion(_TEXT, _BOOK)
def write(text: str) -> bytes:
    return f"book {text}".encode()


@conversion(_TEXT, _PIXELS, loss=Loss.STRUCTURE)
def render(text: str) -> list[str]:
    return [f"rendered {text}"]


@conversion(_PIXELS, _BOOK, terminal=True)
def bind(pixels: list[str]) -> bytes:
    return f"book {', '.join(pixels)}".encode()


@transform(_PIXELS)
def turn(pixels: list[str], *, turns: int = 0) -> list[str]:
    return [*pixels, f"turned {turns}"]


@transform(_PIXELS, after=turn, memory=2)
def resize(pixels: list[str], *, size: int | None = None, fit: str = "inside") -> list[str]:
    return [*pixels, f"resized to {size} {fit}"]


@transform(_TEXT)
def turn_pages(text: str, *, turns: int = 0) -> str:
    return f"{text} turned {turns}"


@tool("collate", _TEXT, title="Collate", sources=(_BOOK,), count=len, inputs=range(1, 3))
def collate(texts: list[str], *, order: str) -> str:
    """Joins books."""
    return f"{order} {' + '.join(texts)}"


_STEPS = (decode, encode, embed, read, write, render, bind)
_PLUGIN = Plugin("test", "Test", _STEPS, (collate,), transforms=(resize, turn, turn_pages))
_REGISTRY = Registry([_PLUGIN])


def _run(source: FileFormat, target: FileFormat, **options: OptionValue) -> pipeline.PipelineResult:
    return pipeline.run(_REGISTRY.plan([source], target, options=options), [b"data"], options)


@pytest.mark.parametrize(
    ("options", "data"),
    [
        ({}, b"print embedded"),
        ({"turns": 0, "fit": "inside"}, b"print embedded"),  # the defaults ask for nothing
        ({"level": 5}, b"print embedded"),
        ({"level": 3}, b"print decoded for None, level 3"),
        ({"turns": 1}, b"print decoded for None, turned 1, level 5"),
        ({"size": 7, "turns": 1, "level": 3}, b"print decoded for 7, turned 1, resized to 7 inside, level 3"),
        ({"size": 7, "fit": "cover"}, b"print decoded for 7, resized to 7 cover, level 5"),
    ],
)
def test_options_that_are_asked_for_decide_the_path(options: dict[str, OptionValue], data: bytes) -> None:
    assert _run(_SCAN, _PRINT, **options).data == data


def test_the_steps_of_a_plan_include_its_transforms() -> None:
    plan = _REGISTRY.plan([_SCAN], _PRINT, options={"size": 7, "turns": 1})

    assert plan.step_names == ("scan -> pixels", "turn", "resize", "pixels -> print")
    assert str(plan) == "scan -> pixels -> turn -> resize -> print"
    assert plan.memory == _REGISTRY.plan([_SCAN], _PRINT, options={"turns": 1}).memory + 2
    assert [timing.stage for timing in _run(_SCAN, _PRINT, size=7).trace] == ["decode", "convert", "encode"]


def test_a_transform_may_always_run() -> None:
    @transform(_PIXELS, after=resize, always=True)
    def clean(pixels: list[str], *, keep: bool = False) -> list[str]:
        return [*pixels, f"cleaned {keep}"]

    registry = Registry([replace(_PLUGIN, transforms=(clean, resize, turn, turn_pages))])

    def result(source: FileFormat, **options: OptionValue) -> bytes:
        return pipeline.run(registry.plan([source], _PRINT, options=options), [b"data"], options).data

    assert result(_SCAN) == b"print embedded"
    assert result(_BOOK) == b"print rendered text, cleaned False, level 5"
    assert result(_BOOK, size=7) == b"print rendered text, resized to 7 inside, cleaned False, level 5"
    assert result(_SCAN, keep=True) == b"print decoded for None, cleaned True, level 5"


def test_no_option_loses_structure_that_another_path_keeps() -> None:
    result = _run(_BOOK, _BOOK, size=7)

    assert result.data == b"book text"
    assert [(one.code, "size" in one.message) for one in result.outcome.warnings] == [("option_ignored", True)]
    assert _REGISTRY.plan([_BOOK], _PRINT, options={"size": 7}).losses == ("structure",)


def test_an_option_is_left_to_the_first_format_that_has_it() -> None:
    assert _run(_BOOK, _PRINT, turns=1).data == b"print rendered text turned 1, level 5"
    assert _run(_BOOK, _BOOK, turns=1).data == b"book text turned 1"


def test_the_options_of_a_plan() -> None:
    options = _REGISTRY.plan([_SCAN], _PRINT, options={"size": 7}).options

    defaults = {name: option.default for name, option in options.items()}
    assert defaults == {"size": None, "turns": 0, "fit": "inside", "level": 5, "filename": None}
    assert _REGISTRY.plan([_SCAN], _PRINT).options.keys() == {"filename"}
    assert _REGISTRY.pair_options(_REGISTRY.plan([_SCAN], _PRINT)).keys() == options.keys()


def test_options_without_effect_are_one_warning() -> None:
    (warning,) = _run(_BOOK, _BOOK, level=3, order="a").outcome.warnings

    assert warning.code == "option_ignored"
    assert warning.message == "Options without effect on book to book: level, order."


def test_transforms_run_after_the_tool() -> None:
    options: dict[str, OptionValue] = {"order": "first", "turns": 1}
    plan = _REGISTRY.plan([_BOOK, _BOOK], _BOOK, "collate", options)

    assert pipeline.run(plan, [b"1", b"2"], options).data == b"book first text + text turned 1"
    assert [name for name, option in plan.options.items() if option.required] == ["order"]


def test_a_required_option_that_is_missing() -> None:
    with pytest.raises(InvalidOption) as raised:
        pipeline.run(_REGISTRY.plan([_BOOK], _BOOK, "collate"), [b"1"])

    assert (raised.value.param, raised.value.reason) == ("order", "missing")


def test_a_job_carries_plain_values() -> None:
    options: dict[str, OptionValue] = {"size": 7}

    assert Task.of(_REGISTRY.plan([_SCAN], _PRINT, options=options), options).options == options


def _plugin_with(step: object) -> Plugin:
    return Plugin("other", "Other", transforms=(step,))  # type: ignore[arg-type]


def test_plugins_that_disagree_on_an_option() -> None:
    @transform(_PIXELS)
    def sharpen(pixels: list[str], *, level: float = 1.0) -> list[str]:
        return pixels

    @transform(_PIXELS)
    def soften(pixels: list[str], *, level: Annotated[int, Field(ge=1, le=9)] = 2) -> list[str]:
        return pixels

    refused, accepted = (Registry([_PLUGIN, _plugin_with(step)]) for step in (sharpen, soften))

    assert [one.error for one in refused.plugins] == [None, "another plugin declares the option level differently"]
    assert "sharpen" not in str(refused.plan([_SCAN], _PRINT, options={"level": 3}))
    assert [one.error for one in accepted.plugins] == [None, None]
    assert (_REGISTRY.options["level"].default, accepted.options["level"].default) == (5, None)


def test_plugins_that_declare_the_same_transform() -> None:
    registry = Registry([_PLUGIN, Plugin("copy", "Copy", transforms=(turn,))])

    assert registry.plugins[1].error == "another plugin declares the transform turn differently"
