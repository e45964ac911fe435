"""Conversions on a cluster: overhead over the local executor, and the throughput of several workers."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import process_time

from benchmarks import cluster_costs, samples, server
from benchmarks.cluster_processes import Cluster, connected, converting, settings_of, sleeping, wait_for_workers
from benchmarks.load_generator import LoadPlan
from benchmarks.measure import (
    Run,
    Variant,
    cpu_ms,
    cpu_ratio,
    cpu_seconds,
    interleaved,
    load,
    own_cpu_seconds,
    p50_ms,
    repeat,
    repeat_concurrently,
    run_job,
    table,
    throughput_ratio,
)
from benchmarks.report import COLUMNS, Report, Row, at_least, at_most, equals, info
from benchmarks.server import PHOTO, TINY, Workload
from benchmarks.sleeping_workers import INSTALLATION, sleep
from config.logs import quiet_libraries
from engine.executor import Executor, Job
from engine.registry import Registry, load_registry
from web.cluster.jobs import Installation
from web.executor_setup import local_executor

_SLOTS = 2  # jobs at a time of a worker, and of the local executor
_APART = 0.03  # seconds between jobs that are not back to back
_SUFFIX = f", {1000 * _APART:g} ms apart"
_LARGE_ROUNDS = 4  # of large jobs for one round of others
_SHARE = 0.35  # of a core for each worker: four, the scheduler and the server fit into two cores
_COUNTS = (1, 2, 4)  # workers
_SLEEP = 0.5  # seconds of jobs that sleep
_MAX_OVERHEAD = 15.0  # milliseconds
_MIN_THROUGHPUT = 0.95  # of the local executor
_MIN_SPEEDUP = 3.8  # of four workers
_JOB_MEMORY = 256 << 20  # bytes that a job is expected to use
_LARGE = tuple(
    Workload(f"12 megapixel JPEG to {title}", "large.jpg", samples.LARGE_PHOTO, "JPEG", title.lower(), 80)
    for title in ("WebP", "JPEG")
)
_SERVER_ALONE = "cluster, CPU time of the server alone"

Runs = Mapping[str, Sequence[Run]]


@dataclass(frozen=True)
class Bench:
    """The formats, a folder with the input files, and the number and the seconds of the rounds."""

    registry: Registry
    folder: Path
    rounds: int
    seconds: float

    def conversion(self, executor: Executor, workload: Workload) -> Callable[[], Awaitable[None]]:
        """Returns a function that converts the workload's file."""
        source = self.registry.formats[workload.encoder.lower()]
        plan = self.registry.plan([source], workload.output_format)
        job = Job.of(plan, {"quality": workload.quality}, memory=_JOB_MEMORY)
        return partial(run_job, executor, job, self.folder / workload.file)


def measure(rounds: int, seconds: float, workers: int, database: str | None) -> list[Report]:
    """Returns all results, for runs of `seconds` and up to `workers` simulated workers.

    The ledger is measured in the empty database with this URL, by default in one of SQLite.
    """
    quiet_libraries()
    with TemporaryDirectory() as name:
        folder = Path(name)
        for workload in (TINY, PHOTO, *_LARGE):
            workload.write(folder)
        return asyncio.run(_measure(Bench(load_registry(), folder, rounds, seconds), workers, database))


async def _measure(bench: Bench, workers: int, database: str | None) -> list[Report]:
    with converting(bench.folder, 1, _SLOTS) as cluster:
        executors = await _executors(bench, cluster)
        http = await _over_http(bench, cluster)
        blobs = await cluster_costs.blob_store(cluster.blobs, bench.folder / _LARGE[0].file)
    large = cpu_ms(executors[_LARGE[0].title]["local"])  # with a core for each job
    known = cluster_costs.Measured(cpu_ms(http[_SERVER_ALONE]) / 1000, blobs, large / 1000)
    requirements = _requirements(executors, http, blobs)
    return [
        *(_table(title, runs) for title, runs in executors.items()),
        _table(f"POST /convert, {TINY.title}, 1 connection", http),
        *await _speedups(bench, requirements),
        Report("Requirements", COLUMNS, tuple(requirements)),
        *await cluster_costs.measure(bench.folder, bench.seconds, workers, database, known),
    ]


async def _executors(bench: Bench, cluster: Cluster) -> dict[str, Runs]:
    """Returns the runs of a worker and of the local executor by the title of the workload."""
    settings = settings_of(cluster, bench.folder)
    local = local_executor(settings, _SLOTS)
    try:
        await local.start()
        async with connected(cluster, Installation.of(bench.registry, settings)) as remote:
            return {
                f"{TINY.title}, one job at a time": await _tiny(bench, cluster, local, remote),
                **{work.title: await _large(bench, cluster, local, remote, work) for work in _LARGE},
            }
    finally:
        await local.close()


async def _tiny(bench: Bench, cluster: Cluster, local: Executor, remote: Executor) -> Runs:
    one, other = bench.conversion(local, TINY), bench.conversion(remote, TINY)
    variants: dict[str, Variant] = {}
    for suffix, pause in (("", 0.0), (_SUFFIX, _APART)):
        variants[f"local{suffix}"] = partial(repeat, one, bench.seconds / 2, pause, partial(_local_cpu, cluster))
        variants[f"cluster{suffix}"] = partial(repeat, other, bench.seconds / 2, pause, partial(_cluster_cpu, cluster))
    return await interleaved(variants, bench.rounds)


async def _large(bench: Bench, cluster: Cluster, local: Executor, remote: Executor, workload: Workload) -> Runs:
    one, other = bench.conversion(local, workload), bench.conversion(remote, workload)
    variants: dict[str, Variant] = {
        "local": partial(repeat, one, bench.seconds / 2, cpu_clock=partial(_local_cpu, cluster)),
        "cluster": partial(repeat, other, bench.seconds / 2, cpu_clock=partial(_cluster_cpu, cluster)),
    }
    # Many short rounds: the speed of the machine varies more than the executors differ.
    return await interleaved(variants, _LARGE_ROUNDS * bench.rounds)


async def _over_http(bench: Bench, cluster: Cluster) -> Runs:
    with ExitStack() as stack:
        local = stack.enter_context(server.running(bench.folder))
        remote = stack.enter_context(server.running(bench.folder, cluster.environment))

        def variant(running: server.Server, *others: int) -> Variant:
            file = str(bench.folder / TINY.file)
            plan = LoadPlan(running.url, running.keys[:1], file, bench.seconds / 2, 0, 1, TINY.fields)
            return partial(load, plan, lambda: sum(cpu_seconds(pid) for pid in (running.pid, *others)))

        variants = {
            "local": variant(local),
            "cluster": variant(remote, cluster.scheduler, *cluster.workers),
            _SERVER_ALONE: variant(remote),
        }
        return await interleaved(variants, bench.rounds)


async def _speedups(bench: Bench, requirements: list[Row]) -> list[Report]:
    """Returns the throughput of several workers, and adds the requirements."""
    reports: list[Report] = []
    kinds = {
        f"Workers whose jobs sleep for {_SLEEP:g} s": _sleeping_workers,
        f"Workers with {_SHARE:g} of a core each, {PHOTO.title}": _limited_workers,
    }
    for title, run in kinds.items():
        metric = f"{title}: {_COUNTS[-1]} workers / 1 worker"
        try:
            first, *others = (runs := await run(bench)).values()
        except OSError as error:  # not permitted to limit the processor
            requirements.append(info(metric, f"not measured: {error}"))
            continue
        reports.append(_table(title, runs))
        requirements.append(at_least(metric, throughput_ratio(others[-1], first), _MIN_SPEEDUP))
    return reports


async def _sleeping_workers(bench: Bench) -> Runs:
    async with AsyncExitStack() as stack:
        variants: dict[str, Variant] = {}
        for count in _COUNTS:
            cluster = stack.enter_context(sleeping(bench.folder, count, _SLOTS, count))
            await wait_for_workers(cluster, count)
            executor = await stack.enter_async_context(connected(cluster, INSTALLATION))
            action = partial(sleep, executor, _SLEEP)
            variants[_workers(count)] = _saturated(bench, cluster, action, count * _SLOTS)
        return await interleaved(variants, bench.rounds)


async def _limited_workers(bench: Bench) -> Runs:
    async with AsyncExitStack() as stack:
        variants: dict[str, Variant] = {}
        for count in _COUNTS:
            cluster = stack.enter_context(converting(bench.folder, count, 1, _SHARE))
            installation = Installation.of(bench.registry, settings_of(cluster, bench.folder))
            executor = await stack.enter_async_context(connected(cluster, installation))
            variants[_workers(count)] = _saturated(bench, cluster, bench.conversion(executor, PHOTO), count)
        return await interleaved(variants, bench.rounds)


def _saturated(bench: Bench, cluster: Cluster, action: Callable[[], Awaitable[None]], jobs: int) -> Variant:
    return partial(repeat_concurrently, action, jobs, bench.seconds, partial(_cluster_cpu, cluster))


def _requirements(executors: Mapping[str, Runs], http: Runs, blobs: cluster_costs.BlobTimes) -> list[Row]:
    tiny, *large = executors.values()
    rows = [
        at_most(f"tiny job{title}: cluster - local, p50 ms", _added_ms(runs, suffix), _MAX_OVERHEAD)
        for title, suffix, runs in (
            (", back to back", "", tiny),
            (_SUFFIX, _SUFFIX, tiny),
            (" over HTTP, back to back", "", http),
        )
    ]
    for workload, runs in zip(_LARGE, large, strict=True):
        metric, share = (
            f"{workload.title}: throughput, cluster / local",
            throughput_ratio(runs["cluster"], runs["local"]),
        )
        # From JPEG to JPEG takes so little time that the transfer of the files shows.
        has_goal = workload.output_format != workload.encoder.lower()
        rows += [
            at_least(metric, share, _MIN_THROUGHPUT) if has_goal else info(metric, share),
            info(f"{workload.title}: CPU time, cluster / local", cpu_ratio(runs["cluster"], runs["local"])),
        ]
    failed = sum(run.failures for runs in http.values() for run in runs)
    return [
        *rows,
        info(f"blob store: put and read a file of {blobs.size / 1e6:.1f} MB, ms", 1000 * (blobs.put + blobs.read)),
        equals("failed requests", failed, 0),
    ]


def _table(title: str, runs: Runs) -> Report:
    return table(f"{title} ({max(len(own) for own in runs.values())} rounds)", runs)


def _added_ms(runs: Runs, suffix: str) -> float:
    """Returns the median over the rounds of the difference of the latencies in the same round."""
    pairs = zip(runs[f"cluster{suffix}"], runs[f"local{suffix}"], strict=True)
    return median(p50_ms([cluster]) - p50_ms([local]) for cluster, local in pairs)


def _cluster_cpu(cluster: Cluster) -> float:
    """The CPU time of a server in this process, and of the cluster's processes."""
    return process_time() + cluster.cpu_seconds()


def _local_cpu(cluster: Cluster) -> float:
    """The CPU time of this process and of its children that are not part of the cluster."""
    return own_cpu_seconds() - cluster.cpu_seconds()


def _workers(count: int) -> str:
    return f"{count} worker{'s' * (count > 1)}"
