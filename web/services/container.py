"""All services of a server, as one value that handlers receive."""

import asyncio
import logging
from pathlib import Path
from urllib.parse import urlsplit

from config.pricing import MIB
from config.settings import Settings, is_loopback
from engine.executor.detector import Detector
from engine.lazy import lazy_imports
from engine.registry import Registry
from storage.blobs.blob_store import BlobStore
from storage.database import Database
from storage.rate_limits import FailoverRateLimiter, MemoryRateLimiter, RateLimiter
from storage.tables.ledger import ServerInstance
from web.docs.api_reference import ApiDocuments, MakeOpenApi, cached_json
from web.docs.catalogue import formats_catalogue
from web.metrics import Metrics
from web.metrics.service import ReadState
from web.services.accounts.accounts import Accounts, Registrations
from web.services.accounts.email import EmailQueue, EmailTransport, OutboxTransport, SmtpTransport
from web.services.accounts.key_modes import TestKeyLimit
from web.services.accounts.oidc import OidcSignIn
from web.services.accounts.trials import Trials
from web.services.admission.admission import Admission
from web.services.conversions.additional_files import AdditionalFiles
from web.services.conversions.charging import Charges
from web.services.conversions.conversions import Conversions
from web.services.conversions.file_executor import FileExecutor
from web.services.conversions.idempotency import IdempotencyService
from web.services.conversions.releases import Releases
from web.services.conversions.remote_files import RemoteFiles
from web.services.files.files import Files
from web.services.files.work_files import WorkFiles
from web.services.jobs.batches import Batches
from web.services.jobs.job_requests import RequestLoader
from web.services.jobs.job_runner import JobRunner
from web.services.jobs.jobs import Jobs
from web.services.operation.closing import complete
from web.services.operation.health import Readiness
from web.services.operation.heartbeat import Heartbeat
from web.services.operation.machine import job_memory
from web.services.operation.maintenance import Maintenance, server_instance
from web.services.operation.processes import ServerProcess
from web.services.operation.request_tracking import InFlightRequests, RequestLog
from web.services.payments.stripe import open_payments
from web.services.webhooks.outgoing import open_outgoing
from web.services.webhooks.webhooks import Webhooks

with lazy_imports():
    from storage import rate_limits_redis

log = logging.getLogger("convertd.server")


class Services:
    """The services that handlers use.

    Creates the data folder and the database if they do not exist. `make_openapi` makes the OpenAPI document. `cluster`
    returns the state of the cluster, if there is one. `process` is the process of the server. The constructor blocks.
    """

    def __init__(
        self,
        settings: Settings,
        registry: Registry,
        executor: FileExecutor,
        detector: Detector,
        blobs: BlobStore,
        make_openapi: MakeOpenApi,
        cluster: ReadState | None,
        process: ServerProcess,
    ) -> None:
        self.settings = settings
        self.registry = registry
        self.detector = detector
        self.process = process
        folder = process.folder(settings.data_dir.absolute())
        self.work_files = _open_work_files(folder / "jobs", settings, process)
        self.metrics = metrics = Metrics(registry.plugins, cluster=cluster is not None, shared=process.count > 1)
        self.database = database = Database(settings.resolved_database_url(), timeout=settings.store_timeout)
        self.limiter = limiter = _open_rate_limiter(settings)
        self.outgoing = open_outgoing(settings)
        self.email_queue = EmailQueue(_open_email_transport(settings), on_result=metrics.credits.record_email)
        owner = server_instance(folder)
        self.releases = releases = Releases(database)
        self.idempotency = idempotency = IdempotencyService(database, owner, releases)
        self.webhooks = Webhooks(database, owner, self.outgoing, self.email_queue, metrics.webhooks, settings.base_url)
        self.registrations = Registrations(database, self.email_queue, limiter, settings, metrics.credits)
        self.accounts = Accounts(database, settings)
        self.oidc = OidcSignIn(settings, database)
        self.trials = Trials(database, limiter, settings)
        self.payments = open_payments(settings, database, idempotency, metrics.credits, process.checkout_code)
        self.charges = Charges(database, owner, releases)
        self.admission = Admission(settings.workers, memory=job_memory(), processes=process.count)
        self._open_conversions(executor, blobs, idempotency, owner, jobs_by_key=cluster is not None)
        self.request_log = RequestLog(database, metrics.http)
        self.job_runner = self._open_job_runner(owner)
        self.formats = cached_json(formats_catalogue(registry))
        self._make_openapi = make_openapi
        self._documents: ApiDocuments | None = None
        self.readiness = Readiness(
            registry=registry,
            executor=executor,
            limiter=limiter,
            work_files=self.work_files,
            database=database,
            blobs=blobs,
            metrics=metrics.installation,
            cluster_state=cluster,
        )
        self.in_flight = InFlightRequests()
        self.heartbeat = Heartbeat(database, owner)
        self.maintenance = Maintenance(database, self.files, settings.data_dir, metrics)

    def _open_conversions(
        self,
        executor: FileExecutor,
        blobs: BlobStore,
        idempotency: IdempotencyService,
        owner: ServerInstance,
        *,
        jobs_by_key: bool,
    ) -> None:
        """Opens the services of files, conversions, batches and jobs."""
        database = self.database
        metrics = self.metrics
        self.files = files = Files(database, blobs, self.registry, jobs_by_key=jobs_by_key)
        self.remote_files = RemoteFiles(self.outgoing, self.work_files, self.detector, metrics.remote_files)
        additional_files = AdditionalFiles(files, self.work_files, self.registry)
        self.conversions = Conversions(
            registry=self.registry,
            executor=executor,
            admission=self.admission,
            charges=self.charges,
            idempotency=idempotency,
            files=files,
            remote_files=self.remote_files,
            additional_files=additional_files,
            metrics=metrics,
            test_key_limit=TestKeyLimit(self.limiter),
        )
        self.batches = Batches(
            database=database,
            registry=self.registry,
            files=files,
            work_files=self.work_files,
            conversions=self.conversions,
            idempotency=idempotency,
            releases=self.releases,
            owner=owner,
            max_files=self.settings.max_batch_files,
        )
        self.jobs = Jobs(
            database=database,
            files=files,
            conversions=self.conversions,
            batches=self.batches,
            idempotency=idempotency,
            metrics=metrics.jobs,
            additional_files=additional_files,
            sender=self.webhooks.sender,
        )

    def _open_job_runner(self, owner: ServerInstance) -> JobRunner:
        return JobRunner(
            database=self.database,
            owner=owner,
            admission=self.admission,
            jobs=self.jobs,
            requests=RequestLoader(self.files, self.work_files, self.registry),
            conversions=self.conversions,
            batches=self.batches,
            files=self.files,
            metrics=self.metrics.jobs,
            request_log=self.request_log,
            settings=self.settings,
        )

    async def close(self) -> None:
        """Closes the connections to the payment provider, Redis and the database, when no request uses them.

        Ends the processes that find the formats of files, if the executor does not have them.
        """
        self.outgoing.close()
        closing = (self.payments.checkout.close(), self.limiter.close(), asyncio.to_thread(self.database.close))
        await complete(*closing, self.detector.close())

    async def documents(self) -> ApiDocuments:
        """Returns the documents that describe the API. They are made when they are first needed."""
        if self._documents is None:
            self._documents = await asyncio.to_thread(
                ApiDocuments.make, self.registry, self._make_openapi, self.settings.base_path
            )
        return self._documents


def _open_work_files(folder: Path, settings: Settings, process: ServerProcess) -> WorkFiles:
    work_files = WorkFiles(folder, space=settings.work_space_mib * MIB, usage=process.files)
    work_files.prepare()
    return work_files


def _open_rate_limiter(settings: Settings) -> RateLimiter:
    """Opens the rate limiter: in memory, or in Redis with failover to memory."""
    local = MemoryRateLimiter()
    if settings.redis_url is None:
        return local
    return FailoverRateLimiter(rate_limits_redis.RedisRateLimiter(settings.redis_url.get_secret_value()), local)


def _open_email_transport(settings: Settings) -> EmailTransport | None:
    """Opens the email transport: SMTP if a mail server is configured, else a folder if the server is for local use."""
    if settings.smtp_url is not None:
        return SmtpTransport(settings.smtp_url.get_secret_value(), settings.mail_from, settings.operator.signature)
    if is_loopback(urlsplit(settings.base_url).hostname):
        return OutboxTransport(settings.data_dir.absolute() / "outbox", settings.mail_from, settings.operator.signature)
    log.warning("registration is disabled: CONVERTD_SMTP_URL is not set, and the base URL is not on this machine")
    return None
