"""A claim takes as long with a million queued jobs as with a few."""

from collections import Counter
from statistics import median
from time import monotonic

import pytest

from storage.database import Database, Transaction
from storage.database.transaction import Statement
from storage.tables import job_runs, jobs, ledger, models
from storage.tables.jobs import UNOWNED, Job, hold_ids
from tests.support.samples.storage import OWNER, open_account

QUEUED, CHUNK, ACCOUNTS = 1_000_000, 50_000, 200  # jobs, rows of an INSERT, accounts
LONGEST = 0.005  # seconds

# The jobs are spread over the lanes, which are numbered by `served`.
COPY_JOB = Statement(
    """
    WITH RECURSIVE numbers(n) AS (SELECT CAST(:first AS BIGINT) UNION ALL SELECT n + 1 FROM numbers WHERE n < :last)
    INSERT INTO job (id, account, number, state, operation, input_format, output_format, request, inputs, size, holds,
                     done, fence, attempts, crashes, created_at)
    SELECT 'job_copy' || n, lane.account, job.number + n, 'queued', operation, input_format, output_format, request, 0,
           0, 1, 0, 0, 0, 0, created_at FROM numbers, job, lane
    WHERE job.id = :job AND lane.served = n - n / :accounts * :accounts
    """
)


def accept(transaction: Transaction, account: str) -> Job:
    job = Job(account=account, operation="convert", input_format="png", output_format="webp")
    ledger.reserve(transaction, account, 1, UNOWNED, *hold_ids(job.job_id, 1))
    return jobs.accept(transaction, job, request='{"target": "webp"}', max_running=2)


@pytest.mark.long
@pytest.mark.both_databases
def test_a_claim_takes_as_long_with_a_million_queued_jobs(database: Database) -> None:
    own, lane = [open_account(database).id for _ in range(ACCOUNTS)], models.Lane
    accepted = [database.run_blocking(accept, account) for account in own]

    def number_lanes(transaction: Transaction) -> None:
        for number, account in enumerate(own):
            numbered = lane.update(served=number, waiting=QUEUED // ACCOUNTS + 1)
            transaction.execute(numbered.where(lane.account == account))

    def copy(transaction: Transaction, first: int) -> None:
        rows = {"first": first, "last": first + CHUNK - 1}
        transaction.execute_statement(COPY_JOB, **rows, job=accepted[0].job_id, accounts=ACCOUNTS)

    database.run_blocking(number_lanes)
    for first in range(0, QUEUED, CHUNK):
        database.run_blocking(copy, first)
    assert database.run_blocking(jobs.read_state).waiting == QUEUED + ACCOUNTS
    seconds, claimed = [], Counter[str]()
    for _ in own:
        begun = monotonic()
        job = database.run_blocking(job_runs.claim, OWNER).job
        seconds.append(monotonic() - begun)
        assert job is not None
        claimed[job.account] += 1
    assert set(claimed.values()) == {1}
    assert median(seconds) < LONGEST, sorted(seconds)
