"""Files: what becomes of them, who sees them, and which blobs they leave behind."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from storage import files
from storage.database import Database
from storage.errors import NotFound
from storage.files import File
from storage.ids import new_id
from tests.support import storage_processes
from tests.support.storage_samples import DAY, FAULT, ORIGINAL, OUTCOME, Clock, open_account


@pytest.fixture
def account(database: Database) -> str:
    return open_account(database).id


def add(database: Database, account: str) -> File:
    return database.run_blocking(files.add, account, ORIGINAL, DAY)


def process(database: Database, account: str, file_id: str, blob: str = "blob_1") -> File:
    return database.run_blocking(files.process, account, file_id, replace(OUTCOME, blob=blob), DAY)


def get(database: Database, file: File) -> File:
    return database.run_blocking(files.get, file.account, file.id)


def delete(database: Database, file: File) -> tuple[str, ...]:
    return database.run_blocking(files.delete, file.account, file.id)


def test_an_upload_is_pending(database: Database, account: str, clock: Clock) -> None:
    file = add(database, account)
    assert get(database, file) == file
    assert (file.status, file.outcome, file.fault, file.processed_at) == ("pending", None, None, None)
    assert (file.original_name, file.original_size, file.source) == ("größe.JPG", 100, "up_1")
    assert (file.created_at, file.expires_at) == (int(clock.now), int(clock.now) + DAY)


def test_the_same_file_becomes_processed_and_lives_on_from_then(database: Database, account: str, clock: Clock) -> None:
    file = add(database, account)
    clock.now += 1000
    processed = process(database, account, file.id)
    now = int(clock.now)
    assert processed == replace(file, outcome=OUTCOME, processed_at=now, expires_at=now + DAY)
    assert (get(database, file), processed.status) == (processed, "processed")


def test_a_fault_stays_until_a_conversion_succeeds(database: Database, account: str) -> None:
    file = add(database, account)
    database.run_blocking(files.fail, account, file.id, FAULT)
    assert get(database, file) == replace(file, fault=FAULT)
    assert process(database, account, file.id).fault is None
    database.run_blocking(files.fail, account, file.id, FAULT)
    assert get(database, file).fault is None


def test_converted_again_it_is_a_new_file(database: Database, account: str) -> None:
    first = process(database, account, add(database, account).id)
    second = process(database, account, first.id, "blob_2")
    assert get(database, first) == first
    assert get(database, second) == second
    assert second == replace(
        first, id=second.id, source_file=first.id, outcome=replace(OUTCOME, blob="blob_2"), batch=None
    )
    assert second.id != first.id


def test_ids_may_be_chosen_beforehand(database: Database, account: str) -> None:
    one, other = new_id("file"), new_id("file")
    recorded = database.run_blocking(files.record, account, replace(ORIGINAL, source=None), OUTCOME, DAY, one)
    assert (recorded.id, recorded.status, recorded.source) == (one, "processed", None)
    assert get(database, recorded) == recorded
    assert database.run_blocking(files.process, account, one, OUTCOME, DAY, other).id == other


@pytest.mark.parametrize(
    "file_id", ["", "file_1", "batch_0123456789012345678901", "file_\x00", "file_0123456789012345678901"]
)
def test_unknown_and_strange_ids_are_missing(database: Database, account: str, file_id: str) -> None:
    for attempt in (files.get, files.delete):
        with pytest.raises(NotFound):
            database.run_blocking(attempt, account, file_id)
    with pytest.raises(NotFound):
        database.run_blocking(files.process, account, file_id, OUTCOME, DAY)


def test_files_of_others_are_missing(database: Database, account: str) -> None:
    file, stranger = add(database, account), open_account(database).id
    for attempt in (files.get, files.delete):
        with pytest.raises(NotFound):
            database.run_blocking(attempt, stranger, file.id)
    with pytest.raises(NotFound):
        process(database, stranger, file.id)
    database.run_blocking(files.fail, stranger, file.id, FAULT)
    assert get(database, file) == file


def test_expired_files_are_missing_before_they_are_erased(database: Database, account: str, clock: Clock) -> None:
    file = add(database, account)
    clock.now += DAY - 1
    assert get(database, file) == file
    clock.now += 1
    with pytest.raises(NotFound):
        get(database, file)
    with pytest.raises(NotFound):
        process(database, account, file.id)
    database.run_blocking(files.fail, account, file.id, FAULT)
    assert database.run_blocking(files.expired, 10) == ("up_1",)


def test_expiry_is_erased_bit_by_bit_and_spares_the_living(database: Database, account: str, clock: Clock) -> None:
    old = [database.run_blocking(files.add, account, replace(ORIGINAL, source=f"up_{n}"), n + 1) for n in range(5)]
    young = database.run_blocking(files.add, account, replace(ORIGINAL, source="young"), DAY)
    clock.now += len(old)
    assert database.run_blocking(files.expired, 3) == ("up_0", "up_1", "up_2")
    assert database.run_blocking(files.expired, 3) == ("up_3", "up_4")
    assert database.run_blocking(files.expired, 3) == ()
    assert get(database, young) == young


def test_a_shared_upload_goes_with_the_last_that_needs_it(database: Database, account: str, clock: Clock) -> None:
    first = process(database, account, add(database, account).id, "blob_1")
    second = process(database, account, first.id, "blob_2")
    clock.now += 10
    third = process(database, account, second.id, "blob_3")
    assert delete(database, first) == ("blob_1",)
    with pytest.raises(NotFound):
        delete(database, first)
    clock.now += DAY - 10
    assert database.run_blocking(files.expired, 10) == ("blob_2",)
    assert delete(database, third) == ("blob_3", "up_1")


def test_known_blobs_are_those_that_a_file_refers_to(database: Database, account: str) -> None:
    process(database, account, add(database, account).id)
    keys = ["up_1", "blob_1", "orphan"]
    assert database.run_blocking(files.known, keys) == {"up_1", "blob_1"}
    assert database.run_blocking(files.known, []) == frozenset()


@pytest.mark.both_databases
async def test_of_many_conversions_one_wins_the_id(database: Database, account: str) -> None:
    for _ in range(20):
        file = await database.run(files.add, account, ORIGINAL, DAY)
        outcomes = [replace(OUTCOME, blob=new_id("blob")) for _ in range(6)]
        made = await asyncio.gather(*(database.run(files.process, account, file.id, one, DAY) for one in outcomes))
        winners = [one for one in made if one.id == file.id]
        assert len(winners) == 1
        assert {one.source_file for one in made if one.id != file.id} == {file.id}
        assert len({one.id for one in made}) == 6
        assert (await database.run(files.get, account, file.id)) == winners[0]


@pytest.mark.both_databases
def test_of_four_processes_one_wins_the_id(url: str) -> None:
    database = Database(url)
    account = open_account(database).id
    racers = [storage_processes.start("convert", url) for _ in range(4)]
    try:
        assert [storage_processes.answer(racer) for racer in racers] == ["ready"] * 4
        for _ in range(10):
            file = add(database, account)
            for racer in racers:
                print(account, file.id, file=racer.stdin, flush=True)
            ids = [storage_processes.answer(racer) for racer in racers]
            assert (ids.count(file.id), len(set(ids))) == (1, 4)
            made = [database.run_blocking(files.get, account, file_id) for file_id in ids]
            assert len({one.outcome.blob for one in made if one.outcome}) == 4
    finally:
        codes = [storage_processes.end(racer) for racer in racers]
        database.close()
    assert codes == [0] * 4
