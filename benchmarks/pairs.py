"""The time of every pair, codec work alone."""

from __future__ import annotations

from io import BytesIO
from statistics import median
from time import perf_counter

from benchmarks.report import Report
from engine import Options, pipeline
from engine.planner import Plan
from engine.registry import Registry, load_registry
from tests.support.samples import quadrants, sample

_SIZE = (1740, 1156)  # about 2 megapixels


def measure(rounds: int) -> Report:
    """Medians over the rounds, in milliseconds. RAW, vector and page formats are measured on their small samples."""
    registry = load_registry()
    inputs = {name: _input(registry, name) for name in registry.formats}
    rows = []
    for plan in registry.catalogue():
        data = inputs[plan.source.name]
        seconds = [_timed(plan, data) for _ in range(rounds)]
        size = len(pipeline.run(plan, [data], Options()).data)
        rows.append((plan.source.name, plan.target.name, median(seconds) * 1000, size / 1024))
    return Report(f"pairs, median of {rounds}", ("input", "output", "ms", "KiB"), tuple(rows))


def _input(registry: Registry, name: str) -> bytes:
    png = registry.formats["png"]
    if name in ("pdf", "eps", "svg") or registry.formats[name] not in registry.targets(png):
        return sample(name)
    picture = BytesIO()
    quadrants(_SIZE).effect_spread(6).save(picture, "PNG")  # noise, so that codecs have something to do
    return pipeline.run(registry.plan([png], name), [picture.getvalue()], Options()).data


def _timed(plan: Plan, data: bytes) -> float:
    started = perf_counter()
    pipeline.run(plan, [data], Options())
    return perf_counter() - started
