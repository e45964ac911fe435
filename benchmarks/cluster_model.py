"""The jobs per second that each part of a service on a cluster can process, from measured costs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass
from math import ceil, inf

from benchmarks.report import Report, Row

POLL_INTERVAL = 5.0
"""Seconds between two polls of the scheduler by a server."""


@dataclass(frozen=True)
class CpuTimes:
    """CPU seconds of the scheduler, of the server, and of the workers' own processes."""

    scheduler: float
    server: float
    worker: float

    @property
    def total(self) -> float:
        """The CPU seconds of all parts."""
        return self.scheduler + self.server + self.worker


@dataclass(frozen=True)
class Costs:
    """What the parts of a service spend, in CPU seconds of one core unless noted.

    Each job costs `job`, and `job_per_worker` for each worker of the cluster; each heartbeat of a worker `heartbeat`.
    The scheduler, which is one process, spends `poll` per worker whenever a server polls. A server is one process and
    spends `request` on a job with its HTTP request. The database charges for `ledger_jobs` per second. The
    folder of the blob store transfers `bytes_per_second`.
    """

    job: CpuTimes
    job_per_worker: CpuTimes
    heartbeat: CpuTimes
    poll: float
    request: float
    ledger_jobs: float
    bytes_per_second: float

    def job_costs(self, workers: int) -> CpuTimes:
        """Returns the costs of a job in a cluster of that many workers."""
        pairs = zip(astuple(self.job), astuple(self.job_per_worker), strict=True)
        return CpuTimes(*(base + workers * slope for base, slope in pairs))


@dataclass(frozen=True)
class Cluster:
    """A number of workers with `slots` jobs at a time each, and the heartbeats of all workers per second."""

    workers: int
    slots: int
    heartbeats: float


@dataclass(frozen=True)
class Workload:
    """Jobs that take `seconds` each, and transfer `size` bytes to and from the blob store, counted each time."""

    title: str
    seconds: float
    size: float


def line(workers: int, job: CpuTimes, more_workers: int, other: CpuTimes) -> tuple[CpuTimes, CpuTimes]:
    """Returns the costs of a job without workers, and its costs per worker, from those at two numbers of workers.

    Costs do not fall with the number of workers.
    """
    pairs = list(zip(astuple(job), astuple(other), strict=True))
    slopes = [max(0.0, (more - less) / (more_workers - workers)) for less, more in pairs]
    bases = [less - slope * workers for (less, _), slope in zip(pairs, slopes, strict=True)]
    return CpuTimes(*bases), CpuTimes(*slopes)


def demand(cluster: Cluster, workload: Workload) -> float:
    """Returns the jobs per second of workers that are never idle."""
    return cluster.workers * cluster.slots / workload.seconds


def servers_needed(costs: Costs, cluster: Cluster, workload: Workload) -> int:
    """Returns the number of server processes for workers that are never idle, or for all jobs that the scheduler can
    process.
    """
    jobs = min(demand(cluster, workload), 1 / costs.job_costs(cluster.workers).scheduler)
    return ceil(jobs * _server_seconds(costs, cluster))


def _server_seconds(costs: Costs, cluster: Cluster) -> float:
    return costs.request + cluster.workers * costs.job_per_worker.server


def scheduler_idle(costs: Costs, cluster: Cluster, servers: int) -> float:
    """Returns the share of a core that the scheduler needs without jobs."""
    return cluster.heartbeats * costs.heartbeat.scheduler + servers * cluster.workers * costs.poll / POLL_INTERVAL


def capacities(costs: Costs, cluster: Cluster, workload: Workload, servers: int) -> dict[str, float]:
    """Returns the jobs per second that each part can process."""
    job = costs.job_costs(cluster.workers)
    left = max(0.0, 1 - scheduler_idle(costs, cluster, servers))
    return {
        "workers": demand(cluster, workload),
        "scheduler": left / job.scheduler,
        "servers": servers / _server_seconds(costs, cluster),
        "ledger": costs.ledger_jobs,
        "blob folder": costs.bytes_per_second / workload.size if workload.size else inf,
    }


def simulated(
    costs: Costs, cluster: Cluster, jobs: int, seconds: float, processes: int, cores: int
) -> dict[str, float]:
    """Returns the capacities of a simulation with `jobs` at a time that sleep, on a machine with some cores.

    One process is the server, and some are the workers.
    """
    job, idle = costs.job_costs(cluster.workers), scheduler_idle(costs, cluster, 1)
    workers_idle = cluster.heartbeats * costs.heartbeat.worker
    return {
        "workers": jobs / seconds,
        "scheduler": max(0.0, 1 - idle) / job.scheduler,
        "server": 1 / job.server,
        "workers' processes": max(0.0, processes - workers_idle) / job.worker,
        "cores": max(0.0, cores - idle - workers_idle) / job.total,
    }


def bottleneck(capacities: Mapping[str, float]) -> str:
    """Returns the part with the lowest capacity; "workers" if the others can process all of their jobs."""
    return min(capacities, key=lambda part: capacities[part])


def table(costs: Costs, clusters: Sequence[Cluster], workloads: Sequence[Workload]) -> Report:
    """Returns a row per workload and cluster, with as many servers as the workers need."""
    columns = (
        *("jobs", "workers", "jobs/s wanted", "servers needed"),
        *("scheduler jobs/s", "ledger jobs/s", "blob folder jobs/s", "first limit", "% of wanted"),
    )
    rows: list[Row] = []
    for workload in workloads:
        for cluster in clusters:
            servers = servers_needed(costs, cluster, workload)
            parts = capacities(costs, cluster, workload, servers)
            limit = bottleneck(parts)
            blobs = "no limit" if parts["blob folder"] == inf else parts["blob folder"]
            reached = 100 * parts[limit] / parts["workers"]
            numbers = (parts["workers"], servers, parts["scheduler"], parts["ledger"], blobs)
            rows.append((workload.title, cluster.workers, *numbers, limit, reached))
    return Report("Model: jobs per second that each part can process", columns, tuple(rows))
