"""Runs the server: starts the services and the background work, serves requests, and stops everything in order."""

import asyncio
import gc
import logging
import resource
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from tornado.httpserver import HTTPServer
from tornado.netutil import bind_sockets

from config.logs import configure
from config.settings import Settings
from engine.executor import Executor, LocalExecutor
from engine.registry import Registry, load_registry
from storage.tables import accounts
from web.executor_setup import open_blobs, server_executor, start_local_executor
from web.http import metrics_server
from web.http.server import Server
from web.http.timeouts import ConnectionTimeouts
from web.metrics.service import ReadState
from web.openapi import document
from web.routes import build_application, documented_operations
from web.services.closing import CLOSE_TIMEOUT, complete
from web.services.container import Services
from web.services.file_executor import DescriptorExecutor, FileExecutor
from web.services.maintenance import lock_data_folder

log = logging.getLogger("convertd.server")

_MAX_DESCRIPTORS = 16_384  # the usual soft limit of 1024 is too low for 512 connections and their files
_BACKLOG = 1024  # connections that the kernel accepts before the server does
DRAIN_TIMEOUT = 30  # seconds for requests in progress at shutdown


def assemble(
    settings: Settings, registry: Registry, executor: Executor | FileExecutor, cluster: ReadState | None = None
) -> Services:
    """Builds the services that handlers use and creates the data folder. `cluster` returns its state. Blocks."""
    openapi = document(documented_operations(registry), registry, settings.base_url)
    on_files = executor if isinstance(executor, FileExecutor) else DescriptorExecutor(executor)
    return Services(settings, registry, on_files, open_blobs(settings), openapi, cluster)


@asynccontextmanager
async def listening(
    services: Services, host: str, port: int, timeouts: ConnectionTimeouts = ConnectionTimeouts()
) -> AsyncIterator[str]:
    """Serves requests during the block and drains afterwards; port 0 selects a free port.

    Yields the URL of the server. The caller starts and closes the executor, and closes the services.
    """
    settings = services.settings
    server = Server(build_application(services), settings.rate_limit_anonymous, settings.trusted_proxies, timeouts)
    sockets = bind_sockets(port, host, backlog=_BACKLOG)
    server.listen_on(sockets)
    services.readiness.start()
    await services.maintenance.recover()
    metrics_listener = metrics_server.start_server_metrics(services)
    background = [
        asyncio.create_task(service.run())
        for service in (services.maintenance, services.request_log, services.readiness)
    ]
    try:
        hostname = f"[{host}]" if ":" in host else host
        yield f"http://{hostname}:{sockets[0].getsockname()[1]}"
    finally:
        for task in background:
            task.cancel()
        services.readiness.stop()
        services.job_queue.close()
        await _shut_down(services, server, metrics_listener)


async def _shut_down(services: Services, server: Server, metrics_listener: HTTPServer | None) -> None:
    """Drains requests, closes connections, then completes emails and what is to be written to the database."""
    server.stop_listening()
    await services.in_flight.drain(DRAIN_TIMEOUT)
    connections = [server.close_all_connections()]
    if metrics_listener is not None:
        metrics_listener.stop()
        connections.append(metrics_listener.close_all_connections())
    await complete(*connections, services.in_flight.drain(CLOSE_TIMEOUT))  # which cancels its requests
    users = (services.request_log, services.email_queue, services.releases, services.accounts)
    await complete(*(service.close() for service in users))


async def serve(settings: Settings, host: str, port: int) -> None:
    """Serves the API until SIGTERM or SIGINT. A second signal ends the process at once.

    Raises, before it listens, SandboxIncomplete if the sandbox is required and incomplete, and DataFolderInUse.
    """
    configure(settings.log_format)
    with lock_data_folder(settings.data_dir):
        await _serve(settings, host, port)


async def _serve(settings: Settings, host: str, port: int) -> None:
    soft_limit, hard_limit = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft_limit, min(hard_limit, _MAX_DESCRIPTORS)), hard_limit))
    registry = load_registry()
    executor = server_executor(settings, registry)
    cluster = None if isinstance(executor, LocalExecutor) else executor.state
    services = await asyncio.to_thread(assemble, settings, registry, executor, cluster)
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    signal.signal(signal.SIGIO, signal.SIG_IGN)  # the kernel sends it on behalf of processes that share a descriptor
    try:
        if isinstance(executor, LocalExecutor):
            await start_local_executor(settings, executor, services.metrics.installation)
        else:
            await executor.start(services.job_queue.resize)
        await asyncio.to_thread(_freeze_garbage_collector)
        async with listening(services, host, port) as url:
            _announce(registry, settings, url)
            if not await services.database.read(accounts.any_exists):
                log.info("no account yet; create one with: convertd account create")
            await stop.wait()
            log.info("stopping: no new connections, up to %d s for requests in progress", DRAIN_TIMEOUT)
            for number in (signal.SIGTERM, signal.SIGINT):
                loop.remove_signal_handler(number)
    finally:
        await asyncio.gather(executor.close(), services.close())
    log.info("stopped")


def _freeze_garbage_collector() -> None:
    """Exempts objects created at start-up, which live as long as the process, from garbage collection. Blocks."""
    gc.collect()
    gc.freeze()  # a full collection would traverse all of them and delay requests


def _announce(registry: Registry, settings: Settings, url: str) -> None:
    formats, pairs = len(registry.formats), len(registry.catalogue())
    where = settings.cluster or f"{settings.workers} workers"
    log.info("listening on %s; %d formats, %d conversions, %s", url, formats, pairs, where)
    for need in registry.missing:
        log.warning("%s is missing, needed for %s; install it: %s", need.name, need.purpose, need.install)
