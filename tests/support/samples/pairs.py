"""Samples of the pairs of formats, which repeat each other, and shares of what takes long: all run with `--long`."""

from collections.abc import Iterable, Sequence
from functools import cache
from typing import TypeVar

import pytest
from _pytest.mark.structures import ParameterSet

from engine.planner import Plan
from engine.registry import load_registry
from tests.support.samples.generated import FORMATS

T = TypeVar("T")

SHARES = 12  # that `--share` chooses from; every test divides its items into a divisor of this


@cache
def pairs_with_samples() -> Sequence[Plan]:
    """The pairs between formats that have a generated sample. A file of Office takes a second: it has its own tests."""
    plans = load_registry().catalogue()
    written = {plan.target.name for plan in plans} - {plan.source.name for plan in plans}
    return [plan for plan in plans if plan.source.name in FORMATS and plan.target.name in FORMATS | written]


def plans_of_all_steps() -> list[Plan]:
    """So few pairs that each function of a step is in one of them: RAW formats are decoded by the same one."""
    chosen, met = [], set[object]()
    for plan in pairs_with_samples():
        steps = {step.run for step in plan.steps}
        if not steps <= met:
            met |= steps
            chosen.append(plan)
    return chosen


def sample_of(plans: Sequence[Plan]) -> list[Plan]:
    """So few of the plans that each of their steps is in one of them, and each format is the source of one.

    Of the plans with steps that no other has yet, those come first whose formats are about equally far apart in the
    alphabet, so that the sources are spread over the targets.
    """
    sources = sorted({plan.source.name for plan in plans})
    targets = sorted({plan.target.name for plan in plans})

    def distance(plan: Plan) -> int:
        return (targets.index(plan.target.name) - sources.index(plan.source.name)) % len(targets)

    chosen, seen = [], set[object]()
    for plan in sorted(plans, key=distance):
        parts = {plan.source, *plan.conversions}
        if not parts <= seen:
            chosen.append(plan)
            seen |= parts
    return chosen


def every(step: int, names: Iterable[str]) -> list[str | ParameterSet]:
    """Parameters of a test: of so many names one, and the others with `--long`."""
    marks = pytest.mark.long
    return [name if number % step == 0 else pytest.param(name, marks=marks) for number, name in enumerate(names)]


def number_of_share(config: pytest.Config, shares: int) -> tuple[int, int]:
    """The number of the share to test, from 0, and the number of shares, which is 1 with `--long`."""
    assert SHARES % shares == 0, "some items would be in no run with all values of --share"
    count = 1 if config.getoption("long") else shares
    return int(config.getoption("share")) % count, count


def share(items: Sequence[T], config: pytest.Config, shares: int) -> Sequence[T]:
    """One of that number of shares of the items, or all of them with `--long`."""
    first, count = number_of_share(config, shares)
    return items[first::count]
