"""The lanes of jobs in the database, as the queue of this server knows their accounts, and the runs of claimed jobs."""

from contextlib import ExitStack
from time import time

from storage.tables.job_runs import ClaimedJob, LaneUse
from storage.tables.jobs import LaneRecord
from web.services.accounts.accounts import Account
from web.services.admission.admission import Admission
from web.services.admission.fair_queue import QueuedTask, Standing, Tenant
from web.services.admission.tenant_records import OVERRUN_MEMORY


def lane_record(tenant: Tenant, standing: Standing) -> LaneRecord:
    """Returns what the lane of a tenant with this standing remembers."""
    restricted_until = int(time() + OVERRUN_MEMORY) if standing is Standing.RESTRICTED else 0
    return LaneRecord(_crowd(tenant), int(standing is Standing.PROVEN), restricted_until)


def standing_of(record: LaneRecord) -> Standing:
    """Returns the standing that a lane remembers."""
    if record.restricted_until > time():
        return Standing.RESTRICTED
    return Standing.PROVEN if record.proven else Standing.UNPROVEN


class ClaimedRun:
    """A run of a claimed job, and its places in the queue: one, or one for each file of a batch."""

    def __init__(self, job: ClaimedJob, account: Account, admission: Admission) -> None:
        self.job = job
        self.account = account
        self.place = ExitStack()
        self.admitted: list[QueuedTask] = []
        self.crowd = _crowd(account.tenant)
        self._admission = admission

    def admit(self) -> QueuedTask:
        """Takes a place in the queue until `place` closes."""
        self.admitted.append(self.place.enter_context(self._admission.admit_background(self.account.tenant)))
        return self.admitted[-1]

    @property
    def used(self) -> float:
        """The CPU time in seconds that the run has used so far."""
        return sum(job.used for job in self.admitted)

    def use(self) -> LaneUse:
        """Returns what the lane of the account is told at the end. Those of a crowd are charged together, later."""
        tenant = self.account.tenant
        record = lane_record(tenant, self._admission.standing(tenant))
        return LaneUse(self.used if self.crowd is None else None, record)


def _crowd(tenant: Tenant) -> str | None:
    return None if tenant.crowd == tenant.id else tenant.crowd
