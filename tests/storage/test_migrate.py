"""Migrations: of an empty, a current and a newer database, and failing ones."""

from __future__ import annotations

from pathlib import Path

import peewee
import pytest

from storage import ledger, migrate, models
from storage.database import Database
from storage.migrate import NewerSchema
from storage.transaction import Transaction
from tests.support.storage_samples import open_account

pytestmark = pytest.mark.both_databases

TABLES = (
    models.Account,
    models.Key,
    models.Verification,
    models.Entry,
    models.Hold,
    models.Usage,
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
