"""What it costs to open a result again, beside the conversion that made it, in paired runs."""

from __future__ import annotations

from io import BytesIO
from statistics import median
from time import perf_counter

from benchmarks.report import Report
from engine import Options, pipeline, verification
from engine.planner import Plan
from engine.registry import Registry, load_registry
from tests.support.samples import quadrants, sample

_LARGE = (4000, 3000)


def measure(rounds: int) -> Report:
    """Medians over the rounds, in milliseconds, for a small picture and one of 12 megapixels."""
    registry = load_registry()
    jpeg = registry.formats["jpeg"]
    large = BytesIO()
    quadrants(_LARGE).effect_spread(6).save(large, "JPEG", quality=90)
    rows = []
    for target in registry.targets(jpeg):
        plan = registry.plan([jpeg], target)
        small = _measured(registry, plan, sample("jpeg"), rounds)
        twelve = _measured(registry, plan, large.getvalue(), rounds)
        rows.append((target.name, *small, *twelve, 100 * twelve[1] / twelve[0]))
    columns = ("output", "small ms", "its check ms", "12 MP ms", "its check ms", "% of it")
    return Report(f"inspection, median of {rounds}", columns, tuple(rows))


def _measured(registry: Registry, plan: Plan, data: bytes, rounds: int) -> tuple[float, float]:
    converting, checking = [], []
    for _ in range(rounds):
        started = perf_counter()
        result = pipeline.run(plan, [data], Options())
        made = perf_counter()
        verification.verify(registry, plan, result, Options())
        converting.append((made - started) * 1000)
        checking.append((perf_counter() - made) * 1000)
    return median(converting), median(checking)
