"""Jobs: accepted, claimed by the account that has used least, ended once, and given back."""

from itertools import count
from typing import Any

import pytest

from storage.database import Database, Transaction
from storage.errors import HoldLost, JobLost, NoCredits, NotFound, QueueFull
from storage.tables import accounts, files, job_runs, jobs, ledger, ledger_audit, models
from storage.tables.job_runs import Claim, ClaimedJob
from storage.tables.jobs import MAX_UNFINISHED, UNOWNED, Job, hold_ids
from storage.tables.ledger import Hold, ServerInstance
from tests.support.samples.storage import DAY, OWNER, USE, Clock, lose, open_account

pytestmark = pytest.mark.both_databases

OTHER = ServerInstance("other", "boot-1")

_numbers = count(1)


REQUEST = '{"target": "webp"}'


def new_job(account: str, **values: Any) -> Job:
    given = {"inputs": 1, "number": next(_numbers)}
    return Job(account=account, operation="convert", input_format="png", output_format="webp", **{**given, **values})


def accept_in(transaction: Transaction, /, job: Job, **values: Any) -> Job:
    for hold in hold_ids(job.job_id, job.holds):
        ledger.reserve(transaction, job.account, 1, UNOWNED, hold)
    return jobs.accept(transaction, job, **{"request": REQUEST, "size": 100, "max_running": 2, **values})


def accept(database: Database, account: str, **values: Any) -> Job:
    stored = {name: values.pop(name) for name in ("request", "size", "max_running", "lane") if name in values}
    return database.run_blocking(accept_in, new_job(account, **values), **stored)


def claim(database: Database, limit: int = 1, owner: ServerInstance = OWNER, *, idle: bool = False) -> list[ClaimedJob]:
    """Claims at most `limit` jobs, one after the other; if `idle`, a suspect only before others."""
    claimed: list[ClaimedJob] = []
    while len(claimed) < limit:
        job = database.run_blocking(job_runs.claim, owner, idle=idle and not claimed).job
        if job is None:
            break
        claimed.append(job)
    return claimed


def left(database: Database) -> list[str]:
    """The ids of the jobs whose servers have stopped."""
    return [job.id for job in database.run_blocking(job_runs.find_left)]


def running(database: Database, owner: ServerInstance) -> list[str]:
    return [job.id for job in database.run_blocking(job_runs.find_running, owner)]


def get(database: Database, job: Job) -> Job:
    return database.run_blocking(jobs.get, job.account, job.job_id)


def complete(transaction: Transaction, job: ClaimedJob) -> Job:
    """Ends a job as a server does after a success."""
    ledger.settle(transaction, Hold(hold_ids(job.id, 1)[0], job.account, 1, 0), USE)
    return job_runs.end(transaction, job, "completed", DAY, result='{"width": 3}', file_id="file_1")


def lanes(database: Database, account: str) -> tuple[int, int, int]:
    """How many jobs of the account wait and run, and the bytes of their inputs."""
    table = models.Lane
    query = table.select(table.waiting, table.running, table.bytes).where(table.account == account)
    ((waiting, running, size),) = database.run_blocking(lambda transaction: transaction.rows(query))
    return waiting, running, size


def credits(database: Database, account: str) -> tuple[int, int]:
    """The credits of the account that are left and that are held."""
    found = database.run_blocking(accounts.get, account)
    held = database.run_blocking(lambda transaction: sum(row.amount for row in transaction.all(models.Hold.select())))
    return found.credits_remaining, held


def test_a_job_is_queued_claimed_and_completed(database: Database, account: str, clock: Clock) -> None:
    queued = accept(database, account, tag="mine", webhook_url="https://example.org/hook")
    assert (queued.status, queued.position, queued.attempts, queued.tag) == ("queued", 0, 0, "mine")
    assert get(database, queued) == queued
    assert (lanes(database, account), credits(database, account)) == ((1, 0, 100), (49, 1))
    assert database.run_blocking(files.stored_bytes, account) == 100
    clock.now += 5

    (claimed,) = claim(database)
    assert (claimed.id, claimed.request, claimed.fence, claimed.attempts) == (queued.job_id, '{"target": "webp"}', 1, 1)
    running = get(database, queued)
    assert (running.status, running.position, running.started_at) == ("processing", None, int(clock.now))
    assert lanes(database, account) == (0, 1, 100)
    assert claim(database) == []

    clock.now += 5
    ended = database.run_blocking(complete, claimed)
    assert (ended.status, ended.result, ended.file_id, ended.has_ended) == ("completed", '{"width": 3}', "file_1", True)
    assert (ended.finished_at, ended.expires_at) == (int(clock.now), int(clock.now) + DAY)
    assert get(database, queued) == ended
    assert (lanes(database, account), credits(database, account)) == ((0, 0, 0), (49, 0))
    assert database.run_blocking(ledger_audit.check) == ()


def test_a_lane_without_a_job_delays_nobody(database: Database, account: str) -> None:
    lane, empty = models.Lane, open_account(database).id
    row = {"account": empty, "waiting": 1, "running": 0, "max_running": 2, "served": -1, "bytes": 0, "proven": 1}
    row["restricted_until"] = 0
    database.run_blocking(lambda transaction: transaction.insert(lane.insert(row)))
    assert not database.run_blocking(job_runs.any_due)
    assert database.run_blocking(job_runs.claim, OWNER) == Claim(None, locked=False, more=True)
    job = accept(database, account)
    assert [claimed.id for claimed in claim(database)] == [job.job_id]


def test_jobs_of_an_account_are_claimed_in_order_and_within_its_limit(database: Database, account: str) -> None:
    accepted = [accept(database, account) for _ in range(4)]
    assert [job.position for job in accepted] == [0, 1, 2, 3]
    claimed = claim(database, 9)
    assert [job.id for job in claimed] == [job.job_id for job in accepted[:2]]
    assert [get(database, job).position for job in accepted] == [None, None, 0, 1]
    database.run_blocking(complete, claimed[0])
    assert [job.id for job in claim(database, 9)] == [accepted[2].job_id]


def test_an_account_has_at_most_a_thousand_jobs(database: Database) -> None:
    account = open_account(database, MAX_UNFINISHED + 2).id

    def accept_many(transaction: Transaction) -> None:
        for _ in range(MAX_UNFINISHED):
            accept_in(transaction, new_job(account))

    database.run_blocking(accept_many)
    with pytest.raises(QueueFull) as refused:
        accept(database, account)
    assert (refused.value.code, refused.value.reason) == ("rate_limit_exceeded", "queue_full")
    (claimed,) = claim(database)
    with pytest.raises(QueueFull):
        accept(database, account)
    assert credits(database, account) == (2, MAX_UNFINISHED)
    database.run_blocking(complete, claimed)
    assert accept(database, account).position == MAX_UNFINISHED - 1


def test_a_lost_run_changes_nothing(database: Database, account: str, clock: Clock) -> None:
    queued = accept(database, account)
    (lost,) = claim(database)
    clock.now += DAY
    assert left(database) == []
    lose(database)
    assert database.run_blocking(job_runs.any_due)
    assert left(database) == [lost.id]
    database.run_blocking(job_runs.requeue, lost, counted=False)
    assert (get(database, queued).status, get(database, queued).attempts) == ("queued", 0)
    assert lanes(database, account) == (1, 0, 100)
    (second,) = claim(database, owner=OTHER)
    assert (second.id, second.fence, second.attempts) == (lost.id, lost.fence + 1, 1)

    with pytest.raises(JobLost):
        database.run_blocking(complete, lost)
    for attempt in (
        lambda transaction: job_runs.end(transaction, lost, "failed", DAY),
        lambda transaction: job_runs.requeue(transaction, lost, counted=True),
        lambda transaction: job_runs.add_entry(transaction, lost, "file_1", {}),
    ):
        with pytest.raises(JobLost):
            database.run_blocking(attempt)
    assert credits(database, account) == (49, 1)
    database.run_blocking(complete, second)
    with pytest.raises(JobLost):
        database.run_blocking(job_runs.end, second, "failed", DAY)
    assert (credits(database, account), lanes(database, account)) == ((49, 0), (0, 0, 0))
    assert database.run_blocking(ledger_audit.check) == ()


def test_the_runs_of_a_server(database: Database, account: str) -> None:
    lost, _ = accept(database, account), accept(database, account)
    (own,), (other,) = claim(database, owner=OWNER), claim(database, owner=OTHER)
    assert (running(database, OWNER), running(database, OTHER)) == ([own.id], [other.id])
    assert not database.run_blocking(job_runs.any_due)
    lose(database, OWNER)
    assert left(database) == [own.id] == [lost.job_id]


def test_jobs_that_crashed_start_last_and_alone(database: Database) -> None:
    """Also those of accounts that were served longer ago, and whose other jobs wait for a free lane."""
    first, second = open_account(database).id, open_account(database).id
    suspects = [accept(database, first, max_running=3) for _ in range(2)]
    for run in claim(database, 2):
        database.run_blocking(job_runs.requeue, run, counted=True, crashed=True)
    later, others = accept(database, first, max_running=3), [accept(database, second) for _ in range(3)]
    started = claim(database, 9, idle=True)
    assert {job.id for job in started} == {job.job_id for job in (later, *others[:2])}
    assert database.run_blocking(job_runs.claim, OWNER) == Claim(None, locked=False, more=True)
    assert database.run_blocking(job_runs.any_due)
    (alone,) = claim(database, 9, idle=True)
    assert (alone.id, alone.attempts, alone.crashes) == (suspects[0].job_id, 2, 1)


@pytest.mark.parametrize(("counted", "crashed"), [(False, False), (True, False), (True, True)])
def test_a_job_is_queued_again(database: Database, account: str, counted: bool, crashed: bool) -> None:
    first, _ = accept(database, account), accept(database, account)
    (claimed,) = claim(database)
    database.run_blocking(job_runs.requeue, claimed, counted=counted, crashed=crashed)
    assert (get(database, first).status, get(database, first).attempts) == ("queued", int(counted))
    assert lanes(database, account) == (2, 0, 200)
    again = next(job for _ in range(2) for job in claim(database, idle=True) if job.id == first.job_id)
    assert (again.attempts, again.crashes) == (1 + counted, int(crashed))


def test_a_failed_job_returns_its_credits(database: Database, account: str) -> None:
    queued = accept(database, account, holds=3, total=5)
    assert credits(database, account) == (47, 3)
    (claimed,) = claim(database)
    for file_id in ("file_1", "file_2", "file_2"):
        database.run_blocking(job_runs.add_entry, claimed, file_id, {"status": "failed"})
    assert (get(database, queued).done, get(database, queued).total) == (2, 5)
    assert database.run_blocking(ledger.find_open, hold_ids(claimed.id, 4)) == [*hold_ids(claimed.id, 3)]
    ended = database.run_blocking(job_runs.end, claimed, "failed", DAY, error='{"code": "processing_failed"}')
    assert (ended.status, ended.error, ended.result) == ("failed", '{"code": "processing_failed"}', None)
    assert (credits(database, account), lanes(database, account)) == ((50, 0), (0, 0, 0))


def test_a_batch_pays_for_each_file(database: Database, account: str) -> None:
    accept(database, account, holds=3)
    (claimed,) = claim(database)
    for hold in hold_ids(claimed.id, 2):
        database.run_blocking(ledger.settle, Hold(hold, account, 1, 0), USE)
    database.run_blocking(job_runs.end, claimed, "completed", DAY, result="{}")
    assert credits(database, account) == (48, 0)
    assert database.run_blocking(ledger_audit.check) == ()


@pytest.mark.parametrize("claimed", [False, True])
def test_a_job_is_cancelled(database: Database, account: str, claimed: bool, clock: Clock) -> None:
    queued = accept(database, account)
    runs = claim(database) if claimed else []
    cancelled = database.run_blocking(jobs.cancel, account, queued.job_id, DAY)
    assert cancelled is not None
    assert (cancelled.status, cancelled.finished_at, cancelled.position) == ("cancelled", int(clock.now), None)
    assert (credits(database, account), lanes(database, account)) == ((50, 0), (0, 0, 0))
    assert claim(database) == []
    for run in runs:
        assert running(database, OWNER) == []
        with pytest.raises(HoldLost):
            database.run_blocking(complete, run)
    assert database.run_blocking(jobs.cancel, account, queued.job_id, DAY) is None
    assert database.run_blocking(ledger_audit.check) == ()


def test_a_job_without_credits_is_not_accepted(database: Database) -> None:
    account = open_account(database, 1).id
    with pytest.raises(NoCredits):
        accept(database, account, holds=2)
    assert credits(database, account) == (1, 0)
    assert database.run_blocking(jobs.list_page, account, limit=10).values == ()


def test_jobs_are_listed_newest_first(database: Database, account: str, clock: Clock) -> None:
    accepted = [accept(database, account, tag=tag) for tag in ("a", "b", "a", "b")]
    (claimed,) = claim(database)
    database.run_blocking(complete, claimed)
    accept(database, open_account(database).id)

    def found(limit: int = 10, **chosen: Any) -> list[str]:
        return [job.job_id for job in database.run_blocking(jobs.list_page, account, limit=limit, **chosen).values]

    first, second, third, last = (job.job_id for job in accepted)
    assert found() == [last, third, second, first]
    assert found(2) == [last, third]
    cursor = database.run_blocking(jobs.list_page, account, limit=2).next_cursor
    assert found(2, cursor=cursor) == [second, first]
    assert found(tag="a") == [third, first]
    assert found(status="queued") == [last, third, second]
    assert found(status="completed", tag="b") == []
    assert {job.job_id for job in database.run_blocking(jobs.read_all, [first, last, "job_none"])} == {first, last}
    clock.now += DAY
    assert found() == [last, third, second]


def test_ended_jobs_are_deleted(database: Database, account: str, clock: Clock) -> None:
    queued = accept(database, account)
    with pytest.raises(JobLost):
        database.run_blocking(jobs.delete, account, queued.job_id)
    (claimed,) = claim(database)
    database.run_blocking(complete, claimed)
    stranger = open_account(database).id
    for attempt in (jobs.get, jobs.delete):
        with pytest.raises(NotFound):
            database.run_blocking(attempt, stranger, queued.job_id)
    assert database.run_blocking(jobs.delete, account, queued.job_id).file_id == "file_1"
    with pytest.raises(NotFound):
        get(database, queued)

    expiring, waiting = accept(database, account), accept(database, account)
    (claimed,) = claim(database)
    database.run_blocking(complete, claimed)
    clock.now += DAY
    with pytest.raises(NotFound):
        get(database, expiring)
    assert database.run_blocking(jobs.delete_expired, 10) == 1
    assert get(database, waiting).status == "queued"


@pytest.mark.parametrize(
    "job_id", ["", "job_1", "file_0123456789012345678901", "job_\x00", "job_0123456789012345678901"]
)
def test_unknown_and_malformed_ids_are_not_found(database: Database, account: str, job_id: str) -> None:
    for attempt in (jobs.get, jobs.delete):
        with pytest.raises(NotFound):
            database.run_blocking(attempt, account, job_id)
    with pytest.raises(NotFound):
        database.run_blocking(jobs.cancel, account, job_id, DAY)


def test_inputs_are_kept_until_the_job_ends(database: Database, account: str) -> None:
    queued = accept(database, account, inputs=2)
    assert queued.blobs == (f"{queued.job_id}.0", f"{queued.job_id}.1")
    asked = [*queued.blobs, "blob_1", "job_0123456789012345678901.0"]
    assert database.run_blocking(jobs.referenced_blobs, asked) == {*queued.blobs}
    (claimed,) = claim(database)
    assert database.run_blocking(jobs.referenced_blobs, asked) == {*queued.blobs}
    database.run_blocking(complete, claimed)
    assert database.run_blocking(jobs.referenced_blobs, asked) == frozenset()


def test_a_deleted_account_has_no_jobs(database: Database) -> None:
    account = open_account(database)
    waiting, running = (accept(database, account.id) for _ in range(2))
    claimed = claim(database)
    blobs = database.run_blocking(accounts.delete, account.email)
    assert {*blobs} == {*waiting.blobs, *running.blobs}
    assert database.run_blocking(jobs.read_all, [waiting.job_id, running.job_id]) == ()
    assert credits(database, account.id) == (50, 0)
    with pytest.raises(JobLost):
        database.run_blocking(job_runs.end, claimed[0], "failed", DAY)


def test_the_state_of_the_queue(database: Database, account: str, clock: Clock) -> None:
    assert vars(database.run_blocking(jobs.read_state)) == {"waiting": 0, "running": 0, "oldest": 0}
    assert not database.run_blocking(job_runs.any_due)
    for _ in range(3):
        accept(database, account)
        clock.now += 10
    assert database.run_blocking(job_runs.any_due)
    claim(database)
    assert vars(database.run_blocking(jobs.read_state)) == {"waiting": 2, "running": 1, "oldest": 20}
