"""All services of a server, as one value that handlers receive."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

from config.settings import Settings
from engine.registry import Registry
from storage.database import Database
from storage.rate_limits import RateLimiter
from web.metrics import Metrics
from web.services.accounts import Accounts, Registrations
from web.services.api_reference import Endpoint, endpoints
from web.services.batches import BatchConversions, Batches
from web.services.catalogue import CachedJson, DocumentedOption, documented_options
from web.services.charging import Charges
from web.services.conversions import Conversions
from web.services.email import EmailQueue
from web.services.files import Files
from web.services.health import Readiness
from web.services.job_queue import JobQueue
from web.services.maintenance import Maintenance
from web.services.request_tracking import InFlightRequests, RequestLog
from web.services.stripe import Payments
from web.services.trials import Trials
from web.services.work_files import WorkFiles


@dataclass(frozen=True)
class Services:
    """The services that handlers use."""

    settings: Settings
    database: Database
    accounts: Accounts
    registrations: Registrations
    trials: Trials
    limiter: RateLimiter
    email_queue: EmailQueue
    charges: Charges
    job_queue: JobQueue
    conversions: Conversions
    files: Files
    batches: Batches
    batch_conversions: BatchConversions
    work_files: WorkFiles
    registry: Registry
    formats: CachedJson
    tools: CachedJson
    readiness: Readiness
    request_log: RequestLog
    openapi: CachedJson
    payments: Payments
    maintenance: Maintenance
    metrics: Metrics
    in_flight: InFlightRequests = field(default_factory=InFlightRequests)

    @cached_property
    def reference(self) -> tuple[Endpoint, ...]:
        """The API reference for the docs page, derived from the OpenAPI document."""
        return endpoints(self.openapi.data, self.settings.base_url)

    @cached_property
    def options(self) -> tuple[DocumentedOption, ...]:
        """The table of options for the docs page."""
        return documented_options(self.registry)
