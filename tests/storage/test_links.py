"""Links to files: signatures, expiry, and servers that share a database."""

from dataclasses import replace
from pathlib import Path

import pytest

from storage.database import Database
from storage.errors import NotFound
from storage.tables import files, links, models
from storage.tables.files import File
from tests.support.samples.storage import CONVERTED, DAY, SOURCE, Clock, open_account

pytestmark = pytest.mark.both_databases


@pytest.fixture
def file(database: Database) -> File:
    return database.run_blocking(files.add_processed, open_account(database).id, SOURCE, CONVERTED, DAY)


def test_servers_of_a_database_know_the_links_of_each_other(
    database: Database, file: File, url: str, clock: Clock
) -> None:
    link = database.run_blocking(links.create, file, 60)
    other = Database(url, clock=clock)
    try:
        assert other.run_blocking(links.find, link.token) == file
    finally:
        other.close()


def test_a_link_expires(database: Database, file: File, clock: Clock) -> None:
    link = database.run_blocking(links.create, file, 60)
    assert link.expires_at == int(clock.now) + 60
    clock.now += 59
    assert database.run_blocking(links.find, link.token) == file
    clock.now += 1
    with pytest.raises(NotFound):
        database.run_blocking(links.find, link.token)


def test_a_link_expires_with_its_file(database: Database, file: File, clock: Clock) -> None:
    link = database.run_blocking(links.create, file, 7 * DAY)
    assert link.expires_at == file.expires_at
    clock.now += DAY - 1
    assert database.run_blocking(links.find, link.token) == file
    clock.now += 1
    with pytest.raises(NotFound):
        database.run_blocking(links.find, link.token)


def test_every_character_is_signed(database: Database, file: File) -> None:
    token = database.run_blocking(links.create, file, 60).token
    other = database.run_blocking(links.create, replace(file, file_id=file.file_id[::-1]), 60).token
    mixed = [token.rpartition(".")[0] + "." + other.rpartition(".")[2], "", ".", "..", "a.b.c", "\N{GRINNING FACE}"]
    changed = [token[:index] + chr(ord(token[index]) ^ 1) + token[index + 1 :] for index in range(len(token))]
    for wrong in [*mixed, *changed, token + "=", token[:-1], " " + token]:
        with pytest.raises(NotFound):
            database.run_blocking(links.find, wrong)


def test_a_new_key_ends_all_links(database: Database, file: File) -> None:
    token = database.run_blocking(links.create, file, 60).token
    database.run_blocking(lambda transaction: transaction.execute(models.SigningKey.update(value="00" * 32)))
    with pytest.raises(NotFound):
        database.run_blocking(links.find, token)


def test_the_key_is_random(database: Database, tmp_path: Path) -> None:
    other = Database(f"sqlite:///{tmp_path / 'other.db'}")
    try:
        keys = {
            row.value
            for one in (database, other)
            for row in one.run_blocking(lambda t: t.all(models.SigningKey.select()))
        }
    finally:
        other.close()
    assert [len(bytes.fromhex(key)) for key in keys] == [32, 32]
