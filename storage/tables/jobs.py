"""Jobs: requests that are accepted at once and processed later, in a queue that is fair between accounts.

To avoid deadlocks, transactions lock accounts and holds first, as in the module `ledger`, then lanes, and jobs last.
"""

import time
from collections.abc import Collection
from dataclasses import dataclass, field, fields, replace
from typing import Any, Final, Literal, TypeAlias

from peewee import SQL, Case, fn

from storage.database import Transaction
from storage.database.pages import Page, read_page
from storage.database.transaction import Statement, Statements, columns, insert, reading
from storage.errors import JobLost, NotFound, QueueFull
from storage.ids import is_id, new_id
from storage.tables import deliveries, ledger, models
from storage.tables.ledger import ServerInstance

Status: TypeAlias = Literal["queued", "processing", "completed", "failed", "cancelled"]

MAX_UNFINISHED = 1_000
"""Jobs of an account that wait or run."""

START_CHARGE = 1.0
"""Seconds of CPU time that a job is taken to use until it ends, in the order of the queue."""

MAX_LEAD = 10.0
"""Seconds of CPU time by which a lane can be behind another in the order of the queue."""

MICROSECONDS = 1_000_000
"""The virtual time of a lane for a second of CPU time."""

UNOWNED: Final = ServerInstance("", "")
"""The owner of the holds of jobs: they do not end with a server."""


@dataclass(frozen=True)
class LaneRecord:
    """What a lane remembers of its account, as in its columns."""

    crowd: str | None = None
    proven: int = 0
    restricted_until: int = 0


@dataclass(frozen=True)
class Job:
    """A job with the number of its blobs, `inputs`. `result`, `error` and `entries` of a batch's files are JSON.

    `holds` is the number of credits that are held for it, and `total` the number of files of a batch. `position` is the
    number of jobs of the account that were accepted earlier and wait, if the job itself waits. `test`: a test key was
    used.
    """

    account: str
    operation: str
    input_format: str | None
    output_format: str
    job_id: str = field(default_factory=lambda: new_id("job"))
    number: int = field(default_factory=time.time_ns)
    status: Status = "queued"
    tag: str | None = None
    webhook_url: str | None = None
    test: bool = False
    inputs: int = 0
    holds: int = 1
    done: int = 0
    total: int | None = None
    attempts: int = 0
    result: str | None = None
    file_id: str | None = None
    error: str | None = None
    created_at: int = 0
    started_at: int | None = None
    finished_at: int | None = None
    expires_at: int | None = None
    position: int | None = None

    @property
    def has_ended(self) -> bool:
        return self.finished_at is not None

    @property
    def blobs(self) -> tuple[str, ...]:
        """The keys of its inputs, which can be deleted once it has ended."""
        return input_blobs(self.job_id, self.inputs)


COLUMNS = [getattr(models.Job, one.name).column_name for one in fields(Job) if one.name != "position"]

# The virtual times of lanes with jobs, without those that run: as `present`, so that `lane` is that of the statement.
_SETTLED = f"SELECT served - running * {round(START_CHARGE * MICROSECONDS)} AS time FROM lane AS present"
_TIMES = (
    f"{_SETTLED} WHERE waiting > 0 UNION ALL {_SETTLED}"
    " WHERE waiting = 0 AND account IN (SELECT account FROM job WHERE state = 'processing')"
)
_MEAN = f"SELECT CAST(AVG(time) AS BIGINT) AS time FROM ({_TIMES}) AS times"
_OF_CROWD = "SELECT MAX(served) AS time FROM lane AS mate WHERE account = :account OR crowd = :crowd"


def clamped(time: str) -> str:
    """The SQL expression for a virtual time of a lane, which is at most MAX_LEAD behind any lane with jobs."""
    latest = f"SELECT MIN(time) + {round(MAX_LEAD * MICROSECONDS)} FROM ({_TIMES}) AS times"
    return f"(SELECT MIN(time) FROM (SELECT {time} AS time UNION ALL {latest}) AS bounded)"


_ENTRY = clamped(f"(SELECT COALESCE(MAX(time), 0) FROM ({_OF_CROWD} UNION ALL {_MEAN}) AS entry)")
# Returns no row if the account has too many jobs.
ENTER_LANE = Statement(
    "INSERT INTO lane (account, waiting, running, max_running, bytes, crowd, proven, restricted_until, served)"
    " SELECT :account, 1, 0, :max_running, :size, :crowd, :proven, :restricted_until,"
    f" {_ENTRY} WHERE TRUE ON CONFLICT (account) DO UPDATE"
    " SET waiting = lane.waiting + 1, bytes = lane.bytes + excluded.bytes, max_running = excluded.max_running,"
    " crowd = excluded.crowd, proven = excluded.proven, restricted_until = excluded.restricted_until,"
    " served = CASE WHEN lane.waiting + lane.running > 0 THEN lane.served ELSE excluded.served END"
    " WHERE lane.waiting + lane.running < :limit RETURNING waiting"
)
INSERT_JOB = insert(
    "job",
    "id, account, number, state, operation, input_format, output_format, tag, webhook_url, test, request, "
    "inputs, size, holds, done, total, fence, attempts, crashes, created_at",
)
ENTER = Statements(ENTER_LANE, INSERT_JOB)
CHANGE_LANE = Statement(
    "UPDATE lane SET waiting = waiting + :waiting, running = running + :running, bytes = bytes + :bytes"
    " WHERE TRUE AND account = :account"
)
COUNT_WAITING = Statement("SELECT CAST(COALESCE(SUM(waiting), 0) AS BIGINT) FROM lane WHERE waiting > 0")
COUNT_RUNNING = Statement("SELECT COUNT(*) FROM job WHERE state = 'processing'")
FIND_OLDEST = Statement("SELECT MIN(created_at) FROM job WHERE state = 'queued'")


def input_blobs(job_id: str, count: int) -> tuple[str, ...]:
    """The keys of the inputs of a job."""
    return tuple(f"{job_id}.{number}" for number in range(count))


def hold_ids(job_id: str, count: int) -> tuple[str, ...]:
    """The ids of the holds of a job, each of one credit. A charge has the id of its hold, and exists once."""
    return tuple(f"{job_id}.{number}" for number in range(count))


def accept(
    transaction: Transaction,
    job: Job,
    *,
    request: str,
    size: int = 0,
    max_running: int,
    lane: LaneRecord = LaneRecord(),
) -> Job:
    """Queues a new job whose credits are held. Returns it as it is stored. Raises QueueFull.

    `request` is JSON, `size` the bytes of the blobs. Of the account, `max_running` jobs run at a time.
    """
    job = replace(job, created_at=transaction.now)
    row = {**vars(job), "id": job.job_id, "state": job.status, "fence": 0, "crashes": 0, "request": request}
    limits = {"size": size, "max_running": max_running, "limit": MAX_UNFINISHED}
    entered = transaction.execute_all(ENTER, **row, **vars(lane), **limits)
    if entered is None:
        raise QueueFull(MAX_UNFINISHED)
    return replace(job, position=int(entered[0]) - 1)


def cancel(transaction: Transaction, account: str, job_id: str, retention: int) -> Job | None:
    """Cancels a job and releases its holds. Returns None if it has ended already. Raises NotFound."""
    table = models.Job
    holds = get(transaction, account, job_id).holds
    ledger.release_all(transaction, account, hold_ids(job_id, holds))
    transaction.select_for_update(models.Lane.select().where(models.Lane.account == account))
    row = transaction.select_for_update(table.select().where(_live(transaction, account, job_id)))
    if row is None:
        raise NotFound("job")
    if row.finished_at is not None:
        return None
    ended = {"status": "cancelled", "request": None, "result": None, "lease_until": None}
    times = {"finished_at": transaction.now, "expires_at": transaction.now + retention}
    transaction.execute(table.update({**ended, **times}).where(table.job_id == job_id))
    waiting = int(row.status == "queued")
    lane = {"account": account, "waiting": -waiting, "running": waiting - 1, "bytes": -row.size}
    transaction.execute_statement(CHANGE_LANE, **lane)
    return get(transaction, account, job_id)


@reading
def get(transaction: Transaction, account: str, job_id: str) -> Job:
    """Returns the account's job with this id. Raises NotFound."""
    found = transaction.values(Job, _query(_live(transaction, account, job_id)))
    if not found:
        raise NotFound("job")
    return found[0]


@reading
def list_page(
    transaction: Transaction,
    account: str,
    *,
    limit: int,
    cursor: str | None = None,
    status: Status | None = None,
    tag: str | None = None,
) -> Page[Job]:
    """Returns at most `limit` jobs of the account, newest first, with this status and tag. Raises ValueError."""
    table = models.Job
    chosen = (table.account == account) & _unexpired(transaction)
    for column, value in ((table.status, status), (table.tag, tag)):
        if value is not None:
            chosen &= column == value
    return read_page(transaction, Job, _query(chosen), table.number, table.job_id, limit=limit, cursor=cursor)


@reading
def read_all(transaction: Transaction, ids: Collection[str]) -> tuple[Job, ...]:
    """Returns the jobs with these ids (at most 1,000) that exist, of any account."""
    return transaction.values(Job, _query(models.Job.job_id.in_(ids)))


def delete(transaction: Transaction, account: str, job_id: str) -> Job:
    """Deletes a job that has ended, also from its messages. Raises NotFound, and JobLost if it has not ended."""
    job = get(transaction, account, job_id)
    own = (models.Job.job_id == job_id) & models.Job.finished_at.is_null(False)
    if not transaction.execute(models.Job.delete().where(own)):
        raise JobLost
    deliveries.erase_job(transaction, job_id)
    return job


def delete_all(transaction: Transaction, account: str) -> tuple[str, ...]:
    """Deletes all jobs of the account, and releases their holds. Returns the blobs of their inputs."""
    table = models.Job
    own = table.select(table.job_id, table.inputs, table.holds).where(table.account == account)
    unfinished = transaction.rows(own.where(table.finished_at.is_null()))
    for job_id, _, holds in unfinished:
        ledger.release_all(transaction, account, hold_ids(job_id, holds))
    transaction.execute(models.Lane.delete().where(models.Lane.account == account))
    transaction.execute(table.delete().where(table.account == account))
    return tuple(blob for job_id, inputs, _ in unfinished for blob in input_blobs(job_id, inputs))


def delete_expired(transaction: Transaction, limit: int) -> int:
    """Deletes at most `limit` expired jobs. Returns their number."""
    table = models.Job
    expired = SQL("expires_at IS NOT NULL")  # the condition of the partial index
    selected = table.select(table.job_id).where(expired & (table.expires_at <= transaction.now)).limit(limit)
    return transaction.execute(table.delete().where(table.job_id.in_(selected)))


def referenced_blobs(transaction: Transaction, keys: Collection[str]) -> frozenset[str]:
    """Returns the subset of the blobs (at most 1,000) that are inputs of jobs that have not ended."""
    owners = {key: key.partition(".")[0] for key in keys}
    table = models.Job
    unfinished = table.select(table.job_id).where(table.job_id.in_(set(owners.values())) & table.finished_at.is_null())
    found = {job_id for (job_id,) in transaction.rows(unfinished)}
    return frozenset(key for key, owner in owners.items() if owner in found)


@dataclass(frozen=True)
class QueueState:
    """Jobs of all accounts that wait and run, and how long the oldest has waited, in seconds."""

    waiting: int
    running: int
    oldest: int


@reading
def read_state(transaction: Transaction) -> QueueState:
    """Returns the state of the queue."""
    ((waiting,),) = transaction.execute_statement(COUNT_WAITING)
    ((running,),) = transaction.execute_statement(COUNT_RUNNING)
    ((oldest,),) = transaction.execute_statement(FIND_OLDEST)
    return QueueState(int(waiting), int(running), 0 if oldest is None else max(transaction.now - int(oldest), 0))


def _query(condition: Any) -> Any:
    """Selects the fields of jobs."""
    table = models.Job
    earlier = models.Job.alias("earlier")
    waiting = SQL("earlier.state = 'queued'")  # the condition of the partial index
    before = (earlier.account == table.account) & waiting & (earlier.number < table.number)
    ahead = earlier.select(fn.COUNT(earlier.job_id)).where(before)
    position = Case(None, [(table.status == "queued", ahead)])
    return table.select(*columns(table, Job, position=position)).where(condition)


def _live(transaction: Transaction, account: str, job_id: str) -> Any:
    table = models.Job
    if not is_id("job", job_id):
        raise NotFound("job")
    return (table.job_id == job_id) & (table.account == account) & _unexpired(transaction)


def _unexpired(transaction: Transaction) -> Any:
    return models.Job.expires_at.is_null() | (models.Job.expires_at > transaction.now)
