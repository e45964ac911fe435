"""The composition root: everything is joined here, and the routing table stands on one screen."""

from __future__ import annotations

import asyncio
import logging
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from tornado.netutil import bind_sockets
from tornado.routing import URLSpec
from tornado.web import Application

from config.logs import configure
from config.settings import Settings
from engine.executor import Executor
from engine.registry import Registry, load_registry
from storage import accounts
from storage.database import Database
from storage.failover import FailoverLimiter
from storage.limits import Limiter, MemoryLimiter
from storage.redis_limits import RedisLimiter
from web.handlers.account import AccountResource, KeyResource, KeyRotation, Keys, Usage
from web.handlers.catalogue import Formats, Tools
from web.handlers.convert import Convert
from web.handlers.files import Download
from web.handlers.pages import VerifyPage
from web.handlers.registration import Register, Verify
from web.handlers.status import Health, Nothing, Ready, Version
from web.processes import examine, local_executor
from web.server import Server
from web.services import Services
from web.services.accounts import Accounts
from web.services.catalogue import formats_catalogue, listing, tools_catalogue
from web.services.charges import Charges
from web.services.conversion import Conversions
from web.services.jobs import JobFolders
from web.services.mail import Mailer, OutboxMailer, SmtpMailer
from web.services.post import Postbox
from web.services.readiness import Readiness
from web.services.registrations import Registrations
from web.services.repeats import Repeats
from web.services.results import Results
from web.services.traffic import Traffic
from web.services.turns import Turns
from web.services.upkeep import Upkeep, owner

log = logging.getLogger("convertd.server")

PREFIX = "/api/v1"
_DRAIN_SECONDS = 30
_FAREWELL_SECONDS = 5


def build(services: Services) -> Application:
    """The application: what is found where."""
    with_services = {"services": services}
    return Application(
        [
            URLSpec(f"{PREFIX}/convert", Convert, with_services),
            URLSpec(f"{PREFIX}/files/([^/]+)/download", Download, with_services, name="download"),
            URLSpec(f"{PREFIX}/account", AccountResource, with_services),
            URLSpec(f"{PREFIX}/account/usage", Usage, with_services),
            URLSpec(f"{PREFIX}/account/keys", Keys, with_services),
            URLSpec(f"{PREFIX}/account/keys/([^/]+)", KeyResource, with_services),
            URLSpec(f"{PREFIX}/account/keys/([^/]+)/rotate", KeyRotation, with_services),
            URLSpec(f"{PREFIX}/register", Register, with_services),
            URLSpec(f"{PREFIX}/verify", Verify, with_services),
            URLSpec(f"{PREFIX}/formats", Formats, with_services),
            URLSpec(f"{PREFIX}/tools", Tools, with_services),
            URLSpec("/developers/verify", VerifyPage, with_services),
            URLSpec("/healthz", Health, with_services),
            URLSpec("/readyz", Ready, with_services),
            URLSpec("/version", Version, with_services),
        ],
        default_handler_class=Nothing,
        default_handler_args=with_services,
    )


def assemble(settings: Settings, registry: Registry, executor: Executor) -> Services:
    """The parts that handlers work with, below the data folder, which is made. Works on disk and database."""
    jobs = JobFolders(settings.data_dir.absolute() / "jobs")
    results = Results(settings.data_dir.absolute() / "files", settings.file_retention_seconds)
    jobs.prepare()
    results.prepare()
    database = open_database(settings)
    limiter, postbox = _limiter(settings), Postbox(_mailer(settings))
    run = owner(settings.data_dir)
    charges, repeats, turns = Charges(database, run), Repeats(database, run), Turns(settings.workers)
    return Services(
        settings=settings,
        database=database,
        accounts=Accounts(database),
        registrations=Registrations(database, postbox, limiter, settings.base_url),
        limiter=limiter,
        postbox=postbox,
        charges=charges,
        conversions=Conversions(registry, executor, turns, charges, repeats, results),
        results=results,
        jobs=jobs,
        formats=listing(formats_catalogue(registry)),
        tools=listing(tools_catalogue(registry, f"{PREFIX}/convert")),
        readiness=Readiness(registry, settings.data_dir, database),
        upkeep=Upkeep(database, charges, repeats, results),
        traffic=Traffic(),
    )


def open_database(settings: Settings) -> Database:
    """The database of the settings, which is made if it is not there. Blocks."""
    if settings.database_url is not None:
        return Database(settings.database_url.get_secret_value())
    path = settings.data_dir.absolute() / "convertd.db"
    return Database(f"sqlite:///{path}")


def _limiter(settings: Settings) -> Limiter:
    local = MemoryLimiter()
    if settings.redis_url is None:
        return local
    return FailoverLimiter(RedisLimiter(settings.redis_url.get_secret_value()), local)


def _mailer(settings: Settings) -> Mailer:
    if settings.smtp_url is None:
        return OutboxMailer(settings.data_dir.absolute() / "outbox", settings.mail_from)
    return SmtpMailer(settings.smtp_url.get_secret_value(), settings.mail_from)


@asynccontextmanager
async def listening(services: Services, host: str, port: int) -> AsyncIterator[str]:
    """Listens and answers; port 0 takes a free one. At the end it drains.

    Gives the URL it listens at. The executor is the caller's to start and to close.
    """
    server = Server(build(services), services.settings.rate_limit_anonymous)
    sockets = bind_sockets(port, host)
    server.add_sockets(sockets)
    services.readiness.begin()
    await services.upkeep.begin()
    upkeep = asyncio.create_task(services.upkeep.run())
    try:
        shown = f"[{host}]" if ":" in host else host
        yield f"http://{shown}:{sockets[0].getsockname()[1]}"
    finally:
        upkeep.cancel()
        services.readiness.end()
        server.stop()
        await services.traffic.drain(_DRAIN_SECONDS)
        await server.close_all_connections()
        await services.traffic.drain(_FAREWELL_SECONDS)  # what has lost its client is given up
        await services.jobs.close()
        await services.postbox.close()
        await services.charges.close()
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
        missing = (await examine(settings, executor)).missing
        if missing:
            log.warning("the sandbox of jobs (%s) lacks: %s", settings.sandbox, ", ".join(missing))
        async with listening(services, host, port) as url:
            _announce(registry, settings, url)
            if not await services.database.run(accounts.exist):
                log.info("no account yet; make one: convertd account create --email you@example.com --name You")
            await stop.wait()
            log.info("stopping: no new connections, up to %d s for requests that run", _DRAIN_SECONDS)
            for number in (signal.SIGTERM, signal.SIGINT):
                loop.remove_signal_handler(number)
    finally:
        await executor.close()
    log.info("stopped")


def _announce(registry: Registry, settings: Settings, url: str) -> None:
    formats, pairs = len(registry.formats), len(registry.catalogue())
    log.info("listening on %s; %d formats, %d conversions, %d workers", url, formats, pairs, settings.workers)
    for need in registry.missing:
        log.warning("%s is missing, needed for %s; install it: %s", need.name, need.purpose, need.install)
