"""Batches: files that are uploaded one by one and converted together."""

from dataclasses import asdict, dataclass
from typing import Annotated, Any

from peewee import fn
from pydantic import Field

from storage.database.transaction import Transaction, columns, reading
from storage.errors import BatchFull, NotFound
from storage.field_types import BatchId, Timestamp
from storage.ids import is_id, new_id
from storage.tables import files, models
from storage.tables.files import File, SourceFile
from storage.tables.ledger import FOREVER, ServerInstance


@dataclass(frozen=True)
class Batch:
    """A batch. It never expires before its files."""

    batch_id: BatchId
    output_format: Annotated[
        str, Field(description="The canonical name of the target format of the latest run.", examples=["webp"])
    ]
    created_at: Timestamp
    updated_at: Timestamp
    expires_at: Timestamp
    account: Annotated[str, Field(exclude=True)]
    running: Annotated[bool, Field(exclude=True)]


def create(transaction: Transaction, account: str, output_format: str, retention: int) -> Batch:
    """Creates an empty batch that expires after `retention` seconds."""
    row: dict[str, Any] = {
        "batch_id": new_id("batch"),
        "account": account,
        "output_format": output_format,
        "created_at": transaction.now,
        "updated_at": transaction.now,
        "expires_at": transaction.now + retention,
    }
    transaction.insert(models.Batch.insert(row))
    return Batch(**row, running=False)


@reading
def get(transaction: Transaction, account: str, batch_id: str) -> Batch:
    """Returns the account's batch with this id. Raises NotFound."""
    table = models.Batch
    run = models.Run
    runs = run.select().where((run.batch == table.batch_id) & (run.lease_until > transaction.now))
    query = table.select(*columns(table, Batch, running=fn.EXISTS(runs)))
    found = transaction.values(Batch, query.where(_live(transaction, account, batch_id)))
    if not found:
        raise NotFound("batch")
    return found[0]


def list_files(transaction: Transaction, batch: Batch) -> tuple[File, ...]:
    """Returns the batch's uploads in the order in which they were added."""
    own = _in_batch(transaction, batch.account, batch.batch_id)
    return files.select(transaction, own & models.File.source_file_id.is_null())


def latest_results(transaction: Transaction, batch: Batch) -> dict[str, File]:
    """Returns the latest result of each file that the batch has converted more than once, by the id of the file."""
    own = _in_batch(transaction, batch.account, batch.batch_id)
    repeated = files.select(transaction, own & models.File.source_file_id.is_null(False))
    oldest_first = sorted(repeated, key=lambda file: (file.created_at, file.file_id))
    return {str(file.source_file_id): file for file in oldest_first}


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
    uploads = _in_batch(transaction, account, batch_id) & models.File.source_file_id.is_null()
    query = models.File.select(fn.COUNT(models.File.file_id)).where(uploads)
    total = int(transaction.rows(query)[0][0]) + 1
    if total > limit:
        raise BatchFull(limit)
    files.extend_batch(transaction, batch_id, transaction.now + retention)
    return files.add(transaction, account, original, retention, batch_id=batch_id, place=rows[0][0]), total


def begin(transaction: Transaction, account: str, batch_id: str, output_format: str, owner: ServerInstance) -> str:
    """Starts a run of the batch to this format. Returns the run's id. Raises NotFound."""
    table = models.Batch
    changes = {table.updated_at: transaction.now, table.output_format: output_format}
    if not transaction.execute(table.update(changes).where(_live(transaction, account, batch_id))):
        raise NotFound("batch")
    run = new_id("try")
    transaction.insert(models.Run.insert(id=run, batch=batch_id, lease_until=FOREVER, **asdict(owner)))
    return run


def end(transaction: Transaction, batch_id: str, run: str) -> None:
    """Ends a run."""
    own = (models.Run.batch == batch_id) & (models.Run.id == run)
    if transaction.execute(models.Run.delete().where(own)):
        files.extend_batch(transaction, batch_id, until=0)


def delete_expired(transaction: Transaction, limit: int) -> int:
    """Deletes at most `limit` expired batches without files. Returns their number."""
    table = models.Batch
    batch_files = models.File.select().where(models.File.batch_id == table.batch_id)
    expired = (table.expires_at <= transaction.now) & ~fn.EXISTS(batch_files)
    selected = table.select(table.batch_id).where(expired).limit(limit)
    return transaction.execute(table.delete().where(table.batch_id.in_(selected) & expired))


def _live(transaction: Transaction, account: str, batch_id: str) -> Any:
    table = models.Batch
    if not is_id("batch", batch_id):
        raise NotFound("batch")
    return (table.batch_id == batch_id) & (table.account == account) & (table.expires_at > transaction.now)


def _in_batch(transaction: Transaction, account: str, batch_id: str) -> Any:
    table = models.File
    return (table.batch_id == batch_id) & (table.account == account) & (table.expires_at > transaction.now)
