"""Values and accounts for tests of the storage."""

from __future__ import annotations

from itertools import count

from storage import accounts
from storage.accounts import Account
from storage.database import Database
from storage.files import ConvertedFile, Failure, SourceFile
from storage.ledger import ServerInstance
from storage.usage import UsageRecord

OWNER = ServerInstance("main", "boot-1")
USE = UsageRecord("convert", "png", "webp", bytes_in=100, bytes_out=40)

DAY = 86_400
ORIGINAL = SourceFile("größe.JPG", "jpg", "jpeg", 100, source="up_1")
OUTCOME = ConvertedFile("webp", 40, "größe.webp", "image/webp", "blob_1", 0.25, (("alpha_flattened", "It was."),))
FAULT = Failure("processing_failed", "The file is damaged.", "corrupt_input", retryable=False)

_numbers = count()


class Clock:
    """A clock that moves when told to."""

    def __init__(self, now: float = 1_750_000_000.5) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


def open_account(database: Database, credits: int = 50) -> Account:
    """A new account, with so many credits."""
    email = f"account-{next(_numbers)}@example.org"
    return database.run_blocking(accounts.create, email, "an account", free_credits=credits)
