"""Credits as they come and go, and letters, without which nobody gets a key."""

from __future__ import annotations

from typing import get_args

from prometheus_client import CollectorRegistry, Counter, Gauge

from storage.usage import Operation

SOURCES = ("registration", "purchase")


class MoneyMetrics:
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
