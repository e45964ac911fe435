"""Time of each conversion, without executor and server."""

from __future__ import annotations

from io import BytesIO
from statistics import median
from time import perf_counter

from benchmarks.report import Report, Row
from engine import pipeline
from engine.planner import Plan
from engine.registry import Registry, load_registry
from tests.support.samples import quadrants, sample

_SIZE = (1740, 1156)  # about 2 megapixels


def measure(rounds: int) -> Report:
    """Returns medians over the rounds in milliseconds. RAW, vector and page formats use their small test samples."""
    registry = load_registry()
    inputs = {name: _input(registry, name) for name in registry.formats}
    rows: list[Row] = []
    for plan in registry.catalogue():
        data = inputs[plan.source.name]
        seconds = [_time(plan, data) for _ in range(rounds)]
        size = len(pipeline.run(plan, [data]).data)
        rows.append((plan.source.name, plan.target.name, median(seconds) * 1000, size / 1024))
    return Report(f"pairs, median of {rounds}", ("input", "output", "ms", "KiB"), tuple(rows))


def _input(registry: Registry, name: str) -> bytes:
    png = registry.formats["png"]
    if name in ("pdf", "eps", "svg") or registry.formats[name] not in registry.targets(png):
        return sample(name)
    picture = BytesIO()
    quadrants(_SIZE).effect_spread(6).save(picture, "PNG")  # noise: flat areas would compress too fast
    return pipeline.run(registry.plan([png], name), [picture.getvalue()]).data


def _time(plan: Plan, data: bytes) -> float:
    started = perf_counter()
    pipeline.run(plan, [data])
    return perf_counter() - started
