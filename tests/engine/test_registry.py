"""Formats, names, plans, the cheapest path, identification, and plugins that contradict each other."""

import sys
from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from itertools import pairwise
from pathlib import Path
from types import FrameType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine import (
    RASTER,
    Content,
    FileFormat,
    Format,
    InvalidOption,
    Raster,
    Signature,
    Sniffer,
    TargetCapabilities,
    UnknownFormat,
    UnsupportedConversion,
    conversion,
)
from engine.conversions import AnyConversion, Conversion, Loss, Tool
from engine.executor import Task
from engine.formats import AnyFormat, any_of
from engine.options import NO_OPTIONS, OptionValues
from engine.planner import Plan, cheapest_paths
from engine.plugin_loader import Plugin, load_plugins
from engine.registry import Registry, find_harm, load_registry
from plugins.formats.png import PNG
from tests.support.samples.compound_files import compound_file
from tests.support.samples.corpus import load_corpus
from tests.support.samples.generated import FORMATS, sample
from tests.support.samples.pairs import pairs_with_samples
from tests.support.samples.raw_samples import CAMERAS

_REGISTRY = load_registry()
_FORMATS = [Format(name, bytes) for name in "abcde"]
_steps = st.builds(
    Conversion[bytes, bytes],
    source=st.sampled_from(_FORMATS),
    target=st.sampled_from(_FORMATS),
    run=st.just(lambda payload: payload),
    loss=st.sampled_from(Loss),
    cost=st.integers(1, 9).map(float),
    terminal=st.booleans(),
)
_Path = tuple[AnyConversion, ...]


@pytest.mark.parametrize("name", ["jpeg", "JPEG", "jpg", "Tif", "heif", "svgz"])
def test_names_and_aliases(name: str) -> None:
    assert _REGISTRY.format(name) is not None


def test_an_unknown_name_is_no_format() -> None:
    assert _REGISTRY.format("xyz") is None


@pytest.mark.parametrize("disguise", ["photo.jpg", "page.pdf", "noextension", "raw.nef"])
def test_the_content_decides_the_format(disguise: str) -> None:
    for fmt in {plan.source for plan in pairs_with_samples()}:
        given = f"a.{fmt.text_extensions[-1]}" if fmt.text_extensions else disguise
        assert _REGISTRY.identify_content(sample(fmt.name), given).name == fmt.name


def test_validated_options_are_not_validated_again() -> None:
    source = _REGISTRY.formats["png"]
    with pytest.raises(InvalidOption):
        _REGISTRY.plan([source], "jpeg", options={"quality": 1000})
    assert _REGISTRY.plan([source], "jpeg", options={"quality": 1000}, validated=True).target.name == "jpeg"


def test_a_plan_is_kept_for_options_without_transforms() -> None:
    """It has computed its template, its memory and others then."""
    plan = _REGISTRY.plan([_REGISTRY.formats["png"]], "jpeg")

    assert plan.with_transforms(NO_OPTIONS) is plan
    assert _REGISTRY.plan(plan.sources, "jpeg", options={"quality": 40}) is plan
    turned = _REGISTRY.plan(plan.sources, "jpeg", options={"rotate": 90})
    assert len(turned.steps) == len(plan.steps) + 1
    assert turned.with_transforms(NO_OPTIONS).steps == plan.steps


_NOTHING = ("bad/empty_0_bytes.heic", "bad/five_bytes.pdf", "bad/imagetragick_mvg_as.jpg")


def _identified(path: Path) -> str | None:
    try:
        return _REGISTRY.identify(path).name
    except UnknownFormat:
        return None


def test_real_files_are_recognized() -> None:
    for entry in load_corpus():
        expected = None if entry.name in _NOTHING else entry.format.lower().replace("apng", "png")
        assert _identified(entry.path) == expected, entry.name


@pytest.mark.parametrize("content", [b"hello", b"\0" * 64, b"<svgs/>", b"push graphic-context", b"RIFF    WAVE", b""])
def test_anything_else_is_unknown(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "file.png"
    path.write_bytes(content)

    with pytest.raises(UnknownFormat) as raised:
        _REGISTRY.identify(path)

    assert raised.value.reason == ("unrecognized" if content else "empty_file")


def _text_format(name: str, *text_extensions: str) -> Plugin:
    sniff = Signature((0, b"<" + name.encode()))
    fmt = FileFormat(name, media_type="text/x", extensions=(name,), sniff=sniff, text_extensions=text_extensions)

    @conversion(fmt, RASTER)
    def decode(_data: bytes) -> Raster:
        raise AssertionError("never run")

    return Plugin(name, name, (decode,))


_LATIN = "Größe".encode("cp1252")


@pytest.mark.parametrize(
    ("content", "filename", "expected"),
    [
        (b"a;b", "table.first", "first"),
        (b"a;b", "TABLE.FIRST", "first"),
        (b"a;b", "table", "second"),
        (b"a;b", "", "second"),
        (b"a;b", "archive.first/table", "second"),
        (b"a;b", "table.png", None),
        (b"<second", "table.first", "second"),
        (b"<second", "table.png", "second"),
        ("Größe 漢字".encode(), "table.first", "first"),
        ("Größe 漢字".encode("utf-16"), "table.first", "first"),
        (b"\xef\xbb\xbfa;b", "table.first", "first"),
        (_LATIN * 20_000, "table.first", "first"),
        ("あ".encode() * 30_000, "table.first", "first"),  # the part that is read ends within a character
        (b"a\0b", "table.first", None),
        (b"a\x81b", "table.first", "first"),
        (b"\xff\xfea", "table.first", "first"),  # windows-1252: half a character of UTF-16
        (b"\x89PNG\r\n\x1a\n", "table", None),
    ],
)
def test_text_has_the_format_of_its_extension(content: bytes, filename: str, expected: str | None) -> None:
    registry = Registry([_text_format("first", "first"), _text_format("second", "", "second")])
    try:
        found: str | None = registry.identify_content(content, filename).name
    except UnknownFormat:
        found = None

    assert found == expected


@pytest.mark.parametrize(
    ("name", "sentence"),
    [("wepb", " The nearest one is webp."), ("JPGE", " The nearest one is jpeg."), ("docx", ""), ("paper", "")],
)
def test_the_error_for_a_misspelled_format_names_the_nearest(name: str, sentence: str) -> None:
    with pytest.raises(UnsupportedConversion) as raised:
        _REGISTRY.plan([PNG], name)

    assert str(raised.value) == f"png cannot be converted to {name}.{sentence}"


def test_an_unsupported_pair_lists_the_available_targets() -> None:
    with pytest.raises(UnsupportedConversion) as raised:
        _REGISTRY.plan([_REGISTRY.formats["jpeg"]], "svg")

    details = raised.value.details
    assert (details["input_format"], details["output_format"]) == ("jpeg", "svg")
    assert {"png", "pdf", "webp"} < set(details["available"])


@pytest.mark.parametrize(
    ("source", "target", "path"),
    [
        ("jpeg", "webp", "jpeg -> raster -> metadata -> webp"),
        ("jpeg", "jpeg", "jpeg -> raster -> metadata -> jpeg"),
        ("jpeg", "pdf", "jpeg -> pdf"),
        ("svg", "pdf", "svg -> pdf"),
        ("eps", "svg", "eps -> pdf -> document -> svg"),
        ("pdf", "eps", "pdf -> document -> eps"),
        ("nef", "tiff", "nef -> raster -> metadata -> tiff"),
    ],
)
def test_paths(source: str, target: str, path: str) -> None:
    assert str(_REGISTRY.plan([_REGISTRY.formats[source]], target)) == path


def _plugin(name: str, sniff: Sniffer, format_name: str = "odd") -> Plugin:
    odd = FileFormat(format_name, media_type=f"x/{format_name}", extensions=(format_name,), sniff=sniff)

    @conversion(odd, RASTER)
    def decode(_data: bytes) -> Raster:
        raise AssertionError("never run")

    return Plugin(name, name, (decode,))


def test_the_search_for_options_is_not_repeated() -> None:
    """BMP has none of them: the registry searches for a path that has them."""
    options: OptionValues = {"quality": 80, "effort": 3, "subsampling": "4:4:4", "compression": "lzw"}

    def calls() -> int:
        count = 0

        def count_call(_frame: FrameType, event: str, _value: object) -> None:
            nonlocal count
            count += event == "call"

        sys.setprofile(count_call)
        try:
            _REGISTRY.plan([_REGISTRY.formats["png"]], "bmp", options=options)
        finally:
            sys.setprofile(None)
        return count

    first = calls()
    assert 10 * calls() < first


@pytest.mark.parametrize("shortest", [1, 4])
def test_detection_goes_on_without_formats_that_fail(shortest: int, caplog: pytest.LogCaptureFixture) -> None:
    def sniff(content: Content) -> int:
        if len(content) >= shortest:
            raise IndexError("out of range")
        return 0

    registry = Registry([_plugin("fragile", sniff), *_REGISTRY.plugins])

    assert registry.identify_content(sample("png"), "a.odd").name == "png"
    assert "fragile" in caplog.text
    message = "the detection of odd fails: IndexError: out of range"
    assert registry.plugins[0].error == (message if shortest == 1 else None)


@pytest.mark.parametrize("name", [*sorted(FORMATS - {*CAMERAS}), "doc"])
def test_detection_fails_for_no_truncated_file(name: str) -> None:
    content = compound_file({"WordDocument": b""}) if name == "doc" else sample(name)

    for fmt in _REGISTRY.formats.values():
        for length in (*range(1, 80), 128, 512, 513, 4096):
            fmt.match(content[:length], "")


class _Counted(Signature):
    calls = 0

    def __call__(self, content: Content) -> int:
        self.calls += 1
        return super().__call__(content)


def test_files_are_compared_with_formats_that_begin_as_they_do() -> None:
    counted = {text: _Counted((0, text)) for text in (b"ab", b"ac", b"b")}
    elsewhere = _Counted((1, b"c"))
    either = any_of(counted[b"ac"], counted[b"b"])
    formats: dict[str, Sniffer] = {"first": counted[b"ab"], "second": either, "third": elsewhere}
    registry = Registry(_plugin(name, sniff, name) for name, sniff in formats.items())
    before = {text: each.calls for text, each in counted.items()}, elsewhere.calls

    assert registry.identify_content(b"bc").name == "second"

    calls = {text: each.calls - before[0][text] for text, each in counted.items()}
    assert calls == {b"ab": 0, b"ac": 1, b"b": 1}
    assert elsewhere.calls == before[1] + 1


def test_plugins_that_disagree_on_a_format() -> None:
    registry = Registry([_plugin("first", Signature((0, b"1"))), _plugin("second", Signature((0, b"2")))])

    assert [plugin.error is None for plugin in registry.plugins] == [True, False]
    assert registry.identify_content(b"1").name == "odd"


_DECODER = """
from engine import RASTER, FileFormat, InvalidOption, Raster, Signature, conversion, hookimpl

@conversion(FileFormat("odd", media_type="x/odd", extensions=("odd",), sniff=Signature((0, b"o"))), RASTER)
def decode(data: bytes) -> Raster: ...
"""


_HOOK = "@hookimpl\ndef conversions(): return {}\n"


def test_a_hook_replaces_the_values_of_a_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = {"empty": _HOOK.format("[]"), "nothing": _HOOK.format(None), "one": _HOOK.format("[decode]"), "values": ""}
    for name, hook in names.items():
        (tmp_path / f"{name}.py").write_text(_DECODER + hook)
    (tmp_path / "__init__.py").touch()
    monkeypatch.syspath_prepend(tmp_path.parent)

    loaded = {plugin.name: [str(step) for step in plugin.steps] for plugin in load_plugins(tmp_path.name, find_harm)}

    expected = {"empty": [], "nothing": [], "one": ["odd -> raster"], "values": ["odd -> raster"]}
    assert {name: loaded[name] for name in expected} == expected


def test_a_plugin_whose_library_does_not_fit_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    for name, body in {"broken": "import ctypes\nctypes.CDLL('libnone.so.9')\n", "whole": _DECODER}.items():
        (tmp_path / f"{name}.py").write_text(body)
    (tmp_path / "__init__.py").touch()
    monkeypatch.syspath_prepend(tmp_path.parent)

    registry = Registry(load_plugins(tmp_path.name, find_harm))

    assert registry.format("odd") is not None
    (error,) = (plugin.error for plugin in registry.plugins if plugin.name == "broken")
    assert error is not None
    assert "libnone.so.9" in error
    assert f"plugin 'broken' is left out: {error}" in caplog.text


def test_a_plan_names_the_modules_of_the_files_that_define_its_steps() -> None:
    webp, svg = (_REGISTRY.formats[name] for name in ("webp", "svg"))

    assert _REGISTRY.plan([webp], "webp").modules == {"PIL.WebPImagePlugin"}
    assert "plugins._svg.vectors" not in _REGISTRY.plan([svg], "webp").modules
    assert _REGISTRY.plan([svg], "webp").modules < _REGISTRY.modules


def _walks(graph: dict[AnyFormat, list[AnyConversion]], path: _Path) -> Iterator[_Path]:
    """Every continuation of `path` that visits no format twice."""
    yield path
    left = {step.source for step in path}
    if not path[-1].terminal and path[-1].target not in left:
        for step in graph.get(path[-1].target, []):
            yield from _walks(graph, (*path, step))


def _price(path: _Path) -> tuple[int, float]:
    return sum(step.loss for step in path), sum(step.cost for step in path)


@given(st.lists(_steps, max_size=12))
def test_paths_are_the_cheapest(steps: list[AnyConversion]) -> None:
    graph: dict[AnyFormat, list[AnyConversion]] = {}
    for step in steps:
        graph.setdefault(step.source, []).append(step)

    for source in _FORMATS:
        walks = (walk for step in graph.get(source, []) for walk in _walks(graph, (step,)))
        every = [walk for walk in walks if walk[-1].target != source or walk[-1].loss < Loss.STRUCTURE]
        found = cheapest_paths(graph, source)

        assert set(found) == {walk[-1].target for walk in every}
        for target, path in found.items():
            assert path[0].source == source
            assert all(before.target == after.source for before, after in pairwise(path))
            assert _price(path) == min(_price(walk) for walk in every if walk[-1].target == target)


def test_no_path_continues_after_a_terminal_step() -> None:
    a, b, c, *_ = _FORMATS
    wrap = Conversion(a, b, lambda payload: payload, terminal=True)
    leave = Conversion(b, c, lambda payload: payload)

    assert set(cheapest_paths({a: [wrap], b: [leave]}, a)) == {b}


def test_no_path_encodes_pixels_to_read_them_again() -> None:
    encode = conversion(RASTER, PNG, capabilities=TargetCapabilities(("RGB",)))(lambda _raster: b"")
    leave = Conversion(PNG, _FORMATS[0], lambda payload: payload)

    assert set(cheapest_paths({RASTER: [encode], PNG: [leave]}, RASTER)) == {PNG}


def test_a_plan_is_isolated_if_a_step_that_reads_files_of_clients_is() -> None:
    def step(*, isolated: bool) -> AnyConversion:
        return Conversion(PNG, PNG, lambda payload: payload, isolated=isolated)

    def tool(*, isolated: bool) -> Tool[bytes]:
        return Tool("tool", PNG, lambda payloads: payloads[0], (PNG,), PNG, range(1, 3), len, "Tool", "", isolated)

    def planned(*parts: bool) -> Plan:
        steps = [step(isolated=isolated) for isolated in parts[1:]]
        return Plan((PNG, PNG), PNG, (steps[0],), tool(isolated=parts[0]), ((steps[1],), (steps[2],)), steps[3])

    assert not planned(False, False, False, False, False).isolated
    assert not Plan((PNG,), PNG, (step(isolated=False),)).isolated
    assert Plan((PNG,), PNG, (replace(step(isolated=False), programs=("/usr/bin/gs",)),)).isolated
    for number in range(4):
        plan = planned(*(number == other for other in range(5)))
        assert plan.isolated
        assert Task.of(plan) == Task(("png", "png"), "png", tool="tool", own_process=True)
    assert Plan((PNG,), PNG, (step(isolated=True),)).own_process
    assert not planned(False, False, False, False, True).isolated  # only the result is read so


class _Half(Fraction):
    pass


@pytest.mark.parametrize("payload", [Fraction, "fractions.Fraction"])
def test_payloads(payload: type | str) -> None:
    fmt: Format[Fraction] = Format("fraction", payload)

    assert fmt.holds(Fraction(1, 3))
    assert fmt.holds(_Half(1, 2))
    assert not fmt.holds(0.5)
    assert not fmt.holds(None)
