"""Metrics of webhooks: attempts to deliver messages, messages that wait, and webhooks that have ended."""

from typing import get_args

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from storage.tables.receivers import AttemptResult
from storage.tables.webhooks import DisabledReason

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
