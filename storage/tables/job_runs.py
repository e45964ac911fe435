"""Runs of jobs: a server claims a job, and ends it or queues it again.

The runs of a server that has stopped have expired, see the module `servers`; `find_left` finds them. `claim` locks a
lane first, and waits for nothing; all others lock in the order of the module `jobs`.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, TypeAlias

from storage.database import Transaction
from storage.database.transaction import LOCKED_ROW, LOCKED_ROWS, Statement, Statements, lookup, reading, unsynced
from storage.errors import JobLost
from storage.tables import ledger, models
from storage.tables.jobs import COLUMNS, MICROSECONDS, START_CHARGE, Job, LaneRecord, clamped, hold_ids, input_blobs
from storage.tables.ledger import ServerInstance

Ending: TypeAlias = Literal["completed", "failed"]


@dataclass(frozen=True)
class ClaimedJob:
    """A job that a server runs. `fence` is different in each run: only the latest run can change the job.

    `attempts` and `crashes` include earlier runs; one whose worker or server died is both. `entries` is JSON, of the
    files of a batch that are done.
    """

    id: str
    account: str
    operation: str
    request: str = field(repr=False)
    inputs: int
    size: int
    holds: int
    fence: int
    attempts: int
    crashes: int
    test: bool
    entries: str | None

    @property
    def blobs(self) -> tuple[str, ...]:
        """The keys of its inputs."""
        return input_blobs(self.id, self.inputs)

    @property
    def hold_ids(self) -> tuple[str, ...]:
        """The ids of its holds, each of one credit."""
        return hold_ids(self.id, self.holds)


# A lane with a wrong count must not block others. Not EXISTS, which PostgreSQL may turn into a join
# that reads all queued jobs.
_WITH_JOB = (
    "SELECT account FROM lane WHERE waiting > 0 AND running < max_running"
    " AND COALESCE((SELECT SUM(running) FROM lane AS mate WHERE mate.crowd = lane.crowd), 0) < max_running"
    " AND (SELECT 1 FROM job WHERE job.account = lane.account AND job.state = 'queued'{} LIMIT 1) IS NOT NULL"
)
_SUSPECT = " AND (crashes > 0) = :suspect"
_ALLOWED = " AND proven >= :proven AND (restricted_until > :now) = :restricted"
_READY_LANE = _WITH_JOB.format(_SUSPECT) + _ALLOWED
_OF_LOCKED_LANE = f"account = (SELECT account FROM lane WHERE account = :account{LOCKED_ROW})"
_RUN = "id, account, operation, request, inputs, size, holds, fence, attempts, crashes, test, result"
_OWN_RUN = f"id = :job AND state = 'processing' AND fence = :fence AND {_OF_LOCKED_LANE}"
TAKE_JOB = Statement(
    "UPDATE job SET state = 'processing', fence = fence + 1, attempts = attempts + 1, server = :server, boot = :boot,"
    " lease_until = :forever, started_at = COALESCE(started_at, :now) WHERE id = (SELECT id FROM job"
    f" WHERE state = 'queued'{_SUSPECT} AND account = ({_READY_LANE} ORDER BY served, account LIMIT 1{LOCKED_ROWS})"
    f" ORDER BY number LIMIT 1{LOCKED_ROWS}) RETURNING {_RUN}"
)
_CHARGED = f"served = {clamped('lane.served + :charge')}"
SERVE_LANE = Statement(
    f"UPDATE lane SET waiting = waiting - 1, running = running + 1, {_CHARGED} WHERE account = :account"
    " RETURNING crowd, proven, restricted_until"
)
END_LANE = Statement(
    f"UPDATE lane SET waiting = waiting + :waiting, running = running - 1, bytes = bytes - :bytes, {_CHARGED},"
    " proven = COALESCE(:proven, proven), restricted_until = COALESCE(:restricted_until, restricted_until)"
    " WHERE TRUE AND account = :account"
)
_MATES = f"UPDATE lane SET {_CHARGED} WHERE account IN (SELECT account FROM lane WHERE {{}}{LOCKED_ROWS})"
CHARGE_MATES = Statement(_MATES.format("crowd = :crowd AND account <> :account"))
CHARGE = Statement(_MATES.format("account = :account OR crowd = :crowd"))
FIND_WAITING = Statement(
    f"SELECT ({_READY_LANE} LIMIT 1) IS NOT NULL, (SELECT 1 FROM lane WHERE waiting > 0 LIMIT 1) IS NOT NULL"
)
_RUNNING = "FROM job WHERE state = 'processing'"
_OWN = "server = :server AND boot = :boot"
_LEFT = "lease_until <= :now"
FIND_DUE = Statement(f"SELECT 1 WHERE EXISTS ({_WITH_JOB.format('')}) OR EXISTS (SELECT 1 {_RUNNING} AND {_LEFT})")
END_RUN = Statement(
    "UPDATE job SET state = :state, result = :result, file = :file, error = :error, request = NULL, lease_until = NULL,"
    f" finished_at = :now, expires_at = :expires_at WHERE {_OWN_RUN} RETURNING {', '.join(COLUMNS)}"
)
LEAVE = Statements(END_RUN, END_LANE)
RETURN_JOB = Statement(
    "UPDATE job SET state = 'queued', lease_until = NULL, attempts = attempts - :uncounted,"
    f" crashes = crashes + :crashed WHERE {_OWN_RUN} RETURNING id"
)
RETURN = Statements(RETURN_JOB, END_LANE)
FIND_RUNNING = Statement(f"SELECT {_RUN} {_RUNNING} AND {_OWN}")
FIND_LEFT = Statement(f"SELECT {_RUN} {_RUNNING} AND {_LEFT}")


@lookup
def any_due(transaction: Transaction) -> bool:
    """Whether a job can be claimed, or `find_left` finds one."""
    return bool(transaction.execute_statement(FIND_DUE, now=transaction.now))


@dataclass(frozen=True)
class LaneUse:
    """What a lane records at the end of a run: the CPU `seconds` that it has used, and a new `record`.

    None: nothing. `charge` can charge the seconds later.
    """

    seconds: float | None = None
    record: LaneRecord | None = None

    def changes(self) -> dict[str, int | None]:
        """The parameters of END_LANE."""
        charge = 0 if self.seconds is None else _charge_of(self.seconds)
        proven, until = (self.record.proven, self.record.restricted_until) if self.record else (None, None)
        return {"charge": charge, "proven": proven, "restricted_until": until}


NOTHING = LaneUse()
"""The end of a run of which nothing is known."""


class Claim(NamedTuple):
    """A claimed job, and what its lane remembers. `locked`: one could start that another transaction has locked.

    `more`: further jobs may wait, also jobs of accounts that run as many as they may.
    """

    job: ClaimedJob | None
    locked: bool
    more: bool
    lane: LaneRecord = LaneRecord()


def claim(
    transaction: Transaction,
    owner: ServerInstance,
    *,
    proven: bool = False,
    restricted: bool = True,
    idle: bool = False,
) -> Claim:
    """Starts a job of the lane that has used least time.

    Only of accounts that are proven if `proven`; of restricted ones if no other can start, and if `restricted`. A
    suspect, which is a job that has crashed, is claimed by a server that is `idle`, if no other job can start.
    """
    can_start = waits = False
    for suspect in (False, True):
        for of_restricted in (False, True)[: 1 + restricted]:
            allowed = {"proven": int(proven), "restricted": of_restricted, "suspect": suspect, "now": transaction.now}
            rows = transaction.execute_statement(TAKE_JOB, **allowed, **vars(owner), forever=ledger.FOREVER)
            if rows:
                return _serve(transaction, ClaimedJob(*rows[0]))
            ((can, waits),) = transaction.execute_statement(FIND_WAITING, **allowed)
            can_start |= bool(can)
        if can_start or not (idle and waits):
            break
    return Claim(None, can_start, bool(waits))


def _serve(transaction: Transaction, job: ClaimedJob) -> Claim:
    """Charges the lane of a claimed job, and those of its crowd, for its start."""
    lane = {"account": job.account, "charge": round(START_CHARGE * MICROSECONDS)}
    (row,) = transaction.execute_statement(SERVE_LANE, **lane)
    record = LaneRecord(*row)
    if record.crowd is not None:
        transaction.execute_statement(CHARGE_MATES, crowd=record.crowd, **lane)
    return Claim(job, locked=False, more=True, lane=record)


@unsynced
def charge(transaction: Transaction, account: str, crowd: str | None, seconds: float) -> None:
    """Charges the lanes of an account and its crowd for a run that has used `seconds` of CPU time. Waits for no lock.

    For runs that others have ended, and those of a crowd: `end` and `requeue` charge one lane.
    """
    values = {"account": account, "crowd": crowd, "charge": _charge_of(seconds)}
    transaction.execute_statement(CHARGE, **values)


def _charge_of(seconds: float) -> int:
    """What a lane is charged at the end of a run, besides what it was charged at the start."""
    return round((seconds - START_CHARGE) * MICROSECONDS)


@lookup
def find_running(transaction: Transaction, owner: ServerInstance) -> list[ClaimedJob]:
    """Returns the jobs that the server runs."""
    return [ClaimedJob(*run) for run in transaction.execute_statement(FIND_RUNNING, **vars(owner))]


def add_entry(transaction: Transaction, job: ClaimedJob, file_id: str, entry: Mapping[str, Any]) -> None:
    """Saves the entry of a file of a batch, which counts as done. Raises JobLost."""
    table = models.Job
    own = (table.job_id == job.id) & (table.status == "processing") & (table.fence == job.fence)
    row = transaction.select_for_update(table.select().where(own))
    if row is None:
        raise JobLost
    entries = {**json.loads(row.result or "{}"), file_id: entry}
    transaction.execute(table.update(done=len(entries), result=json.dumps(entries)).where(own))


def end(
    transaction: Transaction,
    job: ClaimedJob,
    status: Ending,
    retention: int,
    *,
    result: str | None = None,
    file_id: str | None = None,
    error: str | None = None,
    use: LaneUse = NOTHING,
) -> Job:
    """Ends the run of a job, which expires after `retention` seconds. Raises JobLost.

    Releases the holds that are not settled. `file_id` is the file that the job has made, which is deleted with it.
    """
    if status != "completed" or job.holds > 1:
        ledger.release_all(transaction, job.account, job.hold_ids)
    values = {"job": job.id, "fence": job.fence, "state": status, "result": result, "file": file_id, "error": error}
    times = {"now": transaction.now, "expires_at": transaction.now + retention}
    lane = {"account": job.account, "waiting": 0, "bytes": job.size, **use.changes()}
    row = transaction.execute_all(LEAVE, **values, **times, **lane)
    if row is None:
        raise JobLost
    return Job(*row)


def requeue(
    transaction: Transaction, job: ClaimedJob, *, counted: bool, crashed: bool = False, use: LaneUse = NOTHING
) -> None:
    """Queues a job again, before all others of its account. Raises JobLost.

    The attempt does not count unless it is `counted`; `crashed`: its worker process or its server died.
    """
    values = {"job": job.id, "fence": job.fence, "uncounted": int(not counted), "crashed": int(crashed)}
    lane = {"account": job.account, "waiting": 1, "bytes": 0, **use.changes()}
    if transaction.execute_all(RETURN, **values, **lane) is None:
        raise JobLost


@reading
def find_left(transaction: Transaction) -> list[ClaimedJob]:
    """Returns the jobs whose servers have stopped."""
    return [ClaimedJob(*run) for run in transaction.execute_statement(FIND_LEFT, now=transaction.now)]
