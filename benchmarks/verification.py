"""Time to verify results, compared with the time of the conversions that made them."""

from __future__ import annotations

from statistics import median
from time import perf_counter

from benchmarks import samples
from benchmarks.report import Report, Row
from engine import pipeline, verification
from engine.planner import Plan
from engine.registry import Registry, load_registry

_COLUMNS = ("output", "small ms", "small verify ms", "12 MP ms", "12 MP verify ms", "% of conversion")


def measure(rounds: int) -> list[Report]:
    """Returns medians over the rounds in milliseconds, for a small JPEG and one of 12 megapixels."""
    registry = load_registry()
    jpeg = registry.formats["jpeg"]
    small, large = (samples.encoded(size, "JPEG") for size in (samples.TINY, samples.LARGE_PHOTO))
    rows: list[Row] = []
    for target in registry.targets(jpeg):
        plan = registry.plan([jpeg], target)
        small_times = _times(registry, plan, small, rounds)
        large_times = _times(registry, plan, large, rounds)
        rows.append((target.name, *small_times, *large_times, 100 * large_times[1] / large_times[0]))
    return [Report(f"Verification, median of {rounds}", _COLUMNS, tuple(rows))]


def _times(registry: Registry, plan: Plan, data: bytes, rounds: int) -> tuple[float, float]:
    """Returns the median times of conversion and verification in milliseconds."""
    conversions, verifications = [], []
    for _ in range(rounds):
        started = perf_counter()
        result = pipeline.run(plan, [data])
        converted = perf_counter()
        verification.verify(registry, plan, result.file)
        conversions.append((converted - started) * 1000)
        verifications.append((perf_counter() - converted) * 1000)
    return median(conversions), median(verifications)
