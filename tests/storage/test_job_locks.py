"""Transactions about jobs of an account lock rows in one order: on PostgreSQL, none ends in a deadlock."""

import asyncio
import random
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial

import psycopg
import pytest

from storage.database import Database, Transaction, by_account
from storage.errors import HoldLost, JobLost
from storage.tables import job_runs, jobs, ledger, ledger_audit, servers, webhooks
from storage.tables.job_runs import NOTHING, ClaimedJob
from storage.tables.jobs import UNOWNED, Job, LaneRecord, hold_ids
from storage.tables.ledger import Hold
from tests.conftest import MakeUrl
from tests.support.samples.storage import OWNER, USE, open_account
from web.services.jobs.jobs import finish

_JOBS = 80
_CROWD = LaneRecord("address 192.0.2.1")  # both accounts are charged together
_DEADLOCKS = "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()"


@pytest.fixture
def url(new_postgres_url: MakeUrl) -> str:
    return new_postgres_url()


def accept(transaction: Transaction, account: str) -> None:
    url = f"https://{random.choice('abc')}.example"
    job = Job(account=account, operation="convert", input_format="png", output_format="webp", webhook_url=url)
    ledger.reserve(transaction, account, 1, UNOWNED, *hold_ids(job.job_id, 1))
    jobs.accept(transaction, job, request="{}", max_running=_JOBS, lane=_CROWD)


@by_account
def settle(transaction: Transaction, _account: str, job: ClaimedJob) -> None:
    ledger.settle(transaction, Hold(job.hold_ids[0], job.account, 1, 0), USE)
    finish(transaction, job, "completed", 60, use=NOTHING)


def claim_all(database: Database) -> list[ClaimedJob]:
    return [job for _ in range(_JOBS) if (job := database.run_blocking(job_runs.claim, OWNER).job)]


async def end(database: Database, claimed: Sequence[ClaimedJob]) -> None:
    """Settles jobs, several in a transaction. Those whose lease has expired can be lost to the other server."""

    async def end_one(job: ClaimedJob) -> None:
        with suppress(HoldLost, JobLost):
            await database.run(settle, job.account, job)

    await asyncio.gather(*map(end_one, claimed))


async def disturb(database: Database, claimed: Sequence[ClaimedJob]) -> None:
    """Does what a server does besides that. Some jobs are cancelled, some fail, and some are queued again."""
    for job in claimed:
        work: list[Callable[[Transaction], object]] = [
            servers.give_back,
            partial(jobs.cancel, account=job.account, job_id=job.id, retention=60),
            partial(finish, job=job, status="failed", retention=60, error="{}", use=NOTHING),
            partial(job_runs.requeue, job=job, counted=False),
            partial(job_runs.charge, account=job.account, crowd=_CROWD.crowd, seconds=2.0),
        ]
        with suppress(JobLost):
            await database.run(random.choice(work))


async def test_no_transactions_wait_for_each_other(url: str) -> None:
    first, second = Database(url), Database(url)
    try:
        accounts = [open_account(first, _JOBS).id for _ in range(2)]
        first.run_blocking(servers.beat, replace(OWNER, boot="later"))  # all runs count as left
        for account in accounts:
            for host in "abc":
                first.run_blocking(webhooks.add, account, f"https://{host}.example/", webhooks.EVENTS)
            for _ in range(_JOBS // 2):
                first.run_blocking(accept, account)
        while claimed := claim_all(first):
            random.shuffle(claimed)
            shuffled = random.sample(claimed, len(claimed))
            await asyncio.gather(end(first, claimed), disturb(second, shuffled), disturb(second, shuffled[::-1]))
        assert not first.run_blocking(ledger_audit.check)
        done = [job for account in accounts for job in first.run_blocking(jobs.list_page, account, limit=_JOBS).values]
        assert all(job.has_ended for job in done)
    finally:
        first.close()
        second.close()
    with psycopg.connect(url) as connection:
        assert connection.execute(_DEADLOCKS).fetchone() == (0,)
