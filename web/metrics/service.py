"""Requests as they are answered."""

from __future__ import annotations

import asyncio
import platform
from collections import Counter as Counts
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from typing import get_args

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Info

from engine.errors import OutOfMemory, TimedOut, WorkerCrashed
from engine.plugin_loader import Plugin
from storage.totals import Totals
from storage.usage import Operation
from web.api.errors import RateLimited
from web.metrics.conversions import OTHER

_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
_REQUEST_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
_SCOPES = ("account", "address", "failed_authentications", "registrations", "queue_full", "too_many_connections")


class HttpMetrics:
    """Told of every request when it has been answered."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._requests = Counter(
            "convertd_http_requests", "Requests answered.", ("method", "route", "status"), registry=registry
        )
        self._seconds = Histogram(
            "convertd_http_request_duration_seconds",
            "From a request's first line to the end of its answer.",
            ("route",),
            buckets=_REQUEST_SECONDS,
            registry=registry,
        )
        self._running = Gauge(
            "convertd_http_requests_in_progress", "Requests that are being answered.", registry=registry
        )
        self._limited = Counter(
            "convertd_rate_limited", "Requests refused because there were too many.", ("scope",), registry=registry
        )
        for scope in _SCOPES:
            self._limited.labels(scope)
        # As finding them by their labels takes longer than counting.
        self._requests_of = cache(self._requests.labels)
        self._seconds_of = cache(self._seconds.labels)

    def answered(self, method: str, route: str, status: int, seconds: float) -> None:
        """A request of a resource has been answered; `route` is the pattern of its paths."""
        self._requests_of(method if method in _METHODS else OTHER, route, status).inc()
        self._seconds_of(route).observe(seconds)

    def refused(self, error: Exception | None, *, known: bool) -> None:
        """What a request was refused with; `known` is whether its account was."""
        if isinstance(error, RateLimited):
            self._limited.labels(error.reason or ("account" if known else "address")).inc()

    def running(self, requests: int) -> None:
        """So many requests are being answered."""
        self._running.set(requests)


DEATHS = ("timeout", "oom", "crash", "cancelled")
"""What ends a job's process before its job is done: its deadline, its memory, itself, or a client that goes away."""

REFUSALS = ("full", "late", "stopping")
_WAIT_SECONDS = (0.001, 0.01, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 20, 30)
_MOST_MEMORY = 1 << 50  # bytes; what a job tells of itself need not be true
_MEMORY_BYTES = tuple(float(mebibytes << 20) for mebibytes in (64, 128, 256, 512, 1024, 2048, 3072))


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
            buckets=_MEMORY_BYTES,
            registry=registry,
        )
        self._depth = Gauge("convertd_queue_depth", "Conversions that wait for a turn.", registry=registry)
        self._oldest = Gauge(
            "convertd_queue_oldest_seconds", "How long the one has waited that has waited longest.", registry=registry
        )
        self._wait = Histogram(
            "convertd_queue_wait_seconds", "The wait of those who got a turn.", buckets=_WAIT_SECONDS, registry=registry
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

    def set_queue(self, *, workers: int, busy: int, waiting: int, oldest: float, refused: Mapping[str, int]) -> None:
        """How the line stands now, and how many it has refused so far, by why."""
        self._workers.set(workers)
        self._busy.set(busy)
        self._depth.set(waiting)
        self._oldest.set(oldest)
        for cause, count in refused.items():
            self._refused.labels(cause).inc(count - self._refused_before[cause])
        self._refused_before = Counts(refused)


SOURCES = ("registration", "purchase")


class CreditMetrics:
    """Told of what this server charges, grants and mails. What an operator grants by command is not among it."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._charged = Counter(
            "convertd_credits_charged", "Credits charged for what succeeded.", ("operation",), registry=registry
        )
        self._granted = Counter("convertd_credits_granted", "Credits that came in.", ("source",), registry=registry)
        self._mail = Counter("convertd_mail", "Letters that left, or were given up.", ("outcome",), registry=registry)
        self._mail_waiting = Gauge("convertd_mail_waiting", "Letters on their way.", registry=registry)
        for operation in get_args(Operation):
            self._charged.labels(operation)
        for source in SOURCES:
            self._granted.labels(source)
        for outcome in ("sent", "failed"):
            self._mail.labels(outcome)

    def charged(self, operation: Operation, credits: int) -> None:
        """An operation was charged for."""
        self._charged.labels(operation).inc(credits)

    def granted(self, source: str, credits: int) -> None:
        """Credits came in, by one of SOURCES."""
        self._granted.labels(source).inc(credits)

    def mailed(self, sent: bool) -> None:
        """A letter left, or was given up."""
        self._mail.labels("sent" if sent else "failed").inc()

    def mail_waits(self, letters: int) -> None:
        """So many letters are on their way."""
        self._mail_waiting.set(letters)


class TotalsMetrics:
    """Told of what upkeep finds in the database and on the disk."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._accounts = Gauge("convertd_accounts", "Accounts.", ("tier",), registry=registry)
        self._held = Gauge("convertd_credits_held", "Credits set aside for operations that run.", registry=registry)
        self._balance = Gauge("convertd_credits_balance", "Credits that accounts have left.", registry=registry)
        self._files = Gauge("convertd_files_stored", "Files that are kept.", ("state",), registry=registry)
        self._bytes = Gauge("convertd_storage_bytes", "The size of all files that are kept.", registry=registry)
        self._free = Gauge("convertd_disk_free_bytes", "What is free on the data folder's disk.", registry=registry)
        self._updated = Gauge(
            "convertd_stock_updated_timestamp_seconds", "When these were last looked up.", registry=registry
        )
        for tier in ("free", "paid"):
            self._accounts.labels(tier)
        for state in ("pending", "processed"):
            self._files.labels(state)

    def found(self, stock: Totals, free_bytes: int) -> None:
        """This is what there is now, and how many bytes are free on the disk."""
        self._accounts.labels("free").set(stock.free_accounts)
        self._accounts.labels("paid").set(stock.paid_accounts)
        self._held.set(stock.held)
        self._balance.set(stock.balance)
        self._files.labels("pending").set(stock.pending_files)
        self._files.labels("processed").set(stock.processed_files)
        self._bytes.set(stock.bytes)
        self._free.set(free_bytes)
        self._updated.set_to_current_time()


class InstallationMetrics:
    """Told of what was found at the start, and of what the process stands on."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._build = Info("convertd_build", "The version that runs, and its Python.", registry=registry)
        self._ready = Gauge(
            "convertd_ready", "Whether the process can do its work, as /readyz says.", registry=registry
        )
        self._plugins = Gauge(
            "convertd_plugin_up", "Whether a plugin could be loaded.", ("plugin", "version"), registry=registry
        )
        self._layers = Gauge(
            "convertd_sandbox_layer", "Whether a layer of the sandbox holds here.", ("layer",), registry=registry
        )
        self._breaker = Gauge(
            "convertd_redis_breaker_open",
            "Whether Redis does not answer, so that limits hold for each process by itself.",
            registry=registry,
        )

    def runs(self, version: str, plugins: Iterable[Plugin]) -> None:
        """The version of convertd, and the plugins that it found; those that come with it are of its version."""
        self._build.info({"version": version, "python": platform.python_version()})
        for plugin in plugins:
            self._plugins.labels(plugin.name, plugin.version or version).set(plugin.error is None)

    def sandboxed(self, layers: Mapping[str, bool]) -> None:
        """Which layers of the sandbox hold."""
        for layer, holds in layers.items():
            self._layers.labels(layer).set(holds)

    def ready(self, holds: bool) -> None:
        """Whether the process can do its work."""
        self._ready.set(holds)

    def redis(self, *, failing: bool) -> None:
        """Whether requests are counted without Redis, which should count them."""
        self._breaker.set(failing)
