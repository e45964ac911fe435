"""The line of those who wait for a turn, and the processes of the jobs."""

from __future__ import annotations

import asyncio
from collections import Counter as Counts
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from engine.errors import OutOfMemory, TimedOut, WorkerCrashed

DEATHS = ("timeout", "oom", "crash", "cancelled")
"""What ends a job's process before its job is done: its deadline, its memory, itself, or a client that goes away."""

REFUSALS = ("full", "late", "stopping")
_SECONDS = (0.001, 0.01, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 20, 30)
_MOST_MEMORY = 1 << 50  # bytes; what a job tells of itself need not be true
_BYTES = tuple(float(mebibytes << 20) for mebibytes in (64, 128, 256, 512, 1024, 2048, 3072))


class WorkerMetrics:
    """Told of turns and of what became of jobs."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._workers = Gauge("convertd_workers", "Conversions that can run at a time.", registry=registry)
        self._busy = Gauge("convertd_workers_busy", "Conversions that run.", registry=registry)
        self._deaths = Counter(
            "convertd_worker_restarts",
            "Processes of jobs that ended before their job was done, and were replaced.",
            ("cause",),
            registry=registry,
        )
        self._memory = Histogram(
            "convertd_worker_peak_rss_bytes",
            "The most memory that a job's process had, as far as it could still tell.",
            buckets=_BYTES,
            registry=registry,
        )
        self._depth = Gauge("convertd_queue_depth", "Conversions that wait for a turn.", registry=registry)
        self._oldest = Gauge(
            "convertd_queue_oldest_seconds", "How long the one has waited that has waited longest.", registry=registry
        )
        self._wait = Histogram(
            "convertd_queue_wait_seconds", "The wait of those who got a turn.", buckets=_SECONDS, registry=registry
        )
        self._refused = Counter(
            "convertd_queue_refused", "Conversions that got no turn.", ("cause",), registry=registry
        )
        for cause in DEATHS:
            self._deaths.labels(cause)
        for cause in REFUSALS:
            self._refused.labels(cause)
        self._refused_before: Counts[str] = Counts()

    @contextmanager
    def job(self) -> Iterator[None]:
        """While a job runs."""
        try:
            yield
        except TimedOut:
            self._deaths.labels("timeout").inc()
            raise
        except OutOfMemory:
            self._deaths.labels("oom").inc()
            raise
        except WorkerCrashed:
            self._deaths.labels("crash").inc()
            raise
        except asyncio.CancelledError:
            self._deaths.labels("cancelled").inc()
            raise

    def peak(self, memory: int) -> None:
        """A job's process had so many bytes of memory, as it says itself."""
        if 0 < memory < _MOST_MEMORY:
            self._memory.observe(memory)

    def waited(self, seconds: float) -> None:
        """One got its turn."""
        self._wait.observe(seconds)

    def stand(self, *, workers: int, busy: int, waiting: int, oldest: float, refused: Mapping[str, int]) -> None:
        """How the line stands now, and how many it has refused so far, by why."""
        self._workers.set(workers)
        self._busy.set(busy)
        self._depth.set(waiting)
        self._oldest.set(oldest)
        for cause, count in refused.items():
            self._refused.labels(cause).inc(count - self._refused_before[cause])
        self._refused_before = Counts(refused)
