"""Servers: what one owns is given back once, when it has stopped, and what a paused one still does changes nothing."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import pytest

from storage.database import Database, Transaction
from storage.errors import ClaimLost, HoldLost, JobLost
from storage.tables import (
    batches,
    deliveries,
    idempotency,
    job_runs,
    jobs,
    ledger,
    ledger_audit,
    models,
    receivers,
    servers,
)
from storage.tables.idempotency import Claim, InProgress, StoredResponse
from storage.tables.jobs import Job
from storage.tables.ledger import FOREVER, ServerInstance
from storage.tables.servers import TIMEOUT
from tests.support.samples.storage import DAY, OWNER, USE, Clock, lose, open_account

pytestmark = pytest.mark.both_databases

OTHER = ServerInstance("other", "boot-1")


class Work:
    """What a server owns of each kind, in an account of 50 credits."""

    def __init__(self, database: Database, owner: ServerInstance) -> None:
        self.database = database
        self.account = account = open_account(database, 50).id
        run = database.run_blocking
        run(servers.beat, owner)
        self.hold = run(ledger.reserve, account, 3, owner)
        self.claim = idempotency.new_claim(account, "/convert", "key", owner)
        assert run(idempotency.begin, self.claim, "f") == self.claim
        self.batch = run(batches.create, account, "png", 10 * DAY).batch_id
        run(batches.begin, account, self.batch, "png", owner)
        run(deliveries.add, account, "job.completed", dict, "http://10.0.0.1/")
        (self.receiver,) = run(receivers.claim, owner, 10, 10, {})
        run(_accept, account)
        job = run(job_runs.claim, owner).job
        assert job is not None
        self.job = job

    def owned(self, owner: ServerInstance = OTHER) -> list[bool]:
        """Whether each kind is owned: a hold, an idempotency key, the run of a batch, a receiver, a job."""
        run = self.database.run_blocking
        run(ledger.release_expired)
        claim = idempotency.new_claim(self.account, "/convert", "key", owner)
        return [
            run(_held, self.account) == 3,
            isinstance(run(idempotency.find, claim, "f"), InProgress),
            run(batches.get, self.account, self.batch).running,
            run(receivers.oldest_due) is None,
            self.job.id not in [job.id for job in run(job_runs.find_left)],
        ]


def _accept(transaction: Transaction, account: str) -> None:
    job = Job(account=account, operation="convert", input_format="png", output_format="jpg")
    jobs.accept(transaction, job, request="{}", size=1, max_running=2)


def _held(transaction: Transaction, account: str) -> int:
    row = transaction.first(models.Account.select().where(models.Account.id == account))
    return 0 if row is None else int(row.credits_held)


def test_what_a_silent_server_owns_is_given_back(database: Database, clock: Clock) -> None:
    work, of_other = Work(database, OWNER), Work(database, OTHER)
    clock.now += TIMEOUT - 1
    assert not database.run_blocking(servers.any_stopped)
    database.run_blocking(servers.beat, OTHER)
    clock.now += 1
    assert work.owned() == [True] * 5
    assert database.run_blocking(servers.any_stopped)
    database.run_blocking(servers.give_back)
    assert work.owned() == [False] * 5
    assert of_other.owned() == [True] * 3 + [False, True]  # a receiver of the first one is due
    assert database.run_blocking(ledger.balance, work.account) == 50
    assert database.run_blocking(ledger_audit.check) == ()


@pytest.mark.parametrize("how", ["starts again", "leaves"])
def test_what_an_earlier_run_owns_is_given_back_at_once(database: Database, how: str) -> None:
    work, of_other = Work(database, OWNER), Work(database, OTHER)
    if how == "leaves":
        database.run_blocking(servers.leave, OWNER)
        database.run_blocking(servers.give_back)
    else:
        database.run_blocking(servers.beat, replace(OWNER, boot="boot-2"))
        database.run_blocking(servers.give_back, FOREVER)
    assert work.owned() == [False] * 5
    assert of_other.owned() == [True] * 3 + [False, True]


def test_a_server_that_was_paused_changes_nothing(database: Database) -> None:
    work = Work(database, OWNER)
    lose(database)
    database.run_blocking(ledger.release_expired)
    again = idempotency.new_claim(work.account, "/convert", "key", OTHER)
    assert isinstance(database.run_blocking(idempotency.begin, again, "f"), Claim)
    (receiver,) = database.run_blocking(receivers.claim, OTHER, 10, 10, {})
    (left,) = database.run_blocking(job_runs.find_left)
    database.run_blocking(job_runs.requeue, left, counted=True, crashed=True)
    taken = database.run_blocking(job_runs.claim, OTHER, idle=True).job
    assert taken is not None
    assert taken.fence == work.job.fence + 1
    attempts: list[tuple[type[Exception], Callable[[Transaction], object]]] = [
        (HoldLost, partial(ledger.settle, hold=work.hold, record=USE)),
        (ClaimLost, partial(idempotency.finish, claim=work.claim, stored=StoredResponse(200))),
        (JobLost, partial(job_runs.end, job=work.job, status="failed", retention=DAY)),
        (JobLost, partial(job_runs.requeue, job=work.job, counted=True)),
    ]
    for error, attempt in attempts:
        with pytest.raises(error):
            database.run_blocking(attempt)
    database.run_blocking(receivers.release, work.receiver, 0)
    database.run_blocking(idempotency.abandon, work.claim)
    database.run_blocking(servers.give_back)
    assert database.run_blocking(receivers.oldest_due) is None
    database.run_blocking(receivers.release, receiver, 0)
    assert database.run_blocking(receivers.oldest_due) is not None
    assert [job.id for job in database.run_blocking(job_runs.find_running, OTHER)] == [taken.id]
    assert database.run_blocking(ledger.balance, work.account) == 50


def test_what_a_server_owns_after_a_pause_is_given_back_too(database: Database, clock: Clock) -> None:
    database.run_blocking(servers.beat, OWNER)
    clock.now += TIMEOUT
    database.run_blocking(servers.give_back)
    hold = database.run_blocking(ledger.reserve, open_account(database, 5).id, 2, OWNER)  # before a sign of life
    database.run_blocking(servers.give_back)
    assert database.run_blocking(ledger.release_expired) == 1
    assert database.run_blocking(ledger.release, hold.account, hold.id) == 5


def test_leases_of_the_previous_release_last(database: Database, clock: Clock) -> None:
    """Its servers have no row, and renew what they own."""
    work = Work(database, OTHER)
    run, until = database.run_blocking, int(clock.now) + 60
    run(Transaction.execute, models.Server.delete())
    run(Transaction.execute, models.Hold.update(expires_at=until).where(models.Hold.id == work.hold.id))
    for table in (models.Idempotency, models.Run, models.Job):
        run(Transaction.execute, table.update(lease_until=until))
    clock.now += 59
    run(servers.give_back)
    assert work.owned(OWNER) == [True] * 5
    clock.now += 1
    assert work.owned(OWNER) == [False, False, False, True, False]
