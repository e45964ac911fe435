"""The composition root: everything is joined here."""

from __future__ import annotations

import asyncio
import gc
import logging
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.metadata import version

from tornado.netutil import bind_sockets

from config.logs import configure
from config.settings import Settings
from engine.executor import Executor
from engine.registry import Registry, load_registry
from storage import accounts
from storage.blob_store import BlobStore, open_blob_store
from storage.database import Database
from storage.rate_limits import FailoverRateLimiter, MemoryRateLimiter, RateLimiter
from web import metrics
from web.executor_setup import examine, local_executor
from web.http import metrics_server
from web.http.server import Server
from web.http.timeouts import ConnectionTimeouts
from web.openapi import document
from web.routes import OPERATIONS, build
from web.services.accounts import Accounts, Sessions
from web.services.batches import BatchConversions, Batches
from web.services.catalogue import cached_json, formats_catalogue, tools_catalogue
from web.services.charging import Charges
from web.services.container import Services
from web.services.conversions import Conversions
from web.services.email import EmailQueue, EmailTransport, OutboxTransport, SmtpTransport
from web.services.files import Files
from web.services.health import Readiness
from web.services.idempotency import IdempotencyService
from web.services.job_queue import JobQueue, memory_budget
from web.services.maintenance import Maintenance, TotalsUpdater, server_instance
from web.services.registration import Registrations
from web.services.request_log import RequestLog
from web.services.stripe import open_payments
from web.services.work_files import WorkFiles

log = logging.getLogger("convertd.server")

_DRAIN_SECONDS = 30
_FAREWELL_SECONDS = 5


def assemble(settings: Settings, registry: Registry, executor: Executor) -> Services:
    """The parts that handlers work with, below the data folder, which is made. Works on disk and database."""
    jobs = WorkFiles(settings.data_dir.absolute() / "jobs")
    jobs.prepare()
    measured = metrics.create(version("convertd"), registry.plugins)
    database, blobs, limiter = open_database(settings), open_blobs(settings), open_rate_limiter(settings)
    email_queue = EmailQueue(open_email_transport(settings), ended=measured.money.mailed)
    run = server_instance(settings.data_dir)
    charges, repeats = Charges(database, run), IdempotencyService(database, run)
    job_queue = JobQueue(settings.workers, memory=memory_budget())
    files = Files(database, blobs, registry, settings.file_retention_seconds)
    conversions = Conversions(registry, executor, job_queue, charges, repeats, files, measured)
    batches = Batches(database, registry, files, settings.max_batch_files)
    batch_conversions = BatchConversions(database, files, jobs, batches, conversions, repeats, run)
    return Services(
        settings=settings,
        registry=registry,
        database=database,
        accounts=Accounts(database),
        registrations=Registrations(database, email_queue, limiter, settings.base_url, measured.money),
        limiter=limiter,
        email_queue=email_queue,
        charges=charges,
        job_queue=job_queue,
        conversions=conversions,
        files=files,
        batches=batches,
        batch_conversions=batch_conversions,
        jobs=jobs,
        formats=cached_json(formats_catalogue(registry)),
        tools=cached_json(tools_catalogue(registry)),
        payments=open_payments(settings, database, repeats, measured.money),
        readiness=Readiness(registry, executor, limiter, settings.data_dir, database, blobs, measured.installation),
        sessions=Sessions(database),
        request_log=RequestLog(database),
        openapi=cached_json(document(OPERATIONS, registry, settings.base_url)),
        maintenance=Maintenance(
            database, run, charges, repeats, files, TotalsUpdater(database, settings.data_dir, measured.stock)
        ),
        metrics=measured,
    )


@asynccontextmanager
async def listening(
    services: Services, host: str, port: int, patience: ConnectionTimeouts = ConnectionTimeouts()
) -> AsyncIterator[str]:
    """Listens and answers; port 0 takes a free one. At the end it drains.

    Gives the URL it listens at. The executor is the caller's to start and to close.
    """
    settings = services.settings
    server = Server(build(services), settings.rate_limit_anonymous, settings.trusted_proxies, patience)
    sockets = bind_sockets(port, host)
    server.add_sockets(sockets)
    services.readiness.begin()
    await services.maintenance.begin()
    told = metrics_server.start_metrics_server(services)
    background = [
        asyncio.create_task(work.run()) for work in (services.maintenance, services.request_log, services.readiness)
    ]
    try:
        shown = f"[{host}]" if ":" in host else host
        yield f"http://{shown}:{sockets[0].getsockname()[1]}"
    finally:
        for task in background:
            task.cancel()
        services.readiness.end()
        server.stop()
        services.job_queue.close()
        await services.in_flight.drain(_DRAIN_SECONDS)
        await server.close_all_connections()
        if told is not None:
            told.stop()
            await told.close_all_connections()
        await services.in_flight.drain(_FAREWELL_SECONDS)  # what has lost its client is given up
        await services.jobs.close()
        await services.request_log.close()
        await services.email_queue.close()
        await services.charges.close()
        await services.payments.checkout.close()
        await services.limiter.close()
        await asyncio.to_thread(services.database.close)


async def serve(settings: Settings, host: str, port: int) -> None:
    """Serves the API until SIGTERM or SIGINT. A second signal ends the process at once.

    Raises SandboxIncomplete before it listens.
    """
    configure(settings.log_format)
    registry = load_registry()
    executor = local_executor(settings, settings.workers)
    services = await asyncio.to_thread(assemble, settings, registry, executor)
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    try:
        await executor.start()
        findings = await examine(settings, executor)
        services.metrics.installation.sandboxed(findings.layers)
        if findings.missing:
            log.warning("the sandbox of jobs (%s) lacks: %s", settings.sandbox, ", ".join(findings.missing))
        await asyncio.to_thread(_freeze_garbage_collector)
        async with listening(services, host, port) as url:
            _announce(registry, settings, url)
            if not await services.database.run(accounts.any_exists):
                log.info("no account yet; make one with: convertd account create")
            await stop.wait()
            log.info("stopping: no new connections, up to %d s for requests that run", _DRAIN_SECONDS)
            for number in (signal.SIGTERM, signal.SIGINT):
                loop.remove_signal_handler(number)
    finally:
        await executor.close()
    log.info("stopped")


def _freeze_garbage_collector() -> None:
    """Exempts the objects of start-up, which live as long as the process, from garbage collection. Blocks."""
    gc.collect()
    gc.freeze()  # a full collection would walk through all of them and delay requests


def _announce(registry: Registry, settings: Settings, url: str) -> None:
    formats, pairs = len(registry.formats), len(registry.catalogue())
    log.info("listening on %s; %d formats, %d conversions, %d workers", url, formats, pairs, settings.workers)
    for need in registry.missing:
        log.warning("%s is missing, needed for %s; install it: %s", need.name, need.purpose, need.install)


def open_database(settings: Settings) -> Database:
    """The database of the settings, which is made if it is not there. Blocks."""
    if settings.database_url is not None:
        return Database(settings.database_url.get_secret_value())
    path = settings.data_dir.absolute() / "convertd.db"
    return Database(f"sqlite:///{path}")


def open_blobs(settings: Settings) -> BlobStore:
    """Where files are kept. Works on the disk."""
    url = settings.blob_url.get_secret_value() if settings.blob_url else None
    return open_blob_store(url, settings.data_dir.absolute() / "blobs")


def open_rate_limiter(settings: Settings) -> RateLimiter:
    """What counts requests."""
    local = MemoryRateLimiter()
    if settings.redis_url is None:
        return local
    from storage.rate_limits_redis import RedisRateLimiter  # noqa: PLC0415, as its library takes long to load, and few need it

    return FailoverRateLimiter(RedisRateLimiter(settings.redis_url.get_secret_value()), local)


def open_email_transport(settings: Settings) -> EmailTransport:
    """What sends letters."""
    if settings.smtp_url is None:
        return OutboxTransport(settings.data_dir.absolute() / "outbox", settings.mail_from)
    return SmtpTransport(settings.smtp_url.get_secret_value(), settings.mail_from)
