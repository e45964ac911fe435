"""Stored files: uploads, the results of their conversions, and failures."""

import json
from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Annotated, Any

from pydantic import Field

from storage.database.pages import Page, read_page
from storage.database.transaction import Statement, Transaction, columns, insert, reading
from storage.errors import NotFound
from storage.field_types import BatchId, FileId, Timestamp
from storage.ids import is_id, ordered_id
from storage.tables import models


@dataclass(frozen=True)
class SourceFile:
    """An uploaded file. `source` is the key of its blob, None if its bytes are not stored. Sizes are in bytes."""

    original_name: str
    extension: str
    input_format: str
    original_size: int
    source: str | None = None


@dataclass(frozen=True)
class StoredResult:
    """The result of a conversion: `size` bytes in `blob`, and its outcome as JSON."""

    blob: str
    size: int
    outcome: str


@dataclass(frozen=True)
class File:
    """A stored file. Clients do not see its account, the keys of its blobs, and the JSON of the row.

    `outcome` is the JSON of the first successful conversion. `failure` is the JSON of the error of the latest
    conversion, if it failed. `source` is the blob of the upload, `result` the blob of the result.
    """

    file_id: FileId
    original_name: Annotated[str, Field(description="The client's file name, without a path.", examples=["photo.jpg"])]
    extension: Annotated[
        str,
        Field(
            description="The client's extension if it matches the content, else the format's usual one.",
            examples=["jpg"],
        ),
    ]
    input_format: Annotated[str, Field(description="The format detected from the file's content.", examples=["jpeg"])]
    original_size: Annotated[int, Field(ge=0, description="Size of the input in bytes.", examples=[48213])]
    batch_id: BatchId | None
    source_file_id: Annotated[FileId | None, Field(description="The file that was converted again to make this one.")]
    created_at: Timestamp
    processed_at: Timestamp | None
    expires_at: Timestamp
    account: Annotated[str, Field(exclude=True)]
    source: Annotated[str | None, Field(exclude=True)]
    result: Annotated[str | None, Field(exclude=True)]
    outcome: Annotated[str | None, Field(exclude=True)]
    failure: Annotated[str | None, Field(exclude=True)]


_NAMES = (*(field.name for field in fields(File)), "place", "result_size")
_COLUMNS = {name: getattr(models.File, name).column_name for name in _NAMES}
INSERT_FILE = insert("file", ", ".join(_COLUMNS.values()))
# Files with a `source_file` share its upload. The second number counts results of release 1.0, which have no size.
SUM_SIZES = Statement(
    "SELECT CAST(COALESCE(SUM(CASE WHEN source IS NOT NULL AND source_file IS NULL THEN original_size ELSE 0 END"
    " + COALESCE(result_size, 0)), 0) + COALESCE((SELECT bytes FROM lane WHERE account = :account), 0) AS BIGINT),"
    " COUNT(CASE WHEN outcome IS NOT NULL AND result_size IS NULL THEN 1 END)"
    " FROM file WHERE account = :account AND expires_at > :now"
)

READ_TOTAL = Statement(
    "SELECT bytes + COALESCE((SELECT bytes FROM lane WHERE account = :account), 0) FROM stored_bytes"
    " WHERE account = :account"
)


def add(transaction: Transaction, /, account: str, original: SourceFile, retention: int, **additional: Any) -> File:
    """Adds a file that expires after `retention` seconds: an upload, or with `additional` columns also its result."""
    row = {
        **asdict(original),
        **additional,
        "file_id": ordered_id("file", transaction.now),
        "account": account,
        "created_at": transaction.now,
        "expires_at": transaction.now + retention,
    }
    values: dict[str, Any] = {name: row.get(name) for name in _COLUMNS}
    transaction.execute_statement(INSERT_FILE, **{_COLUMNS[name]: value for name, value in values.items()})
    return File(**{field.name: values[field.name] for field in fields(File)})


@reading
def stored_bytes(transaction: Transaction, account: str) -> int:
    """Returns the size of the account's stored uploads and results in bytes, with the inputs of jobs."""
    ((stored, without_size),) = transaction.execute_statement(SUM_SIZES, account=account, now=transaction.now)
    if without_size:
        table = models.File
        earlier = _own(transaction, account) & table.outcome.is_null(False) & table.result_size.is_null()
        outcomes = transaction.rows(table.select(table.outcome).where(earlier))
        return int(stored) + sum(int(json.loads(outcome)["size"]) for (outcome,) in outcomes)
    return int(stored)


def most_stored_bytes(transaction: Transaction, account: str) -> int | None:
    """Returns `stored_bytes` with expired files that are not deleted yet, at once; None if it is not known.

    It is known once a file of the account has changed since the database was migrated.
    """
    rows = transaction.execute_statement(READ_TOTAL, account=account)
    return int(rows[0][0]) if rows else None


def add_processed(
    transaction: Transaction, account: str, original: SourceFile, result: StoredResult, retention: int
) -> File:
    """Adds a file that was uploaded and converted in one request. It expires after `retention` seconds."""
    return add(transaction, account, original, retention, **_result_columns(transaction, result))


@reading
def get(transaction: Transaction, account: str, file_id: str) -> File:
    """Returns the account's file with this id. Raises NotFound."""
    found = select(transaction, _live(transaction, account, file_id))
    if not found:
        raise NotFound("file")
    return found[0]


@reading
def get_all(transaction: Transaction, account: str, file_ids: Sequence[str]) -> tuple[File, ...]:
    """Returns the account's files with these ids, in their order. Raises NotFound if any does not exist."""
    if not all(is_id("file", file_id) for file_id in file_ids):
        raise NotFound("file")
    own = _own(transaction, account) & models.File.file_id.in_(file_ids)
    found = {file.file_id: file for file in select(transaction, own)}
    if len(found) < len({*file_ids}):
        raise NotFound("file")
    return tuple(found[file_id] for file_id in file_ids)


def get_of_any_account(transaction: Transaction, file_id: str) -> File:
    """Returns the file with this id. Raises NotFound."""
    found = select(transaction, (models.File.file_id == file_id) & (models.File.expires_at > transaction.now))
    if not found:
        raise NotFound("file")
    return found[0]


@reading
def list_page(
    transaction: Transaction, account: str, *, processed: bool | None, limit: int, cursor: str | None
) -> Page[File]:
    """Returns at most `limit` of the account's files, newest first: all, or only those that are processed or not."""
    table = models.File
    query = table.select(*columns(table, File)).where(_own(transaction, account))
    if processed is not None:
        query = query.where(table.processed_at.is_null(not processed))
    return read_page(transaction, File, query, table.created_at, table.file_id, limit=limit, cursor=cursor)


def find_by_result(transaction: Transaction, account: str, blob: str) -> File:
    """Returns the account's file with this result. Raises NotFound."""
    found = select(transaction, (models.File.result == blob) & (models.File.account == account))
    if not found:
        raise NotFound("file")
    return found[0]


def mark_processed(
    transaction: Transaction,
    account: str,
    file_id: str,
    original: SourceFile,
    result: StoredResult,
    retention: int,
    *,
    in_batch: bool = False,
) -> File:
    """Saves the result of a conversion of `original`. The file expires `retention` seconds from now.

    Results are immutable: if the file has one already, this result is saved as a new file, which belongs to the batch
    of the file if the batch was converted. Returns the file with the result. Raises NotFound if the file was deleted or
    has expired.
    """
    row = transaction.select_for_update(models.File.select().where(_live(transaction, account, file_id)))
    if row is None:
        raise NotFound("file")
    if row.processed_at is not None:
        _update(transaction, row, {"failure": None}, until=transaction.now + retention if in_batch else 0)
        repeated = {"source_file_id": row.file_id, **_result_columns(transaction, result)}
        if in_batch:
            repeated |= {"batch_id": row.batch_id, "place": row.place}
        return add(transaction, account, original, retention, **repeated)
    changes = {**_result_columns(transaction, result), "failure": None, "expires_at": transaction.now + retention}
    _update(transaction, row, changes, until=transaction.now + retention)
    return get(transaction, account, file_id)


def mark_failed(transaction: Transaction, account: str, file_id: str, failure: str) -> None:
    """Saves the failure of the latest conversion as JSON. Does nothing if the file is deleted or expired."""
    row = transaction.select_for_update(models.File.select().where(_live(transaction, account, file_id)))
    if row is not None:
        _update(transaction, row, {"failure": failure})


def delete(transaction: Transaction, account: str, file_id: str) -> tuple[str, ...]:
    """Deletes a file with its upload, but not the results of its repeated conversions. Raises NotFound.

    Returns the blobs that no file refers to any more.
    """
    table = models.File
    row = transaction.select_for_update(table.select().where(_live(transaction, account, file_id)))
    if row is None:
        raise NotFound("file")
    deleted = _delete_rows(transaction, table.file_id == row.file_id)
    if row.source_file_id is None:
        repeated = (table.account == account) & table.source_file_id.is_null(False)
        repeated &= table.source.in_([row.source, row.result])
        transaction.execute(table.update({table.source: None}).where(repeated))
    return _unreferenced(transaction, deleted)


def delete_all(transaction: Transaction, account: str) -> tuple[str, ...]:
    """Deletes all files of the account. Returns the blobs that no file refers to any more."""
    return _unreferenced(transaction, _delete_rows(transaction, models.File.account == account))


def delete_expired(transaction: Transaction, limit: int) -> tuple[str, ...]:
    """Deletes at most `limit` expired files. Returns the blobs that no file refers to any more."""
    table = models.File
    expired = table.expires_at <= transaction.now
    selected = table.select(table.file_id).where(expired).order_by(table.expires_at).limit(limit)
    # The condition is repeated because a conversion may have extended a selected file's life.
    return _unreferenced(transaction, _delete_rows(transaction, table.file_id.in_(selected) & expired))


def referenced_blobs(transaction: Transaction, keys: Collection[str]) -> frozenset[str]:
    """Returns the subset of the blobs (at most 1,000) that files refer to."""
    table = models.File
    query = table.select(table.source, table.result).where(table.source.in_(keys) | table.result.in_(keys))
    return frozenset(keys) & {key for row in transaction.rows(query) for key in row}


def select(transaction: Transaction, condition: Any) -> tuple[File, ...]:
    """Returns files, in the order of their batch. For other modules of this package."""
    query = models.File.select(*columns(models.File, File)).where(condition)
    return transaction.values(File, query.order_by(models.File.place))


def extend_batch(transaction: Transaction, batch_id: str, until: int) -> None:
    """Updates a batch's time of change and defers its expiry to `until` at least. For other modules of this package."""
    table = models.Batch
    transaction.execute(table.update({table.updated_at: transaction.now}).where(table.batch_id == batch_id))
    expires_earlier = (table.batch_id == batch_id) & (table.expires_at < until)
    transaction.execute(table.update({table.expires_at: until}).where(expires_earlier))


def _result_columns(transaction: Transaction, result: StoredResult) -> dict[str, Any]:
    return {
        "result": result.blob,
        "result_size": result.size,
        "outcome": result.outcome,
        "processed_at": transaction.now,
    }


def _own(transaction: Transaction, account: str) -> Any:
    return (models.File.account == account) & (models.File.expires_at > transaction.now)


def _live(transaction: Transaction, account: str, file_id: str) -> Any:
    if not is_id("file", file_id):
        raise NotFound("file")
    return (models.File.file_id == file_id) & _own(transaction, account)


def _update(transaction: Transaction, row: models.File, changes: dict[str, Any], *, until: int = 0) -> None:
    """Changes a file, and defers the expiry of its batch to `until` at least."""
    if row.batch_id is not None:  # locked before the size of the account's files, as where a file is added to it
        extend_batch(transaction, row.batch_id, until)
    transaction.execute(models.File.update(changes).where(models.File.file_id == row.file_id))


def _delete_rows(transaction: Transaction, condition: Any) -> list[tuple[Any, ...]]:
    """Deletes files. Returns the blobs of each: source and result."""
    table = models.File
    return transaction.execute_returning(table.delete().where(condition), table.source, table.result)


def _unreferenced(transaction: Transaction, blobs: list[tuple[Any, ...]]) -> tuple[str, ...]:
    keys = {key for pair in blobs for key in pair if key is not None}
    return tuple(sorted(keys - referenced_blobs(transaction, keys)))
