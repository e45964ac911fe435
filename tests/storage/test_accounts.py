"""Accounts, free credits once, reports of usage, and the latest requests of each account."""

import asyncio
from calendar import timegm
from dataclasses import replace
from functools import partial
from typing import Any

import peewee
import pytest

from storage.database import Database, Transaction
from storage.errors import EmailTaken, InvalidKey, NoCredits, NotFound
from storage.tables import (
    accounts,
    api_keys,
    audit,
    batches,
    email_verification,
    files,
    idempotency,
    ledger,
    ledger_audit,
    models,
    request_log,
    sessions,
    usage,
)
from storage.tables.api_keys import IssuedKey, parse_key
from storage.tables.idempotency import Claim
from storage.tables.request_log import MAX_REQUESTS, LoggedRequest
from storage.tables.usage import DayUsage, PairUsage, UsageRecord, UsageReport
from tests.support.samples.storage import CONVERTED, DAY, OWNER, SOURCE, USE, Clock, open_account, read_totals

JANUARY = timegm((2030, 1, 1, 0, 0, 0))


def test_a_new_account(database: Database, clock: Clock) -> None:
    account = database.run_blocking(accounts.create, " Ada@Example.org ", "Engine", free_credits=50)
    assert (account.email, account.name, account.credits_remaining) == ("Ada@Example.org", "Engine", 50)
    assert (account.credits_held, account.last_used_at) == (0, None)
    assert (account.credits_total_purchased, account.credits_used_total) == (0, 0)
    assert account.verified_at == account.created_at == int(clock.now)
    assert database.run_blocking(accounts.get, account.id) == account
    assert database.run_blocking(accounts.find, "ada@EXAMPLE.org") == account


def test_an_account_may_be_unverified(database: Database, clock: Clock) -> None:
    account = database.run_blocking(accounts.create, "a@b.org", "Engine", free_credits=0, verified=False)
    assert (account.verified_at, account.credits_remaining) == (None, 0)
    for _ in range(2):
        database.run_blocking(accounts.mark_verified, account.id)
        clock.now += 10
    assert database.run_blocking(accounts.get, account.id).verified_at == int(clock.now) - 20


@pytest.mark.parametrize("spelling", ["ÄDA@EXAMPLE.ORG", "A\u0308da@example.org", "äda@example.org "])
def test_addresses_are_unique_regardless_of_case(database: Database, spelling: str) -> None:
    database.run_blocking(accounts.create, "Äda@example.org", "Engine", free_credits=50)
    with pytest.raises(EmailTaken):
        database.run_blocking(accounts.create, spelling, "Engine", free_credits=50)
    assert len(database.run_blocking(lambda transaction: transaction.all(models.Account.select()))) == 1


@pytest.mark.both_databases
async def test_concurrent_creations_of_one_address(database: Database) -> None:
    attempts = (database.run(accounts.create, "a@b.org", "Engine", free_credits=50) for _ in range(20))
    results = await asyncio.gather(*attempts, return_exceptions=True)
    assert sorted(type(result).__name__ for result in results) == [*["EmailTaken"] * 19, "StoredAccount"]
    entries = await database.run(lambda transaction: transaction.all(models.Entry.select()))
    assert [(entry.kind, entry.amount) for entry in entries] == [("grant", 50)]


def test_credits_are_granted_by_address(database: Database) -> None:
    database.run_blocking(accounts.create, "a@b.org", "Engine", free_credits=50)
    assert database.run_blocking(accounts.grant, "A@B.org", 5) == 55
    assert database.run_blocking(accounts.grant, "a@b.org", 5, ref="birthday") == 60
    assert database.run_blocking(accounts.grant, "a@b.org", 5, ref="birthday") == 60
    assert database.run_blocking(ledger_audit.check) == ()
    with pytest.raises(NotFound):
        database.run_blocking(accounts.grant, "b@b.org", 5)


def test_a_verification_link_is_valid_for_a_day(database: Database, clock: Clock) -> None:
    first, second = (
        database.run_blocking(email_verification.register, f"{name}@example.org", "Engine") for name in ("ada", "bob")
    )
    verify = partial(email_verification.verify, free_credits=50)
    clock.now += 24 * 3600 - 1
    assert database.run_blocking(verify, first.token).account.credits_remaining == 50
    clock.now += 1
    with pytest.raises(NotFound):
        database.run_blocking(verify, second.token)


def test_all_credits_can_be_removed_but_no_more(database: Database) -> None:
    database.run_blocking(accounts.create, "a@b.org", "Engine", free_credits=50)
    with pytest.raises(NoCredits):
        database.run_blocking(accounts.grant, "a@b.org", -51, reason="too many")
    assert database.run_blocking(accounts.grant, "a@b.org", -50, reason="all") == 0
    with pytest.raises(NoCredits):
        database.run_blocking(accounts.grant, "a@b.org", -1, reason="more")
    assert database.run_blocking(ledger_audit.check) == ()


def test_unknown_accounts_are_not_found(database: Database) -> None:
    assert database.run_blocking(accounts.find, "a@b.org") is None
    with pytest.raises(NotFound) as caught:
        database.run_blocking(accounts.get, "acct_of_nobody")
    assert caught.value.code == "not_found"


def _used_account(database: Database, email: str, name: str) -> tuple[str, IssuedKey, str]:
    """An account with rows in every table: its id, its key and the token of its session."""
    run = database.run_blocking
    run(email_verification.register, email.upper(), name)
    registration = run(email_verification.register, email, name)
    verified = run(email_verification.verify, registration.token, free_credits=50)
    account, issued = verified.account.id, verified.issued
    token, _ = run(sessions.begin, parse_key(issued.text))
    run(ledger.settle, run(ledger.reserve, account, 2, OWNER), USE)
    run(ledger.reserve, account, 3, OWNER)
    run(files.add_processed, account, replace(SOURCE, source=f"up_{name}"), replace(CONVERTED, blob=f"r_{name}"), DAY)
    batch = run(batches.create, account, "png", DAY)
    run(batches.add_file, account, batch.batch_id, replace(SOURCE, source=f"b_{name}"), 5, DAY)
    run(batches.begin, account, batch.batch_id, "webp", OWNER)
    run(idempotency.begin, Claim(account, "/convert", "key", "attempt"), "fingerprint")
    run(request_log.record, [LoggedRequest(f"req_{name}", account, "GET", "/account", 200, None, 3, 1)])
    run(email_verification.register, email, name)
    return account, issued, token


@pytest.mark.both_databases
def test_a_deleted_account_leaves_only_its_ledger(database: Database) -> None:
    run = database.run_blocking
    account, issued, token = _used_account(database, "ada@example.org", "ada")
    other, other_key, other_token = _used_account(database, "bob@example.org", "bob")
    balance = run(accounts.get, account).credits_remaining

    assert run(accounts.delete, "ADA@example.org") == ("b_ada", "r_ada", "up_ada")

    for function, secret in ((api_keys.authenticate, parse_key(issued.text)), (sessions.find, token)):
        with pytest.raises(InvalidKey):
            run(function, secret)
    left = run(accounts.get, account)
    assert (left.email, left.name) == ("", "")
    assert (left.credits_remaining, left.credits_held, left.credits_used_total) == (balance, 3, 2)
    assert run(ledger_audit.check) == ()
    for table in (models.Key, models.File, models.Batch, models.Idempotency, models.Request):
        query: peewee.ModelSelect[Any] = table.select(table.account)
        assert set(run(Transaction.rows, query)) == {(other,)}
    tokens = run(Transaction.all, models.Verification.select())
    assert {token.email for token in tokens} == {"bob@example.org", "BOB@EXAMPLE.ORG"}
    assert len(run(Transaction.all, models.Usage.select())) == 2
    assert run(api_keys.authenticate, parse_key(other_key.text))[0].id == other
    assert run(sessions.find, other_token)[0].id == other


@pytest.mark.both_databases
def test_a_deleted_address_can_have_another_account(database: Database) -> None:
    run = database.run_blocking
    first = run(accounts.create, "ada@example.org", "Engine", free_credits=50)
    run(accounts.delete, "ada@example.org")
    assert run(accounts.find, "ada@example.org") is None
    assert run(accounts.list_all) == ()
    assert (read_totals(database).free_accounts, read_totals(database).balance) == (0, 0)
    with pytest.raises(NotFound):
        run(accounts.delete, "ada@example.org")

    second = run(accounts.create, "ada@example.org", "Engine", free_credits=5)

    assert run(accounts.list_all) == (second,)
    assert second.id != first.id


def test_accounts_are_listed_in_the_order_of_their_creation(database: Database, clock: Clock) -> None:
    for email in ("c@b.org", "a@b.org", "b@b.org"):
        database.run_blocking(accounts.create, email, "Engine", free_credits=0)
        clock.now += 1
    assert [account.email for account in database.run_blocking(accounts.list_all)] == ["c@b.org", "a@b.org", "b@b.org"]


@pytest.mark.parametrize(
    ("email", "mailbox"),
    [
        ("Ann+news@Example.org ", "ann@example.org"),
        ("a.n.n@example.org", "a.n.n@example.org"),
        ("A.N.N+1@googlemail.com", "ann@gmail.com"),
        ("+tag@example.org", "+tag@example.org"),
    ],
)
def test_mailboxes(email: str, mailbox: str) -> None:
    assert accounts.mailbox(email) == mailbox


def test_a_mailbox_gets_free_credits_once_a_day(database: Database, clock: Clock) -> None:
    def credits(email: str) -> int:
        create = partial(accounts.create, name="n", free_credits=50, once_per_mailbox=True)
        return database.run_blocking(create, email).credits_remaining

    clock.now = 10 * DAY
    assert [credits(email) for email in ("a@b.org", "a+1@b.org", "a+2@B.org", "c@b.org")] == [50, 0, 0, 50]
    clock.now += DAY
    assert [credits(email) for email in ("a+3@b.org", "a+4@b.org")] == [50, 0]
    assert database.run_blocking(ledger_audit.check) == ()


def record(database: Database, account: str, use: UsageRecord, *, success: bool = True, credits: int = 1) -> None:
    database.run_blocking(usage.record, account, use, success=success, credits=credits)


def test_a_report_without_usage(database: Database) -> None:
    report = database.run_blocking(usage.report, open_account(database).id, 0, 2 * JANUARY)
    operations = {"convert": 0, "batch": 0, "pdf_merge": 0, "pdf_delete_pages": 0}
    assert report == UsageReport(0, 2 * JANUARY, 0, 0, 0, 0, 0, 0, 0, operations, (), ())


def test_the_report_of_a_period(database: Database, clock: Clock) -> None:
    account, other = open_account(database).id, open_account(database).id
    clock.now = JANUARY + 0.9
    record(database, account, UsageRecord("convert", "png", "webp", 100, 40))
    record(database, account, UsageRecord("convert", "png", "webp", 100), success=False, credits=0)
    record(database, other, UsageRecord("convert", "png", "webp", 7, 7))
    clock.now = JANUARY + 2 * DAY - 1
    record(database, account, UsageRecord("batch", "png", "webp", 10**12, 10**12))
    clock.now += 1
    record(database, account, UsageRecord("pdf_merge", "pdf", "pdf", 20, 20))
    record(database, account, UsageRecord("pdf_split", "pdf", "pdf", 10, 9))
    report = database.run_blocking(usage.report, account, JANUARY, JANUARY + 31 * DAY)
    assert report == UsageReport(
        start=JANUARY,
        end=JANUARY + 31 * DAY,
        total_conversions=5,
        successful_conversions=4,
        failed_conversions=1,
        credits_used=4,
        bytes_in=10**12 + 230,
        bytes_out=10**12 + 69,
        bytes_total=2 * 10**12 + 299,
        by_operation={"convert": 2, "batch": 1, "pdf_merge": 1, "pdf_delete_pages": 0, "pdf_split": 1},
        by_conversion=(PairUsage("png", "webp", 3, 2), PairUsage("pdf", "pdf", 2, 2)),
        by_day=(
            DayUsage("2030-01-01", conversions=2, failed=1, credits=1, bytes_in=200, bytes_out=40),
            DayUsage("2030-01-02", conversions=1, failed=0, credits=1, bytes_in=10**12, bytes_out=10**12),
            DayUsage("2030-01-03", conversions=2, failed=0, credits=2, bytes_in=30, bytes_out=29),
        ),
    )
    assert all(type(number) is int for number in (report.credits_used, report.bytes_in, report.by_day[0].credits))


def test_a_period_includes_its_start_but_not_its_end(database: Database, clock: Clock) -> None:
    account = open_account(database).id
    for moment in (JANUARY - 1, JANUARY, JANUARY + DAY - 1, JANUARY + DAY):
        clock.now = moment
        record(database, account, UsageRecord("convert", "png", "webp", 1))
    assert database.run_blocking(usage.report, account, JANUARY, JANUARY + DAY).total_conversions == 2


def request(account: str, number: int) -> LoggedRequest:
    return LoggedRequest(f"req_{account}{number}", account, "GET", "/api/v1/account", 200, None, 3, 1_000_000 + number)


def test_the_latest_request_is_first(database: Database) -> None:
    one, other = open_account(database).id, open_account(database).id
    requests = [request(account, number) for number in range(3) for account in (one, other)]
    database.run_blocking(request_log.record, requests)
    assert database.run_blocking(request_log.latest, one) == tuple(request(one, number) for number in (2, 1, 0))


def test_a_request_is_recorded_once(database: Database) -> None:
    account = open_account(database).id
    for _ in range(2):
        database.run_blocking(request_log.record, [request(account, 1)])
    assert len(database.run_blocking(request_log.latest, account)) == 1


def test_older_requests_are_deleted(database: Database) -> None:
    one, other = open_account(database).id, open_account(database).id
    database.run_blocking(request_log.record, [request(other, 0)])
    for first in range(0, MAX_REQUESTS * 2, 150):
        database.run_blocking(request_log.record, [request(one, first + number) for number in range(150)])
    kept = database.run_blocking(request_log.latest, one)
    assert len(kept) == MAX_REQUESTS
    assert kept[0] == request(one, 449)
    count = "SELECT COUNT(*) FROM request"
    rows = database.run_blocking(lambda transaction: transaction.connection.execute_sql(count).fetchone()[0])
    assert rows == MAX_REQUESTS + 1


def test_the_audit_log_is_in_the_order_of_actions(database: Database, clock: Clock) -> None:
    """Those of a second, too."""
    for number in range(9):
        database.run_blocking(audit.record, "operator", "set", f"account {number}")
    shown = [one.subject for one in database.run_blocking(audit.list_page, limit=9).values]
    assert shown == [f"account {number}" for number in range(8, -1, -1)]
