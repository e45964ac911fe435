"""Metrics of HTTP requests, files by URL, the queue and its workers, credits and email, totals, the server, a cluster.

Counters and gauges without logic are public attributes, incremented or set where their event happens.
"""

import asyncio
import platform
from collections import Counter as Counts
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache, partial
from importlib.metadata import version
from typing import Literal, TypeAlias, get_args

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector

from config.errors import PublicError
from engine.errors import OutOfMemory, TimedOut, WorkerCrashed
from engine.plugin_loader import Plugin
from storage.tables.jobs import QueueState
from storage.tables.receivers import AttemptResult
from storage.tables.totals import Totals
from storage.tables.usage import OPERATIONS
from storage.tables.webhooks import DisabledReason
from web.api.errors import RateLimited
from web.api.schemas.service import Cluster
from web.metrics.conversions import OTHER

Transfer: TypeAlias = Literal["fetch", "export"]

_CPU = "process_cpu_seconds"
_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
_SCOPES = ("account", "address", "failed_authentications", "registrations", "queue_full", "too_many_connections")
_PAYMENT_OUTCOMES = (
    "opened",
    "unavailable",
    "credited",
    "updated",
    "unchanged",
    "unknown_purchase",
    "ignored",
    "mismatch",
    "wrong_mode",
    "malformed",
    "invalid_signature",
    "failed",
)
_RESTART_CAUSES: Mapping[type[BaseException], str] = {
    TimedOut: "timeout",
    OutOfMemory: "oom",
    WorkerCrashed: "crash",
    asyncio.CancelledError: "cancelled",
}

_REQUEST_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
_WAIT_SECONDS = (0.001, 0.01, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 20, 30)


def _labelled_counter(
    registry: CollectorRegistry, name: str, documentation: str, label: str, values: Iterable[str]
) -> Counter:
    """A counter with one label. Each value of `values` has a series from the start, so that its first event is seen."""
    counter = Counter(name, documentation, (label,), registry=registry)
    for value in values:
        counter.labels(value)
    return counter


class HttpMetrics:
    """HTTP requests, refusals, and the state of Redis, which counts requests."""

    def __init__(self, registry: CollectorRegistry) -> None:
        gauge = partial(Gauge, registry=registry)
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
        errors = Counter("convertd_http_errors", "Responses with an error.", ("route", "code"), registry=registry)
        self.in_progress = gauge(
            "convertd_http_requests_in_progress", "Requests in progress.", multiprocess_mode="livesum"
        )
        self._limited = _labelled_counter(
            registry, "convertd_rate_limited", "Requests refused by a rate limit.", "scope", _SCOPES
        )
        self.redis_breaker_open = gauge(
            "convertd_redis_breaker_open",
            "1 while Redis fails and each process counts requests on its own.",
            multiprocess_mode="livemax",
        )
        # Cached: the lookup by labels takes longer than the increment.
        self._requests = cache(requests.labels)
        self._seconds = cache(seconds.labels)
        self._errors = cache(errors.labels)

    def record_request(
        self,
        method: str,
        route: str,
        status: int,
        seconds: float,
        error: PublicError | None,
        *,
        authenticated: bool,
    ) -> None:
        """Records a completed request, and its error if it has one. `route` is the pattern of its path."""
        self._requests(method if method in _METHODS else OTHER, route, status).inc()
        self._seconds(route).observe(seconds)
        if error is not None:
            self._errors(route, error.code).inc()
        if isinstance(error, RateLimited):
            self._limited.labels(error.reason or ("account" if authenticated else "address")).inc()


class WorkerMetrics:
    """The job queue and the worker processes."""

    def __init__(self, registry: CollectorRegistry) -> None:
        gauge = partial(Gauge, registry=registry)
        counter = partial(_labelled_counter, registry)
        self.slots = gauge(
            "convertd_workers", "Conversions that can run at the same time.", multiprocess_mode="livemax"
        )
        self.busy = gauge("convertd_workers_busy", "Running conversions.", multiprocess_mode="livesum")
        self.queue_depth = gauge("convertd_queue_depth", "Queued conversions.", multiprocess_mode="livesum")
        self.oldest_wait = gauge(
            "convertd_queue_oldest_seconds",
            "Age of the oldest queued conversion in seconds.",
            multiprocess_mode="livemax",
        )
        self.queue_wait = Histogram(
            "convertd_queue_wait_seconds",
            "Time in the queue in seconds, of conversions that started.",
            buckets=_WAIT_SECONDS,
            registry=registry,
        )
        self._refused = counter(
            "convertd_queue_refused", "Conversions that did not start.", "cause", ("full", "late", "stopping")
        )
        self._refused_before: Counts[str] = Counts()
        self._restarts = counter(
            "convertd_worker_restarts",
            "Worker processes that ended before their job and were replaced.",
            "cause",
            _RESTART_CAUSES.values(),
        )

    @contextmanager
    def track_job(self) -> Iterator[None]:
        """Counts a restart if the block ends because a worker process died or its client disconnected."""
        try:
            yield
        except tuple(_RESTART_CAUSES) as error:
            cause = next(cause for kind, cause in _RESTART_CAUSES.items() if isinstance(error, kind))
            self._restarts.labels(cause).inc()
            raise

    def set_refusals(self, refused: Mapping[str, int]) -> None:
        """Sets the numbers of conversions since start-up that did not start, by cause."""
        for cause, count in refused.items():
            self._refused.labels(cause).inc(count - self._refused_before[cause])
        self._refused_before = Counts(refused)


class RemoteFileMetrics:
    """Transfers of this server by their outcome: `completed`, or the reason why not."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._transfers = Counter(
            "convertd_remote_transfers",
            "Files fetched from URLs of clients, and results sent to them, by outcome.",
            ("transfer", "outcome"),
            registry=registry,
        )
        for transfer in get_args(Transfer):
            self._transfers.labels(transfer, "completed")

    def record(self, transfer: Transfer, outcome: str = "completed") -> None:
        """Counts a transfer that has ended."""
        self._transfers.labels(transfer, outcome).inc()


class CreditMetrics:
    """Credits that this server charges and grants, its checkouts and the events about payments, and its emails.

    Grants by `convertd account` and for trials are not counted.
    """

    def __init__(self, registry: CollectorRegistry) -> None:
        counter = partial(_labelled_counter, registry)
        self.charged = counter(
            "convertd_credits_charged", "Credits charged for successful operations.", "operation", OPERATIONS
        )
        self.granted = counter(
            "convertd_credits_granted",
            "Credits added by registrations and purchases.",
            "source",
            ("registration", "purchase"),
        )
        self.payments = counter(
            "convertd_payments", "Checkouts and events about payments.", "outcome", _PAYMENT_OUTCOMES
        )
        self.emails_waiting = Gauge(
            "convertd_mail_waiting", "Emails in the queue.", registry=registry, multiprocess_mode="livesum"
        )
        self._emails = counter("convertd_mail", "Emails that were sent or dropped.", "outcome", ("sent", "failed"))

    def record_email(self, sent: bool) -> None:
        """Records an email that was sent or dropped."""
        self._emails.labels("sent" if sent else "failed").inc()


class TotalsMetrics:
    """Totals of the database and free disk space, as of the latest update."""

    def __init__(self, registry: CollectorRegistry) -> None:
        gauge = partial(Gauge, registry=registry, multiprocess_mode="livemostrecent")
        accounts = gauge("convertd_accounts", "Accounts except the account of trials.", ("tier",))
        files = gauge("convertd_files_stored", "Stored files.", ("state",))
        self._totals = {
            "free_accounts": accounts.labels("free"),
            "paid_accounts": accounts.labels("paid"),
            "held": gauge("convertd_credits_held", "Credits held for running operations."),
            "balance": gauge("convertd_credits_balance", "Credits of all accounts except the account of trials."),
            "pending_files": files.labels("pending"),
            "processed_files": files.labels("processed"),
            "bytes": gauge("convertd_storage_bytes", "Size of all stored files in bytes."),
        }
        self._free = gauge("convertd_disk_free_bytes", "Free space on the disk of the data folder in bytes.")
        self._updated = gauge(
            "convertd_stock_updated_timestamp_seconds",
            "Unix time of the latest update of accounts, credits, files and disk space.",
        )

    def update(self, totals: Totals, free_bytes: int) -> None:
        """Sets all gauges."""
        for name, total in vars(totals).items():
            self._totals[name].set(total)
        self._free.set(free_bytes)
        self._updated.set_to_current_time()


class ProcessMetrics:
    """The standard `process_*` metrics of CPU, memory and descriptors, as sums over the processes of a server."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._collector = ProcessCollector(registry=None)
        families = [family for family in self._collector.collect() if family.name != _CPU]
        self._gauges = {
            family.name: Gauge(
                family.name,
                family.documentation,
                registry=registry,
                multiprocess_mode="livemin" if family.name == "process_start_time_seconds" else "livesum",
            )
            for family in families
        }
        self._cpu = Counter(_CPU, "Total user and system CPU time spent in seconds.", registry=registry)
        self._cpu_before = 0.0
        self.update()

    def update(self) -> None:
        """Sets all metrics."""
        for family in self._collector.collect():
            (sample,) = family.samples
            if family.name == _CPU:
                self._cpu.inc(sample.value - self._cpu_before)
                self._cpu_before = sample.value
            else:
                self._gauges[family.name].set(sample.value)


class InstallationMetrics:
    """Version, readiness, plugins and sandbox of this process."""

    def __init__(self, registry: CollectorRegistry) -> None:
        gauge = partial(Gauge, registry=registry, multiprocess_mode="livemin")
        self.ready = gauge(
            "convertd_ready", "1 if the server is ready, as /readyz reports, or the worker is part of the cluster."
        )
        build = gauge("convertd_build_info", "Version of convertd and of Python.", ("version", "python"))
        self._version = version("convertd")  # reads and parses a file
        build.labels(self._version, platform.python_version()).set(1)
        self._plugins = gauge(
            "convertd_plugin_up", "1 if the plugin is loaded and its detection works.", ("plugin", "version")
        )
        self.sandbox_layers: Mapping[str, bool] = {}
        self._layers = gauge("convertd_sandbox_layer", "1 if the layer of the sandbox is active.", ("layer",))

    def set_plugins(self, plugins: Iterable[Plugin]) -> None:
        """Sets the state of each plugin. The built-in ones have the version of convertd."""
        for plugin in plugins:
            self._plugins.labels(plugin.name, plugin.version or self._version).set(plugin.error is None)

    def set_sandbox_layers(self, layers: Mapping[str, bool]) -> None:
        """Sets which layers of the sandbox are active."""
        self.sandbox_layers = dict(layers)
        for layer, active in layers.items():
            self._layers.labels(layer).set(active)


ReadState: TypeAlias = Callable[[], Cluster]


class ClusterMetrics:
    """The state of the cluster."""

    def __init__(self, registry: CollectorRegistry) -> None:
        gauge = partial(Gauge, registry=registry, multiprocess_mode="livemostrecent")
        self._workers = gauge("convertd_cluster_workers", "Workers of the cluster by version.", ("version",))
        self._versions: set[str] = set()
        jobs = gauge("convertd_cluster_jobs", "Conversions of all servers on the usable workers by state.", ("state",))
        self._gauges = {
            "connected": gauge("convertd_cluster_connected", "1 if the scheduler of the cluster responds."),
            "usable": gauge(
                "convertd_cluster_workers_usable",
                "Workers with the same version and plugins as this server.",
            ),
            "slots": gauge("convertd_cluster_slots", "Conversions that the usable workers run at the same time."),
            "running": jobs.labels("running"),
            "waiting": jobs.labels("waiting"),
        }
        self._retries = Counter(
            "convertd_cluster_retries",
            "Conversions of this server that were repeated because their worker died.",
            registry=registry,
        )
        self._retries_before = 0

    def update(self, state: Cluster) -> None:
        """Sets all metrics."""
        for name, gauge in self._gauges.items():
            gauge.set(getattr(state, name))
        self._versions |= state.workers.keys()
        for known_version in self._versions:  # metrics that processes share cannot be removed
            self._workers.labels(known_version).set(state.workers.get(known_version, 0))
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
        self.jobs = _labelled_counter(
            registry,
            "convertd_cluster_worker_jobs",
            "Conversions of this worker that ended, by outcome.",
            "outcome",
            ("succeeded", "failed", "cancelled"),
        )


ATTEMPTS = ("completed", "failed", "cancelled", "repeated", "given_back")
"""How attempts end. `repeated`: failed, and another follows. `given_back`: the attempt does not count."""


class JobMetrics:
    """Requests that are processed in the background."""

    def __init__(self, registry: CollectorRegistry) -> None:
        gauge = partial(Gauge, registry=registry, multiprocess_mode="livemostrecent")
        jobs = gauge("convertd_jobs", "Jobs of all servers by state.", ("state",))
        self._states = {state: jobs.labels(state) for state in ("queued", "processing")}
        self._oldest = gauge("convertd_jobs_oldest_seconds", "Age of the oldest queued job in seconds.")
        self.accepted = Counter("convertd_jobs_accepted", "Jobs that this server accepted.", registry=registry)
        attempts = Counter(
            "convertd_job_attempts", "Attempts at jobs by their outcome.", ("outcome",), registry=registry
        )
        self._attempts = {outcome: attempts.labels(outcome) for outcome in ATTEMPTS}

    def record_attempt(self, outcome: str) -> None:
        """Records the end of an attempt."""
        self._attempts[outcome].inc()

    def update(self, state: QueueState) -> None:
        """Sets the gauges."""
        self._states["queued"].set(state.waiting)
        self._states["processing"].set(state.running)
        self._oldest.set(state.oldest)


_RESULTS = ("delivered", "refused", "no_response")
_SECONDS = (0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)


class WebhookMetrics:
    """The attempts of this server, and what waits in the database."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._attempts = Counter(
            "convertd_webhook_attempts", "Attempts to deliver a message to a webhook.", ("result",), registry=registry
        )
        self._seconds = Histogram(
            "convertd_webhook_attempt_duration_seconds",
            "Time of an attempt to deliver a message in seconds.",
            buckets=_SECONDS,
            registry=registry,
        )
        self.disabled = Counter(
            "convertd_webhooks_disabled", "Webhooks that have ended.", ("reason",), registry=registry
        )
        self.overdue = Gauge(
            "convertd_webhook_overdue_seconds",
            "How long the message that waits longest is due, in seconds, of receivers that no server sends to.",
            registry=registry,
            multiprocess_mode="livemax",
        )
        for result in _RESULTS:
            self._attempts.labels(result)
        for reason in get_args(DisabledReason):
            self.disabled.labels(reason)

    def record_attempt(self, result: AttemptResult) -> None:
        """Records an attempt."""
        label = "delivered" if result.delivered else "no_response" if result.status is None else "refused"
        self._attempts.labels(label).inc()
        self._seconds.observe(result.milliseconds / 1000)
