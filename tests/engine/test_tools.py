"""A tool on a test format: number of inputs, order of opening, and the index of an invalid input."""

import os
from pathlib import Path
from typing import Annotated, Literal
from zipfile import ZipFile

import pytest

from engine import (
    ConversionError,
    CorruptInput,
    EncodedFile,
    FileFormat,
    Format,
    InputFile,
    InputNames,
    InvalidOption,
    NamedFile,
    Signature,
    ToolResult,
    UnknownFormat,
    conversion,
    pipeline,
    tool,
)
from engine.errors import StepFailed
from engine.executor.worker import convert
from engine.formats import ANY_FILE
from engine.memory_estimate import allowed_bytes
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


_BARE = FileFormat("bare", media_type="x/bare", extensions=("bare",), sniff=lambda _content: 0)
Lines = Annotated[list[bytes], InputFile(_LINES, "The name.")]


@tool("chain", _LINES, title="Chain lines", sources=(_TXT,), count=len, inputs=range(2, 4))
def chain(payloads: list[list[bytes]]) -> list[bytes]:
    """Lays them end to end.

    The rest is for authors.
    """
    if any(b"fail" in lines for lines in payloads):
        raise RuntimeError("a bug")
    return [line for lines in payloads for line in lines]


@tool("words", _LINES, title="Split lines", sources=(_TXT,), count=len)
def words(lines: list[bytes]) -> ToolResult[list[bytes]]:
    """A file for each line."""
    if b"none" in lines:
        return ToolResult(files=[])
    files = ((line.decode(), [line]) for line in lines if line != b"late" or 1 / 0)
    return ToolResult(files=files, facts={"deleted_pages": (1,)})


@tool("sign", _LINES, title="Sign", sources=(_TXT,))
def sign(lines: list[bytes], *, upper: bool = False, name: Lines | None = None) -> list[bytes]:
    """Appends a name."""
    added = [b"nobody"] if name is None else name
    return [*lines, *(line.upper() if upper else line for line in added)]


@tool("pack", _LINES, title="Pack", decoded_to=_LINES, target=_TXT, inputs=range(1, 4), encodes=True)
def pack(payloads: list[list[bytes]], *, upper: Literal["a", "b"] = "a") -> ToolResult[list[bytes]]:
    """A file of each, in one of two formats; the option `upper` has another type than that of `sign`."""
    if upper == "b":
        return ToolResult(payloads[0])
    formats = (None, _NOTE, _BARE)
    files = ((str(index), EncodedFile(text[0], pages=2, format=formats[index])) for index, text in enumerate(payloads))
    return ToolResult(files=files)


Notes = Annotated[list[NamedFile], InputFile(None, "Files of any format.", maximum=2)]


@tool("enclose", _LINES, title="Enclose", sources=(_TXT,))
def enclose(lines: list[bytes], *, notes: Notes = (), names: InputNames = ()) -> list[bytes]:  # type: ignore[assignment]
    """Appends names and contents of files."""
    return [*(name.encode() for name in names), *lines, *(b"%s=%s" % (one.name.encode(), one.data) for one in notes)]


@tool("same", _TXT, title="Same", sources=(_TXT,), encodes=True, memory=5)
def same(data: bytes) -> EncodedFile:
    """The file itself."""
    if data == b"txt:odd":
        raise ValueError("not understood")
    return EncodedFile(data, pages=data.count(b" ") + 1)


_PLUGIN = Plugin("text", "Text", (split, note, join), (chain, words, sign, pack, enclose, same))
_REGISTRY = Registry([_PLUGIN])


def _run(*inputs: bytes) -> pipeline.PipelineResult:
    return pipeline.run(_REGISTRY.plan([_TXT] * len(inputs), "txt", "chain"), inputs)


def test_paths_in_tool_path_out() -> None:
    result = _run(b"txt:a b", b"txt:c")

    assert result.data == b"txt:a b c"
    assert (result.outcome.original_page_count, result.outcome.page_count) == (3, 3)
    assert (result.outcome.file_count, result.outcome.container) == (2, None)
    assert [timing.step for timing in result.trace] == ["txt -> lines", "txt -> lines", "chain", "lines -> txt"]


def test_several_files_are_an_archive() -> None:
    files: list[EncodedFile] = []
    result = pipeline.run(_REGISTRY.plan([_TXT], "txt", "words"), [b"txt:a b"], on_file=files.append)

    assert [(file.name, file.data, file.pages) for file in files] == [("a", b"txt:a", 1), ("b", b"txt:b", 1)]
    outcome = result.outcome
    assert (outcome.container, outcome.file_count, outcome.processed_size) == ("zip", 2, 10)
    assert (outcome.original_page_count, outcome.page_count, outcome.deleted_pages) == (2, 2, (1,))
    assert [timing.step for timing in result.trace] == ["txt -> lines", "words", "lines -> txt"]


def test_one_file_of_several_is_an_archive() -> None:
    assert pipeline.run(_REGISTRY.plan([_TXT], "txt", "words"), [b"txt:a"]).outcome.container == "zip"


@pytest.mark.parametrize("data", [b"txt:none", b"txt:a late"])
def test_no_file_and_a_late_failure_are_failures(data: bytes) -> None:
    with pytest.raises(StepFailed):
        pipeline.run(_REGISTRY.plan([_TXT], "txt", "words"), [data])


def test_a_additional_file_is_opened_for_its_parameter() -> None:
    plan = _REGISTRY.plan([_TXT, _NOTE], "txt", "sign", {"upper": True}, ("name",))

    assert plan.tool is not None
    assert [*plan.tool.options] == ["upper"]
    assert pipeline.run(plan, [b"txt:a", b"note:b"], {"upper": True}).data == b"txt:a NOTE:B"
    assert pipeline.run(_REGISTRY.plan([_TXT], "txt", "sign"), [b"txt:a"]).data == b"txt:a nobody"


def test_several_files_of_any_format_have_their_names() -> None:
    plan = _REGISTRY.plan([_TXT, ANY_FILE, ANY_FILE], "txt", "enclose", {}, ("notes", "notes"))

    result = pipeline.run(plan, [b"txt:a", b"1", b"\0"], names=("main", "x.xml", "y.bin"))

    assert result.data == b"txt:main a x.xml=1 y.bin=\0"
    assert pipeline.run(plan, [b"txt:a", b"1", b"2"]).data == b"txt:a notes=1 notes=2"


def test_a_plan_is_printed_as_its_path() -> None:
    plan = _REGISTRY.plan([_TXT, _TXT], "txt", "chain")

    assert str(plan) == "txt -> lines + txt -> lines -> chain -> txt"
    assert plan.cost == 3


def test_a_conversion_has_no_page_counts() -> None:
    result = pipeline.run(_REGISTRY.plan([_TXT], "txt"), [b"txt:a"])

    assert (result.outcome.original_page_count, result.outcome.page_count) == (None, None)


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


def test_a_tool_that_encodes_returns_files_in_several_formats(tmp_path: Path) -> None:
    inputs = [b"txt:txt:a", b"note:b", b"txt:bare"]
    paths = [tmp_path / str(number) for number in range(4)]
    for path, data in zip(paths, [*inputs, b""], strict=True):
        path.write_bytes(data)
    plan = _REGISTRY.plan([_TXT, _NOTE, _TXT], "txt", "pack")

    result = convert(_REGISTRY, plan, {}, [os.open(path, os.O_RDWR) for path in paths], lambda _size: None, "x")

    with ZipFile(paths[-1]) as archive:
        found = {name: archive.read(name) for name in archive.namelist()}
    assert found == {"x-0.txt": b"txt:a", "x-1.note": b"note:b", "x-2.bare": b"bare"}
    assert (result.outcome.container, result.outcome.file_count, result.outcome.page_count) == ("zip", 3, 6)
    with pytest.raises(StepFailed):
        pipeline.run(_REGISTRY.plan([_TXT], "txt", "pack", {"upper": "b"}), [b"txt:a"], {"upper": "b"})


def test_a_tool_reads_all_formats_that_are_decoded_to_another() -> None:
    packing = _REGISTRY.tools["pack"]

    assert ([fmt.name for fmt in packing.accepted], packing.reads) == (["note", "txt"], "image")
    with pytest.raises(UnknownFormat) as raised:
        _REGISTRY.plan([_BARE], "txt", "pack")
    assert raised.value.reason == "not_a_picture"


def test_a_tool_of_files_opens_nothing() -> None:
    plan = _REGISTRY.plan([_TXT], "txt", "same")

    result = pipeline.run(plan, [b"txt:a b"])
    assert (str(plan), result.data, result.outcome.page_count) == ("txt -> same", b"txt:a b", 2)
    with pytest.raises(CorruptInput):
        pipeline.run(plan, [b"txt:odd"])


def test_a_tool_gets_the_memory_that_it_declares() -> None:
    same, chain = (_REGISTRY.plan([_TXT] * count, "txt", tool) for tool, count in (("same", 1), ("chain", 2)))

    assert (same.memory, chain.memory) == (5, split.memory + join.memory)
    assert allowed_bytes(same, 1_000_000) - allowed_bytes(same, 0) >= 5_000_000


def test_options_of_tools_are_their_own() -> None:
    kinds = [_REGISTRY.tool_options(name)["upper"].schema["type"] for name in ("sign", "pack")]

    assert kinds == ["boolean", "string"]
    assert "upper" not in _REGISTRY.options


def test_tools_of_one_name() -> None:
    registry = Registry([_PLUGIN, Plugin("copy", "Copy", tools=(chain,))])

    assert [plugin.error is None for plugin in registry.plugins] == [True, False]
