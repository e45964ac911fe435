"""A large database of an earlier release is migrated while a server of that release charges."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event
from time import monotonic, process_time, time

import pytest

from benchmarks.processes import ConvertdServer
from storage.database import Database, Transaction
from storage.database.transaction import Statement
from storage.tables import backfills, files, ledger, ledger_audit, models, totals, usage
from tests.storage.conftest import OpenEarlier
from tests.support.samples.storage import DAY, OWNER, USE, Clock, open_earlier_account, read_totals
from tests.support.servers.in_process import eventually

ACCOUNTS, DAYS = 1_000, 25
ROWS = {"usage": 1_000_000, "file": 250_000, "hold": 250_000, "idempotency": 100_000}
CHUNK = 50_000  # rows of an INSERT
LONGEST_CHARGE = 1.0  # seconds
LIFETIME = 10_000  # seconds of a hold; the clock of the earlier release stands still
BACKFILL_SECONDS = 900

NUMBERS = {
    "sqlite": "WITH RECURSIVE numbers (n) AS (SELECT {first} UNION ALL SELECT n + 1 FROM numbers WHERE n < {last}) ",
    "postgresql": "WITH numbers (n) AS (SELECT generate_series({first}, {last})) ",
}
ACCOUNT = f"'owner_' || (n - n / {ACCOUNTS} * {ACCOUNTS})"
SELECTS = {
    "account": "'owner_' || n, 'a' || n, 'a' || n, 'a', 1, 0, 0, 0, 0, 1, NULL FROM numbers",
    "usage": f"{ACCOUNT}, 'convert', 'png', 'webp', 10, 5, FALSE, 0, :now - (n - n / {DAYS} * {DAYS}) * {DAY}"
    " FROM numbers",
    "file": f"'file_' || n, {ACCOUNT}, 'a.png', 'png', 'png', 10, 'up_' || n, NULL, NULL, NULL, 'blob_' || n,"
    ' \'{"size": 7, "x": "\' || n || \'"}\', NULL, :now, :now, :now + 86400 FROM numbers',
    "hold": f"'hold_' || n, {ACCOUNT}, 1, 'released', 's', 'b', :now - 9000, :now - 8000 FROM numbers",
    "idempotency": f"{ACCOUNT}, '/convert', 'key_' || n, 'f', 'done', 's.b.t', :now, 200, '{{}}', '{{}}', NULL, :now"
    " FROM numbers",
}


def fill(database: Database, kind: str, clock: Clock) -> None:
    for table, number in {"account": ACCOUNTS, **ROWS}.items():
        for first in range(0, number, CHUNK):
            numbers = NUMBERS[kind].format(first=first, last=min(first + CHUNK, number) - 1)
            insert = Statement(f"INSERT INTO {table} {numbers}SELECT {SELECTS[table]}")
            values = {} if table == "account" else {"now": int(clock.now)}
            database.run_blocking(lambda t, sql, given: t.execute_statement(sql, **given), insert, values)


class Charging:
    """Charges an account in a loop until told to stop. `longest` is in seconds."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self.account = open_earlier_account(database, 10**6)
        self._ended = Event()
        self.longest, self.charges = 0.0, 0

    def run(self) -> None:
        while not self._ended.is_set():
            begun = monotonic()
            hold = self._database.run_blocking(ledger.reserve, self.account, 1, OWNER)
            self._database.run_blocking(ledger.settle, hold, USE)
            self.longest = max(self.longest, monotonic() - begun)
            self.charges += 1
            self._ended.wait(0.02)

    def beside(self, work: Callable[[], None]) -> None:
        """Runs the work, while charges continue. Raises if one of them failed."""
        with ThreadPoolExecutor(1) as thread:
            charging = thread.submit(self.run)
            try:
                work()
            finally:
                self._ended.set()
            charging.result()


@pytest.mark.long
@pytest.mark.both_databases
def test_no_charge_awaits_a_migration(empty_url: str, open_earlier: OpenEarlier, clock: Clock, tmp_path: Path) -> None:
    clock.now = time()
    earlier = open_earlier(5)
    fill(earlier, empty_url.partition(":")[0], clock)
    charging = Charging(earlier)

    def upgrade() -> None:
        server = ConvertdServer(tmp_path / "data", {"CONVERTD_DATABASE_URL": empty_url})
        with server:
            opened = Database(empty_url, clock=clock)
            report = opened.run_blocking(usage.report, "owner_1", 0, 2 * int(clock.now))
            assert report.total_conversions == ROWS["usage"] // ACCOUNTS
            assert opened.run_blocking(files.stored_bytes, "owner_1") == 17 * ROWS["file"] // ACCOUNTS
            assert eventually(lambda: not opened.run_blocking(backfills.pending), BACKFILL_SECONDS)
            opened.close()
            assert server.stop() == 0

    charging.beside(upgrade)
    assert charging.charges > 10
    assert charging.longest < LONGEST_CHARGE
    opened = Database(empty_url, clock=clock)
    assert opened.run_blocking(usage.report, "owner_1", 0, 2 * int(clock.now)) == report_of_rows(opened, clock)
    for account in (charging.account, "owner_1", "owner_999"):
        assert opened.run_blocking(ledger_audit.check, account) == ()
    assert opened.run_blocking(Transaction.all, models.Hold.select()) == []
    found = read_totals(opened)
    assert (found.free_accounts, found.processed_files, found.bytes) == (ACCOUNTS + 1, 250_000, 17 * 250_000)
    used = process_time()
    opened.run_blocking(totals.read)
    assert process_time() - used < 0.1
    opened.close()


def report_of_rows(database: Database, clock: Clock) -> usage.UsageReport:
    """The report of an account that is summed from its usage, as while a backfill is pending."""
    begin = models.Backfill.insert(name="usage_day", position="")
    database.run_blocking(Transaction.insert, begin)
    report = database.run_blocking(usage.report, "owner_1", 0, 2 * int(clock.now))
    database.run_blocking(Transaction.execute, models.Backfill.delete())
    return report
