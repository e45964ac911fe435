"""Batches: files that are uploaded one by one and converted together."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any, Literal

from peewee import fn

from storage.database import Transaction
from storage.errors import BatchFull, NotFound
from storage.ids import is_id, new_id
from storage.tables import files, models
from storage.tables.files import File, SourceFile
from storage.tables.ledger import ServerInstance

Status = Literal["created", "processing", "completed", "partial", "failed"]


@dataclass(frozen=True)
class Counts:
    """Numbers of files. `pending` excludes files whose last conversion failed."""

    total: int
    pending: int
    processed: int
    failed: int


@dataclass(frozen=True)
class Batch:
    """A batch. It never expires before its files. Times are Unix time in whole seconds."""

    id: str
    account: str
    output_format: str
    running: bool
    created_at: int
    updated_at: int
    expires_at: int


def create(transaction: Transaction, account: str, output_format: str, retention: int) -> Batch:
    """Creates an empty batch that expires after `retention` seconds."""
    row = {
        "id": new_id("batch"),
        "account": account,
        "output_format": output_format,
        "created_at": transaction.now,
        "updated_at": transaction.now,
        "expires_at": transaction.now + retention,
    }
    transaction.insert(models.Batch.insert(row))
    return _from_row(models.Batch(**row), running=False)


def get(transaction: Transaction, account: str, batch_id: str) -> Batch:
    """Returns the account's batch with this id. Raises NotFound."""
    row = transaction.first(models.Batch.select().where(_live(transaction, account, batch_id)))
    if row is None:
        raise NotFound("batch")
    runs = (models.Run.batch == row.id) & (models.Run.lease_until > transaction.now)
    return _from_row(row, running=transaction.first(models.Run.select().where(runs)) is not None)


def list_files(transaction: Transaction, batch: Batch) -> tuple[File, ...]:
    """Returns the batch's files in the order in which they were added."""
    query = models.File.select().where(_in_batch(transaction, batch.account, batch.id)).order_by(models.File.place)
    return tuple(File.from_row(row) for row in transaction.all(query))


def count(batch_files: Iterable[File]) -> Counts:
    """Counts files by state."""
    kinds = Counter("failed" if file.failure else file.status for file in batch_files)
    return Counts(kinds.total(), kinds["pending"], kinds["processed"], kinds["failed"])


def status(batch: Batch, counts: Counts) -> Status:
    """Returns the status of a batch with these numbers of files."""
    if batch.running:
        return "processing"
    if not counts.processed and not counts.failed:
        return "created"
    if counts.processed == counts.total:
        return "completed"
    return "partial" if counts.processed else "failed"


def add_file(
    transaction: Transaction, account: str, batch_id: str, original: SourceFile, limit: int, retention: int
) -> tuple[File, int]:
    """Adds an upload. Returns the file and the number of files in the batch.

    Raises NotFound, or BatchFull if the batch has `limit` files already.
    """
    table = models.Batch
    counted = table.update({table.added: table.added + 1}).where(_live(transaction, account, batch_id))
    # The update locks the batch, so that concurrent calls count each other's files.
    rows = transaction.execute_returning(counted, table.added)
    if not rows:
        raise NotFound("batch")
    query = models.File.select(fn.COUNT(models.File.id)).where(_in_batch(transaction, account, batch_id))
    total = int(transaction.rows(query)[0][0]) + 1
    if total > limit:
        raise BatchFull(limit)
    files.extend_batch(transaction, batch_id, transaction.now + retention)
    return files.insert(transaction, account, original, retention, batch=batch_id, place=rows[0][0]), total


def begin(transaction: Transaction, account: str, batch_id: str, owner: ServerInstance, lease: int) -> str:
    """Starts a run of the batch with a lease of `lease` seconds. Returns the run's id. Raises NotFound."""
    table = models.Batch
    now = {table.updated_at: transaction.now}
    if not transaction.execute(table.update(now).where(_live(transaction, account, batch_id))):
        raise NotFound("batch")
    run = new_id("try")
    until = transaction.now + lease
    transaction.insert(models.Run.insert(id=run, batch=batch_id, lease_until=until, **asdict(owner)))
    return run


def renew(transaction: Transaction, batch_id: str, run: str, lease: int) -> None:
    """Extends the lease of a run to `lease` seconds from now."""
    own = (models.Run.batch == batch_id) & (models.Run.id == run)
    transaction.execute(models.Run.update(lease_until=transaction.now + lease).where(own))


def end(transaction: Transaction, batch_id: str, run: str) -> None:
    """Ends a run."""
    own = (models.Run.batch == batch_id) & (models.Run.id == run)
    if transaction.execute(models.Run.delete().where(own)):
        files.extend_batch(transaction, batch_id, until=0)


def recover(transaction: Transaction, owner: ServerInstance) -> int:
    """Ends the batch runs of earlier runs of this server. Returns their number."""
    table = models.Run
    return transaction.execute(table.delete().where((table.server == owner.server) & (table.boot != owner.boot)))


def delete_expired(transaction: Transaction, limit: int) -> int:
    """Deletes at most `limit` expired batches without files. Returns their number."""
    table = models.Batch
    batch_files = models.File.select().where(models.File.batch == table.id)
    expired = (table.expires_at <= transaction.now) & ~fn.EXISTS(batch_files)
    selected = table.select(table.id).where(expired).limit(limit)
    return transaction.execute(table.delete().where(table.id.in_(selected) & expired))


def _live(transaction: Transaction, account: str, batch_id: str) -> Any:
    table = models.Batch
    if not is_id("batch", batch_id):
        raise NotFound("batch")
    return (table.id == batch_id) & (table.account == account) & (table.expires_at > transaction.now)


def _in_batch(transaction: Transaction, account: str, batch_id: str) -> Any:
    table = models.File
    return (table.batch == batch_id) & (table.account == account) & (table.expires_at > transaction.now)


def _from_row(row: models.Batch, *, running: bool) -> Batch:
    return Batch(
        id=row.id,
        account=row.account,
        output_format=row.output_format,
        running=running,
        created_at=row.created_at,
        updated_at=row.updated_at,
        expires_at=row.expires_at,
    )
