"""Metrics of jobs: those that wait and run in the database, and how their attempts end on this server."""

from functools import partial

from prometheus_client import CollectorRegistry, Counter, Gauge

from storage.tables.jobs import QueueState

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
