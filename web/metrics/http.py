"""Requests as they are answered."""

from __future__ import annotations

from functools import cache

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from web.errors import RateLimited
from web.metrics.labels import OTHER

_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
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
            buckets=_SECONDS,
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
