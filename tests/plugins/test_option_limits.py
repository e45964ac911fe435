"""The options of images at their limits, and the checks of `engine.testing` with the built-in plugins."""

from collections.abc import Iterator

import pytest

from engine import InvalidOption, Option, OptionValue, testing
from engine.registry import load_registry
from engine.testing import Sandbox, Subject
from tests.support.results.conversions import convert
from tests.support.samples.generated import sample, saved
from tests.support.samples.rasters import photo

_TEXTS: dict[str, tuple[str, ...]] = {
    "background": ("#000000", "#ffffffff", "#00000000"),
    "crop": ("1:9999", "9999:1", "0,0,1,1", "29,19,1,1", "0%,0%,100%,100%"),
    "filename": ("{width}",),
    "frames": ("every:2", "every:999"),
    "gravity": ("0,0", "1,1", "attention"),
    "output_profile": ("srgb", "fogra39"),
    "pad": ("0", "0%", "999%", "99999", "1,0,0,0"),
    "pages": ("1", "all"),
    "radius": ("0", "0%", "0.0001%", "999%", "99999"),
    "scale": ("1%", "1000%"),
    "watermark_color": ("black", "#00000000"),
    "watermark_position": ("0,0", "1,1", "tile"),
    "watermark_text": (".", "M" * 200),
}
_FILES = {"watermark"}  # options that are files only
_NEEDED: dict[str, dict[str, OptionValue]] = {"gravity": {"crop": "1:1"}, "dpr": {"width": 10}, "dither": {"colors": 4}}
_REGISTRY = load_registry()
# A file of Office takes a second: its plugins have tests of their own.
_PLUGINS = [one for one in _REGISTRY.plugins if (one.reads or one.writes) and not one.name.startswith("office")]
_READING = [plugin for plugin in _PLUGINS if plugin.reads]


"""Extreme values of options that are texts."""


"""What an option has an effect with."""


def _values(option: Option) -> Iterator[OptionValue]:
    schema = option.schema
    yield from schema.get("enum", [schema["const"]] if "const" in schema else [])
    yield from (schema[limit] for limit in ("minimum", "maximum") if limit in schema)
    yield from (True, False) if schema["type"] == "boolean" else ()
    yield from _TEXTS.get(option.name, ())


@pytest.mark.parametrize(
    ("size", "target", "impossible"), [((30, 20), "webp", {"pad"}), ((1, 1), "png", {"crop", "pad"})]
)
def test_options_work_at_their_limits(size: tuple[int, int], target: str, impossible: set[str]) -> None:
    registry, data = load_registry(), saved(photo(size), "PNG")
    plan = registry.plan([registry.formats["png"]], target, options={})
    refused = set()
    for name, option in plan.options.items():
        values = list(_values(option))
        assert values or name in _FILES
        of_watermark = name.startswith("watermark_") and name != "watermark_text"
        needed = {"watermark_text": "A"} if of_watermark else _NEEDED.get(name, {})
        for value in values:
            try:
                convert(data, target, **{name: value}, **needed)
            except InvalidOption as error:
                refused.add((name, error.param, error.reason))
    assert refused == {(name, name, "out_of_range") for name in impossible}


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
