"""The checks of plugins: a plugin that is written by `convertd plugin new` passes, each broken one fails."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from engine import testing
from engine.plugin_loader import load_plugins
from engine.registry import Registry, find_harm
from engine.testing import Sandbox, Subject
from web.cli import plugin_commands

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
def test_the_plugins_of_the_template_and_the_documentation_pass(
    registry: Registry, folder: Path, name: str, check: str
) -> None:
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
