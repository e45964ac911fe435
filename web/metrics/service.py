"""Metrics of HTTP requests, the queue and its workers, credits and email, database totals, and the installation.

Counters and gauges without logic are public attributes, incremented or set where their event happens.
"""

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
from storage.tables.totals import Totals
from storage.tables.usage import Operation
from web.api.errors import RateLimited
from web.metrics.conversions import OTHER

_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
_SCOPES = ("account", "address", "failed_authentications", "registrations", "queue_full", "too_many_connections")
_RESTART_CAUSES = ("timeout", "oom", "crash", "cancelled")
_REFUSAL_CAUSES = ("full", "late", "stopping")
_GRANT_SOURCES = ("registration", "purchase")

_REQUEST_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
_WAIT_SECONDS = (0.001, 0.01, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 20, 30)
_MEMORY_BYTES = tuple(float(mebibytes << 20) for mebibytes in (64, 128, 256, 512, 1024, 2048, 3072))
_MAX_MEMORY = 1 << 50  # bytes; the figure that a job reports is untrusted


class HttpMetrics:
    """HTTP requests, refusals, and the state of Redis, which counts requests."""

    def __init__(self, registry: CollectorRegistry) -> None:
        requests = Counter(
            "convertd_http_requests", "Completed requests.", ("method", "route", "status"), registry=registry
        )
        seconds = Histogram(
            "convertd_http_request_duration_seconds",
            "Time from the first line of a request to the end of its response in seconds.",
            ("route",),
            buckets=_REQUEST_SECONDS,
            registry=registry,
        )
        self.in_progress = Gauge("convertd_http_requests_in_progress", "Requests in progress.", registry=registry)
        self._limited = Counter(
            "convertd_rate_limited", "Requests refused by a rate limit.", ("scope",), registry=registry
        )
        for scope in _SCOPES:
            self._limited.labels(scope)
        self.redis_breaker_open = Gauge(
            "convertd_redis_breaker_open",
            "1 while Redis fails and each process counts requests on its own.",
            registry=registry,
        )
        # Cached: the lookup by labels takes longer than the increment.
        self._requests = cache(requests.labels)
        self._seconds = cache(seconds.labels)

    def record_request(self, method: str, route: str, status: int, seconds: float) -> None:
        """Records a completed request; `route` is the pattern of its path."""
        self._requests(method if method in _METHODS else OTHER, route, status).inc()
        self._seconds(route).observe(seconds)

    def record_refusal(self, error: Exception | None, *, authenticated: bool) -> None:
        """Records the error of a request if it is a rate limit."""
        if isinstance(error, RateLimited):
            self._limited.labels(error.reason or ("account" if authenticated else "address")).inc()


class WorkerMetrics:
    """The job queue and the worker processes."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._workers = Gauge("convertd_workers", "Conversions that can run at the same time.", registry=registry)
        self._busy = Gauge("convertd_workers_busy", "Running conversions.", registry=registry)
        self._restarts = Counter(
            "convertd_worker_restarts",
            "Worker processes that ended before their job and were replaced.",
            ("cause",),
            registry=registry,
        )
        self._peak_memory = Histogram(
            "convertd_worker_peak_rss_bytes",
            "Peak memory of a worker process during a job in bytes.",
            buckets=_MEMORY_BYTES,
            registry=registry,
        )
        self._depth = Gauge("convertd_queue_depth", "Queued conversions.", registry=registry)
        self._oldest = Gauge(
            "convertd_queue_oldest_seconds", "Age of the oldest queued conversion in seconds.", registry=registry
        )
        self.queue_wait = Histogram(
            "convertd_queue_wait_seconds",
            "Time in the queue in seconds, of conversions that started.",
            buckets=_WAIT_SECONDS,
            registry=registry,
        )
        self._refused = Counter(
            "convertd_queue_refused", "Conversions that did not start.", ("cause",), registry=registry
        )
        for cause in _RESTART_CAUSES:
            self._restarts.labels(cause)
        for cause in _REFUSAL_CAUSES:
            self._refused.labels(cause)
        self._refused_before: Counts[str] = Counts()

    @contextmanager
    def track_job(self) -> Iterator[None]:
        """Counts a restart if the block ends because a worker process died or its client disconnected."""
        try:
            yield
        except TimedOut:
            self._restarts.labels("timeout").inc()
            raise
        except OutOfMemory:
            self._restarts.labels("oom").inc()
            raise
        except WorkerCrashed:
            self._restarts.labels("crash").inc()
            raise
        except asyncio.CancelledError:
            self._restarts.labels("cancelled").inc()
            raise

    def record_peak_memory(self, size: int) -> None:
        """Records the peak memory in bytes that a job reports. Ignores implausible values."""
        if 0 < size < _MAX_MEMORY:
            self._peak_memory.observe(size)

    def set_queue(self, *, workers: int, busy: int, waiting: int, oldest: float, refused: Mapping[str, int]) -> None:
        """Sets the state of the queue. `oldest` is in seconds; `refused` has the refusals since start-up by cause."""
        self._workers.set(workers)
        self._busy.set(busy)
        self._depth.set(waiting)
        self._oldest.set(oldest)
        for cause, count in refused.items():
            self._refused.labels(cause).inc(count - self._refused_before[cause])
        self._refused_before = Counts(refused)


class CreditMetrics:
    """Credits that this server charges and grants, and its emails.

    Grants by `convertd account` and for trials are not counted.
    """

    def __init__(self, registry: CollectorRegistry) -> None:
        self.charged = Counter(
            "convertd_credits_charged", "Credits charged for successful operations.", ("operation",), registry=registry
        )
        self.granted = Counter(
            "convertd_credits_granted", "Credits added by registrations and purchases.", ("source",), registry=registry
        )
        self.emails_waiting = Gauge("convertd_mail_waiting", "Emails in the queue.", registry=registry)
        self._emails = Counter("convertd_mail", "Emails that were sent or dropped.", ("outcome",), registry=registry)
        for operation in get_args(Operation):
            self.charged.labels(operation)
        for source in _GRANT_SOURCES:
            self.granted.labels(source)
        for outcome in ("sent", "failed"):
            self._emails.labels(outcome)

    def record_email(self, sent: bool) -> None:
        """Records an email that was sent or dropped."""
        self._emails.labels("sent" if sent else "failed").inc()


class TotalsMetrics:
    """Totals of the database and free disk space, as of the latest update."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._accounts = Gauge("convertd_accounts", "Accounts.", ("tier",), registry=registry)
        self._held = Gauge("convertd_credits_held", "Credits held for running operations.", registry=registry)
        self._balance = Gauge("convertd_credits_balance", "Credits of all accounts.", registry=registry)
        self._files = Gauge("convertd_files_stored", "Stored files.", ("state",), registry=registry)
        self._bytes = Gauge("convertd_storage_bytes", "Size of all stored files in bytes.", registry=registry)
        self._free = Gauge(
            "convertd_disk_free_bytes", "Free space on the disk of the data folder in bytes.", registry=registry
        )
        self._updated = Gauge(
            "convertd_stock_updated_timestamp_seconds",
            "Unix time of the latest update of accounts, credits, files and disk space.",
            registry=registry,
        )
        for tier in ("free", "paid"):
            self._accounts.labels(tier)
        for state in ("pending", "processed"):
            self._files.labels(state)

    def update(self, totals: Totals, free_bytes: int) -> None:
        """Sets all gauges."""
        self._accounts.labels("free").set(totals.free_accounts)
        self._accounts.labels("paid").set(totals.paid_accounts)
        self._held.set(totals.held)
        self._balance.set(totals.balance)
        self._files.labels("pending").set(totals.pending_files)
        self._files.labels("processed").set(totals.processed_files)
        self._bytes.set(totals.bytes)
        self._free.set(free_bytes)
        self._updated.set_to_current_time()


class InstallationMetrics:
    """Version, readiness, plugins and sandbox of this process."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.ready = Gauge(
            "convertd_ready",
            "1 if the server is ready, as /readyz reports, or the worker is part of the cluster.",
            registry=registry,
        )
        self._build = Info("convertd_build", "Version of convertd and of Python.", registry=registry)
        self._plugins = Gauge(
            "convertd_plugin_up", "1 if the plugin is loaded.", ("plugin", "version"), registry=registry
        )
        self._layers = Gauge(
            "convertd_sandbox_layer", "1 if the layer of the sandbox is active.", ("layer",), registry=registry
        )

    def set_build(self, version: str, plugins: Iterable[Plugin]) -> None:
        """Sets the version of convertd, which is also that of the built-in plugins, and the state of each plugin."""
        self._build.info({"version": version, "python": platform.python_version()})
        for plugin in plugins:
            self._plugins.labels(plugin.name, plugin.version or version).set(plugin.error is None)

    def set_sandbox_layers(self, layers: Mapping[str, bool]) -> None:
        """Sets which layers of the sandbox are active."""
        for layer, active in layers.items():
            self._layers.labels(layer).set(active)
