"""Stored files: conversions, ownership, expiry, unreferenced blobs, and links."""

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from storage.database import Database
from storage.errors import NotFound
from storage.ids import new_id
from storage.tables import files, links, models
from storage.tables.files import File
from tests.support.samples.storage import CONVERTED, DAY, FAILURE, SOURCE, Clock, open_account
from tests.support.servers.storage_processes import StorageProcess, convert


def add(database: Database, account: str) -> File:
    return database.run_blocking(files.add, account, SOURCE, DAY)


def process(database: Database, account: str, file_id: str, blob: str = "blob_1") -> File:
    return database.run_blocking(files.mark_processed, account, file_id, SOURCE, replace(CONVERTED, blob=blob), DAY)


def get(database: Database, file: File) -> File:
    return database.run_blocking(files.get, file.account, file.file_id)


def delete(database: Database, file: File) -> tuple[str, ...]:
    return database.run_blocking(files.delete, file.account, file.file_id)


def test_an_upload_is_pending(database: Database, account: str, clock: Clock) -> None:
    file = add(database, account)
    assert get(database, file) == file
    assert (file.result, file.outcome, file.failure, file.processed_at) == (None, None, None, None)
    assert (file.original_name, file.original_size, file.source) == ("größe.JPG", 100, "up_1")
    assert (file.created_at, file.expires_at) == (int(clock.now), int(clock.now) + DAY)


def test_processing_defers_the_expiry(database: Database, account: str, clock: Clock) -> None:
    file = add(database, account)
    clock.now += 1000
    done = process(database, account, file.file_id)
    now = int(clock.now)
    assert done == replace(file, result="blob_1", outcome=CONVERTED.outcome, processed_at=now, expires_at=now + DAY)
    assert get(database, file) == done


def test_a_failure_is_kept_until_a_conversion_succeeds(database: Database, account: str) -> None:
    file = add(database, account)
    database.run_blocking(files.mark_failed, account, file.file_id, FAILURE)
    assert get(database, file) == replace(file, failure=FAILURE)
    assert process(database, account, file.file_id).failure is None
    database.run_blocking(files.mark_failed, account, file.file_id, FAILURE)
    assert get(database, file).failure == FAILURE
    process(database, account, file.file_id, "blob_2")
    assert get(database, file).failure is None


def test_a_repeated_conversion_creates_a_file(database: Database, account: str) -> None:
    first = process(database, account, add(database, account).file_id)
    again = process(database, account, first.file_id, "blob_2")
    assert get(database, first) == first
    assert get(database, again) == again
    assert again == replace(first, file_id=again.file_id, source_file_id=first.file_id, result="blob_2", batch_id=None)
    assert again.file_id != first.file_id


def test_a_file_converted_in_one_request_is_processed(database: Database, account: str) -> None:
    file = database.run_blocking(files.add_processed, account, replace(SOURCE, source=None), CONVERTED, DAY)
    assert (file.outcome, file.source) == (CONVERTED.outcome, None)
    assert get(database, file) == file


@pytest.mark.parametrize(
    "file_id", ["", "file_1", "batch_0123456789012345678901", "file_\x00", "file_0123456789012345678901"]
)
def test_unknown_and_malformed_ids_are_not_found(database: Database, account: str, file_id: str) -> None:
    for attempt in (files.get, files.delete):
        with pytest.raises(NotFound):
            database.run_blocking(attempt, account, file_id)
    with pytest.raises(NotFound):
        database.run_blocking(files.mark_processed, account, file_id, SOURCE, CONVERTED, DAY)


def test_files_of_other_accounts_are_not_found(database: Database, account: str) -> None:
    file, stranger = add(database, account), open_account(database).id
    for attempt in (files.get, files.delete):
        with pytest.raises(NotFound):
            database.run_blocking(attempt, stranger, file.file_id)
    with pytest.raises(NotFound):
        process(database, stranger, file.file_id)
    database.run_blocking(files.mark_failed, stranger, file.file_id, FAILURE)
    assert get(database, file) == file


def test_expired_files_are_not_found_before_their_deletion(database: Database, account: str, clock: Clock) -> None:
    file = add(database, account)
    clock.now += DAY - 1
    assert get(database, file) == file
    clock.now += 1
    with pytest.raises(NotFound):
        get(database, file)
    with pytest.raises(NotFound):
        process(database, account, file.file_id)
    database.run_blocking(files.mark_failed, account, file.file_id, FAILURE)
    assert database.run_blocking(files.delete_expired, 10) == ("up_1",)


def test_expired_files_are_deleted_in_batches(database: Database, account: str, clock: Clock) -> None:
    old = [database.run_blocking(files.add, account, replace(SOURCE, source=f"up_{n}"), n + 1) for n in range(5)]
    young = database.run_blocking(files.add, account, replace(SOURCE, source="young"), DAY)
    clock.now += len(old)
    assert database.run_blocking(files.delete_expired, 3) == ("up_0", "up_1", "up_2")
    assert database.run_blocking(files.delete_expired, 3) == ("up_3", "up_4")
    assert database.run_blocking(files.delete_expired, 3) == ()
    assert get(database, young) == young


def test_an_upload_is_deleted_with_its_file(database: Database, account: str, clock: Clock) -> None:
    first = process(database, account, add(database, account).file_id, "blob_1")
    second = process(database, account, first.file_id, "blob_2")
    third = process(database, account, second.file_id, "blob_3")
    assert delete(database, third) == ("blob_3",)
    assert delete(database, first) == ("blob_1", "up_1")
    with pytest.raises(NotFound):
        delete(database, first)
    left = database.run_blocking(files.get, account, second.file_id)
    assert (left.source, left.result) == (None, "blob_2")


def test_a_shared_upload_expires_with_its_last_file(database: Database, account: str, clock: Clock) -> None:
    first = process(database, account, add(database, account).file_id, "blob_1")
    clock.now += 10
    second = process(database, account, first.file_id, "blob_2")
    clock.now += DAY - 10
    assert database.run_blocking(files.delete_expired, 10) == ("blob_1",)
    assert delete(database, second) == ("blob_2", "up_1")


def test_referenced_blobs(database: Database, account: str) -> None:
    process(database, account, add(database, account).file_id)
    keys = ["up_1", "blob_1", "orphan"]
    assert database.run_blocking(files.referenced_blobs, keys) == {"up_1", "blob_1"}
    assert database.run_blocking(files.referenced_blobs, []) == frozenset()


@pytest.mark.both_databases
async def test_concurrent_conversions_of_one_file(database: Database, account: str) -> None:
    for _ in range(20):
        file = await database.run(files.add, account, SOURCE, DAY)
        outcomes = [replace(CONVERTED, blob=new_id("blob")) for _ in range(6)]
        made = await asyncio.gather(
            *(database.run(files.mark_processed, account, file.file_id, SOURCE, one, DAY) for one in outcomes)
        )
        winners = [one for one in made if one.file_id == file.file_id]
        assert len(winners) == 1
        assert {one.source_file_id for one in made if one.file_id != file.file_id} == {file.file_id}
        assert len({one.file_id for one in made}) == 6
        assert (await database.run(files.get, account, file.file_id)) == winners[0]


@pytest.mark.both_databases
def test_conversions_of_one_file_in_four_processes(url: str) -> None:
    database = Database(url)
    account = open_account(database).id
    racers = [StorageProcess(convert, url) for _ in range(4)]
    try:
        assert [racer.answer() for racer in racers] == ["ready"] * 4
        for _ in range(10):
            file = add(database, account)
            for racer in racers:
                racer.request(account, file.file_id)
            ids = [racer.answer() for racer in racers]
            assert (ids.count(file.file_id), len(set(ids))) == (1, 4)
            made = [database.run_blocking(files.get, account, file_id) for file_id in ids]
            assert len({one.result for one in made if one.result}) == 4
    finally:
        codes = [racer.end() for racer in racers]
        database.close()
    assert codes == [0] * 4


@pytest.fixture
def file(database: Database) -> File:
    return database.run_blocking(files.add_processed, open_account(database).id, SOURCE, CONVERTED, DAY)


@pytest.mark.both_databases
def test_servers_of_a_database_know_each_others_links(database: Database, file: File, url: str, clock: Clock) -> None:
    link = database.run_blocking(links.create, file, 60)
    other = Database(url, clock=clock)
    try:
        assert other.run_blocking(links.find, link.token) == file
    finally:
        other.close()


@pytest.mark.both_databases
@pytest.mark.parametrize(("seconds", "lifetime"), [(60, 60), (7 * DAY, DAY)], ids=["link", "file"])
def test_a_link_expires_itself_or_with_its_file(
    database: Database, file: File, clock: Clock, seconds: int, lifetime: int
) -> None:
    link = database.run_blocking(links.create, file, seconds)
    assert link.expires_at == min(int(clock.now) + seconds, file.expires_at)
    clock.now += lifetime - 1
    assert database.run_blocking(links.find, link.token) == file
    clock.now += 1
    with pytest.raises(NotFound):
        database.run_blocking(links.find, link.token)


@pytest.mark.both_databases
def test_every_character_is_signed(database: Database, file: File) -> None:
    token = database.run_blocking(links.create, file, 60).token
    other = database.run_blocking(links.create, replace(file, file_id=file.file_id[::-1]), 60).token
    mixed = [token.rpartition(".")[0] + "." + other.rpartition(".")[2], "", ".", "..", "a.b.c", "\N{GRINNING FACE}"]
    changed = [token[:index] + chr(ord(token[index]) ^ 1) + token[index + 1 :] for index in range(len(token))]
    for wrong in [*mixed, *changed, token + "=", token[:-1], " " + token]:
        with pytest.raises(NotFound):
            database.run_blocking(links.find, wrong)


@pytest.mark.both_databases
def test_a_new_key_ends_all_links(database: Database, file: File) -> None:
    token = database.run_blocking(links.create, file, 60).token
    database.run_blocking(lambda transaction: transaction.execute(models.SigningKey.update(value="00" * 32)))
    with pytest.raises(NotFound):
        database.run_blocking(links.find, token)


@pytest.mark.both_databases
def test_the_key_is_random(database: Database, tmp_path: Path) -> None:
    other = Database(f"sqlite:///{tmp_path / 'other.db'}")
    try:
        rows = [one.run_blocking(lambda t: t.all(models.SigningKey.select())) for one in (database, other)]
        keys = {row.value for own in rows for row in own}
    finally:
        other.close()
    assert [len(bytes.fromhex(key)) for key in keys] == [32, 32]
