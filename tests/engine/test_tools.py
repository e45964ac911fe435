"""A tool on a test format: number of inputs, order of opening, and the index of an invalid input."""

from __future__ import annotations

import pytest

from engine import (
    ConversionError,
    CorruptInput,
    FileFormat,
    Format,
    InvalidOption,
    Signature,
    UnknownFormat,
    conversion,
    pipeline,
    tool,
)
from engine.plugin_loader import Plugin
from engine.registry import Registry

_LINES = Format("lines", list)
_TXT = FileFormat("txt", media_type="text/plain", extensions=("txt",), sniff=Signature((0, b"txt:")))
_NOTE = FileFormat("note", media_type="x/note", extensions=("note",), sniff=Signature((0, b"note:")))


@conversion(_TXT, _LINES)
def split(data: bytes) -> list[bytes]:
    if b"broken" in data:
        raise ValueError("no lines")
    return data.removeprefix(b"txt:").split()


@conversion(_NOTE, _LINES)
def note(data: bytes) -> list[bytes]:
    return [data]


@conversion(_LINES, _TXT)
def join(lines: list[bytes]) -> bytes:
    return b"txt:" + b" ".join(lines)


@tool("chain", _LINES, sources=(_TXT,), count=len, inputs=range(2, 4))
def chain(payloads: list[list[bytes]]) -> list[bytes]:
    """Lays them end to end.

    The rest is for authors.
    """
    if any(b"fail" in lines for lines in payloads):
        raise RuntimeError("a bug")
    return [line for lines in payloads for line in lines]


_PLUGIN = Plugin("text", "Text", (split, note, join), (chain,))
_REGISTRY = Registry([_PLUGIN])


def _run(*inputs: bytes) -> pipeline.PipelineResult:
    return pipeline.run(_REGISTRY.plan([_TXT] * len(inputs), "txt", "chain"), inputs)


def test_paths_in_tool_path_out() -> None:
    result = _run(b"txt:a b", b"txt:c")

    assert result.data == b"txt:a b c"
    assert (result.input_pages, result.pages) == ((2, 1), 3)
    assert [timing.step for timing in result.trace] == ["txt -> lines", "txt -> lines", "chain", "lines -> txt"]


def test_a_plan_is_printed_as_its_path() -> None:
    plan = _REGISTRY.plan([_TXT, _TXT], "txt", "chain")

    assert str(plan) == "txt -> lines + txt -> lines -> chain -> txt"
    assert plan.cost == 3


def test_a_conversion_has_no_page_counts() -> None:
    result = pipeline.run(_REGISTRY.plan([_TXT], "txt"), [b"txt:a"])

    assert (result.input_pages, result.pages) == ((), None)


def test_the_summary_is_the_first_line() -> None:
    assert _REGISTRY.tools["chain"].summary == "Lays them end to end."


@pytest.mark.parametrize("count", [0, 1, 4])
def test_too_few_and_too_many(count: int) -> None:
    with pytest.raises(InvalidOption) as raised:
        _REGISTRY.plan([_TXT] * count, "txt", "chain")

    assert (raised.value.param, raised.value.details) == ("files[]", {"min": 2, "max": 3, "count": count})


def test_an_input_of_another_format() -> None:
    with pytest.raises(UnknownFormat) as raised:
        _REGISTRY.plan([_TXT, _NOTE], "txt", "chain")

    assert (raised.value.reason, raised.value.details["index"]) == ("not_a_txt", 1)


@pytest.mark.parametrize(
    ("inputs", "kind", "index"),
    [((b"txt:a", b"txt:broken"), CorruptInput, 1), ((b"txt:fail", b"txt:a"), ConversionError, None)],
)
def test_the_invalid_file_is_named(inputs: tuple[bytes, ...], kind: type[ConversionError], index: int | None) -> None:
    with pytest.raises(ConversionError) as raised:
        _run(*inputs)

    assert isinstance(raised.value, kind)
    assert raised.value.details.get("index") == index
    assert raised.value.details["step"] == ("txt -> lines" if index else "chain")


def test_tools_of_one_name() -> None:
    registry = Registry([_PLUGIN, Plugin("copy", "Copy", tools=(chain,))])

    assert [plugin.error is None for plugin in registry.plugins] == [True, False]
