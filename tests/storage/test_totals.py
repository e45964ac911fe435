"""Totals: counters that triggers keep have the values of a count of all rows."""

import random
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pytest

from storage.database import Database, Transaction
from storage.errors import NotFound
from storage.tables import accounts, files, ledger, models, totals
from tests.storage.conftest import OpenEarlier
from tests.support.samples.storage import (
    CONVERTED,
    DAY,
    OWNER,
    SOURCE,
    USE,
    Clock,
    open_account,
    open_earlier_account,
    read_totals,
    settle_earlier,
)

pytestmark = pytest.mark.both_databases


def change(database: Database, seed: int, *, earlier: bool = False) -> None:
    """Changes accounts and files at random, in the tables of the first release if `earlier`."""
    run, chosen = database.run_blocking, random.Random(seed)
    for number in range(15):
        account = open_earlier_account(database, chosen.randrange(3, 9))
        if chosen.random() < 0.5:
            run(ledger.credit, account, "grant" if earlier else "purchase", 5, ref=f"purchase-{seed}-{number}")
        hold = run(ledger.reserve, account, 2, OWNER, 60)
        ends: list[Callable[[], object]] = [
            lambda: run(settle_earlier, hold) if earlier else run(ledger.settle, hold, USE),  # noqa: B023, called in this round
            lambda: run(ledger.release, hold.account, hold.id),  # noqa: B023
            lambda: None,
        ]
        chosen.choice(ends)()
        stored = [run(files.add, account, replace(SOURCE, source=f"up_{seed}_{number}_{n}"), DAY) for n in range(2)]
        for _ in range(chosen.randrange(3)):  # the second time, as an additional file with the same upload
            result = replace(CONVERTED, blob=f"blob_{seed}_{number}")
            run(files.mark_processed, account, stored[0].file_id, SOURCE, result, DAY)
        if chosen.random() < 0.3:
            run(files.delete, account, chosen.choice(stored).file_id)
        if not earlier and chosen.random() < 0.2:
            run(accounts.delete, account)


def counted(database: Database) -> dict[str, Any]:
    rows = database.run_blocking(Transaction.all, models.Counted.select())
    return {row.name: row.amount for row in rows}


def assert_right(database: Database) -> None:
    found, values = read_totals(database), counted(database)
    held = sum(row.amount for row in database.run_blocking(Transaction.all, models.Hold.select()))
    assert vars(found) == {"balance": values.pop("credits") - held, "held": held, **values}
    owners = {row.account for row in database.run_blocking(Transaction.all, models.File.select())}
    sizes = {owner: database.run_blocking(files.stored_bytes, owner) for owner in owners}
    assert found.bytes == sum(sizes.values())
    known = {owner: database.run_blocking(files.most_stored_bytes, owner) for owner in owners}
    assert {owner: size for owner, size in known.items() if size is not None}.items() <= sizes.items()


def test_counters_begin_while_rows_change(empty_url: str, open_earlier: OpenEarlier, clock: Clock) -> None:
    earlier = open_earlier(8)
    change(earlier, 1, earlier=True)
    opened = Database(empty_url, clock=clock)
    assert opened.run_blocking(totals.read) is None
    with ThreadPoolExecutor(4) as threads:
        changes = [
            threads.submit(change, earlier, 2, earlier=True),
            threads.submit(change, opened, 3),
        ]
        begun = [threads.submit(read_totals, opened) for _ in range(2)]
    assert {future.exception() for future in changes} | {future.exception() for future in begun} == {None}
    assert_right(opened)
    assert read_totals(opened).bytes > 0 < read_totals(opened).held
    clock.now += 2 * DAY
    opened.run_blocking(files.delete_expired, 1000)
    opened.run_blocking(ledger.release_expired)
    assert_right(opened)
    assert (read_totals(opened).bytes, read_totals(opened).held) == (0, 0)
    opened.close()


def test_servers_add_changes_once(database: Database, url: str, clock: Clock) -> None:
    other = Database(url, clock=clock)
    read_totals(database)
    with ThreadPoolExecutor(4) as threads:
        changes = [threads.submit(change, database, seed) for seed in range(2)]
        readers = [threads.submit(read_totals, one) for one in (database, other) * 10]
    assert {future.exception() for future in changes} | {future.exception() for future in readers} == {None}
    assert_right(other)
    assert database.run_blocking(Transaction.all, models.CounterChange.select()) == []
    other.close()


def test_transactions_that_fail_count_nothing(database: Database) -> None:
    before = read_totals(database)

    def fail(transaction: Transaction) -> None:
        accounts.create(transaction, "person@example.org", "Person", free_credits=5)
        raise NotFound("account")

    with pytest.raises(NotFound):
        database.run_blocking(fail)
    assert read_totals(database) == before


def test_the_first_changes_of_the_files_of_an_account_count_all_of_them(
    empty_url: str, open_earlier: OpenEarlier, clock: Clock
) -> None:
    """Some of them at the same time, when none has counted the files yet."""
    earlier = open_earlier(18)
    owners = [open_account(earlier).id for _ in range(10)]
    converted, deleted = ([earlier.run_blocking(files.add, one, SOURCE, DAY).file_id for one in owners] for _ in "12")
    opened = Database(empty_url, clock=clock)
    assert opened.run_blocking(files.most_stored_bytes, owners[0]) is None

    def change_files(number: int) -> None:
        for owner, first, second in zip(owners, converted, deleted, strict=True):
            if number == 0:
                opened.run_blocking(files.mark_processed, owner, first, SOURCE, CONVERTED, DAY)
            elif number == 1:
                opened.run_blocking(files.delete, owner, second)
            else:
                opened.run_blocking(files.add, owner, SOURCE, DAY)

    with ThreadPoolExecutor(4) as threads:
        assert {*threads.map(change_files, range(4))} == {None}
    for owner in owners:
        size = opened.run_blocking(files.stored_bytes, owner)
        assert opened.run_blocking(files.most_stored_bytes, owner) == size > 0
    opened.close()
