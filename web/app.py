"""Runs the server: starts the services and the background work, serves requests, and stops everything in order."""

import asyncio
import gc
import logging
import resource
import signal
import socket
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

from tornado.httpserver import HTTPServer
from tornado.netutil import bind_sockets

from config.logs import configure
from config.settings import Settings
from engine.executor import Executor, LocalExecutor
from engine.registry import Registry, load_registry
from storage.tables import accounts
from web.docs.openapi import document
from web.http import metrics_server
from web.http.connections import ConnectionTimeouts
from web.http.server import Server
from web.metrics.service import ReadState
from web.routes import build_application, documented_operations
from web.services.container import Services
from web.services.conversions.file_executor import DescriptorExecutor, FileExecutor
from web.services.operation.closing import CLOSE_TIMEOUT, complete
from web.services.operation.liveness import end_process, keep_alive
from web.services.operation.maintenance import lock_data_folder
from web.services.operation.processes import ServerProcess
from web.supervisor import Supervisor, remove_metrics
from web.workers.executor_setup import file_detector, open_blobs, server_executor, start_local_executor

log = logging.getLogger("convertd.server")

_MAX_DESCRIPTORS = 16_384  # the usual soft limit of 1024 is too low for 512 connections and their files
_DISK_THREADS = 32
_BACKLOG = 1024  # connections that the kernel accepts before the server does
DRAIN_TIMEOUT = 30  # seconds for requests in progress at shutdown
STOP_TIMEOUT = 48  # seconds after SIGTERM until the process ends, whatever it waits for


@dataclass(frozen=True)
class Listeners:
    """The sockets that a server listens on: for requests, and for metrics if they are on."""

    requests: Sequence[socket.socket]
    metrics: socket.socket | None

    @classmethod
    def open(cls, settings: Settings, host: str, port: int) -> "Listeners":
        """Listens; port 0 selects a free port. Raises OSError."""
        return cls(
            bind_sockets(port, host, backlog=_BACKLOG),
            metrics_server.open_listener(settings.metrics_address, settings.metrics_port),
        )

    def all(self) -> list[socket.socket]:
        """Returns all sockets."""
        return [*self.requests, *([] if self.metrics is None else [self.metrics])]


def assemble(
    settings: Settings,
    registry: Registry,
    executor: Executor | FileExecutor,
    cluster: ReadState | None = None,
    process: ServerProcess | None = None,
) -> Services:
    """Builds the services that handlers use and creates the data folder. `cluster` returns its state. Blocks."""

    def openapi() -> dict[str, Any]:
        absent = set() if settings.packs_on_sale else {"creditsPurchase", "stripeEventsReceive"}
        absent |= {"accountRegister"} if settings.registration == "closed" else set()
        offered = [one for one in documented_operations(registry) if one.operation.id not in absent]
        made = document(offered, registry, settings.base_url)
        if settings.packs_on_sale:
            body = made["paths"]["/credits/purchase"]["post"]["requestBody"] = deepcopy(
                made["paths"]["/credits/purchase"]["post"]["requestBody"]
            )
            first, media_type = next(iter(settings.packs_on_sale)), body["content"]["application/json"]
            media_type["example"]["pack"] = first
            media_type["schema"]["properties"]["pack"] |= {"enum": list(settings.packs_on_sale), "examples": [first]}
        return made

    detector = file_detector(settings, registry, executor)
    on_files = executor if isinstance(executor, FileExecutor) else DescriptorExecutor(executor)
    return Services(
        settings=settings,
        registry=registry,
        executor=on_files,
        detector=detector,
        blobs=open_blobs(settings),
        make_openapi=openapi,
        cluster=cluster,
        process=process or ServerProcess(),
    )


@asynccontextmanager
async def listening(
    services: Services,
    host: str,
    port: int,
    timeouts: ConnectionTimeouts = ConnectionTimeouts(),
    listeners: Listeners | None = None,
) -> AsyncIterator[str]:
    """Serves requests during the block and drains afterwards; port 0 selects a free port.

    Yields the URL of the server. The caller starts and closes the executor, and closes the services. The parent of the
    process may have opened the `listeners`.
    """
    settings = services.settings
    application, usage = build_application(services), services.process.connections
    server = Server(
        application, settings.rate_limit_anonymous, settings.trusted_proxies, timeouts, usage, settings.base_path
    )
    listeners = listeners or Listeners.open(settings, host, port)
    server.listen_on(listeners.requests)
    services.readiness.start()
    await services.heartbeat.start()
    metrics_listener = None
    if listeners.metrics is not None:
        metrics_listener = metrics_server.start_server_metrics(services, listeners.metrics)
    working = (services.maintenance, services.request_log, services.readiness)
    background = [
        asyncio.create_task(service.run())
        for service in (*working, services.jobs, services.jobs.changes, services.job_runner)
    ]
    if services.process.count > 1:
        background.append(asyncio.create_task(metrics_server.keep_sampled(services)))
    sending = asyncio.create_task(services.webhooks.sender.run())
    try:
        hostname = f"[{host}]" if ":" in host else host
        yield f"http://{hostname}:{listeners.requests[0].getsockname()[1]}"
    finally:
        for task in background:
            task.cancel()
        await _shut_down(services, server, metrics_listener, sending)


async def _shut_down(
    services: Services, server: Server, metrics_listener: HTTPServer | None, sending: asyncio.Task[None]
) -> None:
    """Queues jobs again, drains requests, closes connections, and completes emails and pending writes to the database.

    `sending` sends to webhooks.
    """
    services.readiness.stop()
    services.jobs.changes.close()
    services.admission.close()
    services.webhooks.sender.close()
    server.stop_listening()
    await complete(services.job_runner.close())
    await complete(services.jobs.close())
    await services.in_flight.drain(DRAIN_TIMEOUT)
    connections = [server.close_all_connections()]
    if metrics_listener is not None:
        metrics_listener.stop()
        connections.append(metrics_listener.close_all_connections())
    await complete(*connections, sending, services.in_flight.drain(CLOSE_TIMEOUT))  # closing cancels their requests
    users = (services.request_log, services.email_queue, services.releases, services.accounts)
    await complete(*(service.close() for service in users))
    await complete(services.heartbeat.close())


def serve(settings: Settings, host: str, port: int, supervisor: Supervisor | None = None) -> None:
    """Serves the API until SIGTERM or SIGINT. A second signal ends the process at once. Blocks.

    With a supervisor, this process forks others, which serve, and raises SystemExit at the end. Raises, before requests
    are served, SettingsError, SandboxIncomplete if the sandbox is required and incomplete, and DataFolderInUse.
    """
    configure(settings.log_format, background=supervisor is None)
    with lock_data_folder(settings.data_dir):
        registry = load_registry()
        if supervisor is None:
            asyncio.run(_serve(settings, registry, host, port, ServerProcess(), None))
        else:
            listeners = Listeners.open(settings, host, port)
            process = supervisor.run(listeners.all())
            configure(settings.log_format)
            asyncio.run(_serve(settings, registry, host, port, process, listeners))


async def _serve(
    settings: Settings, registry: Registry, host: str, port: int, process: ServerProcess, listeners: Listeners | None
) -> None:
    soft_limit, hard_limit = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft_limit, min(hard_limit, _MAX_DESCRIPTORS)), hard_limit))
    # Most of them wait until a file is on the disk, which flushes several at once.
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(_DISK_THREADS, thread_name_prefix="disk"))
    stop = _stop_event(process)
    with _announcing(process):
        executor = server_executor(settings, registry, process.count)
        living = asyncio.create_task(keep_alive())
        cluster = None if isinstance(executor, LocalExecutor) else executor.state
        services = await asyncio.to_thread(assemble, settings, registry, executor, cluster, process)
    try:
        with _announcing(process):
            if isinstance(executor, LocalExecutor):
                await start_local_executor(settings, executor, services.metrics.installation)
            else:
                await executor.start(services.admission.resize)
        await asyncio.to_thread(_freeze_garbage_collector)
        async with listening(services, host, port, listeners=listeners) as url:
            process.report_ready()
            with _announcing(process):
                _announce(registry, settings, url, process)
                if not await services.database.run(accounts.any_exists):
                    log.info("no account yet; create one with: convertd account create")
                for plan in await services.database.run(accounts.unknown_plans, settings.all_plans):
                    log.warning("accounts have the plan %s, which is not among the settings: it is ignored", plan)
            if process.count > 1:
                log.info("process %d of %d serves requests", process.number + 1, process.count)
            await stop.wait()
            log.info("stopping: no new connections, up to %d s for requests in progress", DRAIN_TIMEOUT)
            for number in (signal.SIGTERM, signal.SIGINT):
                asyncio.get_running_loop().remove_signal_handler(number)
    finally:
        await asyncio.gather(executor.close(), services.close())
        living.cancel()
    log.info("stopped")


def _stop_event(process: ServerProcess) -> asyncio.Event:
    """Returns an event that is set by SIGTERM and SIGINT, or at the end of the parent, which alone handles SIGINT."""
    stop, loop = asyncio.Event(), asyncio.get_running_loop()

    def begin_stop() -> None:
        stop.set()
        loop.call_later(STOP_TIMEOUT, end_process)

    loop.add_signal_handler(signal.SIGTERM, begin_stop)
    signal.signal(signal.SIGIO, signal.SIG_IGN)  # the kernel sends it on behalf of processes that share a descriptor
    if process.parent is None:
        loop.add_signal_handler(signal.SIGINT, begin_stop)
    else:
        loop.add_reader(process.parent, _stop_without_parent, process.parent, begin_stop)
    return stop


def _stop_without_parent(parent: int, begin_stop: Callable[[], None]) -> None:
    asyncio.get_running_loop().remove_reader(parent)  # it stays readable
    remove_metrics()
    begin_stop()


@contextmanager
def _announcing(process: ServerProcess) -> Iterator[None]:
    """Logs only errors during the block unless the process announces the server: the messages would be repeated."""
    logger = logging.getLogger("convertd")
    logger.setLevel(logging.NOTSET if process.announces else logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(logging.NOTSET)


def _freeze_garbage_collector() -> None:
    """Exempts objects created at start-up, which live as long as the process, from garbage collection. Blocks."""
    gc.collect()
    gc.freeze()  # a full collection would traverse all of them and delay requests


def _announce(registry: Registry, settings: Settings, url: str, process: ServerProcess) -> None:
    formats, pairs = len(registry.formats), len(registry.pairs())
    where = settings.cluster or f"{settings.workers} workers"
    processes = f", {process.count} processes" if process.count > 1 else ""
    log.info("listening on %s; %d formats, %d conversions, %s%s", url, formats, pairs, where, processes)
    for need in registry.missing:
        log.warning("%s is missing, needed for %s; install it: %s", need.name, need.purpose, need.install)
