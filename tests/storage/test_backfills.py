"""Backfills: in batches, while servers of both releases charge, and complete."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from threading import Event
from typing import Any

import pytest

from storage.database import Database, Transaction
from storage.tables import backfills, files, ledger, ledger_audit, models, usage
from tests.storage.conftest import OpenEarlier
from tests.support.samples.storage import DAY, OWNER, USE, Clock, open_earlier_account, run_backfills

pytestmark = pytest.mark.both_databases


@pytest.fixture
def upgraded(empty_url: str, open_earlier: OpenEarlier, clock: Clock) -> Iterator[tuple[Database, Database]]:
    """The database as the earlier release has opened it, without sums per day, and opened by this one."""
    earlier = open_earlier(5)
    account = open_earlier_account(earlier, 1000)
    other = open_earlier_account(earlier, 1)
    values: dict[str, Any] = {
        "account": account,
        "operation": "convert",
        "input_format": "png",
        "output_format": "webp",
    }
    values |= {"bytes_in": 10, "bytes_out": 5, "success": False, "credits": 0}
    rows = [values | {"at": int(clock.now) - number * DAY // 4} for number in range(1200)]
    rows += [values | {"account": other, "at": number * DAY} for number in (100, 101, 102)]  # at midnight
    earlier.run_blocking(Transaction.insert, models.Usage.insert_many(rows))
    opened = Database(empty_url, clock=clock)
    yield earlier, opened
    opened.close()


def charge(database: Database, account: str) -> None:
    database.run_blocking(ledger.settle, database.run_blocking(ledger.reserve, account, 1, OWNER, 60), USE)


def all_rows(database: Database, table: type[Any]) -> list[Any]:
    return database.run_blocking(Transaction.all, table.select())


def test_usage_is_summed_in_batches_while_both_releases_charge(
    upgraded: tuple[Database, Database], clock: Clock
) -> None:
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


def test_ended_holds_are_deleted_until_no_earlier_release_adds_any(
    upgraded: tuple[Database, Database], clock: Clock
) -> None:
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
