"""Batches: files that are stored together, to be converted together."""

from __future__ import annotations

from engine.errors import UnsupportedConversion
from engine.registry import Registry
from storage import batches
from storage.batches import Batch
from storage.conversions import File, Original
from storage.database import Database
from storage.transaction import Transaction
from web.services.accounts import Account
from web.services.files import Files
from web.services.orders import Upload


class Batches:
    """Creates batches, and fills them with at most `max_files` files."""

    def __init__(self, database: Database, registry: Registry, files: Files, max_files: int) -> None:
        self.max_files = max_files
        self._database = database
        self._registry = registry
        self._files = files

    async def create(self, account_id: str, target: str) -> Batch:
        """An empty batch. Raises UnsupportedConversion for a format that nothing can be converted to."""
        return await self._database.run(batches.create, account_id, self.target(target), self._files.retention)

    async def find(self, account_id: str, batch_id: str) -> tuple[Batch, tuple[File, ...]]:
        """The account's batch of that id, and its files in the order they came. Raises Missing."""
        return await self._database.run(_with_files, account_id, batch_id)

    async def add(self, account: Account, batch_id: str, upload: Upload) -> tuple[File, int]:
        """Stores a file in the batch; says how many it has now.

        Raises Missing, UnknownFormat, StorageFull, and BatchFull.
        """
        total = 0

        def add(transaction: Transaction, original: Original) -> File:
            nonlocal total
            retention = self._files.retention
            file, total = batches.add_file(transaction, account.id, batch_id, original, self.max_files, retention)
            return file

        return await self._files.store(account, upload, add), total

    def target(self, name: str) -> str:
        """The format of that name. Raises UnsupportedConversion where nothing can be converted to it."""
        fmt = self._registry.format(name)
        available = sorted({plan.target.name for plan in self._registry.catalogue()})
        if fmt is not None and fmt.name in available:
            return fmt.name
        details = {"output_format": fmt.name if fmt else name, "available": available}
        raise UnsupportedConversion(f"Nothing can be converted to {name}.", details=details)


def _with_files(transaction: Transaction, account_id: str, batch_id: str) -> tuple[Batch, tuple[File, ...]]:
    batch = batches.get(transaction, account_id, batch_id)
    return batch, batches.list_files(transaction, batch)
