"""GET /metrics for Prometheus, on a port of its own that only this machine can reach."""

from __future__ import annotations

import asyncio
import logging
import socket

from prometheus_client.exposition import choose_encoder
from tornado.httpserver import HTTPServer
from tornado.httputil import split_host_and_port
from tornado.web import Application, HTTPError, RequestHandler

from config.settings import is_loopback
from storage.rate_limits import FailoverRateLimiter
from web.services.container import Services

log = logging.getLogger("convertd.metrics")

_HOST = "127.0.0.1"
_MAX_BODY = 1024  # bytes
_IDLE_TIMEOUT = 120  # seconds; scrapes are more frequent


def start_metrics_server(services: Services) -> HTTPServer | None:
    """Listens on the configured port. Returns None if the port is 0, or if it cannot be opened, which is logged."""
    port = services.settings.metrics_port
    if port == 0:
        return None
    try:
        listener = socket.create_server((_HOST, port))
    except OSError as error:
        log.warning("no metrics: cannot listen on %s:%d: %s", _HOST, port, error.strerror or error)
        return None
    application = Application(
        [("/metrics", _MetricsHandler, {"services": services})], log_function=lambda handler: None
    )
    server = HTTPServer(
        application, max_body_size=_MAX_BODY, idle_connection_timeout=_IDLE_TIMEOUT, body_timeout=_IDLE_TIMEOUT
    )
    listener.setblocking(False)
    server.add_socket(listener)
    log.info("metrics on http://%s:%d/metrics", _HOST, port)
    return server


def _sample(services: Services) -> None:
    """Sets the gauges that are read at scrape time."""
    job_queue, metrics, limiter = services.job_queue, services.metrics, services.limiter
    metrics.workers.set_queue(
        workers=services.settings.workers,
        busy=job_queue.running,
        waiting=job_queue.waiting,
        oldest=job_queue.oldest_wait,
        refused=job_queue.refused,
    )
    metrics.http.in_progress.set(services.in_flight.running)
    metrics.credits.emails_waiting.set(services.email_queue.waiting)
    metrics.installation.redis_breaker_open.set(isinstance(limiter, FailoverRateLimiter) and limiter.failing)


class _MetricsHandler(RequestHandler):
    """All metrics, in the format that the client requests."""

    def initialize(self, services: Services) -> None:
        self._services = services

    def prepare(self) -> None:
        # A web page can make its own host name resolve to this machine; then the browser would let it read the metrics.
        if not is_loopback(split_host_and_port(self.request.host)[0]):
            raise HTTPError(403)

    async def get(self) -> None:
        _sample(self._services)
        encode, media_type = choose_encoder(self.request.headers.get("Accept", ""))
        # In a thread: encoding takes milliseconds, and the values can be read from any thread.
        body = await asyncio.to_thread(encode, self._services.metrics.registry)
        self.set_header("Content-Type", media_type)
        self.write(body)
