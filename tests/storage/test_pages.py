"""Pages of lists, newest first."""

import pytest

from storage.database import Database
from storage.tables import files
from tests.support.samples.storage import DAY, SOURCE, Clock, open_account

pytestmark = pytest.mark.both_databases


def read_all(database: Database, account: str, limit: int) -> list[list[str]]:
    """The ids of all pages."""
    pages, cursor = list[list[str]](), None
    while True:
        page = database.run_blocking(files.list_page, account, processed=None, limit=limit, cursor=cursor)
        pages.append([file.file_id for file in page.values])
        cursor = page.next_cursor
        if cursor is None:
            return pages


@pytest.mark.parametrize("limit", [1, 2, 3, 6, 7])
def test_pages_have_each_row_once(database: Database, clock: Clock, limit: int) -> None:
    account = open_account(database).id
    added = [set[str]() for _ in range(3)]  # two rows in each second
    for ids in added:
        clock.now += 1
        ids |= {database.run_blocking(files.add, account, SOURCE, DAY).file_id for _ in range(2)}
    pages = read_all(database, account, limit)
    assert [len(page) for page in pages] == [min(limit, 6 - start) for start in range(0, 6, limit)]
    found = [file_id for page in pages for file_id in page]
    assert [{*found[start : start + 2]} for start in (0, 2, 4)] == added[::-1]


def test_rows_that_are_added_meanwhile_do_not_shift_pages(database: Database, clock: Clock) -> None:
    account = open_account(database).id
    for _ in range(4):
        database.run_blocking(files.add, account, SOURCE, DAY)
    first = database.run_blocking(files.list_page, account, processed=None, limit=2, cursor=None)
    clock.now += 1
    database.run_blocking(files.add, account, SOURCE, DAY)
    second = database.run_blocking(files.list_page, account, processed=None, limit=2, cursor=first.next_cursor)
    assert len({file.file_id for file in (*first.values, *second.values)}) == 4
    assert second.next_cursor is None


@pytest.mark.parametrize("cursor", ["", "x", "1", "-file_1", "1-", "1-\0", "9" * 20 + "-file_1", "1-file_1\n"])
def test_malformed_cursors(database: Database, cursor: str) -> None:
    account = open_account(database).id
    with pytest.raises(ValueError, match="cursor"):
        database.run_blocking(files.list_page, account, processed=None, limit=1, cursor=cursor)
