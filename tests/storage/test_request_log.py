"""Request log: the latest requests of each account."""

from storage.database import Database
from storage.tables import request_log
from storage.tables.request_log import MAX_REQUESTS, LoggedRequest
from tests.support.samples.storage import open_account


def request(account: str, number: int) -> LoggedRequest:
    return LoggedRequest(f"req_{account}{number}", account, "GET", "/api/v1/account", 200, None, 3, 1_000_000 + number)


def test_the_latest_request_is_first(database: Database) -> None:
    one, other = open_account(database).id, open_account(database).id
    requests = [request(account, number) for number in range(3) for account in (one, other)]
    database.run_blocking(request_log.record, requests)
    assert database.run_blocking(request_log.latest, one) == tuple(request(one, number) for number in (2, 1, 0))


def test_a_request_is_recorded_once(database: Database) -> None:
    account = open_account(database).id
    for _ in range(2):
        database.run_blocking(request_log.record, [request(account, 1)])
    assert len(database.run_blocking(request_log.latest, account)) == 1


def test_older_requests_are_deleted(database: Database) -> None:
    one, other = open_account(database).id, open_account(database).id
    database.run_blocking(request_log.record, [request(other, 0)])
    for first in range(0, MAX_REQUESTS * 2, 150):
        database.run_blocking(request_log.record, [request(one, first + number) for number in range(150)])
    kept = database.run_blocking(request_log.latest, one)
    assert len(kept) == MAX_REQUESTS
    assert kept[0] == request(one, 449)
    count = "SELECT COUNT(*) FROM request"
    rows = database.run_blocking(lambda transaction: transaction.connection.execute_sql(count).fetchone()[0])
    assert rows == MAX_REQUESTS + 1
