"""The order of jobs is the same in both queues: in memory, of requests, and in the database, of jobs.

A case is a script: `+a` adds a job of the tenant a; `a4` says that its job is next, and ends after 4 seconds of CPU
time; `a` alone, that it is next and runs on; `-a4`, that its oldest running job ends; `!`, that no job can start. The
first letter of a tenant says what it is: new accounts of one address are x or y, those of r are restricted.
"""

import re
from collections import defaultdict, deque
from collections.abc import Iterable
from math import inf
from typing import Protocol

import pytest

from storage.database import Database
from storage.tables import job_runs, jobs
from storage.tables.job_runs import ClaimedJob, LaneUse
from storage.tables.jobs import Job
from tests.support.samples.storage import DAY, OWNER, open_account
from web.services.admission.fair_queue import FairQueue, QueuedTask, Standing, Tenant
from web.services.jobs.job_runner import lane_record

_ADDRESSES = {"x": "192.0.2.1", "y": "192.0.2.2"}
_STEP = re.compile(r"([+-]?)([a-z]\d*)(?:=([\d.]+))?|!")

CASES = {
    "equal tenants take turns": "+a +a +a +b +b +c a=1 b=1 c=1 a=1 b=1 a=1 !",
    "a start counts until its job ends": "+a +a +a +b +b a b a b -a=0.1 a -b=0.1 -b=0.1 -a=0.1 -a=0.1 !",
    "who has used least is next": "+a +a +a +b +b +b +b +b a=4 b=1 b=1 b=1 b=1.5 a=4 b=1 a=0 !",
    "a tenant runs two jobs at most": "+a +a +a a a ! -a=1 a !",
    "a new tenant starts at the mean": "+a +a +b +b +b a=8 b=2 +c +c b=2 b=5 c=1 c=9 a=1 !",
    "a tenant that comes back starts where it was": "+a a=6 +b b=1 +b +b +b +a b=2 b=1 b=3 a=1 !",
    "or at the mean": "+a a=1 +b +b +c +c b=4 c=2 +a c=5 a=1 b=1 !",
    "nobody waits for more than ten seconds of others": "+a +a +b +b +b +b +b a=900 b=4 b=4 b=4 a=1 b=1 b=1 !",
    "nor after a pause": "+a a=900 +b +b +b +b +b b=1 +a b=4 b=4 b=4 a=1 b=1 !",
    "accounts of an address are one": "+x1 +x2 +x3 +x4 +z +z +z +z x1=8 z=3 z=3 z=3 x2=8 z=3 x3=8 x4=8 !",
    "and run as many jobs as one": "+x1 +x2 +x3 +y1 x1 y1 x2 ! -x2=1 x3 !",
    "also one that comes later": "+x1 +x1 +z +z x1=8 +x2 z=2 z=2 x1=1 x2=1 !",
    "restricted tenants are last": "+r1 +r2 +a +a a=8 a=8 r1=1 r2=1 !",
}


class Queue(Protocol):
    """A queue whose jobs start one by one."""

    def add(self, tenant: Tenant, standing: Standing) -> None:
        """Queues a job."""

    def start(self) -> str | None:
        """Starts the next job. Returns its tenant, or None if no job can start."""

    def end(self, tenant: str, used: float) -> None:
        """Ends the oldest running job of the tenant, which has used this CPU time."""


class Requests:
    """The queue in memory."""

    def __init__(self) -> None:
        self._standings: dict[str, Standing] = {}
        self._queue = FairQueue(0, inf, lambda tenant: self._standings[tenant.id], keeps_slot=lambda: False)
        self._running = defaultdict[str, deque[QueuedTask]](deque)

    def add(self, tenant: Tenant, standing: Standing) -> None:
        self._standings[tenant.id] = standing
        self._queue.add(QueuedTask(tenant, 0, 0))

    def start(self) -> str | None:
        self._queue.resize(self._queue.running + 1, inf)
        for job in self._queue.start_next(0):
            self._running[job.tenant.id].append(job)
            return job.tenant.id
        return None

    def end(self, tenant: str, used: float) -> None:
        job = self._running[tenant].popleft()
        job.used = used
        self._queue.remove(job)


class Jobs:
    """The queue in the database."""

    def __init__(self, database: Database, tenants: Iterable[str]) -> None:
        self._database = database
        names = sorted(set(tenants))
        ids = sorted(open_account(database).id for _ in names)  # of equal lanes, the first one is next
        self._accounts = dict(zip(names, ids, strict=True))
        self._crowds: dict[str, str | None] = {}
        self._running = defaultdict[str, deque[ClaimedJob]](deque)

    def add(self, tenant: Tenant, standing: Standing) -> None:
        lane = lane_record(tenant, standing)
        self._crowds[tenant.id] = lane.crowd
        account = self._accounts[tenant.id]
        job = Job(account=account, operation="convert", input_format="png", output_format="webp")
        self._database.run_blocking(jobs.accept, job, request="{}", max_running=tenant.max_jobs, lane=lane)

    def start(self) -> str | None:
        job = self._database.run_blocking(job_runs.claim, OWNER).job
        if job is None:
            return None
        tenant = next(name for name, account in self._accounts.items() if account == job.account)
        self._running[tenant].append(job)
        return tenant

    def end(self, tenant: str, used: float) -> None:
        job, crowd = self._running[tenant].popleft(), self._crowds[tenant]
        self._database.run_blocking(job_runs.end, job, "failed", DAY, use=LaneUse(None if crowd else used))
        if crowd:
            self._database.run_blocking(job_runs.charge, job.account, crowd, used)


def play(queue: Queue, script: str) -> None:
    """Runs a case."""
    for step in script.split():
        parsed = _STEP.fullmatch(step)
        assert parsed, step
        sign, name, used = parsed.groups()
        if sign == "+":
            standing = Standing.RESTRICTED if name.startswith("r") else Standing.UNPROVEN
            queue.add(Tenant(name, 2, _ADDRESSES.get(name[0]), is_new=name[0] in _ADDRESSES), standing)
            continue
        if sign != "-":
            assert queue.start() == name, step
        if used is not None:
            queue.end(name, float(used))


@pytest.mark.parametrize("case", CASES)
def test_the_order_of_requests(case: str) -> None:
    play(Requests(), CASES[case])


@pytest.mark.both_databases
@pytest.mark.parametrize("case", CASES)
def test_the_order_of_jobs(database: Database, case: str) -> None:
    play(Jobs(database, re.findall(r"[a-z]\d*", CASES[case])), CASES[case])
