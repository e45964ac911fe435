"""Batches: files that are sent one by one and converted together."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any, Literal

from peewee import fn

from storage import files, models
from storage.errors import BatchFull, NotFound
from storage.files import File, SourceFile
from storage.ids import is_id, new_id
from storage.ledger import ServerInstance
from storage.transaction import Transaction

Status = Literal["created", "processing", "completed", "partial", "failed"]


@dataclass(frozen=True)
class Counts:
    """How many files there are; those whose last conversion failed are not among the pending ones."""

    total: int
    pending: int
    processed: int
    failed: int


@dataclass(frozen=True)
class Batch:
    """A batch as it stands now. It is never gone before its files. Times are Unix time in whole seconds."""

    id: str
    account: str
    output_format: str
    ran_at: int | None  # when it was last converted
    running: bool
    created_at: int
    updated_at: int
    expires_at: int


def create(transaction: Transaction, account: str, output_format: str, retention: int) -> Batch:
    """A new batch without files, kept for `retention` seconds."""
    row = {
        "id": new_id("batch"),
        "account": account,
        "output_format": output_format,
        "created_at": transaction.now,
        "updated_at": transaction.now,
        "expires_at": transaction.now + retention,
    }
    transaction.add(models.Batch.insert(row))
    return _value(models.Batch(**row), running=False)


def get(transaction: Transaction, account: str, batch_id: str) -> Batch:
    """The account's batch of that id. Raises Missing."""
    row = transaction.first(models.Batch.select().where(_live(transaction, account, batch_id)))
    if row is None:
        raise NotFound("batch")
    runs = (models.Run.batch == row.id) & (models.Run.lease_until > transaction.now)
    return _value(row, running=transaction.first(models.Run.select().where(runs)) is not None)


def list_files(transaction: Transaction, batch: Batch) -> tuple[File, ...]:
    """Its files in the order in which they were added."""
    query = models.File.select().where(_inside(transaction, batch.account, batch.id)).order_by(models.File.place)
    return tuple(File.of(row) for row in transaction.all(query))


def count(found: Iterable[File]) -> Counts:
    """How many of the files there are of each kind."""
    kinds = Counter("failed" if file.fault else file.status for file in found)
    return Counts(kinds.total(), kinds["pending"], kinds["processed"], kinds["failed"])


def status(batch: Batch, counts: Counts) -> Status:
    """Where the batch stands, with so many files."""
    if batch.running:
        return "processing"
    if batch.ran_at is None:
        return "created"
    if counts.processed == counts.total:
        return "completed"
    return "partial" if counts.processed else "failed"


def add_file(
    transaction: Transaction, account: str, batch_id: str, original: SourceFile, limit: int, retention: int
) -> tuple[File, int]:
    """Adds an upload; gives it, and how many files there are now. Raises Missing, or BatchFull at `limit` files."""
    table = models.Batch
    counted = table.update({table.added: table.added + 1}).where(_live(transaction, account, batch_id))
    # The row stays locked until the end: whoever else adds a file waits, and then counts this one.
    found = transaction.change_returning(counted, table.added)
    if not found:
        raise NotFound("batch")
    inside = models.File.select(fn.COUNT(models.File.id)).where(_inside(transaction, account, batch_id))
    total = int(transaction.tuples(inside)[0][0]) + 1
    if total > limit:
        raise BatchFull(limit)
    files.extend_batch(transaction, batch_id, transaction.now + retention)
    return files.insert(transaction, account, original, retention, batch=batch_id, place=found[0][0]), total


def begin(transaction: Transaction, account: str, batch_id: str, owner: ServerInstance, lease: int) -> str:
    """The batch is converted, for `lease` seconds at most; gives the attempt. Raises Missing."""
    table = models.Batch
    ran = {table.ran_at: transaction.now, table.updated_at: transaction.now}
    if not transaction.change(table.update(ran).where(_live(transaction, account, batch_id))):
        raise NotFound("batch")
    attempt = new_id("try")
    until = transaction.now + lease
    transaction.add(models.Run.insert(id=attempt, batch=batch_id, lease_until=until, **asdict(owner)))
    return attempt


def renew(transaction: Transaction, batch_id: str, attempt: str, lease: int) -> None:
    """The attempt goes on for `lease` more seconds at most."""
    mine = (models.Run.batch == batch_id) & (models.Run.id == attempt)
    transaction.change(models.Run.update(lease_until=transaction.now + lease).where(mine))


def end(transaction: Transaction, batch_id: str, attempt: str) -> None:
    """The attempt has come to its end."""
    mine = (models.Run.batch == batch_id) & (models.Run.id == attempt)
    if transaction.change(models.Run.delete().where(mine)):
        files.extend_batch(transaction, batch_id, until=0)


def recover(transaction: Transaction, owner: ServerInstance) -> int:
    """Ends the attempts that earlier runs of this server had when they ended; says how many."""
    table = models.Run
    return transaction.change(table.delete().where((table.server == owner.server) & (table.boot != owner.boot)))


def expired(transaction: Transaction, limit: int) -> int:
    """Forgets batches that have expired, so many at most, and after their files; says how many."""
    table = models.Batch
    within = models.File.select().where(models.File.batch == table.id)
    over = (table.expires_at <= transaction.now) & ~fn.EXISTS(within)
    some = table.select(table.id).where(over).limit(limit)
    return transaction.change(table.delete().where(table.id.in_(some) & over))


def _live(transaction: Transaction, account: str, batch_id: str) -> Any:
    table = models.Batch
    if not is_id("batch", batch_id):
        raise NotFound("batch")
    return (table.id == batch_id) & (table.account == account) & (table.expires_at > transaction.now)


def _inside(transaction: Transaction, account: str, batch_id: str) -> Any:
    table = models.File
    return (table.batch == batch_id) & (table.account == account) & (table.expires_at > transaction.now)


def _value(row: models.Batch, *, running: bool) -> Batch:
    return Batch(
        id=row.id,
        account=row.account,
        output_format=row.output_format,
        ran_at=row.ran_at,
        running=running,
        created_at=row.created_at,
        updated_at=row.updated_at,
        expires_at=row.expires_at,
    )
