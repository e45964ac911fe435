"""The access log: a log line, metrics, and a row in the account's request log for every request."""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass

from storage.tables.request_log import LoggedRequest
from web.api.errors import PublicError
from web.metrics.request_context import RequestContext
from web.services.accounts import Account
from web.services.container import Services

log = logging.getLogger("convertd.access")

_PATH_LENGTH = 120  # characters that are stored; the API's paths are shorter


@dataclass(frozen=True)
class AccessRecord:
    """A request and its response. `route` is the pattern of its path; `received` and `sent` are body sizes in bytes."""

    method: str
    path: str
    route: str
    status: int
    seconds: float
    context: RequestContext
    account: Account | None
    error: PublicError | None
    received: int
    sent: int


def record(services: Services, entry: AccessRecord) -> None:
    """Logs a request that has ended."""
    # Paths and file names are private.
    fields = {
        "status": entry.status,
        "ms": round(entry.seconds * 1000),
        "account": entry.account.id if entry.account else None,
        "received": entry.received or None,
        "sent": entry.sent or None,
        "code": entry.error.code if entry.error else None,
        **entry.context.fields(),
    }
    log.info("%s %s", entry.method, entry.route, extra={"fields": fields})
    services.metrics.http.record_request(entry.method, entry.route, entry.status, entry.seconds)
    services.metrics.http.record_refusal(entry.error, authenticated=entry.account is not None)
    if entry.account:
        services.request_log.record(_logged_request(entry, entry.account))


def _logged_request(entry: AccessRecord, account: Account) -> LoggedRequest:
    return LoggedRequest(
        id=entry.context.request_id,
        account=account.id,
        method=entry.method,
        path=entry.path[:_PATH_LENGTH],
        status=entry.status,
        code=entry.error.code if entry.error else None,
        milliseconds=round(entry.seconds * 1000),
        at_milliseconds=round(time.time() * 1000),
    )
