"""Samples of the pairs of formats. Pairs of the same steps repeat each other: all of them are tested with `--long`."""

from collections.abc import Sequence
from functools import cache

from engine.planner import Plan
from engine.registry import load_registry
from tests.support.samples.generated import FORMATS


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
