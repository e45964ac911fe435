"""Archives: rows of past months are moved, and sums, balances, reports and the audit stay as they are."""

from datetime import UTC, datetime
from typing import Any

import pytest

from storage.database import Database, Transaction
from storage.tables import accounts, archives, ledger, ledger_audit, models, usage
from storage.tables.archives import NotArchivable, Position
from tests.support.samples.storage import DAY, OWNER, USE, Clock, open_account

pytestmark = pytest.mark.both_databases

JULY = int(datetime(2025, 7, 1, tzinfo=UTC).timestamp())


def use(database: Database, account: str, charges: int = 1) -> None:
    """Charges an account, and records a failure."""
    for _ in range(charges):
        database.run_blocking(ledger.settle, database.run_blocking(ledger.reserve, account, 1, OWNER), USE)
    failing = database.run_blocking(ledger.reserve, account, 1, OWNER)
    database.run_blocking(ledger.release, account, failing.id, USE)


@pytest.fixture
def used(database: Database, clock: Clock) -> list[str]:
    """Accounts with usage in May, June and July 2025. The first has the most, the last one only grants."""
    clock.now = JULY - 60 * DAY  # also the day of the first charges
    opened = [open_account(database, 3000).id for _ in range(4)]
    database.run_blocking(ledger.credit, opened[0], "purchase", 5, ref="session_1")
    for days in (-60, -35, -31, -2, -1, 0, 1, 20):
        clock.now = JULY + days * DAY
        for account in opened[:2]:
            use(database, account, charges=3)
        use(database, opened[2], charges=0)  # only failures
    clock.now = JULY + 40 * DAY
    return opened


def read_all(database: Database, before: int) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    position: Position | None = archives.START
    moved_usage, entries = [], []
    while position is not None:
        batch = database.run_blocking(archives.read, position, before)
        moved_usage += batch.usage
        entries += batch.entries
        position = batch.next
    return moved_usage, entries


def remove_all(database: Database, before: int, batches: int = 1000) -> Position | None:
    position: Position | None = archives.START
    while position is not None and batches:
        position = database.run_blocking(archives.remove, position, before)
        batches -= 1
    return position


def state(database: Database) -> tuple[Any, ...]:
    """What no archive may change."""
    shown = database.run_blocking(accounts.list_all)
    reports = [database.run_blocking(usage.report, account.id, 0, JULY + 100 * DAY) for account in shown]
    return shown, reports, database.run_blocking(ledger_audit.check)


def rows(database: Database, table: type[Any]) -> list[Any]:
    return database.run_blocking(Transaction.all, table.select())


def test_balances_reports_and_the_audit_stay(database: Database, used: list[str]) -> None:
    before = state(database)
    assert before[-1] == ()
    moved_usage, entries = read_all(database, JULY)
    assert len(moved_usage) == 5 * (2 * 4 + 1)
    assert len(entries) == 5 * 2 * 3
    assert {row["kind"] for row in entries} == {"charge"}
    assert {row["account"] for row in moved_usage} == set(used[:3])
    assert max(row["at"] for row in (*moved_usage, *entries)) < JULY

    database.run_blocking(archives.begin, JULY, "digest")
    assert remove_all(database, JULY) is None
    assert state(database) == before
    assert {row.at >= JULY for row in rows(database, models.Usage)} == {True}
    archived = {row.ref: row.amount for row in rows(database, models.Entry) if row.kind == "archived"}
    months = ("2025-05", -9), ("2025-06", -6)
    assert archived == {f"archive:{month}:{account}": sum_ for month, sum_ in months for account in used[:2]}
    assert read_all(database, JULY) == ([], [])


def test_credits_that_were_bought_before_are_added_once(database: Database, used: list[str]) -> None:
    database.run_blocking(archives.begin, JULY, "digest")
    remove_all(database, JULY)
    assert not database.run_blocking(ledger.credit, used[0], "purchase", 5, ref="session_1").added
    use(database, used[0])
    assert database.run_blocking(ledger_audit.check) == ()


def test_an_interrupted_removal_is_consistent_and_continues(
    database: Database, used: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(archives, "BATCH_SIZE", 20)
    before = state(database)
    database.run_blocking(archives.begin, JULY, "digest")
    assert remove_all(database, JULY, batches=2) is not None
    assert state(database) == before
    with pytest.raises(NotArchivable, match="interrupted"):
        database.run_blocking(archives.check, JULY + 31 * DAY)
    database.run_blocking(archives.check, JULY)
    assert remove_all(database, JULY) is None
    assert state(database) == before
    database.run_blocking(archives.check, JULY + 31 * DAY)


def test_batches_have_every_row_once(database: Database, used: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    whole = read_all(database, JULY)
    monkeypatch.setattr(archives, "BATCH_SIZE", 3)
    assert read_all(database, JULY) == whole


@pytest.mark.parametrize("wrong", ["missing", "different"])
def test_the_audit_finds_usage_that_is_lost(database: Database, used: list[str], wrong: str) -> None:
    database.run_blocking(archives.begin, JULY, "digest")
    remove_all(database, JULY)
    table = models.Usage
    later = (table.account == used[0]) & (table.at >= JULY + DAY)
    change = table.delete().where(later) if wrong == "missing" else table.update(bytes_in=1).where(later)
    database.run_blocking(Transaction.execute, change)
    assert len(database.run_blocking(ledger_audit.check)) == 1


def test_a_month_is_archived_a_day_after_its_end(database: Database, clock: Clock) -> None:
    clock.now = JULY + DAY - 1
    with pytest.raises(NotArchivable, match="day"):
        database.run_blocking(archives.check, JULY)
    clock.now = JULY + DAY
    database.run_blocking(archives.check, JULY)
