"""Records of the earlier jobs of tenants: the only place where a tenant is restricted.

A job counts by the CPU time that its processes have used, as the executor reports it, whether it runs in a request or
in the background. Records are kept in this process; the lanes of jobs in the database have the standing of accounts.
"""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from time import monotonic

from engine.errors import ConversionError, ExecutorUnavailable, OutOfMemory
from web.services.admission.fair_queue import Standing, Tenant

log = logging.getLogger("convertd.queue")

SHORT_JOB = 5.0
"""Seconds of CPU time of a short job. A job that fails or is abandoned after a longer time has overrun."""

PROVING_JOBS = 10
"""Short successful jobs in a row that prove a tenant."""

FIRST_MEAN = 0.1
"""Seconds of CPU time that a job of a tenant is expected to use before one has ended."""

OVERRUN_MEMORY = 600.0
"""Seconds after which past overruns no longer count."""

_MAX_OVERRUNS = 3  # a tenant with as many is restricted
_SUCCESSES_PER_OVERRUN = 10  # successful jobs that cancel an overrun
_MEAN_WEIGHT = 0.2  # weight of the latest job in the moving average
_RECORD_MEMORY = 86_400.0  # seconds after its latest job for which a tenant is remembered
_MAX_RECORDS = 50_000


@dataclass
class _Record:
    used_at: float  # monotonic time, as the next one
    overrun_at: float = 0.0
    overrun_points: int = 0  # decreased by each successful job
    short_jobs: int = 0  # in a row
    mean_seconds: float = FIRST_MEAN


class TenantRecords:
    """The standing of each tenant, and the CPU time of its jobs.

    A tenant is proven after ten short successful jobs, until it has a long one. It is restricted after three overruns:
    jobs that exceeded their memory limit, or failed or were abandoned after a long time. Ten successful jobs cancel one
    overrun, and ten minutes without an overrun and without a refused job all. Overruns also count for the address that
    the tenant was registered from, by which unproven tenants are restricted.
    """

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        self._records: dict[str, _Record] = {}  # ordered by the latest use
        self._proven: set[str] = set()

    def __len__(self) -> int:
        """Number of tenants and addresses that are remembered."""
        return len(self._records)

    def standing(self, tenant: Tenant) -> Standing:
        """Returns which slots the tenant may use."""
        is_proven = tenant.keys[0] in self._proven
        if any(map(self._is_restricted, tenant.keys[:1] if is_proven else tenant.keys)):
            return Standing.RESTRICTED
        return Standing.PROVEN if is_proven else Standing.UNPROVEN

    def any_proven(self) -> bool:
        """Returns whether a tenant is proven."""
        return bool(self._proven)

    def restore(self, tenant: Tenant, standing: Standing) -> None:
        """Gives a tenant without a record this standing. A restriction begins anew."""
        key = tenant.keys[0]
        if key not in self._records:
            record = self._use(key)
            if standing is Standing.RESTRICTED:
                record.overrun_points = _MAX_OVERRUNS * _SUCCESSES_PER_OVERRUN
                record.overrun_at = self._clock()
            self._set_short_jobs(key, PROVING_JOBS if standing is Standing.PROVEN else 0)

    def expected_seconds(self, tenant: Tenant) -> float:
        """Returns how much CPU time in seconds a job of the tenant is likely to use: as its latest ones."""
        record = self._records.get(tenant.keys[0])
        return FIRST_MEAN if record is None else record.mean_seconds

    def record_success(self, tenant: Tenant, seconds: float) -> None:
        """Counts a successful job, which has used `seconds` of CPU time."""
        for key in tenant.keys:
            record = self._use(key)
            record.mean_seconds += (seconds - record.mean_seconds) * _MEAN_WEIGHT
            record.overrun_points = max(record.overrun_points - 1, 0)
            self._set_short_jobs(key, record.short_jobs + 1 if seconds <= SHORT_JOB else 0)

    def record_failure(self, tenant: Tenant, error: BaseException) -> None:
        """Counts a job that failed or was cancelled. Logs a warning if it restricts the tenant or its address."""
        for key in tenant.keys if _is_overrun(error) else ():
            was_restricted = self._is_restricted(key)
            record = self._use(key)
            record.overrun_points = _SUCCESSES_PER_OVERRUN + (record.overrun_points if self._is_recent(record) else 0)
            record.overrun_at = self._clock()
            self._set_short_jobs(key, 0)
            if self._is_restricted(key) and not was_restricted:
                log.warning("%s is restricted: its jobs keep exceeding their limits", key)

    def record_refusal(self, tenant: Tenant) -> None:
        """Restarts the ten minutes of a tenant whose job found no slot in time: it may have no chance to overrun."""
        for key in tenant.keys:
            if self._is_restricted(key):
                self._use(key).overrun_at = self._clock()

    def _is_restricted(self, key: str) -> bool:
        record = self._records.get(key)
        limit = (_MAX_OVERRUNS - 1) * _SUCCESSES_PER_OVERRUN
        return record is not None and record.overrun_points > limit and self._is_recent(record)

    def _is_recent(self, record: _Record) -> bool:
        return self._clock() - record.overrun_at <= OVERRUN_MEMORY

    def _set_short_jobs(self, key: str, count: int) -> None:
        self._records[key].short_jobs = count
        (self._proven.add if count >= PROVING_JOBS else self._proven.discard)(key)

    def _use(self, key: str) -> _Record:
        """Returns the record of a tenant or address, a new one if there is none. Forgets the oldest ones."""
        now = self._clock()
        record = self._records[key] = self._records.pop(key, _Record(now))
        record.used_at = now
        while True:
            oldest = next(iter(self._records))
            if len(self._records) <= _MAX_RECORDS and self._records[oldest].used_at >= now - _RECORD_MEMORY:
                return record
            del self._records[oldest]
            self._proven.discard(oldest)


def _is_overrun(error: BaseException) -> bool:
    cause = error.__cause__ if isinstance(error, asyncio.CancelledError) else error
    if not isinstance(cause, ConversionError) or isinstance(cause, ExecutorUnavailable):
        return False
    return isinstance(cause, OutOfMemory) or (cause.seconds or 0.0) > SHORT_JOB
