"""GET /metrics for Prometheus, on a port of its own that by default only this machine can reach."""

import asyncio
import logging
import socket
from collections.abc import Callable

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder
from tornado.httpserver import HTTPServer
from tornado.httputil import split_host_and_port
from tornado.web import Application, HTTPError, RequestHandler

from config.settings import is_loopback
from storage.rate_limits import FailoverRateLimiter
from web.services.container import Services

log = logging.getLogger("convertd.metrics")

_MAX_BODY = 1024  # bytes
_SAMPLE_INTERVAL = 1.0  # seconds
_IDLE_TIMEOUT = 120  # seconds; scrapes are more frequent


def start_server_metrics(services: Services, listener: socket.socket) -> HTTPServer:
    """Serves the metrics of a server on a listening socket."""
    return start_metrics_server(listener, services.metrics.registry, lambda: sample(services))


def open_listener(address: str, port: int) -> socket.socket | None:
    """Listens on an IP address. Returns None if the port is 0, or if it cannot be opened, which is logged."""
    if port == 0:
        return None
    try:
        listener = socket.create_server((address, port), family=socket.AF_INET6 if ":" in address else socket.AF_INET)
    except OSError as error:
        log.warning("no metrics: cannot listen on %s:%d: %s", address, port, error.strerror or error)
        return None
    listener.setblocking(False)
    log.info("metrics on http://%s:%d/metrics", address, port)
    return listener


def start_metrics_server(
    listener: socket.socket, registry: CollectorRegistry, sample: Callable[[], None]
) -> HTTPServer:
    """Serves metrics on a listening socket; `sample` sets the gauges that are read at scrape time."""
    application = Application(
        [("/metrics", _MetricsHandler, {"registry": registry, "sample": sample})], log_function=lambda handler: None
    )
    server = HTTPServer(
        application, max_body_size=_MAX_BODY, idle_connection_timeout=_IDLE_TIMEOUT, body_timeout=_IDLE_TIMEOUT
    )
    server.add_socket(listener)
    return server


def sample(services: Services) -> None:
    """Sets the gauges that are read at scrape time."""
    admission = services.admission
    metrics = services.metrics
    limiter = services.limiter
    if metrics.process is not None:
        metrics.process.update()
    metrics.workers.slots.set(admission.slots)
    metrics.workers.busy.set(admission.running)
    metrics.workers.queue_depth.set(admission.waiting)
    metrics.workers.oldest_wait.set(admission.oldest_wait)
    metrics.workers.set_refusals(admission.refused)
    metrics.http.in_progress.set(services.in_flight.running)
    metrics.credits.emails_waiting.set(services.email_queue.waiting)
    if metrics.cluster is not None and services.readiness.cluster_state is not None:
        metrics.cluster.update(services.readiness.cluster_state())
    metrics.http.redis_breaker_open.set(isinstance(limiter, FailoverRateLimiter) and limiter.failing)


async def keep_sampled(services: Services) -> None:
    """Sets the gauges every second until cancelled: a scrape may reach another process of the server."""
    while True:
        sample(services)
        await asyncio.sleep(_SAMPLE_INTERVAL)


class _MetricsHandler(RequestHandler):
    """All metrics, in the format that the client requests."""

    def initialize(self, registry: CollectorRegistry, sample: Callable[[], None]) -> None:
        self._registry = registry
        self._sample = sample

    def prepare(self) -> None:
        # A web page can make its own host name resolve to this machine; then the browser would let it read the metrics.
        is_local = is_loopback(self.request.remote_ip)
        if is_local and not is_loopback(split_host_and_port(self.request.host)[0]):
            raise HTTPError(403)

    async def get(self) -> None:
        self._sample()
        encode, media_type = choose_encoder(self.request.headers.get("Accept", ""))
        # In a thread: encoding takes milliseconds, and the values can be read from any thread.
        body = await asyncio.to_thread(encode, self._registry)
        self.set_header("Content-Type", media_type)
        self.write(body)
