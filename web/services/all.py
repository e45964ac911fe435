"""All services of a server, together."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

from config.settings import Settings
from engine.registry import Registry
from storage.database import Database
from storage.limits import Limiter
from web.metrics import Metrics
from web.services.accounts import Accounts
from web.services.batch_conversions import BatchConversions
from web.services.batches import Batches
from web.services.catalogue import Listing
from web.services.charges import Charges
from web.services.conversion import Conversions
from web.services.files import Files
from web.services.jobs import JobFolders
from web.services.post import Postbox
from web.services.readiness import Readiness
from web.services.reference import Endpoint, endpoints
from web.services.registrations import Registrations
from web.services.request_log import RequestLog
from web.services.sales import Sales
from web.services.sessions import Sessions
from web.services.traffic import Traffic
from web.services.turns import Turns
from web.services.upkeep import Upkeep


@dataclass(frozen=True)
class Services:
    """All that handlers work with."""

    settings: Settings
    database: Database
    accounts: Accounts
    registrations: Registrations
    limiter: Limiter
    postbox: Postbox
    charges: Charges
    turns: Turns
    conversions: Conversions
    files: Files
    batches: Batches
    batch_conversions: BatchConversions
    jobs: JobFolders
    registry: Registry
    formats: Listing
    tools: Listing
    readiness: Readiness
    sessions: Sessions
    request_log: RequestLog
    openapi: Listing
    sales: Sales
    upkeep: Upkeep
    metrics: Metrics
    traffic: Traffic = field(default_factory=Traffic)

    @cached_property
    def reference(self) -> tuple[Endpoint, ...]:
        """The API's document as the docs show it."""
        return endpoints(self.openapi.data, self.settings.base_url)
