"""Third-party plugins that do harm are left out or affect no others, and the checks of plugins find each broken one."""

import gc
import json
import locale
import logging
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from engine import pipeline, testing
from engine.contained import contained, run_apart
from engine.conversions import Conversion, conversion
from engine.formats import FileFormat, Sniffer
from engine.media import RASTER
from engine.plugin_loader import PLUGIN_ERRORS, Plugin, load_plugins, read_samples
from engine.registry import Registry, find_harm, load_registry
from engine.testing import Sandbox, Subject
from tests.support import sabotages
from tests.support.samples.generated import sample
from web.cli import plugin_commands

_REGISTRY = load_registry()
_CONVERT = """
import json, sys
from pathlib import Path
from engine.registry import load_registry
from web.cli.main import main
registry = load_registry()
own = {fmt for plugin in registry.plugins if not plugin.third_party for fmt in (*plugin.reads, *plugin.writes)}
facts = {
    "errors": {plugin.name: plugin.error for plugin in registry.plugins if plugin.third_party},
    "plans": [str(plan) for plan in registry.catalogue() if {plan.source, plan.target} <= own],
}
Path("facts").write_text(json.dumps(facts))
sys.argv = ["convertd", "convert", "a.png", "-", "--to", "jpeg"]
main()
"""
_DOCUMENTED = Path(__file__).parents[1] / "support" / "foreign_plugin" / "convertd_ff.py"
_OPTION = "Annotated[int, Field(ge=1, le=5{})]"
_SNIFF = "sniff=Signature((0, _MAGIC))"
_BROKEN = {
    "good": ("", ""),
    "claims": (_SNIFF, 'sniff=lambda found: 9 if found[:2] in (_MAGIC[:2], b"\\xff\\xd8") else 0'),
    "raises": (_SNIFF, "sniff=lambda found: found[20] if found[: len(_MAGIC)] == _MAGIC else 0"),
    "undescribed": ("raster: Raster)", f"raster: Raster, *, strength: {_OPTION.format('')} = 9)"),
    "lossy": ("image.tobytes()", 'image.convert("L").convert("RGB").tobytes()'),
    "hungry": ("    size =", "    used = b'1' * (60 * len(data) // 3)\n    size ="),
    "crashes": ('raise CorruptInput("The file is truncated.")', "os.abort()"),
    "raising": ('raise CorruptInput("The file is truncated.")', "os._exit(1)"),
    "newer": ("PLUGIN_API = 1", "PLUGIN_API = 2"),
}


@pytest.mark.long
def test_40_sabotages_at_once_have_no_effect_on_others(tmp_path: Path) -> None:
    refused = {what: source for what, (source, _) in sabotages.REFUSED.items() if what not in sabotages.BUSY}
    sources = {**refused, **sabotages.HARMLESS}
    names = {f"p{number}": what for number, what in enumerate(sources)}
    for name, what in names.items():
        sabotages.install(tmp_path, name, sources[what])
    (tmp_path / "a.png").write_bytes(sample("png"))
    command, env = [sys.executable, "-c", _CONVERT], {"PYTHONPATH": str(tmp_path), "PYTHONUNBUFFERED": ""}
    done = subprocess.run(command, cwd=tmp_path, env={**os.environ, **env}, capture_output=True, timeout=60, check=True)
    facts = json.loads((tmp_path / "facts").read_text())

    assert len(names) >= 40
    for name, what in names.items():
        error, log = facts["errors"][name], f"plugin '{name}' is left out: "
        assert (error is None, log in done.stderr.decode()) == (what not in refused, what in refused), what
        assert sabotages.REFUSED.get(what, ("", ""))[1] in (error or ""), what
    assert facts["plans"] == [str(plan) for plan in _REGISTRY.catalogue()]
    assert done.stdout == pipeline.run(_REGISTRY.plan([_REGISTRY.formats["png"]], "jpeg"), [sample("png")]).data


def test_each_built_in_format_that_content_shows_has_a_sample() -> None:
    samples = dict(read_samples())

    assert {name: _REGISTRY.identify_content(content).name for name, content in samples.items()} == {
        name: name for name in samples
    }
    assert _REGISTRY.formats.keys() - samples.keys() == {"csv", "json", "md"}


def _state() -> dict[str, Any]:
    return {
        "folder": Path.cwd(),
        "environment": dict(os.environ),
        "signals": [signal.getsignal(number) for number in signal.valid_signals()],
        "alarm": signal.getitimer(signal.ITIMER_REAL),
        "path": [*sys.path],
        "recursion": sys.getrecursionlimit(),
        "collection": gc.isenabled(),
        "locale": locale.setlocale(locale.LC_ALL),
        "streams": (sys.stdout, sys.stderr, sys.stdin),
        "files": [os.fstat(number).st_ino for number in (1, 2)],
        "logging": (logging.root.handlers, logging.root.level, logging.root.manager.disable),
        "disabled": logging.getLogger("convertd.registry").disabled,
        "mask": next(line for line in Path("/proc/self/status").read_text().splitlines() if "Umask" in line),
    }


@pytest.mark.parametrize("what", sabotages.HARMLESS)
def test_an_import_changes_nothing(what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = f"convertd_{tmp_path.name}"
    (tmp_path / f"{module}.py").write_text(sabotages.HARMLESS[what])
    monkeypatch.syspath_prepend(tmp_path)
    before = _state()
    closed: list[logging.Handler] = []
    handler = logging.NullHandler()
    monkeypatch.setattr(handler, "close", lambda: closed.append(handler))

    with contained():
        import_module(module)

    assert _state() == before
    assert closed == []
    assert logging.getLogger("convertd.registry").isEnabledFor(logging.ERROR)


def test_a_process_that_has_tried_the_plugins_tells_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sabotages.install(tmp_path, "crash", sabotages.REFUSED["import crashes"][0])
    sabotages.install(tmp_path, "later", sabotages.REFUSED["import crashes"][0])
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv(PLUGIN_ERRORS, '{"crash": "it ends the process"}')

    loaded = {plugin.name: plugin.error for plugin in load_plugins("plugins", find_harm) if plugin.third_party}

    assert loaded == {"crash": "it ends the process", "later": "it was installed after the start"}


def _plugin(name: str, *steps: Conversion[Any, Any], version: str = "1") -> Plugin:
    return Plugin(name, name, steps, version=version)


def _format(name: str, sniff: Sniffer) -> FileFormat:
    return FileFormat(name, media_type=f"image/x-{name}", extensions=(name,), sniff=sniff)


def _raises(_content: object) -> Any:
    raise AssertionError("never run")


def test_steps_of_third_parties_change_no_path_between_other_formats() -> None:
    icc, png, pdf, eps = (_REGISTRY.formats[name] for name in ("icc", "png", "pdf", "eps"))
    decode, through = conversion(png, RASTER, cost=0.0)(_raises), conversion(png, pdf, cost=0.0)(_raises)
    reader, odd = conversion(icc, RASTER)(_raises), conversion(RASTER, _format("odd", lambda _content: 0))(_raises)
    unread = conversion(eps, RASTER)(_raises)  # results in EPS are not read
    registry = Registry([*_REGISTRY.plugins, _plugin("odd", decode, through, reader, odd, unread)])

    assert registry.plugins[-1].error is None
    for source, target in _REGISTRY.pairs():
        assert registry.path(source, target) == _REGISTRY.path(source, target)
        assert registry.reader(target) == _REGISTRY.reader(target)
    assert registry.path(png, registry.formats["odd"])
    assert registry.path(icc, png)[0] == reader


def test_of_equal_scores_that_of_the_built_in_format_wins() -> None:
    jpeg = sample("jpeg")
    first = _format("a", lambda content: 3 if content[:3] == jpeg[:3] else 0)
    registry = Registry([*_REGISTRY.plugins, _plugin("a", conversion(first, RASTER)(_raises))])

    assert registry.identify_content(jpeg).name == "jpeg"


@pytest.mark.parametrize("failure", ["raises", "exits", "returns text"])
def test_the_third_failure_of_a_detection_switches_it_off(failure: str, caplog: pytest.LogCaptureFixture) -> None:
    calls = list[int]()

    def sniff(content: Any) -> Any:
        calls.append(len(content))
        if len(content) == 1:
            return 0
        if failure == "returns text":
            return "png"
        raise IndexError if failure == "raises" else SystemExit

    odd = _format("odd", sniff)
    steps: list[Conversion[Any, Any]] = [conversion(odd, RASTER)(_raises), conversion(RASTER, odd)(_raises)]
    registry = Registry([*_REGISTRY.plugins, _plugin("odd", *steps)])
    errors = []
    for _ in range(5):
        assert registry.identify_content(sample("png")).name == "png"
        errors.append(registry.plugins[-1].error)

    assert errors[:2] == [None, None]
    assert str(errors[2]).startswith("the detection of odd is switched off: ")
    assert len(calls) == 1 + 3
    assert f"plugin odd: {errors[2]}" in caplog.text
    assert registry.path(RASTER, odd)


def test_a_plugin_has_a_name_of_its_own(caplog: pytest.LogCaptureFixture) -> None:
    registry = Registry([*_REGISTRY.plugins, _plugin("odd"), _plugin("odd"), _plugin("png"), _plugin("a\nb")])

    assert [plugin.error for plugin in registry.plugins[-4:]] == [
        None,
        "another plugin has this name",
        "another plugin has this name",
        "'a\\nb' is no name of a plugin",
    ]


def _children() -> set[str]:
    """The process IDs of the children of this process."""
    return {pid for thread in Path("/proc/self/task").iterdir() for pid in (thread / "children").read_text().split()}


def test_what_runs_apart_has_a_deadline_for_each_and_leaves_nothing(tmp_path: Path) -> None:
    def leave_a_process() -> None:
        if os.fork() == 0:
            while True:
                signal.pause()

    def fork_and_return() -> str:
        os.fork()
        return "returned"

    before = _children()
    found = run_apart([lambda: None, lambda: "harm", leave_a_process, signal.pause, fork_and_return])

    assert found == [None, "harm", "it leaves a process", "it takes longer than 3 s", "returned"]
    assert _children() <= before


"""Changes of the plugin of the template."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder on the path of modules, with an installed package for each of the plugins."""
    found = tmp_path_factory.mktemp("plugins")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(found)
        patch.syspath_prepend(found)
        for name, (before, after) in _BROKEN.items():
            plugin_commands.new(name)
            source = (found / name / f"convertd_{name}.py").read_text()
            assert before in source
            imports = "import os\nfrom typing import Annotated\nfrom pydantic import Field\nimport struct"
            changed = source.replace(before, after, 1) if before else source
            _install(found, name, changed.replace("import struct", imports, 1))
        _install(found, "ff", _DOCUMENTED.read_text())
        yield found


def _install(folder: Path, name: str, source: str) -> None:
    (folder / f"convertd_{name}.py").write_text(source)
    metadata = folder / f"convertd_{name}-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: convertd-{name}\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text(f"[convertd.plugins]\n{name} = convertd_{name}\n")


@pytest.fixture(scope="module")
def registry(folder: Path) -> Registry:
    return Registry(load_plugins("plugins", find_harm))


@pytest.fixture(scope="module")
def sandbox(registry: Registry) -> Iterator[Sandbox]:
    with testing.running_sandbox(registry.plan([registry.formats["png"]], "png").modules) as running:
        yield running


def _subject(registry: Registry, folder: Path, name: str) -> Subject:
    plugin = next(plugin for plugin in registry.plugins if plugin.name == name)
    sample = folder / name / "tests" / "samples" / f"image.{name}"
    return Subject(plugin, {name: [sample.read_bytes()]} if sample.exists() else {}, registry)


@pytest.mark.parametrize("check", testing.CHECKS)
@pytest.mark.parametrize("name", ["good", "ff"])
def test_plugins_of_the_template_and_the_docs_pass(registry: Registry, folder: Path, name: str, check: str) -> None:
    assert testing.CHECKS[check](_subject(registry, folder, name)) == []


@pytest.mark.parametrize("check", testing.SANDBOXED_CHECKS)
@pytest.mark.parametrize("name", ["good", "ff"])
def test_they_pass_in_the_sandbox(registry: Registry, folder: Path, sandbox: Sandbox, name: str, check: str) -> None:
    assert testing.SANDBOXED_CHECKS[check](_subject(registry, folder, name), sandbox) == []


@pytest.mark.parametrize(
    ("name", "check", "problem"),
    [
        ("claims", "loading", "jpeg files are detected as claims"),
        ("raises", "detection", "the detection of raises fails for a damaged file: IndexError"),
        ("undescribed", "declarations", "the option strength has no description"),
        ("undescribed", "declarations", "the option strength has an invalid default"),
        ("lossy", "round trips", "an image to lossy: an image comes back with other colors"),
        ("newer", "loading", "the plugin is for PLUGIN_API 2; this version has 1"),
    ],
)
def test_a_broken_plugin_fails(registry: Registry, folder: Path, name: str, check: str, problem: str) -> None:
    assert problem in " ".join(testing.CHECKS[check](_subject(registry, folder, name)))


@pytest.mark.parametrize(
    ("name", "check", "problem"),
    [
        ("hungry", "memory", "bytes per pixel are used"),
        ("crashes", "hostile files", "a damaged crashes file ends with out_of_memory"),
        ("raising", "hostile files", "a damaged raising file ends with worker_crashed"),
    ],
)
def test_a_broken_plugin_fails_in_the_sandbox(
    registry: Registry, folder: Path, sandbox: Sandbox, name: str, check: str, problem: str
) -> None:
    assert problem in " ".join(testing.SANDBOXED_CHECKS[check](_subject(registry, folder, name), sandbox))


def test_a_plugin_for_another_version_is_left_out(registry: Registry) -> None:
    assert "newer" not in registry.formats
    assert "good" in registry.formats


def test_damaged_versions_are_the_same_each_time() -> None:
    first = list(testing.stubs(bytes(range(200))))

    assert first == list(testing.stubs(bytes(range(200))))
    assert len(set(first)) == 8
