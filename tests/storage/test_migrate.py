"""Migrations: of an empty, a current and a newer database, and failing ones."""

import shutil
from pathlib import Path

import peewee
import pytest

from storage.database import Database, Transaction, migrate
from storage.database.migrate import NewerSchema
from storage.tables import files, ledger, models, usage
from tests.support.samples.storage import OWNER, USE, Clock, open_account, open_earlier_account

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
    models.Session,
    models.Request,
    models.Purchase,
    models.Payment,
    models.Reversal,
)


def balance_of(database: Database, account: str) -> int:
    return database.run_blocking(ledger.balance, account)


def open_earlier(url: str, count: int, folder: Path, monkeypatch: pytest.MonkeyPatch, clock: Clock) -> Database:
    """Opens a database of an earlier release, with the first `count` migrations."""
    for script in sorted(migrate.MIGRATIONS.glob("0*.py"))[:count]:
        shutil.copy(script, folder)
    with monkeypatch.context() as patch:
        patch.setattr(migrate, "MIGRATIONS", folder)
        return Database(url, clock=clock)


def test_tables_match_the_models(database: Database) -> None:
    def columns(transaction: Transaction, table: type[peewee.Model]) -> dict[str, bool]:
        found = transaction.connection.get_columns(table._meta.table_name)
        keys = transaction.connection.get_primary_keys(table._meta.table_name)
        return {column.name: column.null and column.name not in keys for column in found}

    for table in TABLES:
        fields = {field.column_name: field.null for field in table._meta.sorted_fields}
        assert database.run_blocking(columns, table) == fields


def test_reopening_keeps_the_data(url: str) -> None:
    first = Database(url)
    account = open_account(first, 7)
    first.close()
    second = Database(url)
    assert balance_of(second, account.id) == 7
    second.close()


def test_a_newer_schema_is_rejected(url: str) -> None:
    def upgrade(transaction: Transaction) -> None:
        insert = "INSERT INTO schema_migration (name, applied) VALUES ('9999_later', '2030-01-01 00:00:00')"
        transaction.connection.execute_sql(insert)

    opened = Database(url)
    opened.run_blocking(upgrade)
    opened.close()
    with pytest.raises(NewerSchema):
        Database(url)


def test_a_failed_migration_is_rolled_back(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    good = "def up(migrator, database):\n    database.execute_sql('CREATE TABLE thing (id BIGINT)')\n"
    (tmp_path / "0001_good.py").write_text(good)
    (tmp_path / "0002_bad.py").write_text(good)
    real = migrate.MIGRATIONS
    monkeypatch.setattr(migrate, "MIGRATIONS", tmp_path)
    with pytest.raises(peewee.DatabaseError):
        Database(url)
    monkeypatch.setattr(migrate, "MIGRATIONS", real)
    opened = Database(url)
    assert "thing" not in opened.run_blocking(lambda transaction: transaction.connection.get_tables())
    opened.close()


def test_usage_of_an_earlier_release_is_summed_per_day_while_it_still_runs(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, clock: Clock
) -> None:
    earlier = open_earlier(url, 5, tmp_path, monkeypatch, clock)
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

    opened = Database(url, clock=clock)

    for account in accounts:
        report = opened.run_blocking(usage.report, account, 0, 2 * int(clock.now))
        assert (report.total_conversions, report.failed_conversions, report.credits_used) == (6, 1, 15)
        assert [(day.conversions, day.failed, day.bytes_out) for day in report.by_day] == [(3, 0, 60), (3, 1, 90)]
        for database in (earlier, opened):
            database.run_blocking(ledger.settle, database.run_blocking(ledger.reserve, account, 1, OWNER, 60), USE)
        assert opened.run_blocking(usage.report, account, 0, 2 * int(clock.now)).by_day[0].conversions == 5
    assert [balance_of(opened, account) for account in accounts] == [5, 5]
    earlier.close()
    opened.close()


def test_results_of_an_earlier_release_count_towards_the_quota(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, clock: Clock
) -> None:
    earlier = open_earlier(url, 6, tmp_path, monkeypatch, clock)
    account = open_earlier_account(earlier, 7)
    row = {"id": "file_1", "account": account, "original_name": "a.png", "extension": "png", "input_format": "png"}
    times = {"created_at": int(clock.now), "expires_at": int(clock.now) + 60}
    result = {"result": "blob_1", "outcome": '{"output_format": "bmp", "size": 300}', "processed_at": int(clock.now)}
    for changes in (result, {"id": "file_2"}):
        earlier.run_blocking(insert_file, {**row, "original_size": 5, **times, **changes})
    earlier.close()

    opened = Database(url, clock=clock)
    assert opened.run_blocking(files.stored_bytes, account) == 300
    opened.close()


def insert_file(transaction: Transaction, row: dict[str, object]) -> None:
    transaction.insert(models.File.insert(row))


def insert_usage(transaction: Transaction, row: dict[str, object]) -> None:
    transaction.insert(models.Usage.insert(row))
