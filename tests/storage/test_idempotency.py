"""Idempotency keys."""

import asyncio
from functools import partial

import pytest

from storage.database import Database, Transaction
from storage.errors import ClaimLost
from storage.tables import idempotency, ledger, ledger_audit, models
from storage.tables.idempotency import Claim, ClaimOutcome, InProgress, KeyMismatch, Replay, StoredResponse
from tests.support.samples.storage import OWNER, Clock, lose, open_account, settle_and

pytestmark = pytest.mark.both_databases

ANSWER = StoredResponse(200, {"Content-Type": "image/webp", "X-Name": "größe"}, '{"data": {"é": 1}}', "file_1")


def begin(
    database: Database, account: str, fingerprint: str = "f", path: str = "/convert", key: str = "k"
) -> ClaimOutcome:
    return database.run_blocking(idempotency.begin, idempotency.new_claim(account, path, key, OWNER), fingerprint)


def fresh(database: Database, account: str, fingerprint: str = "f") -> Claim:
    outcome = begin(database, account, fingerprint)
    assert isinstance(outcome, Claim)
    return outcome


@pytest.mark.parametrize("answer", [ANSWER, StoredResponse(200)])
def test_responses_are_replayed(database: Database, account: str, answer: StoredResponse) -> None:
    database.run_blocking(idempotency.finish, fresh(database, account), answer)
    assert begin(database, account) == Replay(answer)


def test_a_running_attempt_owns_the_key(database: Database, account: str, clock: Clock) -> None:
    fresh(database, account)
    clock.now += 20
    assert begin(database, account) == InProgress(20)


def test_a_key_belongs_to_one_request(database: Database, account: str) -> None:
    claim = fresh(database, account)
    assert begin(database, account, "other") == KeyMismatch()
    database.run_blocking(idempotency.finish, claim, ANSWER)
    assert begin(database, account, "other") == KeyMismatch()


def test_keys_are_separate_by_account_and_path(database: Database, account: str) -> None:
    fresh(database, account)
    other = open_account(database).id
    for outcome in (
        begin(database, other),
        begin(database, account, path="/pdf/merge"),
        begin(database, account, key="K"),
    ):
        assert isinstance(outcome, Claim)


def test_an_abandoned_key_is_free_for_any_request(database: Database, account: str) -> None:
    database.run_blocking(idempotency.abandon, fresh(database, account))
    fresh(database, account, "other")


def test_a_key_can_be_claimed_after_its_lease(database: Database, account: str, clock: Clock) -> None:
    crashed = fresh(database, account)
    clock.now += 60
    assert begin(database, account) == InProgress(60)
    assert begin(database, account, "other") == KeyMismatch()
    lose(database)
    second = fresh(database, account)
    with pytest.raises(ClaimLost):
        database.run_blocking(idempotency.finish, crashed, ANSWER)
    database.run_blocking(idempotency.abandon, crashed)
    assert begin(database, account) == InProgress(0)
    database.run_blocking(idempotency.finish, second, ANSWER)
    assert begin(database, account) == Replay(ANSWER)
    database.run_blocking(idempotency.abandon, second)
    assert begin(database, account) == Replay(ANSWER)


def test_a_lost_claim_is_not_charged(database: Database, account: str) -> None:
    late = fresh(database, account)
    hold = database.run_blocking(ledger.reserve, account, 1, OWNER)
    lose(database)
    fresh(database, account)
    finish = partial(idempotency.finish, claim=late, stored=ANSWER)
    with pytest.raises(ClaimLost):
        database.run_blocking(settle_and, hold, finish)
    assert database.run_blocking(ledger.release, account, hold.id) == 50
    assert database.run_blocking(ledger_audit.check) == ()


def test_responses_are_kept_for_24_hours(database: Database, account: str, clock: Clock) -> None:
    database.run_blocking(idempotency.finish, fresh(database, account), ANSWER)
    clock.now += 86_399
    assert begin(database, account) == Replay(ANSWER)
    clock.now += 1
    fresh(database, account, "other")
    assert begin(database, account, "other") == InProgress(0)


def test_only_old_and_idle_keys_are_deleted(database: Database, account: str, clock: Clock) -> None:
    database.run_blocking(idempotency.finish, fresh(database, account), ANSWER)
    database.run_blocking(idempotency.begin, idempotency.new_claim(account, "/convert", "long", OWNER), "f")
    previous = idempotency.new_claim(account, "/convert", "crashed", OWNER)
    database.run_blocking(idempotency.begin, previous, "f")
    with_lease = models.Idempotency.update(lease_until=int(clock.now)).where(models.Idempotency.key == "crashed")
    database.run_blocking(Transaction.execute, with_lease)
    clock.now += 86_399
    database.run_blocking(idempotency.begin, idempotency.new_claim(account, "/convert", "young", OWNER), "f")
    assert database.run_blocking(idempotency.delete_expired) == 0
    clock.now += 1
    assert database.run_blocking(idempotency.delete_expired) == 2
    rows = database.run_blocking(lambda transaction: transaction.all(models.Idempotency.select()))
    assert {row.key for row in rows} == {"long", "young"}


async def test_one_of_many_concurrent_attempts_runs(database: Database, account: str) -> None:
    for round_ in range(20):
        attempts = (
            database.run(idempotency.begin, idempotency.new_claim(account, "/p", f"{round_}", OWNER), "f")
            for _ in range(20)
        )
        outcome = await asyncio.gather(*attempts)
        assert sorted(type(one).__name__ for one in outcome) == ["Claim", *["InProgress"] * 19]


async def test_one_of_many_attempts_takes_over_a_lost_key(database: Database, account: str) -> None:
    for _ in range(20):
        await database.run(idempotency.begin, idempotency.new_claim(account, "/p", "k", OWNER), "f")
        await asyncio.to_thread(lose, database)
        claim = partial(idempotency.new_claim, account, "/p", "k", OWNER)
        attempts = (database.run(idempotency.begin, claim(), "f") for _ in range(20))
        outcome = await asyncio.gather(*attempts)
        assert sorted(type(one).__name__ for one in outcome) == ["Claim", *["InProgress"] * 19]
        await asyncio.to_thread(lose, database)
