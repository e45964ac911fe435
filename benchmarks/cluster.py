"""A server whose jobs run on a cluster of two workers, next to one that converts itself; all on this machine."""

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory, mkdtemp

from benchmarks import server
from benchmarks.measure import Run, Variant, cpu_seconds, interleaved, load, p50_ms, table, throughput_ratio
from benchmarks.processes import WORKERS, ConvertdWorker, SchedulerProcess
from benchmarks.report import COLUMNS, Report, Row, at_least, at_most, equals
from benchmarks.server import Runs
from benchmarks.workloads import LARGE, TINY, Workload

_LOADS = ((TINY, 1), (TINY, 16), (LARGE, WORKERS))  # workloads and numbers of connections
_LOCAL, _CLUSTER = "local", "cluster of two workers"
_MAX_OVERHEAD = 15.0  # milliseconds
_MIN_THROUGHPUT = 0.9  # multiple of the throughput without a cluster


@dataclass(frozen=True)
class _CpuClock:
    """Reads the CPU time of the parts of a service, whose process IDs are given by the name of the part."""

    parts: Mapping[str, Sequence[int]]
    readings: list[Mapping[str, float]] = field(default_factory=list)

    def __call__(self) -> float:
        """Returns the seconds of all parts together, and keeps a reading of each part."""
        self.readings.append({part: sum(map(cpu_seconds, pids)) for part, pids in self.parts.items()})
        return sum(self.readings[-1].values())

    def milliseconds(self, runs: Sequence[Run]) -> dict[str, float]:
        """Returns the CPU time of each part per success in the runs, which have read the clock twice each."""
        rounds = list(zip(self.readings[::2], self.readings[1::2], runs, strict=True))
        return {
            part: median(1000 * (after[part] - before[part]) / len(run.latencies) for before, after, run in rounds)
            for part in self.parts
        }


def measure(rounds: int, seconds: float) -> list[Report]:
    """Returns the throughput of both servers, the CPU time of each part, and the requirements."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory()))
        for workload, _ in _LOADS:
            workload.write(folder)
        scheduler = stack.enter_context(SchedulerProcess())
        blobs = {"CONVERTD_BLOB_URL": (folder / "blobs").as_uri()}
        workers = [
            stack.enter_context(ConvertdWorker(Path(mkdtemp(dir=folder)), scheduler.address, jobs=1))
            for _ in range(WORKERS)
        ]
        local = stack.enter_context(server.running(folder))
        remote = stack.enter_context(server.running(folder, {"CONVERTD_CLUSTER": scheduler.address, **blobs}))
        parts = {"server": [remote.pid], "scheduler": [scheduler.pid], "workers": [worker.pid for worker in workers]}
        runs, cpu = asyncio.run(_measure(folder, local, remote, parts, rounds, seconds))
    return [
        *(table(f"{title} ({rounds} x {seconds:g} s)", found) for title, found in runs.items()),
        Report("CPU ms per conversion on the cluster", ("conversions", *parts), tuple(cpu)),
        Report("Requirements", COLUMNS, tuple(_requirements(runs))),
    ]


async def _measure(
    folder: Path,
    local: server.Server,
    remote: server.Server,
    parts: Mapping[str, Sequence[int]],
    rounds: int,
    seconds: float,
) -> tuple[dict[str, Runs], list[Row]]:
    """Returns the runs by title of the load, and the CPU time of each part per conversion."""
    runs: dict[str, Runs] = {}
    cpu: list[Row] = []
    for workload, connections in _LOADS:
        clock = _CpuClock(parts)
        title = _title(workload, connections)
        variants: dict[str, Variant] = {
            _LOCAL: local.variant(workload, folder, seconds, connections),
            _CLUSTER: partial(load, remote.plan(workload, folder, seconds, connections), clock),
        }
        runs[title] = await interleaved(variants, rounds)
        cpu.append((title, *clock.milliseconds(runs[title][_CLUSTER]).values()))
    return runs, cpu


def _title(workload: Workload, connections: int) -> str:
    return f"{workload.title}, {server.connections_title(connections)}"


def _requirements(runs: Mapping[str, Runs]) -> list[Row]:
    tiny = runs[_title(*_LOADS[0])]
    large = runs[_title(*_LOADS[-1])]
    added = median(
        p50_ms([cluster]) - p50_ms([local]) for cluster, local in zip(tiny[_CLUSTER], tiny[_LOCAL], strict=True)
    )
    share = throughput_ratio(large[_CLUSTER], large[_LOCAL])
    failed = sum(run.failures for found in runs.values() for own in found.values() for run in own)
    return [
        at_most(f"{_title(*_LOADS[0])}: cluster - local, p50 ms", added, _MAX_OVERHEAD),
        at_least(f"{_title(*_LOADS[-1])}: throughput, cluster / local", share, _MIN_THROUGHPUT),
        equals("failed requests", failed, 0),
    ]
