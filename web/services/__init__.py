"""The rules of the service. Nothing here knows Tornado."""

from __future__ import annotations

from dataclasses import dataclass

from config.settings import Settings
from storage.limits import Limiter
from web.services.accounts import DevelopmentAccounts
from web.services.catalogue import Listing
from web.services.conversion import Conversions
from web.services.jobs import JobFolders
from web.services.post import Postbox
from web.services.readiness import Readiness
from web.services.results import Results
from web.services.traffic import Traffic


@dataclass(frozen=True)
class Services:
    """All that handlers work with."""

    settings: Settings
    accounts: DevelopmentAccounts
    limiter: Limiter
    postbox: Postbox
    conversions: Conversions
    results: Results
    jobs: JobFolders
    formats: Listing
    tools: Listing
    readiness: Readiness
    traffic: Traffic
