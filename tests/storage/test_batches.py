"""Batches: files, status and expiry."""

import asyncio

import pytest

from storage.database import Database
from storage.errors import BatchFull, NotFound
from storage.ids import new_id
from storage.tables import batches, files
from storage.tables.batches import Batch
from storage.tables.files import File
from storage.tables.ledger import ServerInstance
from tests.support.samples.storage import CONVERTED, DAY, FAILURE, OWNER, SOURCE, Clock, lose, open_account
from web.api.schemas.files import BatchStatus
from web.services.jobs.batches import get_with_files


@pytest.fixture
def batch(database: Database) -> Batch:
    return database.run_blocking(batches.create, open_account(database).id, "webp", DAY)


def get(database: Database, batch: Batch) -> Batch:
    return database.run_blocking(batches.get, batch.account, batch.batch_id)


def add(database: Database, batch: Batch, limit: int = 50) -> File:
    return database.run_blocking(batches.add_file, batch.account, batch.batch_id, SOURCE, limit, DAY)[0]


def inside(database: Database, batch: Batch) -> tuple[File, ...]:
    return database.run_blocking(batches.list_files, batch)


def shown(database: Database, batch: Batch) -> BatchStatus:
    return BatchStatus(*database.run_blocking(get_with_files, batch.account, batch.batch_id), 50)


def status(database: Database, batch: Batch) -> str:
    return shown(database, batch).status


def process(database: Database, file: File) -> File:
    return database.run_blocking(files.mark_processed, file.account, file.file_id, SOURCE, CONVERTED, DAY)


def begin(database: Database, batch: Batch, owner: ServerInstance = OWNER) -> str:
    return database.run_blocking(batches.begin, batch.account, batch.batch_id, "webp", owner)


def end(database: Database, batch: Batch, attempt: str) -> None:
    database.run_blocking(batches.end, batch.batch_id, attempt)


def test_a_new_batch_is_empty(database: Database, batch: Batch, clock: Clock) -> None:
    now = int(clock.now)
    assert get(database, batch) == batch
    assert (batch.output_format, batch.created_at, batch.updated_at, batch.expires_at) == ("webp", now, now, now + DAY)
    assert (inside(database, batch), status(database, batch)) == ((), "created")


def test_files_are_listed_in_the_order_of_their_addition(database: Database, batch: Batch) -> None:
    added = [add(database, batch) for _ in range(5)]
    database.run_blocking(files.delete, batch.account, added.pop(1).file_id)
    added.append(add(database, batch))
    assert inside(database, batch) == tuple(added)
    assert {file.batch_id for file in added} == {batch.batch_id}


@pytest.mark.parametrize(
    ("processed", "failed", "pending", "expected"),
    [(2, 0, 0, "completed"), (1, 1, 0, "partial"), (1, 0, 1, "partial"), (0, 2, 0, "failed"), (0, 0, 1, "created")],
)
def test_status_and_counts(
    database: Database, batch: Batch, processed: int, failed: int, pending: int, expected: str
) -> None:
    for _ in range(pending):
        add(database, batch)
    attempt = begin(database, batch)
    for _ in range(processed):
        process(database, add(database, batch))
    for _ in range(failed):
        database.run_blocking(files.mark_failed, batch.account, add(database, batch).file_id, FAILURE)
    assert status(database, batch) == "processing"
    end(database, batch, attempt)
    assert status(database, batch) == expected
    total = processed + failed + pending
    made = shown(database, batch)
    assert (made.total, made.pending, made.processed, made.failed) == (total, pending, processed, failed)


def test_a_batch_is_processing_until_its_last_run_ends(database: Database, batch: Batch) -> None:
    process(database, add(database, batch))
    first, second = begin(database, batch), begin(database, batch)
    end(database, batch, second)
    assert status(database, batch) == "processing"
    end(database, batch, first)
    assert status(database, batch) == "completed"


def test_a_run_ends_with_its_server(database: Database, batch: Batch) -> None:
    begin(database, batch)
    elsewhere = begin(database, batch, ServerInstance("other", "boot-1"))
    lose(database)
    assert get(database, batch).running
    end(database, batch, elsewhere)
    assert not get(database, batch).running


def test_a_full_batch_rejects_files(database: Database, batch: Batch) -> None:
    for number in range(1, 4):
        _, total = database.run_blocking(batches.add_file, batch.account, batch.batch_id, SOURCE, 3, DAY)
        assert total == number
    with pytest.raises(BatchFull) as refused:
        add(database, batch, limit=3)
    assert (refused.value.code, refused.value.param) == ("invalid_parameter", "file")
    database.run_blocking(files.delete, batch.account, inside(database, batch)[0].file_id)
    add(database, batch, limit=3)


@pytest.mark.both_databases
async def test_concurrent_additions_do_not_exceed_the_limit(database: Database, batch: Batch) -> None:
    adds = (database.run(batches.add_file, batch.account, batch.batch_id, SOURCE, 50, DAY) for _ in range(60))
    results = await asyncio.gather(*adds, return_exceptions=True)
    totals = [one[1] for one in results if isinstance(one, tuple)]
    assert sum(isinstance(one, BatchFull) for one in results) == 10
    assert sorted(totals) == list(range(1, 51))
    assert len(await database.run(batches.list_files, batch)) == 50


def test_foreign_unknown_and_malformed_ids_are_not_found(database: Database, batch: Batch) -> None:
    stranger = open_account(database).id
    for account, batch_id in [(stranger, batch.batch_id), (batch.account, new_id("batch")), (batch.account, "batch_'")]:
        with pytest.raises(NotFound):
            database.run_blocking(batches.get, account, batch_id)
        with pytest.raises(NotFound):
            database.run_blocking(batches.add_file, account, batch_id, SOURCE, 50, DAY)
        with pytest.raises(NotFound):
            database.run_blocking(batches.begin, account, batch_id, "webp", OWNER)
    assert get(database, batch) == batch


def test_additions_and_conversions_defer_the_expiry(database: Database, batch: Batch, clock: Clock) -> None:
    clock.now += 1000
    file = add(database, batch)
    assert get(database, batch).expires_at == file.expires_at == int(clock.now) + DAY
    clock.now += 1000
    file = process(database, file)
    changed = get(database, batch)
    assert changed.expires_at == file.expires_at == int(clock.now) + DAY
    assert changed.updated_at == int(clock.now)
    database.run_blocking(batches.add_file, batch.account, batch.batch_id, SOURCE, 50, 1)
    assert get(database, batch).expires_at == file.expires_at


def test_a_repeated_conversion_is_in_no_batch(database: Database, batch: Batch) -> None:
    file = process(database, add(database, batch))
    assert process(database, file).batch_id is None
    assert inside(database, batch) == (file,)


def test_an_expired_batch_is_deleted_after_its_files(database: Database, batch: Batch, clock: Clock) -> None:
    begin(database, batch)
    add(database, batch)
    clock.now += DAY - 1
    assert database.run_blocking(batches.delete_expired, 10) == 0
    clock.now += 1
    with pytest.raises(NotFound):
        get(database, batch)
    assert database.run_blocking(batches.delete_expired, 10) == 0
    database.run_blocking(files.delete_expired, 10)
    assert database.run_blocking(batches.delete_expired, 10) == 1
    assert database.run_blocking(batches.delete_expired, 10) == 0
