"""Conversions between two formats, and the facts of their results that an option changes."""

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import pytest

from engine import FileFormat, InvalidOption, OptionValues
from engine.pipeline import PipelineResult, run
from engine.planner import Plan
from engine.registry import load_registry
from tests.support.results.facts import Facts, facts
from tests.support.samples.pdf_documents import without_object_streams

_REGISTRY = load_registry()
DPI = {"pdf": 150, "eps": 150, "svg": 96}
"""The defaults for formats without pixels."""
GRAY = ("pbm", "pgm", "xbm")


@dataclass(frozen=True)
class Pair:
    """A file and a target. `trait` is what is special about the file. All conversions have the options `always`."""

    source: FileFormat
    target: FileFormat
    data: bytes
    trait: str = ""
    always: OptionValues = field(default_factory=dict)

    def __str__(self) -> str:
        return f"{self.trait or self.source}-{self.target}"

    def plan(self, options: OptionValues) -> Plan:
        return _REGISTRY.plan([self.source], self.target, options=options)

    def convert(self, options: OptionValues) -> PipelineResult:
        options = {**self.always, **options}
        return run(self.plan(options), [self.data], options)

    @cached_property
    def result(self) -> PipelineResult:
        """The result without options."""
        return self.convert({})

    @cached_property
    def base(self) -> Facts:
        return facts(self.target.name, self.result.data)

    def takes(self, options: OptionValues) -> bool:
        """Whether the pair has the last one of the options."""
        try:
            return list(options)[-1] in self.plan(options).options
        except InvalidOption:  # targets differ in its values
            return True


def expect(pair: Pair, options: OptionValues, **changes: Any) -> PipelineResult:
    """Asserts that the options change these facts, as far as the target has them, and no others."""
    result = pair.convert(options)
    found = facts(pair.target.name, result.data)
    expected = pair.base | {name: value for name, value in changes.items() if name in pair.base}
    if pair.target.name in GRAY or (pair.source.name in GRAY and "background" not in options):
        expected["corners"] = "----"
    if pair.source.name in DPI and expected["size"] != pair.base["size"] and "dpi" not in changes:
        expected["dpi"] = found.get("dpi")  # follows from the size
        found.setdefault("dpi", None)
    assert found == expected
    return result


def refuses(pair: Pair, options: OptionValues) -> None:
    with pytest.raises(InvalidOption) as caught:
        pair.convert(options)
    assert caught.value.param == list(options)[-1]


Check = Callable[[Pair], None]


def changes(options: OptionValues, **changed: Any) -> tuple[OptionValues, Check]:
    def check(pair: Pair) -> None:
        expect(pair, options, **changed)

    return options, check


def stable(data: bytes) -> bytes:
    """The file without identifiers and dates, which differ each time."""
    dates = rb"^%%CreationDate: .*$|/(?:Creation|Mod)Date ?\(.*?\)|<xmp:.*Date>.*"
    identifiers = rb"/ID\[(?s:.*?)\](?=>>\nstartxref)|uuid:[-0-9a-f]+"
    data = without_object_streams(data) if data.startswith(b"%PDF") else data
    times_of_movies = rb"(?s:(?<=[mt][vkd]hd\x01...).{16})"
    return re.sub(b"|".join((dates, identifiers, times_of_movies)), b"", data, flags=re.MULTILINE)
