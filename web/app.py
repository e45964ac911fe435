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
from web import exposition, metrics, stores
from web.openapi.document import document
from web.patience import Patience
from web.processes import examine, local_executor
from web.routes import OPERATIONS, build
from web.server import Server
from web.services import memory
from web.services.accounts import Accounts
from web.services.all import Services
from web.services.batch_conversions import BatchConversions
from web.services.batches import Batches
from web.services.catalogue import formats_catalogue, listing, tools_catalogue
from web.services.charges import Charges
from web.services.conversion import Conversions
from web.services.files import Files
from web.services.inventory import Inventory
from web.services.jobs import JobFolders
from web.services.post import Postbox
from web.services.readiness import Readiness
from web.services.registrations import Registrations
from web.services.repeats import Repeats
from web.services.request_log import RequestLog
from web.services.sales import open_sales
from web.services.sessions import Sessions
from web.services.turns import Turns
from web.services.upkeep import Upkeep, owner

log = logging.getLogger("convertd.server")

_DRAIN_SECONDS = 30
_FAREWELL_SECONDS = 5


def assemble(settings: Settings, registry: Registry, executor: Executor) -> Services:
    """The parts that handlers work with, below the data folder, which is made. Works on disk and database."""
    jobs = JobFolders(settings.data_dir.absolute() / "jobs")
    jobs.prepare()
    measured = metrics.create(version("convertd"), registry.plugins)
    database, blobs, limiter = stores.open_database(settings), stores.blobs(settings), stores.limiter(settings)
    postbox = Postbox(stores.mailer(settings), ended=measured.money.mailed)
    run = owner(settings.data_dir)
    charges, repeats = Charges(database, run), Repeats(database, run)
    turns = Turns(settings.workers, memory=memory.budget())
    files = Files(database, blobs, registry, settings.file_retention_seconds)
    conversions = Conversions(registry, executor, turns, charges, repeats, files, measured)
    batches = Batches(database, registry, files, settings.max_batch_files)
    batch_conversions = BatchConversions(database, files, jobs, batches, conversions, repeats, run)
    return Services(
        settings=settings,
        registry=registry,
        database=database,
        accounts=Accounts(database),
        registrations=Registrations(database, postbox, limiter, settings.base_url, measured.money),
        limiter=limiter,
        postbox=postbox,
        charges=charges,
        turns=turns,
        conversions=conversions,
        files=files,
        batches=batches,
        batch_conversions=batch_conversions,
        jobs=jobs,
        formats=listing(formats_catalogue(registry)),
        tools=listing(tools_catalogue(registry)),
        sales=open_sales(settings, database, repeats, measured.money),
        readiness=Readiness(registry, executor, limiter, settings.data_dir, database, blobs, measured.installation),
        sessions=Sessions(database),
        request_log=RequestLog(database),
        openapi=listing(document(OPERATIONS, registry, settings.base_url)),
        upkeep=Upkeep(database, run, charges, repeats, files, Inventory(database, settings.data_dir, measured.stock)),
        metrics=measured,
    )


@asynccontextmanager
async def listening(services: Services, host: str, port: int, patience: Patience = Patience()) -> AsyncIterator[str]:
    """Listens and answers; port 0 takes a free one. At the end it drains.

    Gives the URL it listens at. The executor is the caller's to start and to close.
    """
    settings = services.settings
    server = Server(build(services), settings.rate_limit_anonymous, settings.trusted_proxies, patience)
    sockets = bind_sockets(port, host)
    server.add_sockets(sockets)
    services.readiness.begin()
    await services.upkeep.begin()
    told = exposition.listen(services)
    background = [
        asyncio.create_task(work.run()) for work in (services.upkeep, services.request_log, services.readiness)
    ]
    try:
        shown = f"[{host}]" if ":" in host else host
        yield f"http://{shown}:{sockets[0].getsockname()[1]}"
    finally:
        for task in background:
            task.cancel()
        services.readiness.end()
        server.stop()
        services.turns.close()
        await services.traffic.drain(_DRAIN_SECONDS)
        await server.close_all_connections()
        if told is not None:
            told.stop()
            await told.close_all_connections()
        await services.traffic.drain(_FAREWELL_SECONDS)  # what has lost its client is given up
        await services.jobs.close()
        await services.request_log.close()
        await services.postbox.close()
        await services.charges.close()
        await services.sales.checkout.close()
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
            if not await services.database.run(accounts.exist):
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
