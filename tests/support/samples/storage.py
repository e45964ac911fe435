"""Sample values for tests of storage."""

import json
from collections.abc import Callable
from dataclasses import replace
from itertools import count

from engine.outcome import Outcome, WarningRecord
from storage.database import Database, Transaction
from storage.database.transaction import Statement
from storage.tables import accounts, backfills, ledger, models, servers, totals, usage
from storage.tables.accounts import StoredAccount
from storage.tables.files import SourceFile, StoredResult
from storage.tables.ledger import FOREVER, Hold, ServerInstance
from storage.tables.totals import Totals
from storage.tables.usage import UsageRecord
from web.api.schemas.files import Failure
from web.api.values import to_json

OWNER = ServerInstance("main", "boot-1")
USE = UsageRecord("convert", "png", "webp", bytes_in=100, bytes_out=40)

DAY = 86_400
SOURCE = SourceFile("größe.JPG", "jpg", "jpeg", 100, source="up_1")
OUTCOME = Outcome("webp", 40, "image/webp", "größe.webp", 250, (WarningRecord("alpha_flattened", "It was."),))
CONVERTED = StoredResult("blob_1", 40, json.dumps(to_json(OUTCOME)))
FAILURE = json.dumps(to_json(Failure("processing_failed", "The file is damaged.", "corrupt_input", retryable=False)))

_CHARGE_EARLIER = Statement("UPDATE account SET held = held - :credits, used = used + :credits WHERE id = :account")
_SETTLE_EARLIER = (ledger.END_HOLD, _CHARGE_EARLIER, ledger.INSERT_ENTRY, usage.INSERT_USAGE)

_numbers = count()


class Clock:
    """A clock set by the test."""

    def __init__(self, now: float = 1_750_000_000.5) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


def open_account(database: Database, credits: int = 50) -> StoredAccount:
    """Creates an account with this number of credits."""
    email = f"account-{next(_numbers)}@example.org"
    return database.run_blocking(accounts.create, email, "an account", free_credits=credits)


def open_earlier_account(database: Database, credits: int) -> str:
    """Creates an account with the columns of the first release. Returns its id."""

    def create(transaction: Transaction) -> str:
        account, created_at = f"acct_{next(_numbers)}", transaction.now
        row = {"id": account, "email": account, "email_key": account, "name": "an account", "created_at": created_at}
        transaction.insert(models.Account.insert(row))
        ledger.credit(transaction, account, "grant", credits, ref=account)
        return account

    return database.run_blocking(create)


def settle_earlier(transaction: Transaction, hold: Hold) -> None:
    """Settles a hold with the columns of the first release."""
    used = {**vars(USE), "success": True, "credits": hold.amount}
    entry = {"ref": hold.id, "kind": "charge", "amount": -hold.amount, "at": transaction.now}
    for statement in _SETTLE_EARLIER:
        transaction.execute_statement(statement, account=hold.account, hold=hold.id, **entry, **used)


def settle_and(transaction: Transaction, hold: Hold, write: Callable[[Transaction], object]) -> None:
    """Settles a hold and calls `write` in the same transaction."""
    ledger.settle(transaction, hold, USE)
    write(transaction)


def run_backfills(database: Database) -> None:
    """Runs all batches of all backfills, once through their rows."""
    for name in database.run_blocking(backfills.pending):
        while database.run_blocking(backfills.run_batch, name):
            pass


def read_totals(database: Database) -> Totals:
    """Returns the totals of all accounts and files. Begins the counters if needed, as servers do."""
    found = database.run_blocking(totals.read)
    if found is None:
        database.run_blocking(totals.begin, database.run_blocking(totals.count))
        found = database.run_blocking(totals.read)
    assert found is not None
    return found


def lose(database: Database, owner: ServerInstance = OWNER) -> None:
    """A server is silent for so long that others give back what it owns. Then it goes on."""
    database.run_blocking(servers.beat, replace(owner, boot="another"))
    database.run_blocking(servers.give_back, FOREVER)
    database.run_blocking(servers.beat, owner)
