"""Migrations, of an empty, a current and a newer database, and backfills beside servers of both releases."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event
from typing import Any

import peewee
import pytest

from storage.database import Database, Transaction, migrate
from storage.database.migrate import NewerSchema
from storage.tables import backfills, files, ledger, ledger_audit, models, usage, webhook_models
from tests.storage.conftest import OpenEarlier
from tests.support.samples.storage import DAY, OWNER, USE, Clock, open_account, open_earlier_account, run_backfills

pytestmark = pytest.mark.both_databases
TABLES = (
    models.Account,
    models.Key,
    models.Verification,
    models.Entry,
    models.Hold,
    models.Usage,
    models.UsageDay,
    models.Idempotency,
    models.Batch,
    models.Run,
    models.File,
    models.StoredBytes,
    models.Lane,
    models.Job,
    models.DashboardSession,
    models.Session,
    models.Request,
    models.Purchase,
    models.Payment,
    models.Reversal,
    models.Counter,
    models.CounterChange,
    models.Archive,
    models.Backfill,
    webhook_models.Webhook,
    webhook_models.SigningSecret,
    webhook_models.Delivery,
    webhook_models.DeliveryAttempt,
    webhook_models.Receiver,
)


def balance_of(database: Database, account: str) -> int:
    return database.run_blocking(ledger.balance, account)


def test_tables_match_the_models(database: Database) -> None:
    def columns(transaction: Transaction, table: type[peewee.Model]) -> dict[str, bool]:
        found = transaction.connection.get_columns(table._meta.table_name)
        keys = transaction.connection.get_primary_keys(table._meta.table_name)
        return {column.name: column.null and column.name not in keys for column in found}

    for table in TABLES:
        fields = {field.column_name: field.null for field in table._meta.sorted_fields}
        assert database.run_blocking(columns, table) == fields


def test_reopening_keeps_the_data(empty_url: str) -> None:
    first = Database(empty_url)
    account = open_account(first, 7)
    first.close()
    second = Database(empty_url)
    assert balance_of(second, account.id) == 7
    second.close()


def test_a_newer_schema_is_rejected(empty_url: str) -> None:
    def upgrade(transaction: Transaction) -> None:
        insert = "INSERT INTO schema_migration (name, applied) VALUES ('9999_later', '2030-01-01 00:00:00')"
        transaction.connection.execute_sql(insert)

    opened = Database(empty_url)
    opened.run_blocking(upgrade)
    opened.close()
    with pytest.raises(NewerSchema):
        Database(empty_url)


def test_a_failed_migration_is_rolled_back(empty_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The next start continues with it."""
    create = "database.execute_sql('CREATE TABLE {} (id BIGINT)')"
    script = "def up(migrator, database):\n    {}\n    {}\n"
    (tmp_path / "0001_good.py").write_text(script.format(create.format("thing"), "pass"))
    with monkeypatch.context() as patch:
        patch.setattr(migrate, "MIGRATIONS", tmp_path)
        Database(empty_url).close()
        (tmp_path / "0002_bad.py").write_text(script.format(create.format("other"), create.format("thing")))
        with pytest.raises(peewee.DatabaseError):
            Database(empty_url)
        (tmp_path / "0002_bad.py").write_text(script.format("pass", "pass"))
        opened = Database(empty_url)
    tables = opened.run_blocking(lambda transaction: transaction.connection.get_tables())
    assert "thing" in tables
    assert "other" not in tables
    opened.close()


def test_usage_of_an_earlier_release_is_summed_per_day_while_it_still_runs(
    empty_url: str, open_earlier: OpenEarlier, clock: Clock
) -> None:
    earlier = open_earlier(5)
    accounts = [open_earlier_account(earlier, 7) for _ in range(2)]
    for account in accounts:
        for number in range(6):
            row: dict[str, object] = {
                "account": account,
                "operation": "convert",
                "input_format": "png",
                "output_format": "webp",
            }
            row |= {"bytes_in": 100, "bytes_out": 10 * number, "success": number < 5, "credits": number}
            row |= {"at": int(clock.now) + (number % 2) * 86_400}
            earlier.run_blocking(insert_usage, row)

    opened = Database(empty_url, clock=clock)

    for account in accounts:
        assert opened.run_blocking(usage.report, account, 0, 2 * int(clock.now)).total_conversions == 6
    run_backfills(opened)
    for account in accounts:
        report = opened.run_blocking(usage.report, account, 0, 2 * int(clock.now))
        assert (report.total_conversions, report.failed_conversions, report.credits_used) == (6, 1, 15)
        assert [(day.conversions, day.failed, day.bytes_out) for day in report.by_day] == [(3, 0, 60), (3, 1, 90)]
        for database in (earlier, opened):
            database.run_blocking(ledger.settle, database.run_blocking(ledger.reserve, account, 1, OWNER), USE)
        assert opened.run_blocking(usage.report, account, 0, 2 * int(clock.now)).by_day[0].conversions == 5
    assert [balance_of(opened, account) for account in accounts] == [5, 5]
    opened.close()


def test_earlier_results_count_towards_the_quota(empty_url: str, open_earlier: OpenEarlier, clock: Clock) -> None:
    earlier = open_earlier(6)
    account = open_earlier_account(earlier, 7)
    row = {"id": "file_1", "account": account, "original_name": "a.png", "extension": "png", "input_format": "png"}
    times = {"created_at": int(clock.now), "expires_at": int(clock.now) + 60}
    result = {"result": "blob_1", "outcome": '{"output_format": "bmp", "size": 300}', "processed_at": int(clock.now)}
    for changes in (result, {"id": "file_2"}):
        earlier.run_blocking(insert_file, {**row, "original_size": 5, **times, **changes})

    opened = Database(empty_url, clock=clock)
    assert opened.run_blocking(files.stored_bytes, account) == 300
    run_backfills(opened)
    assert opened.run_blocking(files.stored_bytes, account) == 300
    sizes = opened.run_blocking(lambda transaction: transaction.rows(models.File.select(models.File.result_size)))
    assert sorted(sizes, key=str) == [(300,), (None,)]
    opened.close()


def insert_file(transaction: Transaction, row: dict[str, object]) -> None:
    transaction.insert(models.File.insert(row))


def insert_usage(transaction: Transaction, row: dict[str, object]) -> None:
    transaction.insert(models.Usage.insert(row))


@pytest.fixture
def upgraded(empty_url: str, open_earlier: OpenEarlier, clock: Clock) -> Iterator[tuple[Database, Database]]:
    """The database as the earlier release has opened it, without sums per day, and opened by this one."""
    earlier = open_earlier(5)
    account = open_earlier_account(earlier, 1000)
    other = open_earlier_account(earlier, 1)
    row: dict[str, Any] = {"account": account, "operation": "convert", "input_format": "png", "output_format": "webp"}
    row |= {"bytes_in": 10, "bytes_out": 5, "success": False, "credits": 0}
    rows = [row | {"at": int(clock.now) - number * DAY // 4} for number in range(1200)]
    rows += [row | {"account": other, "at": number * DAY} for number in (100, 101, 102)]  # at midnight
    earlier.run_blocking(Transaction.insert, models.Usage.insert_many(rows))
    opened = Database(empty_url, clock=clock)
    yield earlier, opened
    opened.close()


def charge(database: Database, account: str) -> None:
    database.run_blocking(ledger.settle, database.run_blocking(ledger.reserve, account, 1, OWNER), USE)


def all_rows(database: Database, table: type[Any]) -> list[Any]:
    return database.run_blocking(Transaction.all, table.select())


def test_usage_is_summed_while_both_releases_charge(upgraded: tuple[Database, Database], clock: Clock) -> None:
    account = next(row.id for row in all_rows(upgraded[1], models.Account) if row.credits_remaining > 1)
    summed = Event()

    def charge_meanwhile(database: Database) -> int:
        number = 0
        while not summed.is_set():
            charge(database, account)
            number += 1
        return number

    with ThreadPoolExecutor(2) as threads:
        charging = [threads.submit(charge_meanwhile, database) for database in upgraded]
        batches = 0
        while upgraded[1].run_blocking(backfills.run_batch, "usage_day"):
            batches += 1
            clock.now -= DAY  # the next charges are on a day that may be summed already
        summed.set()
        charged = sum(future.result() for future in charging)

    opened = upgraded[1]
    assert batches >= 3
    assert not opened.run_blocking(backfills.is_pending, "usage_day")
    assert opened.run_blocking(ledger_audit.check) == ()
    report = opened.run_blocking(usage.report, account, 0, 2 * int(clock.now))
    assert (report.failed_conversions, report.successful_conversions) == (1200, charged)
    assert report.credits_used == charged


def test_ended_holds_are_deleted_until_no_release_adds_any(upgraded: tuple[Database, Database], clock: Clock) -> None:
    database = upgraded[1]
    account = next(row.id for row in all_rows(database, models.Account) if row.credits_remaining > 1)
    now = int(clock.now)
    common: dict[str, Any] = {
        "account": account,
        "amount": 1,
        "server": "main",
        "boot": "boot-1",
        "created_at": now - 60,
    }
    old: list[dict[str, Any]] = [
        {"id": f"hold_{number:04}", "state": ("settled", "released")[number % 2], "expires_at": now - 600}
        for number in range(1500)
    ]
    young: dict[str, Any] = {"id": "hold_0000_young", "state": "settled", "expires_at": now - 599}
    held: dict[str, Any] = {"id": "hold_zzzz", "state": "held", "expires_at": now - 600}
    holds = [common | hold for hold in (*old, young, held)]
    database.run_blocking(Transaction.insert, models.Hold.insert_many(holds))

    run_backfills(database)
    assert {row.id for row in all_rows(database, models.Hold)} == {"hold_0000_young", "hold_zzzz"}
    assert database.run_blocking(backfills.pending) == ("ended_holds",)
    clock.now += 1
    run_backfills(database)
    assert {row.id for row in all_rows(database, models.Hold)} == {"hold_zzzz"}
    assert database.run_blocking(backfills.pending) == ()


def test_sizes_of_all_results_are_filled(upgraded: tuple[Database, Database], clock: Clock) -> None:
    database = upgraded[1]
    account = all_rows(database, models.Account)[0].id
    common: dict[str, Any] = {
        "account": account,
        "original_name": "a",
        "extension": "png",
        "input_format": "png",
        "original_size": 0,
    }
    common |= {"created_at": 1, "expires_at": int(clock.now) + 60}
    result = {"result": "blob", "processed_at": 1}
    rows: list[dict[str, Any]] = [
        common | result | {"file_id": f"file_{n:05}", "outcome": f'{{"size": {n}}}'} for n in range(1100)
    ]
    rows += [row | {"file_id": f"{row['file_id']}_sized", "result_size": 1} for row in rows[:5]]
    for row in rows:
        row.setdefault("result_size", None)
    database.run_blocking(Transaction.insert, models.File.insert_many(rows))
    stored = sum(range(1100)) + 5
    assert database.run_blocking(files.stored_bytes, account) == stored
    run_backfills(database)
    assert database.run_blocking(files.stored_bytes, account) == stored
    assert all(row.result_size is not None for row in all_rows(database, models.File))


def test_a_new_database_needs_none(empty_url: str) -> None:
    database = Database(empty_url)
    assert database.run_blocking(backfills.pending) == ()
    database.close()
