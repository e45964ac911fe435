"""Requests in progress, so that a shutdown can wait for them, and the logs of completed requests."""

import asyncio
import json
import logging
import os
import time
from collections.abc import Mapping
from contextlib import suppress
from types import MappingProxyType

from config.errors import PublicError
from engine.lazy import lazy_imports
from engine.options import NO_OPTIONS, OptionValues
from storage.database import Database
from storage.tables import request_log
from storage.tables.request_log import LoggedRequest
from web.metrics.conversions import RequestContext
from web.metrics.service import HttpMetrics
from web.services.accounts.accounts import Account

with lazy_imports():
    from web.services.operation import tracing

log = logging.getLogger("convertd.request_log")
access_log = logging.getLogger("convertd.access")

_INTERVAL = 1.0  # seconds
_CAPACITY = 20_000  # unwritten requests; further ones are not logged
_BATCH_SIZE = 500  # rows
_PATH_LENGTH = 120  # characters that are stored; the API's paths are shorter
_TEXT_LENGTH = 300  # characters of a message or an option that are stored


class InFlightRequests:
    """The ids of requests in progress. `end` is idempotent, since a request can end in several ways."""

    def __init__(self) -> None:
        self.stopping = False
        self._running: set[str] = set()
        self._idle = asyncio.Event()
        self._idle.set()

    @property
    def running(self) -> int:
        """Number of requests in progress."""
        return len(self._running)

    def begin(self, request_id: str) -> None:
        """Adds a request."""
        self._running.add(request_id)
        self._idle.clear()

    def end(self, request_id: str) -> None:
        """Removes a request that is complete or whose client has disconnected."""
        self._running.discard(request_id)
        if not self._running:
            self._idle.set()

    async def drain(self, seconds: float) -> None:
        """Marks the server as stopping and waits until no request is in progress, for at most `seconds`."""
        self.stopping = True
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._idle.wait()


class RequestLog:
    """Records completed requests in the access log, in the metrics, and in the request logs of their accounts.

    The request logs are kept in memory and written to the database once a second, so that requests do not wait for it.
    """

    def __init__(self, database: Database, metrics: HttpMetrics) -> None:
        self._database = database
        self._metrics = metrics
        self._tracing = _open_tracing()
        self._unwritten: list[LoggedRequest] = []
        self._writing = asyncio.Lock()

    def record(
        self,
        context: RequestContext,
        account: Account | None,
        error: PublicError | None,
        options: OptionValues = NO_OPTIONS,
        headers: Mapping[str, str] = MappingProxyType({}),
        *,
        method: str,
        path: str,
        route: str,
        status: int,
        seconds: float,
        received: int,
        sent: int,
    ) -> None:
        """Adds a request with its public options. `route` is the pattern of its path; body sizes are in bytes.

        The `headers` may name the trace that the request belongs to.
        """
        code = error.code if error else None
        milliseconds = round(seconds * 1000)
        # Paths, options and file names are private.
        fields = {
            "status": status,
            "ms": milliseconds,
            "account": account.id if account else None,
            "received": received or None,
            "sent": sent or None,
            "code": code,
            **vars(context),
        }
        for name in ("stages", "span", "trace_headers"):
            del fields[name]
        if self._tracing is not None:
            self._tracing.record(context, error, headers, method=method, route=route, status=status, seconds=seconds)
        access_log.info("%s %s", method, route, extra={"fields": fields})
        self._metrics.record_request(method, route, status, seconds, error, authenticated=bool(account))
        if account and len(self._unwritten) < _CAPACITY:
            logged = LoggedRequest(
                id=context.request_id,
                account=account.id,
                method=method,
                path=path[:_PATH_LENGTH],
                status=status,
                code=code,
                milliseconds=milliseconds,
                at_milliseconds=round(time.time() * 1000),
                details=_details(context, error, options),
            )
            self._unwritten.append(logged)

    def begin_trace(
        self, context: RequestContext, headers: Mapping[str, str], *, method: str, route: str, seconds: float
    ) -> None:
        """Begins the span of a request whose job continues its trace, if traces are sent."""
        if self._tracing is not None:
            self._tracing.begin(context, headers, method=method, route=route, seconds=seconds)

    def record_job(self, context: RequestContext, error: PublicError | None, operation: str, seconds: float) -> None:
        """Adds a run of a job to the trace of its request, if traces are sent."""
        if self._tracing is not None:
            self._tracing.record_job(context, error, operation, seconds)

    async def latest(self, account: str) -> tuple[LoggedRequest, ...]:
        """Returns the account's latest requests, newest first, including unwritten ones."""
        await self.write()
        return await self._database.run(request_log.latest, account)

    async def write(self) -> None:
        """Writes all recorded requests."""
        async with self._writing:
            while batch := self._unwritten[:_BATCH_SIZE]:
                await self._database.run(request_log.record, batch)
                del self._unwritten[: len(batch)]

    async def run(self) -> None:
        """Writes periodically until cancelled."""
        while True:
            await asyncio.sleep(_INTERVAL)
            await self._try_to_write()

    async def close(self) -> None:
        """Writes all recorded requests; a failure is only logged."""
        if self._tracing is not None:
            await self._tracing.close()
        await self._try_to_write()

    async def _try_to_write(self) -> None:
        try:
            await self.write()
        except Exception:
            log.warning("the request log could not be written", exc_info=True)


def _open_tracing() -> "tracing.Tracing | None":
    """Traces, if the standard variables of OpenTelemetry name a collector."""
    collectors = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
    off = os.environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true"
    off |= os.environ.get("OTEL_TRACES_EXPORTER", "").strip().lower() == "none"
    if off or not any(os.environ.get(name) for name in collectors):
        return None
    try:
        return tracing.Tracing()
    except ModuleNotFoundError:
        log.warning("no traces are sent: a collector is set without its packages; run: sh config/setup.sh otel")
        return None


def _details(context: RequestContext, error: PublicError | None, options: OptionValues) -> str | None:
    """Details of a request for the dashboard, besides its row, as JSON; None if there are none."""
    texts = {name: value[:_TEXT_LENGTH] if isinstance(value, str) else value for name, value in options.items()}
    shown = {
        "input_format": context.input_format,
        "output_format": context.output_format,
        "options": texts,
        "warnings": context.warnings.split(",") if context.warnings else [],
        "work_ms": context.work_ms,
        "credits": context.credits,
    }
    if error is not None:
        shown |= {"message": str(error)[:_TEXT_LENGTH], "reason": error.reason, "param": error.param}
    found = {name: value for name, value in shown.items() if value}
    return json.dumps(found) if found else None
