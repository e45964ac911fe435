"""The costs of the parts of a cluster, measured with workers that sleep, and the model that follows from them."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import astuple, dataclass
from functools import partial
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import perf_counter, process_time

from distributed import Client
from distributed.protocol.core import dumps
from distributed.scheduler import heartbeat_interval

from benchmarks import cluster_model
from benchmarks.cluster_model import Costs, CpuTimes, Workload
from benchmarks.cluster_processes import Cluster, connected, sleeping, wait_for_workers
from benchmarks.measure import Run, cpu_seconds, repeat_concurrently
from benchmarks.report import Report, Row
from benchmarks.server_process import create_accounts, email, open_database, sqlite_url
from benchmarks.sleeping_workers import INSTALLATION, sleep
from storage.blobs.blob_store import FolderBlobStore
from storage.database import Database, Transaction
from storage.tables import accounts, ledger
from storage.tables.usage import UsageRecord

_JOBS = 200  # at a time
_SECONDS = 0.1  # of a job that sleeps
_RATE = 100  # jobs per second of the last simulation
_PROCESSES = 2  # for the workers
_IDLE_SECONDS, _POLL_SECONDS = 4.0, 1.0
_LEDGER_SECONDS = 2.0
_ACCOUNTS = 16
_BLOBS = 5  # written and read
_OWNER = ledger.ServerInstance("benchmark", "benchmark")
_USAGE = UsageRecord("convert", "png", "jpeg", 1000)
_MODEL_WORKERS, _MODEL_SLOTS = (10, 100, 1000), 4
_SMALL = Workload("without blobs, 0.1 s", 0.1, 0)
_TRANSFERS = 4  # of a large job: its input and its result are stored and read


@dataclass(frozen=True)
class BlobTimes:
    """The seconds to store and to read a file of `size` bytes."""

    size: int
    put: float
    read: float


@dataclass(frozen=True)
class Measured:
    """The CPU seconds of a server per request, the times of a blob, and the seconds of a large conversion."""

    request: float
    blob: BlobTimes
    large: float


@dataclass(frozen=True)
class Calibration:
    """The costs with a number of workers, and the run of jobs that showed them.

    `idle` is the share of a core that each part needs without jobs, mostly for heartbeats. `poll` are the CPU seconds
    of the scheduler, and `poll_size` the bytes of a poll.
    """

    workers: int
    idle: CpuTimes
    poll: float
    poll_size: int
    run: Run
    job: CpuTimes


async def blob_store(folder: Path, file: Path) -> BlobTimes:
    """Measures a blob store in a folder."""
    store, puts, reads = FolderBlobStore(folder, durable=False), [], []
    with file.open("rb") as source:
        size = os.fstat(source.fileno()).st_size
        for number in range(_BLOBS):
            key, started = f"benchmark-{number}", perf_counter()
            await store.put(key, source.fileno())
            stored = perf_counter()
            async for _ in store.read(key, 0, size):
                pass
            puts.append(stored - started)
            reads.append(perf_counter() - stored)
            await store.delete([key])
    return BlobTimes(size, median(puts), median(reads))


async def measure(folder: Path, seconds: float, workers: int, database: str | None, known: Measured) -> list[Report]:
    """Returns the costs, the model for several clusters, and simulations of up to `workers` workers that check it."""
    ledger_jobs = await _ledger_jobs(folder, database)
    calibrations = []
    for count in (workers // 100, workers // 10, workers):
        with sleeping(folder, count, max(1, _JOBS // count), min(count, _PROCESSES)) as cluster:
            calibrations.append(await _calibrate(cluster, count, seconds))
            if count == workers:
                unsaturated = await _run_unsaturated(cluster, calibrations[-1])
    few, some, many = calibrations
    costs = _costs(few, many, ledger_jobs, known)
    large = Workload(f"12 megapixels, {known.large:.2g} s", known.large, _TRANSFERS * known.blob.size)
    clusters = [_cluster(count, _MODEL_SLOTS) for count in _MODEL_WORKERS]
    return [
        _calibration_table(calibrations),
        _costs_table(costs, many),
        cluster_model.table(costs, clusters, [_SMALL, large]),
        _simulations(costs, some, many, unsaturated),
    ]


async def _ledger_jobs(folder: Path, url: str | None) -> float:
    """Returns the number of holds that are made and settled per second, for several accounts at the same time."""
    with TemporaryDirectory(dir=folder) as name:
        address = url or sqlite_url(Path(name))
        create_accounts(address, _ACCOUNTS)
        with open_database(address) as database:
            ids = [await database.run(_account, number) for number in range(_ACCOUNTS)]
            end = perf_counter() + _LEDGER_SECONDS
            counts = await asyncio.gather(*(_charge_until(database, account, end) for account in ids))
    return sum(counts) / _LEDGER_SECONDS


def _account(transaction: Transaction, number: int) -> str:
    account = accounts.find(transaction, email(number))
    assert account is not None
    return account.id


async def _charge_until(database: Database, account: str, end: float) -> int:
    count = 0
    while perf_counter() < end:
        hold = await database.run(ledger.reserve, account, 1, _OWNER, 60)
        await database.run(ledger.settle, hold, _USAGE)
        count += 1
    return count


async def _calibrate(cluster: Cluster, count: int, seconds: float) -> Calibration:
    await wait_for_workers(cluster, count)
    before = _used(cluster)
    await asyncio.sleep(_IDLE_SECONDS)
    idle = _difference(before, _used(cluster), _IDLE_SECONDS)
    poll, size = await _poll(cluster, idle)
    async with connected(cluster, INSTALLATION) as executor:
        action = partial(sleep, executor, _SECONDS)
        run, job = await _run_jobs(cluster, partial(repeat_concurrently, action, _JOBS, seconds), idle)
    return Calibration(count, idle, poll, size, run, job)


async def _run_unsaturated(cluster: Cluster, calibration: Calibration) -> tuple[Run, CpuTimes]:
    """Runs jobs that all workers together process at _RATE per second."""
    jobs = calibration.workers * max(1, _JOBS // calibration.workers)
    async with connected(cluster, INSTALLATION) as executor:
        action = partial(sleep, executor, jobs / _RATE)
        repeated = partial(repeat_concurrently, action, jobs, 0.0, spread=jobs / _RATE)
        return await _run_jobs(cluster, repeated, calibration.idle)


async def _poll(cluster: Cluster, idle: CpuTimes) -> tuple[float, int]:
    """Returns the CPU seconds of the scheduler for a poll of all workers, and the bytes of its response."""
    async with Client(cluster.address, asynchronous=True, set_as_default=False) as client:
        assert client.scheduler is not None
        before, started, polls = cpu_seconds(cluster.scheduler), perf_counter(), 0
        while perf_counter() - started < _POLL_SECONDS:
            description = await client.scheduler.identity(n_workers=-1)
            polls += 1
        elapsed = perf_counter() - started
        cpu = cpu_seconds(cluster.scheduler) - before - elapsed * idle.scheduler
    return cpu / polls, sum(len(frame) for frame in dumps(description))


async def _run_jobs(
    cluster: Cluster, run: Callable[[Callable[[], float]], Awaitable[Run]], idle: CpuTimes
) -> tuple[Run, CpuTimes]:
    """Returns the run of jobs, and the CPU seconds of each part per job, without those of an idle cluster."""
    marks: list[tuple[float, CpuTimes]] = []

    def clock() -> float:
        used = _used(cluster)
        marks.append((perf_counter(), used))
        return used.total

    result = await run(clock)
    (started, before), (ended, after) = marks
    elapsed, jobs = ended - started, len(result.latencies)
    used = _difference(before, after, jobs)
    parts = zip(astuple(used), astuple(idle), strict=True)
    return result, CpuTimes(*(part - without * elapsed / jobs for part, without in parts))


def _used(cluster: Cluster) -> CpuTimes:
    """The CPU seconds of each part until now."""
    workers = sum(cpu_seconds(pid) for pid in cluster.workers)
    return CpuTimes(cpu_seconds(cluster.scheduler), process_time(), workers)


def _difference(before: CpuTimes, after: CpuTimes, count: float) -> CpuTimes:
    return CpuTimes(*((end - start) / count for start, end in zip(astuple(before), astuple(after), strict=True)))


def _cluster(workers: int, slots: int) -> cluster_model.Cluster:
    return cluster_model.Cluster(workers, slots, workers / heartbeat_interval(workers))


def _costs(few: Calibration, many: Calibration, ledger_jobs: float, known: Measured) -> Costs:
    base, slope = cluster_model.line(few.workers, few.job, many.workers, many.job)
    rate = _cluster(many.workers, 1).heartbeats
    heartbeat = CpuTimes(*(share / rate for share in astuple(many.idle)))
    speed = 2 * known.blob.size / (known.blob.put + known.blob.read)
    return Costs(base, slope, heartbeat, many.poll / many.workers, known.request, ledger_jobs, speed)


def _simulations(costs: Costs, some: Calibration, many: Calibration, unsaturated: tuple[Run, CpuTimes]) -> Report:
    """Compares the model with runs that it was not made from: with some workers, and with all at a low rate."""
    rows: list[Row] = []
    seconds = many.workers * max(1, _JOBS // many.workers) / _RATE
    for one, duration, (run, job) in ((some, _SECONDS, (some.run, some.job)), (many, seconds, unsaturated)):
        slots = max(1, _JOBS // one.workers)
        jobs = min(_JOBS, one.workers * slots) if one is some else one.workers * slots
        cluster, cores = _cluster(one.workers, slots), len(os.sched_getaffinity(0))
        parts = cluster_model.simulated(costs, cluster, jobs, duration, _PROCESSES, cores)
        limit = cluster_model.bottleneck(parts)
        scheduler = 1000 * job.scheduler, 1000 * costs.job_costs(one.workers).scheduler
        rates = jobs / duration, parts[limit], limit, run.throughput, run.throughput / parts[limit]
        rows.append((one.workers, jobs, duration, *rates, *scheduler))
    columns = (
        *("workers", "jobs at a time", "seconds", "jobs/s wanted", "model jobs/s", "first limit", "measured jobs/s"),
        *("measured / model", "scheduler CPU ms per job", "model"),
    )
    return Report("Simulation: workers that sleep, with all processes on this machine", columns, tuple(rows))


def _calibration_table(calibrations: Sequence[Calibration]) -> Report:
    columns = (
        *("workers", "jobs/s", "added ms", "scheduler CPU ms", "server CPU ms", "worker CPU ms"),
        *("idle scheduler, % of a core", "poll CPU ms", "poll KB"),
    )
    rows = [
        (
            *(one.workers, one.run.throughput, 1000 * (median(one.run.latencies) - _SECONDS)),
            *(1000 * one.job.scheduler, 1000 * one.job.server, 1000 * one.job.worker, 100 * one.idle.scheduler),
            *(1000 * one.poll, one.poll_size / 1000),
        )
        for one in calibrations
    ]
    return Report(f"Costs per job, {_JOBS} jobs at a time that sleep for {_SECONDS:g} s", columns, tuple(rows))


def _costs_table(costs: Costs, calibration: Calibration) -> Report:
    rows: list[Row] = [
        ("scheduler: CPU ms per job", 1000 * costs.job.scheduler),
        ("scheduler: CPU us per job and worker", 1e6 * costs.job_per_worker.scheduler),
        ("scheduler: CPU us per heartbeat", 1e6 * costs.heartbeat.scheduler),
        ("scheduler: CPU us per poll and worker", 1e6 * costs.poll),
        ("scheduler: bytes per poll and worker", calibration.poll_size / calibration.workers),
        ("server: CPU ms per HTTP request", 1000 * costs.request),
        ("server: CPU us per job and worker", 1e6 * costs.job_per_worker.server),
        ("ledger: jobs per second, two commits each", costs.ledger_jobs),
        ("blob folder: MB per second", costs.bytes_per_second / 1e6),
    ]
    return Report("Costs of the model", ("cost", "value"), tuple(rows))
