"""The built-in plugins pass the checks of `engine.testing`, which plugins of other packages must pass."""

from collections.abc import Iterator

import pytest

from engine import testing
from engine.registry import load_registry
from engine.testing import Sandbox, Subject
from tests.support.samples.generated import sample

_REGISTRY = load_registry()
# A file of Office takes a second: its plugins have tests of their own.
_PLUGINS = [one for one in _REGISTRY.plugins if (one.reads or one.writes) and not one.name.startswith("office")]
_READING = [plugin for plugin in _PLUGINS if plugin.reads]


def _subject(name: str) -> Subject:
    plugin = next(plugin for plugin in _PLUGINS if plugin.name == name)
    return Subject(plugin, {fmt.name: [sample(fmt.name)] for fmt in plugin.reads}, _REGISTRY)


@pytest.fixture(scope="module")
def sandbox() -> Iterator[Sandbox]:
    with testing.running_sandbox(_REGISTRY.modules) as running:
        yield running


@pytest.mark.parametrize("name", [plugin.name for plugin in _PLUGINS])
def test_declarations_detection_and_round_trips(name: str) -> None:
    subject = _subject(name)

    assert {title: check(subject) for title, check in testing.CHECKS.items()} == {title: [] for title in testing.CHECKS}


@pytest.mark.parametrize("name", [plugin.name for plugin in _READING])
def test_damaged_files(sandbox: Sandbox, name: str) -> None:
    assert testing.check_hostile_files(_subject(name), sandbox, count=1) == []


def test_options_of_all_steps() -> None:
    """Of plugins that read no format, as those that do are checked with samples."""
    faults = {
        plugin.name: testing.check_declarations(Subject(plugin, {}, _REGISTRY))
        for plugin in _REGISTRY.plugins
        if not plugin.reads
    }

    assert {name: found for name, found in faults.items() if found} == {}
