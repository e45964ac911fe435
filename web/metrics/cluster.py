"""Metrics of a cluster: its state as a server sees it, and the jobs of a worker process."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, TypeAlias

from prometheus_client import CollectorRegistry, Counter, Gauge

from web.api.schemas.service import Cluster
from web.metrics.service import InstallationMetrics

JobOutcome: TypeAlias = Literal["succeeded", "failed", "cancelled"]


ReadState: TypeAlias = Callable[[], Cluster]


class ClusterMetrics:
    """The state of the cluster."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._connected = Gauge(
            "convertd_cluster_connected", "1 if the scheduler of the cluster responds.", registry=registry
        )
        self._workers = Gauge(
            "convertd_cluster_workers", "Workers of the cluster by version.", ("version",), registry=registry
        )
        self._usable = Gauge(
            "convertd_cluster_workers_usable",
            "Workers with the same version, plugins and blob store as this server.",
            registry=registry,
        )
        self._slots = Gauge(
            "convertd_cluster_slots", "Conversions that the usable workers run at the same time.", registry=registry
        )
        self._jobs = Gauge(
            "convertd_cluster_jobs",
            "Conversions of all servers on the usable workers by state.",
            ("state",),
            registry=registry,
        )
        self._retries = Counter(
            "convertd_cluster_retries",
            "Conversions of this server that were repeated because their worker died.",
            registry=registry,
        )
        self._retries_before = 0

    def update(self, state: Cluster) -> None:
        """Sets all metrics."""
        self._connected.set(state.connected)
        self._workers.clear()  # forgets versions that no worker has
        for version, count in state.workers.items():
            self._workers.labels(version).set(count)
        self._usable.set(state.usable)
        self._slots.set(state.slots)
        self._jobs.labels("running").set(state.running)
        self._jobs.labels("waiting").set(state.waiting)
        self._retries.inc(state.retries - self._retries_before)
        self._retries_before = state.retries


class ClusterWorkerMetrics:
    """The jobs of a worker process, and its installation. A worker is ready while it is part of the cluster."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.installation = InstallationMetrics(registry)
        self.joined = self.installation.ready
        self.running = Gauge(
            "convertd_cluster_worker_running", "Running conversions of this worker.", registry=registry
        )
        self._jobs = Counter(
            "convertd_cluster_worker_jobs",
            "Conversions of this worker that ended, by outcome.",
            ("outcome",),
            registry=registry,
        )
        for outcome in ("succeeded", "failed", "cancelled"):
            self._jobs.labels(outcome)

    def record_job(self, outcome: JobOutcome) -> None:
        """Records the end of a job."""
        self._jobs.labels(outcome).inc()
