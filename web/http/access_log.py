"""What is noted of every request that a resource has answered: a line, figures, and what its account may look up."""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass

from storage.request_log import LoggedRequest
from web.api.errors import PublicError
from web.metrics.request_context import RequestContext
from web.services.accounts import Account
from web.services.container import Services

log = logging.getLogger("convertd.access")

_PATH_LENGTH = 120  # characters that are noted of a path; those of the API are shorter


@dataclass(frozen=True)
class AccessRecord:
    """A request and its answer; `route` is the pattern of its paths, sizes are those of the bodies in bytes."""

    method: str
    path: str
    route: str
    status: int
    seconds: float
    context: RequestContext
    account: Account | None = None
    error: PublicError | None = None
    received: int = 0
    sent: int = 0


def record(services: Services, exchange: AccessRecord) -> None:
    """Takes it down, as it has just ended."""
    method, seconds = exchange.method, exchange.seconds
    # Neither paths nor file names: they are the client's own affair.
    fields = {
        "status": exchange.status,
        "ms": round(seconds * 1000),
        "account": exchange.account.id if exchange.account else None,
        "received": exchange.received or None,
        "sent": exchange.sent or None,
        "code": exchange.error.code if exchange.error else None,
        **exchange.context.fields(),
    }
    log.info("%s %s", method, exchange.route, extra={"fields": fields})
    services.metrics.http.record_request(method, exchange.route, exchange.status, seconds)
    services.metrics.http.record_refusal(exchange.error, authenticated=exchange.account is not None)
    if exchange.account:
        services.request_log.record(_logged_request(exchange, exchange.account, round(seconds * 1000)))


def _logged_request(exchange: AccessRecord, account: Account, milliseconds: int) -> LoggedRequest:
    return LoggedRequest(
        id=exchange.context.request_id,
        account=account.id,
        method=exchange.method,
        path=exchange.path[:_PATH_LENGTH],
        status=exchange.status,
        code=exchange.error.code if exchange.error else None,
        milliseconds=milliseconds,
        at_milliseconds=round(time.time() * 1000),
    )
